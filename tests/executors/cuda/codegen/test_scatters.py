"""Scatters: every candidate gives what the op means, in either order of threads; which one is first, by updates."""

from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Candidate

from tests.executors.cuda.codegen.cases import Drawn, made
from tests.executors.cuda.codegen.emulated import emulated_problems, results_in_both_orders
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.codegen.scatter_cases import scatter_cases
from tests.executors.cuda.emulator import HAS_COMPILER


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_scatters_mean_what_they_say(tmp_path: Path):
    assert not emulated_problems(scatter_cases(), tmp_path)


def candidates(slices: int, slots: int, reduction: str, dtype: str = "f32", rest: int = 4) -> list[Candidate]:
    d = Drawn()
    inputs = d.array(dtype, slices, rest), d.indices(slices, slots, 1), d.array(dtype, slots, rest)
    case = prepared(made("scatter", lambda b, *v: b.op("scatter_nd", *v, reduction=reduction), *inputs))
    assert case is not None
    return generated(case.lowered[-1])


@pytest.mark.parametrize(
    ("slots", "reduction", "dtype", "first"),
    [
        (20, "none", "f32", "scatter"),
        (20, "add", "f32", "scatter"),
        (5000, "none", "f32", "last"),
        (5000, "add", "f32", "segments"),
        (5000, "add", "i64", "atomic"),
        (5000, "max", "i8", "segments"),
        (5000, "mul", "bool", "atomic"),
    ],
)
def test_many_updates_are_not_compared_with_each_other(slots: int, reduction: str, dtype: str, first: str):
    assert candidates(1000, slots, reduction, dtype)[0].name == first


def test_no_number_of_updates_is_left_to_the_host():
    assert [candidate.name for candidate in candidates(10, 300_000, "add", rest=1)] == ["segments"]


def test_rows_are_moved_in_words_of_16_bytes():
    (candidate, *_) = candidates(50, 400, "none", "f16", rest=64)
    assert "word16* r" in candidate.launches[-1].kernel.text


@pytest.mark.parametrize(("dtype", "power"), [("f32", 8), ("f16", 4)])
def test_sums_of_floats_in_other_orders_have_the_same_bits(tmp_path: Path, dtype: str, power: int):
    """As each thread takes its place in the list of its slice when it comes."""
    d = Drawn()
    wide = d.array("f32", 500) * np.float32(10) ** d.rng.integers(-power, power, 500).astype(np.float32)
    updates = wide.astype(np.dtype(dtype.replace("f", "float")))
    case = made(
        "orders",
        lambda b, *v: b.op("scatter_elements", *v, reduction="add"),
        d.array(dtype, 9),
        d.indices(9, 500),
        updates,
    )
    forwards, backwards = results_in_both_orders(case, tmp_path)
    assert np.array_equal(forwards, backwards)


HALVES = np.array([65504, 65504, -65504, -65504, 6e-8, 6e-8, 3.0, np.inf, np.nan], np.float16)


@pytest.mark.parametrize(("slices", "slots", "rest"), [(4, 240, 1), (9000, 3000, 16), (9000, 300, 16), (9000, 3000, 6)])
def test_sums_of_halves_are_exact(tmp_path: Path, slices: int, slots: int, rest: int):
    """One by one, and eight or two at a time, for each slice or for each that has updates."""
    d = Drawn()
    target, updates = (HALVES[d.rng.integers(0, len(HALVES), (each, rest))] for each in (slices, slots))
    places = d.rng.integers(0, min(slices, 40), (slots, 1))
    case = made("halves", lambda b, *v: b.op("scatter_nd", *v, reduction="add"), target, places, updates)
    expected = target.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        np.add.at(expected, places[:, 0], updates.astype(np.float64))
        wanted = expected.astype(np.float16)
    for found in results_in_both_orders(case, tmp_path):
        np.testing.assert_array_equal(found, wanted)
