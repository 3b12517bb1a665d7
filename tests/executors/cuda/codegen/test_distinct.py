"""Distinct elements: sorted in a block and over the chip, with and without indices, on a GPU in one recording."""

from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import HostCall
from capgraph.executors.cuda.kernels.sort import distinct
from capgraph.executors.cuda.kernels.sort.radix import Tile
from capgraph.executors.cuda.lower.lowering import Backend
from capgraph.ir.builder import Builder
from capgraph.ir.target import CUDA, HOST
from capgraph.passes.planning.lowering import Lowering
from capgraph.passes.planning.planner import PlanPolicy, make_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.executors.cuda.codegen.cases import Drawn, distinct_cases, made, outputs_of
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import all_prepared, generated
from tests.executors.cuda.emulator import HAS_COMPILER

DTYPES = {"f32": np.float32, "f16": np.float16, "i64": np.int64, "u8": np.uint8, "bool": np.bool_}


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_kernels_find_what_unique_finds(tmp_path: Path) -> None:
    assert not emulated_problems(distinct_cases(), tmp_path)


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_tiles_that_are_summed_by_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LARGE_TILE", "KEY_TILE"):
        monkeypatch.setattr(distinct, name, Tile(256, 1))
    monkeypatch.setattr(distinct, "MANY_TILES", 1)
    assert not emulated_problems(distinct_cases((1000,), ("f32", "i64")), tmp_path)


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(DTYPES)), st.sampled_from(((12,), (3, 4))), st.data())
def test_elements_of_any_kind(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: tuple[int, ...], data: st.DataObject
) -> None:
    kinds = [0, 1, 2, 3] if dtype not in ("f32", "f16") else [0.0, -0.0, 1.5, -2.0, np.nan, np.inf]
    drawn = data.draw(st.lists(st.sampled_from(kinds), min_size=12, max_size=12))
    x = np.array(drawn).astype(DTYPES[dtype]).reshape(shape)
    case = made("drawn", lambda b, v: outputs_of(b, "bounded_unique", v, size=12, axis=None, sorted=True), x)
    assert not emulated_problems([case], tmp_path_factory.mktemp("drawn"))


def test_indices_go_along_only_where_they_are_read() -> None:
    every = {case.case.name: case for case in all_prepared(distinct_cases((5000,)))}
    texts = {
        name: "".join(kernel.text for kernel in every[name].kernels())
        for name in ("distinct 5000 f32", "distinct 5000 f32 alone")
    }
    assert ["indices" in text for text in texts.values()] == [True, False]


def test_slices_are_none_of_theirs() -> None:
    x = Drawn().array("f32", 3, 4)
    case = made("slices", lambda b, v: outputs_of(b, "bounded_unique", v, size=3, axis=0, sorted=True), x)
    (prepared,) = all_prepared([case])
    assert not any(generated(lowered) for lowered in prepared.lowered)


@pytest.mark.parametrize("dtype", DTYPES)
def test_distinct_elements_are_one_recording_on_a_gpu(dtype: str) -> None:
    b = Builder()
    found = b.ops("unique", b.input("x", f"{dtype}[6, 500]"), axis=None, sorted=True)
    graph = b.finish(dict(zip(("distinct", "first", "inverse", "counts"), found, strict=True)))
    backend = Backend()
    plan = make_plan(
        graph, {}, CUDA, PlanPolicy(lowering=Lowering(captures=backend.captures, scratch=backend.scratch_bytes))
    )
    assert [segment.is_captured for segment in plan.segments] == [True]
    launches = [
        each for step in backend.lower(plan) for each in (step.candidates[0].launches if step.candidates else ())
    ]
    assert launches
    assert not any(isinstance(launch, HostCall) for launch in launches)
    assert any(step.node.op.name == "bounded_unique" for step in make_plan(graph, {}, HOST).steps)
