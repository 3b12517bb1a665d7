"""Fourier transforms: passes for every length, and which lengths fit."""

import math
from pathlib import Path

import pytest
from capgraph.executors.cuda.codegen.fourier import radices
from capgraph.executors.cuda.codegen.tables import ways as lower
from capgraph.executors.cuda.launch import KernelLaunch, LibraryCall

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
    case = made("rows", lambda b, v: b.op("dft", v, onesided=True), Drawn().array("f32", 3, 512, 1))
    (name,) = (value.name for value in case.graph.inputs)
    launches = []
    for lies in (lambda x: x, lambda x: x.repeat(2, 0)[::2]):
        given = setting(case.graph.clone(), {name: case.inputs[0]}, {name: lies})
        launches.append([type(launch) for launch in next(iter(lower(given.task))).launches])
    assert launches == [[LibraryCall], [KernelLaunch, LibraryCall]]


@pytest.mark.parametrize("length", [1, 2, 30, 97, 121, 400, 4096, 5005, 8191])
def test_radices_make_the_length(length: int):
    assert math.prod(radices(length)) == length


@pytest.mark.parametrize(("length", "ways"), [(8192, 1), (12_913, 1), (12_914, 0)])
def test_what_shared_memory_cannot_hold_has_no_kernel(length: int, ways: int):
    x = Drawn().array("f32", 1, length, 1)
    case = prepared(made("dft", lambda b, v: b.op("dft", v, onesided=True), x))
    assert case is not None
    assert len(generated(case.ways[-1])) == ways
