"""The sweep itself: what it chooses, rows as they come, and a model whose process dies or hangs is a row."""

import json
import subprocess
import threading
import time
from argparse import Namespace
from importlib.metadata import EntryPoints
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.gpu.sweep import __main__ as command
from benchmarks.gpu.sweep import planned, worker
from benchmarks.gpu.sweep.locking import GpuLock, Quiet
from benchmarks.gpu.sweep.subject import Subject
from benchmarks.gpu.sweep.table import SUBJECTS

torch.set_num_threads(1)


def test_there_are_more_than_enough_models() -> None:
    assert len(SUBJECTS) >= 60


def test_stages_share_the_models_out() -> None:
    names = [each.name for stage in (1, 2, 3) for each in command.chosen("", "", f"{stage}/3")]
    assert sorted(names) == sorted(SUBJECTS)
    assert [each.name for each in command.chosen("hf-bert,tv-resnet*", "tv-resnet5*", "1/1")] == [
        "hf-bert",
        "tv-resnet18",
    ]


@pytest.mark.parametrize("name", ["unet", "graph-messages", "conformer", "wavenet", "recommender"])
def test_nothing_of_a_written_model_is_left_to_the_host(name: str) -> None:
    found = planned.planned(planned.imported(SUBJECTS[name], torch.float16, small=True))
    assert found.segments == 1
    assert not found.on_host
    assert not found.foreign


def work(tmp_path: Path) -> worker.Work:
    return worker.Work(
        dtypes=("float32",),
        timed=("float32",),
        batches=(1,),
        doors=("optimize", "compile"),
        small=True,
        device="cpu",
        profiles=None,
        lock=tmp_path / "lock",
    )


def test_rows_of_a_model(tmp_path: Path) -> None:
    rows: list[Any] = []
    worker.run(SUBJECTS["table-transformer"], work(tmp_path), rows.append)
    doors = {row["door"]: row for row in rows}
    assert set(doors) == {"optimize", "compile", "eager", "done"}
    for name in ("optimize", "compile"):
        row = doors[name]
        assert row["is_right"], row
        assert row["is_one"], row
        assert row["us"] > 0


class Process:
    """What is asked of a model's process, of a command."""

    def __init__(self, *command: str) -> None:
        self._popen = subprocess.Popen(command)
        self.join, self.kill = self._popen.wait, self._popen.kill

    @property
    def exitcode(self) -> int | None:
        return self._popen.poll()

    def is_alive(self) -> bool:
        return self.exitcode is None


@pytest.mark.parametrize(("line", "limit", "told"), [("kill -9 $$", 60, "with -9"), ("sleep 60", 0, "after 0 s")])
def test_a_process_that_dies_or_hangs_is_a_row(tmp_path: Path, line: str, limit: float, told: str) -> None:
    rows, process = command.Rows(tmp_path / "rows.jsonl"), Process("sh", "-c", line)
    if limit:
        process.join()
    command._look_after(command.Running(SUBJECTS["lstm"], process, time.monotonic()), rows, limit)
    assert not process.is_alive()
    (row,) = [json.loads(text) for text in rows.path.read_text().splitlines()]
    assert row["model"] == "lstm"
    assert told in row["error_text"]


def test_the_lock_is_given_back_and_may_be_taken_again(tmp_path: Path) -> None:
    first, second = GpuLock(tmp_path / "lock"), GpuLock(tmp_path / "lock")
    with first.held(), first.held():
        pass
    with second.held():
        assert first.around(lambda x: x + 1) is not None


def test_who_times_is_alone_and_goes_before_new_work(tmp_path: Path) -> None:
    events: list[str] = []
    quiet, is_timing = Quiet(tmp_path / "lock"), threading.Event()

    def times() -> None:
        is_timing.set()
        with quiet.kept():
            events.append("timed")

    with quiet.broken(), Quiet(tmp_path / "lock").broken():
        thread = threading.Thread(target=times)
        thread.start()
        is_timing.wait()
        events.append("worked")
    thread.join()
    with quiet.broken():
        events.append("worked")
    assert events == ["worked", "timed", "worked"]


class Keeping(nn.Module):
    """Keeps what it has computed in a first call."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.kept = nn.BatchNorm1d(4), dict[str, torch.Tensor]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) + self.kept.setdefault("bias", 2 * self.norm.bias)


def test_nothing_stays_of_the_call_that_measures_spread() -> None:
    subject = Subject(
        "keeping", lambda _small: Keeping(), lambda batch, size: (torch.randn(batch, size),), (4, 4), (4, 4)
    )
    module = subject.module(small=True, dtype=torch.float16, device="cpu")
    assert not module.kept
    assert module.norm.running_mean.abs().min() > 0


def test_weights_and_inputs_are_the_same_each_time() -> None:
    subject: Subject = SUBJECTS["pointnet"]
    first, second = (subject.module(small=True, dtype=torch.float32, device="cpu") for _ in range(2))
    for one, other in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    (x,), (y,), (z,) = (subject.inputs(2, 8, torch.float32, "cpu", seed) for seed in (0, 0, 1))
    assert torch.equal(x, y)
    assert not torch.equal(x, z)


def test_arguments_become_work(tmp_path: Path) -> None:
    given = Namespace(
        doors="optimize,reduce-overhead", no_peers=True, peers=None, dtypes="float16,float32", timed="none",
        batches="1,8", small=False, device="cuda", profiles=None, busy=True, out=tmp_path / "rows.jsonl",
    )  # fmt: skip
    found = command.work_of(given)
    assert found.doors == ("optimize",)
    assert found.batches == (1, 8)
    assert found.timed == ()
    assert found.tunes("float16") is False
    assert found.is_busy


def test_a_run_without_the_backend_ends_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "entry_points", lambda group: EntryPoints())
    monkeypatch.setattr("sys.argv", ["sweep", "--only", "mixer", "--device", "cpu", "--out", str(tmp_path / "rows")])
    assert command.main() == 2
    assert "install the package" in capsys.readouterr().out
