"""The run of all samples: what it keeps, where it goes on, and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.torch import operator_run, operator_table
from tests.frontends.torch.made_up_samples import fake
from tests.frontends.torch.operator_run import Journal, Record, main, run
from tests.supervision import Step

GOOD = Record("add", {"native": 2, "eager": 1})
BAD = Record("mul", {"native": 1}, failures=[(1, "AssertionError: not close")])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(operator_run, "_digest", lambda: "these sources")
    monkeypatch.setattr(operator_run, "operators", lambda: {"add": None, "mul": None, "coalesce": None})
    monkeypatch.setattr(operator_run, "PAGE", tmp_path / "page.md")
    return tmp_path / "journal.jsonl"


def test_a_record_counts_its_samples() -> None:
    record = Record("add")
    steps = [("native", ()), ("foreign", ("aten.b", "aten.a")), "AssertionError: differs", ("native", ())]
    for index, result in enumerate(steps):
        record.add(Step("add", index, result))
    record.add(Step("add", 4, lost="took longer than 1 s"))
    assert record.kinds == {"native": 2, "foreign": 1}
    assert record.failures == [(2, "AssertionError: differs"), (4, "took longer than 1 s")]
    assert str(record.row()) == "| add | 2 of 5 | `aten.a`, `aten.b` |"


def test_each_operator_that_is_done_is_kept(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(path, keeps=False)
    run(["right", "wrong", "ends"], journal, workers=1, limit_s=60, work=fake)
    assert Journal(path, keeps=False).records.keys() == {"right", "wrong", "ends"}
    assert [len(journal.records[name].failures) for name in ("right", "wrong", "ends")] == [0, 1, 1]
    assert [journal.records[name].total for name in ("right", "wrong", "ends")] == [3, 3, 3]
    assert "ends, sample 1: ended its process with status 1" in capsys.readouterr().out


def test_other_sources_begin_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Journal(path, keeps=False).add(GOOD)
    assert Journal(path, keeps=False).records.keys() == {"add"}
    monkeypatch.setattr(operator_run, "_digest", lambda: "other sources")
    assert Journal(path, keeps=False).records == {}


def test_keep_goes_on_after_other_sources_but_tries_failures_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for record in (GOOD, BAD):
        Journal(path, keeps=False).add(record)
    monkeypatch.setattr(operator_run, "_digest", lambda: "other sources")
    assert Journal(path, keeps=True).records.keys() == {"add"}
    assert json.loads(path.read_text().splitlines()[0])["sources"] == "other sources"


def test_failures_are_the_exit_status_and_no_page(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for record in (GOOD, BAD, Record("coalesce")):
        Journal(path, keeps=False).add(record)
    assert main(["--write", "--journal", str(path)]) == 1
    assert "mul, sample 1: AssertionError: not close" in capsys.readouterr().out
    assert not operator_run.PAGE.exists()


def test_the_page_is_written_when_all_is_equal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_table, "PAGE", operator_run.PAGE)
    for record in (GOOD, Record("mul", {"foreign": 2}, ["aten.mul"]), Record("coalesce")):
        Journal(path, keeps=False).add(record)
    assert main(["--write", "--journal", str(path)]) == 0
    assert operator_table.claimed() == {"add": (2, 3), "mul": (0, 2)}
    assert "| coalesce | no sample" in operator_run.PAGE.read_text()


def test_an_interrupt_keeps_what_is_done(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_names: Any, journal: Journal, **_options: Any) -> None:
        journal.add(GOOD)
        raise KeyboardInterrupt

    monkeypatch.setattr(operator_run, "run", interrupted)
    assert main(["--journal", str(path)]) == 130
    assert "1 of 3 operators are done" in capsys.readouterr().out
    assert Journal(path, keeps=False).records.keys() == {"add"}


def test_a_name_that_is_no_operator(path: Path) -> None:
    assert main(["divide", "--journal", str(path)]) == 2


def test_samples_run_in_workers(tmp_path: Path) -> None:
    assert main(["abs", "--workers", "1", "--journal", str(tmp_path / "journal.jsonl")]) == 0
    (record,) = Journal(tmp_path / "journal.jsonl", keeps=False).records.values()
    assert record.kinds == {"native": record.total}
