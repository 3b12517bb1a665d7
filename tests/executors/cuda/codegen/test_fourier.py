"""Fourier transforms: passes for every length, and which lengths fit."""

import math
from pathlib import Path

import pytest
from capgraph.executors.cuda.codegen.fourier import radices

from tests.executors.cuda.codegen.cases import Drawn, made
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.codegen.spectrum_cases import spectrum_cases
from tests.executors.cuda.emulator import HAS_COMPILER


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_spectra_mean_what_they_say(tmp_path: Path):
    assert not emulated_problems(spectrum_cases(), tmp_path)


@pytest.mark.parametrize("length", [1, 2, 30, 97, 121, 400, 4096, 5005, 8191])
def test_radices_make_the_length(length: int):
    assert math.prod(radices(length)) == length


@pytest.mark.parametrize(("length", "ways"), [(8192, 1), (12_913, 1), (12_914, 0)])
def test_what_shared_memory_cannot_hold_has_no_kernel(length: int, ways: int):
    x = Drawn().array("f32", 1, length, 1)
    case = prepared(made("dft", lambda b, v: b.op("dft", v, onesided=True), x))
    assert case is not None
    assert len(generated(case.ways[-1])) == ways
