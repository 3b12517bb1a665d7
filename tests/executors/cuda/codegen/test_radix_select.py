"""The first few of long rows: the threshold between digits, ties, and tiles upon tiles."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.ir.evaluate import evaluate_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.executors.cuda.codegen.cases import Case, Drawn, made, outputs_of
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.emulator import HAS_COMPILER, Emulator, compiled

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")


def top(k: int, x: np.ndarray, *, largest: bool = True) -> Case:
    name = f"top {k} of {x.shape[1]} {x.dtype}"
    return made(name, lambda b, x: outputs_of(b, "top_k", x, axis=1, k=k, largest=largest), x)


def test_tiles_upon_tiles(tmp_path: Path):
    d = Drawn()
    cases = [
        top(k, d.array(dtype, 2, length), largest=k % 2 == 0)
        for dtype, length, k in (("f32", 9001, 7), ("f16", 20_000, 700), ("i64", 9000, 256), ("i8", 40_000, 1024))
    ]
    assert not emulated_problems(cases, tmp_path)


@pytest.mark.parametrize(("length", "k", "launches"), [(128256, 50, 2), (128256, 1000, 5), (1 << 24, 50, 3)])
def test_a_launch_for_each_level_and_one_for_the_order(length: int, k: int, launches: int):
    case = prepared(top(k, np.zeros((1, length), np.float32)))
    assert case is not None
    (candidate,) = generated(case.lowered[-1])
    assert (candidate.name, len(candidate.launches)) == ("parts", launches)


LENGTH, K = 300, 40


def test_ties_go_to_lower_indices(tmp_path: Path):
    every = [
        prepared(top(K, np.zeros((1, LENGTH), dtype), largest=largest))
        for dtype in (np.uint8, np.int32, np.float64)
        for largest in (False, True)
    ]
    library = compiled((kernel for each in every if each for kernel in each.kernels()), tmp_path)

    @settings(max_examples=60, deadline=None, database=None)
    @given(st.sampled_from(every), st.integers(1, 100), st.integers(0, 2**32 - 1))
    def holds(each: Any, distinct: int, seed: int) -> None:
        (value,) = each.plan.graph.inputs
        x = np.random.default_rng(seed).integers(0, distinct, (1, LENGTH)).astype(value.tensor.dtype.numpy)
        emulator = Emulator(each.plan, library)
        emulator.placement.array(value)[...] = x
        emulator.run(generated(each.lowered[-1])[0])
        for output, wanted in zip(each.plan.graph.outputs, evaluate_graph(each.case.graph, [x], {}), strict=True):
            np.testing.assert_array_equal(emulator.placement.array(output), wanted)

    holds()
