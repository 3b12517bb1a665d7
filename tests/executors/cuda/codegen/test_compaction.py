"""Kernels that find things, by their rarer candidates: a sum of counts in between, boxes that are sorted in scratch."""

from pathlib import Path

import pytest
from capgraph.executors.cuda.kernels.sort import compaction, suppression
from capgraph.ir.builder import Builder

from tests.executors.cuda.codegen import cases
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import all_prepared, generated
from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.emulator import HAS_COMPILER


def launches(made: object) -> int:
    return sum(len(generated(lowered)[0].launches) for lowered in made.lowered if generated(lowered))  # type: ignore[attr-defined]


def test_each_case_has_kernels() -> None:
    every = all_prepared(cases.found_cases())
    assert len(every) == len(list(cases.found_cases()))
    assert [name for made in every for name in made.on_host()] == []


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_counts_of_many_blocks_and_boxes_of_large_scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {made.case.name: launches(made) for made in all_prepared(cases.found_cases())}
    monkeypatch.setattr(compaction, "MOST_COUNTS", 1)
    monkeypatch.setattr(suppression, "LARGEST_BLOCK", 16)
    every = all_prepared(cases.found_cases())
    more = {made.case.name for made in every if launches(made) > before[made.case.name]}
    assert {"non_zero (3, 700) bool", "non_zero (5000,) f32", "compress all"} <= more
    assert not emulated_problems(cases.found_cases(), tmp_path)
    assert not compile_problems([kernel for made in every for kernel in made.kernels()], [90])


def test_a_long_search_takes_one_launch_more() -> None:
    b = Builder()
    found = cases.outputs_of(b, "bounded_non_zero", b.input("x", "bool[4096, 4096]"), size=1 << 24)
    (made,) = all_prepared([cases.Case("long", b.finish(found), {}, [])])
    assert launches(made) == 3
