"""Cumulative sums and products: who works on a line, and that segments give what a whole line gives."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Candidate
from capgraph.ir.evaluate import evaluate_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.executors.cuda.codegen.cases import made
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.emulator import HAS_COMPILER, Emulator, compiled


def candidate_of(shape: tuple[int, ...], axis: int = -1, dtype: Any = np.float32) -> Candidate:
    case = prepared(made("cumsum", lambda b, x: b.op("cumsum", x, axis=axis), np.zeros(shape, dtype)))
    assert case is not None
    return generated(case.lowered[-1])[0]


@pytest.mark.parametrize(
    ("shape", "axis", "candidate"),
    [
        ((65536, 32), 1, "lanes"),
        ((512, 1024), 1, "blocks"),
        ((1000, 100_000), 1, "blocks"),
        ((1, 128256), 1, "segments"),
        ((8, 128256), 1, "segments"),
        ((4096, 4096), 0, "across-segments"),
        ((10, 100_000), 0, "across"),
        ((7, 1), 1, "lanes"),
    ],
)
def test_who_works_on_a_line(shape: tuple[int, ...], axis: int, candidate: str):
    assert candidate_of(shape, axis).name == candidate


def test_lines_that_are_aligned_are_read_in_vectors():
    assert "pack<float, 4>" in candidate_of((1, 128256)).launches[0].kernel.text  # type: ignore[union-attr]
    assert "pack<" not in candidate_of((2, 128257)).launches[0].kernel.text  # type: ignore[union-attr]


def test_segments_are_whole_chunks():
    candidate = candidate_of((1, 1 << 24))
    assert len(candidate.launches) == 2
    assert candidate.scratch_bytes == 4 * 2048


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_integers_add_up_along_any_line(tmp_path: Path):
    every = [
        prepared(
            made(
                f"{shape} {axis}",
                lambda b, x, a=axis, e=exclusive, r=reverse: b.op("cumsum", x, axis=a, exclusive=e, reverse=r),
                np.zeros(shape, np.int32),
            )
        )
        for shape, axis in (((3, 20), 1), ((2, 5004), 1), ((2, 5003), 1), ((3, 40, 40), 1), ((50, 3), 0))
        for exclusive in (False, True)
        for reverse in (False, True)
    ]
    library = compiled((kernel for each in every if each for kernel in each.kernels()), tmp_path)

    @settings(max_examples=50, deadline=None, database=None)
    @given(st.sampled_from(every), st.integers(0, 2**32 - 1))
    def holds(each: Any, seed: int) -> None:
        (value,) = each.plan.graph.inputs
        x = np.random.default_rng(seed).integers(-(2**31), 2**31, value.shape).astype(np.int32)
        emulator = Emulator(each.plan, library)
        emulator.placement.array(value)[...] = x
        emulator.run(generated(each.lowered[-1])[0])
        (wanted,) = evaluate_graph(each.case.graph, [x], {})
        np.testing.assert_array_equal(emulator.placement.array(each.plan.graph.outputs[0]), wanted)

    holds()
