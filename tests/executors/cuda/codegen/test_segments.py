"""Segments: every case gives what the ops mean, in either order of threads, with the same bits."""

from pathlib import Path

import numpy as np
import pytest

from tests.executors.cuda.codegen.cases import Drawn
from tests.executors.cuda.codegen.emulated import emulated_problems, results_in_both_orders
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.codegen.segment_cases import listed, scattered, segment_cases
from tests.executors.cuda.emulator import HAS_COMPILER

needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")


@needs_compiler
def test_segments_mean_what_they_say(tmp_path: Path):
    assert not emulated_problems(segment_cases(), tmp_path)


def test_each_case_is_one_kernel_behind_its_list():
    for case in segment_cases():
        made = prepared(case)
        assert made is not None
        assert not made.on_host()
        for lowered in made.lowered:
            body = lowered.step.node.attrs.get("body")
            inside = {node.op.name for node in body.nodes} if body is not None else {lowered.step.node.op.name}
            if "segment_reduce" in inside:
                assert [len(each.launches) for each in generated(lowered)] == [1], case.name


@needs_compiler
@pytest.mark.parametrize(("dtype", "power"), [("f32", 8), ("f16", 4)])
def test_sums_have_the_same_bits_whoever_comes_first(tmp_path: Path, dtype: str, power: int):
    d = Drawn()
    wide = d.array("f32", 500, 2) * np.float32(10) ** d.rng.integers(-power, power, (500, 2)).astype(np.float32)
    updates = wide.astype(np.dtype(dtype.replace("f", "float")))
    case = listed("orders", lambda b, *v: scattered(b, *v, "add"), d.array(dtype, 9, 2), d.indices(9, 500), updates)
    forwards, backwards = results_in_both_orders(case, tmp_path)
    assert np.array_equal(forwards, backwards)


@needs_compiler
def test_sums_of_floats_carry_what_they_round_off(tmp_path: Path):
    """Terms that almost cancel, in an order in which a plain sum would lose the rest."""
    d = Drawn()
    large = d.array("f32", 200, 4) * np.float32(1e6)
    updates = np.concatenate([large, d.array("f32", 200, 4), -large])
    case = listed("cancel", lambda b, *v: scattered(b, *v, "add"), d.array("f32", 3, 4), np.tile([0, 1], 300), updates)
    expected = case.inputs[0].astype(np.float64)
    np.add.at(expected, case.inputs[1], updates.astype(np.float64))
    for found in results_in_both_orders(case, tmp_path):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@needs_compiler
def test_an_index_outside_writes_nothing(tmp_path: Path):
    """As indices in rows of padding may be anything."""
    d = Drawn()
    x, updates, places = d.array("f32", 6, 8), d.array("f32", 90, 8), d.rng.integers(-20, 20, 90)
    is_inside = (places >= -6) & (places < 6)
    expected = x.astype(np.float64)
    np.add.at(expected, places[is_inside], updates[is_inside].astype(np.float64))
    case = listed("outside", lambda b, *v: scattered(b, *v, "add"), x, places, updates)
    for found in results_in_both_orders(case, tmp_path):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
