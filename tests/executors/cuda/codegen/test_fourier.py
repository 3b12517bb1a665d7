"""Fourier transforms: passes for every length, and which lengths fit."""

import math
from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import KernelLaunch, LibraryCall
from capgraph.executors.cuda.kernels.fft.butterflies import radices
from capgraph.executors.cuda.kernels.tables import candidates as lower

from tests.executors.cuda.codegen.cases import Case, Drawn, is_close, made
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.codegen.spectrum_cases import spectrum_cases
from tests.executors.cuda.emulator import HAS_COMPILER
from tests.executors.cuda.solving import setting


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_spectra_mean_what_they_say(tmp_path: Path):
    assert not emulated_problems(spectrum_cases(), tmp_path)


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
@pytest.mark.parametrize("case", list(spectrum_cases((7, 12))), ids=lambda case: case.name)
def test_what_the_library_gets_is_what_it_has_to_transform(case: Case, tmp_path: Path):
    names = [value.name for value in case.graph.inputs]
    step = setting(case.graph.clone(), dict(zip(names, case.inputs, strict=True)))
    (candidate,) = (each for each in lower(step.task) if each.name == "cufft")
    (found,), (expected,) = step.found(candidate, tmp_path), step.expected
    assert not is_close(found, expected, case.graph)


def test_a_signal_that_lies_as_the_library_takes_it_is_one_call():
    case = made("rows", lambda b, v: b.op("dft", v, onesided=True), Drawn().array("f32", 3, 8192, 1))
    (name,) = (value.name for value in case.graph.inputs)
    launches = []
    for lies in (lambda x: x, lambda x: x.repeat(2, 0)[::2]):
        given = setting(case.graph.clone(), {name: case.inputs[0]}, {name: lies})
        candidates = {each.name: [type(launch) for launch in each.launches] for each in lower(given.task)}
        launches.append((next(iter(candidates)), candidates["cufft"]))
    assert launches == [("cufft", [LibraryCall]), ("cufft", [KernelLaunch, LibraryCall])]


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
@pytest.mark.parametrize("length", [10, 12, 32, 77])
def test_inverse_transforms_get_numpys_bits(length: int, tmp_path: Path):
    """A case of ONNX's suite wants 1.9e-7 within 1e-7 where the exact result is 0."""
    given = np.stack([np.arange(10 * length).reshape(10, length), np.zeros((10, length))], -1).astype(np.float32)
    case = made("rows", lambda b, v: b.op("dft", v, inverse=True), given)
    (name,) = (value.name for value in case.graph.inputs)
    step = setting(case.graph, {name: given})
    (found,) = step.found(next(iter(lower(step.task))), tmp_path)
    assert np.array_equal(found, step.expected[0])


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
@pytest.mark.parametrize("onesided", [False, True])
def test_real_signals_have_real_middles(onesided: bool, tmp_path: Path):
    given = np.arange(100, dtype=np.float32).reshape(10, 10, 1)
    case = made("rows", lambda b, v: b.op("dft", v, axis=0, onesided=onesided), given)
    (name,) = (value.name for value in case.graph.inputs)
    step = setting(case.graph, {name: given})
    for candidate in lower(step.task):
        (found,) = step.found(candidate, tmp_path)
        assert np.abs(found[[0, 5], ..., 1]).max() < 1e-7, candidate.name
        assert np.allclose(found, step.expected[0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("rows", "is_early"), [(1, True), (64, True), (8000, False)])
def test_few_blocks_read_powers_before_they_wait(rows: int, is_early: bool):
    x = Drawn().array("f16", rows, 512, 1)
    case = prepared(made("rows", lambda b, v: b.op("dft", v, onesided=True), x))
    assert case is not None
    for kernel in case.kernels():
        early, begin, _ = kernel.text.partition("begin();")
        assert begin
        assert ("= roots[" in early) == is_early
        assert "x_row" not in early, "the wait is for what was written before"


@pytest.mark.parametrize("length", [1, 2, 30, 97, 121, 400, 4096, 5005, 8191])
def test_radices_make_the_length(length: int):
    assert math.prod(radices(length)) == length


@pytest.mark.parametrize(("length", "candidates"), [(12_913, 1), (12_915, 0), (25_826, 1), (25_828, 0)])
def test_what_shared_memory_cannot_hold_has_no_kernel(length: int, candidates: int):
    x = Drawn().array("f32", 1, length, 1)
    case = prepared(made("dft", lambda b, v: b.op("dft", v, onesided=True), x))
    assert case is not None
    assert len(generated(case.lowered[-1])) == candidates
