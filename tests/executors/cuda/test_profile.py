"""Profiles: a line for each launch, with its bytes and its arithmetic."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from capgraph.executors.backends import choose_executor
from capgraph.executors.base import Request
from capgraph.executors.cuda.run import profile as profiling
from capgraph.executors.cuda.run.profile import LaunchTime, Profile, Profiling, Rates
from capgraph.ir.errors import InputError, UnsupportedError
from capgraph.ir.text.parser import parse
from capgraph.program import Program

from tests.executors.cuda.fake import fake_device, meanings
from tests.executors.cuda.test_executable import recorded
from tests.executors.replay.programs import block, rows


def test_every_launch_is_timed(tmp_path: Path) -> None:
    with meanings():
        program = recorded(block(), fake_device(tmp_path), dynamic={"B": (1, 8)}, buckets={"B": [4]})
        assert isinstance(program, Profiling)
        found = program.profile({"x": rows(3)})
        again = program.run({"x": rows(4)})["y"]
    assert found.launches
    assert all(each.seconds for each in found.launches)
    assert np.isfinite(again).all()


@pytest.mark.parametrize("inputs", [None, [1], {}, {"z": 1}])
def test_inputs_that_are_none_are_refused_as_by_a_call(inputs: Any, tmp_path: Path) -> None:
    with meanings():
        program = recorded(block(), fake_device(tmp_path))
        for call in (program.run, program.profile):
            with pytest.raises(InputError):
                call(inputs)


def test_a_launch_is_held_against_what_bounds_it() -> None:
    rates = Rates(bandwidth=1e12, flops=1e14)
    moving = LaunchTime(0, "add", "", "flat", 2e-6, 1_000_000, 1000)
    computing = LaunchTime(1, "matmul", "layer.3", "tiles", 4e-6, 1000, 100_000_000)
    on_host = LaunchTime(2, "lstm", "", "host", None, 0, 0)
    assert moving.share(rates) == pytest.approx(0.5)
    assert computing.share(rates) == pytest.approx(0.25)
    assert on_host.share(rates) == 0
    found = Profile((moving, computing, on_host), 5e-6, rates)
    assert found.launch_seconds == pytest.approx(6e-6)
    assert found.slowest(1) == [computing]
    lines = str(found).splitlines()
    assert lines[2].split() == ["1", "4.00", "0", "25.00", "25.0%", "matmul,", "tiles,", "layer.3"]
    assert "host" in lines[3]
    assert lines[-2] == "3 launches, 6.0 us one by one; a call takes 5.0 us"
    assert lines[-1] == "best: 1.00 TB/s, 100 TFLOP/s"


def test_programs_on_the_host_have_no_launches() -> None:
    with (
        Program(block(), choose_executor("eager", Request())) as program,
        pytest.raises(UnsupportedError, match="no launches to time"),
    ):
        program.profile({"x": rows(2)})


def test_steps_are_ranges_where_nvtx_is_installed(tmp_path: Path) -> None:
    open_ranges: list[str] = []
    seen: list[str] = []

    @contextmanager
    def annotate(text: str) -> Iterator[None]:
        open_ranges.append(text)
        seen.append(text)
        yield
        open_ranges.pop()

    module: Any = ModuleType("nvtx")
    module.annotate = annotate
    with meanings(), patch.dict(sys.modules, {"nvtx": module}):
        program = recorded(block(), fake_device(tmp_path), dynamic={"B": (1, 8)}, buckets={"B": [4]})
        found = program.profile({"x": rows(4)})
    assert len(seen) == len({each.step for each in found.launches})
    assert all(each.op in text for each, text in zip(found.launches, seen, strict=True))
    assert open_ranges == []


def test_a_step_is_timed_on_what_it_reads_in_a_call(tmp_path: Path) -> None:
    """What later steps leave in the place of indices is no index."""
    graph = parse("""
        graph @main(%ids: i64[512], %t: f32[80, 2]) {
          %one: i64[] = constant() {value = dense<i64[]: 1>}
          %next: i64[512] = add(%ids, %one)
          %a: f32[512, 2] = gather(%t, %next)
          %b: f32[512, 2] = cumsum(%a) {axis = 0}
          %c: f32[512, 2] = cumsum(%b) {axis = 1}
          %d: f32[512, 2] = cumsum(%c) {axis = 0}
          %e: f32[512, 2] = cumsum(%d) {axis = 1}
          %f: f32[512, 2] = cumsum(%e) {axis = 0}
          %y: f32[512, 12] = concat(%a, %b, %c, %d, %e, %f) {axis = 1}
          return %y
        }""")
    given = {"ids": np.arange(512) % 79, "t": np.full((80, 2), -3.0, np.float32)}
    with meanings():
        program = recorded(graph, fake_device(tmp_path))
        assert isinstance(program, Profiling)
        assert program.profile(given).launches


def test_each_launch_of_a_step_is_timed_behind_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    launches = [SimpleNamespace(nbytes=0, flops=0) for _ in range(3)]
    bound: Any = SimpleNamespace(
        chosen=[SimpleNamespace(name="way")],
        launches_of=lambda step: launches,
        calls_of=lambda step: [lambda stream, each=each: done.append(each) for each in range(3)],
        device=SimpleNamespace(stream=0),
    )
    step: Any = SimpleNamespace(index=0, node=SimpleNamespace(origin=None, op=SimpleNamespace(name="scatter_nd")))
    monkeypatch.setattr(profiling, "graph_seconds", lambda device, calls, count: [call(0) for call in calls] and 1.0)
    assert len(list(profiling._timed_step(bound, step))) == 3
    assert done == [0, 0, 1, 0, 1, 2]
