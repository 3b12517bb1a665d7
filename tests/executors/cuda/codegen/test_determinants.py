"""Determinants: pivots, singular matrices, matrices in scratch memory; and filters of mel bands."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Chip
from capgraph.executors.cuda.kernels.determinants import LOWERINGS

from tests.executors.cuda.codegen.cases import Drawn, made
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.emulator import HAS_COMPILER
from tests.executors.cuda.solving import setting

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")


def test_determinants_mean_what_they_say(tmp_path: Path) -> None:
    d = Drawn()
    singular = np.ones((2, 3, 3), np.float32)
    exchanged = np.array([[0, 2, 0], [0, 0, 3], [4, 0, 0]], np.float64)
    huge = np.diag(np.array([1e30, 1e30, 1e-30, 1e-10], np.float32))  # overflows on the way
    arrays = [huge, d.array("f32", 4, 5, 5), d.array("f64", 2, 3, 20, 20), d.array("f16", 7, 1, 1), singular, exchanged]
    cases = [made(f"det {array.shape}", lambda b, x: b.op("det", x), array) for array in arrays]
    assert not emulated_problems(cases, tmp_path)


def test_a_matrix_that_shared_memory_cannot_hold_is_eliminated_in_scratch(tmp_path: Path) -> None:
    x = Drawn().array("f32", 2, 24, 24)
    case = made("large", lambda b, x: b.op("det", x), x)
    step = setting(case.graph, {case.graph.inputs[0].name: x}, chip=replace(Chip(), shared_bytes=2048))
    (candidate,) = LOWERINGS["det"](step.task)
    assert candidate.scratch_bytes
    (found,) = step.found(candidate, tmp_path)
    np.testing.assert_allclose(found, step.expected[0], rtol=2e-4)


def test_filters_of_mel_bands_mean_what_they_say(tmp_path: Path) -> None:
    rates = [(np.array(16000, np.int64), 100.0, 7900.0, 26, 400), (np.array(8192, np.int32), 0.0, 4000.0, 8, 16)]
    cases = [
        made(
            f"{bands} bands",
            lambda b, *v, bands=bands, length=length: b.op("mel_weight_matrix", *v, bands=bands, dft_length=length),
            rate,
            np.array(low, np.float32),
            np.array(high, np.float32),
        )
        for rate, low, high, bands, length in rates
    ]
    assert not emulated_problems(cases, tmp_path)
