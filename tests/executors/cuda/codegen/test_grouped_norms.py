"""Norms over groups of channels: large groups by moments of their parts, and elementwise work behind them."""

from pathlib import Path

import numpy as np
import pytest
from capgraph.ir.types import DType

from tests.executors.cuda.codegen.cases import Drawn, fused, made
from tests.executors.cuda.codegen.emulated import emulated_problems, results_of_candidates
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.emulator import HAS_COMPILER

needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")


def normed(shape, groups, dtype="f16", *, last=False, behind=False, offset=0.0):
    """A case: channels lie last in memory with `last`, and SiLU and a sum are `behind` the norm."""
    d = Drawn()
    lying = (shape[0], *shape[2:], shape[1]) if last else shape
    x = (d.array(dtype, *lying) + DType(dtype).numpy.type(offset)).astype(DType(dtype).numpy)
    scale, bias, other = d.array(dtype, shape[1]), d.array(dtype, shape[1]), d.array(dtype, shape[1], 1, 1)
    perm = (0, len(shape) - 1, *range(1, len(shape) - 1))

    def make(b, x, scale, bias, other):
        image = b.op("transpose", x, perm=perm) if last else x
        y = b.op("group_norm", image, scale, bias, groups=groups)
        return b.op("mul", b.op("silu", y), b.op("neg", other)) if behind else y

    case = made(f"{shape} in {groups} {dtype} {last} {behind}", make, x, scale, bias, other)
    return fused(case) if behind else case


def names(*args, **options):
    case = prepared(normed(*args, **options))
    assert case is not None
    return [candidate.name for candidate in generated(case.lowered[-1])]


def test_groups_that_a_block_holds_are_rows():
    assert names((2, 32, 16, 16), 4)[0].startswith("block")
    assert "moments" in names((2, 32, 16, 16), 4)


@pytest.mark.parametrize("last", [False, True])
def test_larger_groups_are_read_twice(last):
    case = prepared(normed((2, 32, 128, 128), 4, last=last))
    assert case is not None
    candidate = generated(case.lowered[-1])[0]
    assert (candidate.name, len(candidate.launches)) == ("moments", 3)
    assert candidate.scratch_bytes > 0


def test_work_behind_is_part_of_the_last_launch():
    case = prepared(normed((2, 32, 128, 128), 4, last=True, behind=True))
    assert case is not None
    assert [len(candidate.launches) for candidate in generated(case.lowered[-1]) if candidate.name == "moments"] == [3]


def test_a_small_constant_in_the_region_has_no_moments():
    d = Drawn()
    small = d.array("bf16", 4, 2)

    def make(b, scale, bias):
        return b.op("ceil", b.op("group_norm", b.constant(small), scale, bias, groups=1))

    case = prepared(fused(made("constant", make, d.array("bf16", 2), d.array("bf16", 2))))
    assert case is not None
    assert [candidate.name for candidate in generated(case.lowered[-1]) if candidate.name == "moments"] == []


CASES = [
    *(
        normed(shape, groups, dtype, last=last, behind=behind)
        for shape, groups in (
            ((2, 16, 9, 8), 4),
            ((1, 24, 5, 7), 3),
            ((3, 6, 10, 10), 6),
            ((2, 8, 33), 1),
            ((1, 4, 1, 1), 2),
        )
        for dtype in ("f16", "bf16", "f32", "f64")
        for last in (False, True)
        for behind in (False, True)
        if len(shape) == 4 or not behind
    ),
    normed((1, 16, 50, 50), 2, "f16", last=True, offset=300.0),
    normed((1, 16, 50, 50), 2, "f32", offset=100.0),
]


@needs_compiler
def test_each_candidate_means_what_numpy_does(tmp_path: Path) -> None:
    assert emulated_problems(CASES, tmp_path) == []


@needs_compiler
def test_infinities_make_their_group_nan_and_no_other(tmp_path: Path) -> None:
    x = np.ones((1, 4, 6, 6), np.float32)
    x[0, 1, 2, 3] = np.inf
    x[0, 3, 0, 0] = 2
    ones = np.ones(4, np.float32)
    case = made("infinite", lambda b, *v: b.op("group_norm", *v, groups=2), x, ones, ones)
    seen = {candidate: np.isnan(found) for _, candidate, (found,) in results_of_candidates([case], tmp_path)}
    assert "moments" in seen
    for found in seen.values():
        assert found[0, :2].all()
        assert not found[0, 2:].any()


@needs_compiler
def test_squares_beyond_the_range_leave_the_bias(tmp_path: Path) -> None:
    x = np.array([3e38, -1, 0.7, 1, 2, 3], np.float32).reshape(1, 2, 3)
    scale, bias = np.ones(2, np.float32), np.array([4, 0], np.float32)
    case = made("beyond", lambda b, *v: b.op("group_norm", *v, groups=2), x, scale, bias)
    found = {candidate: result for _, candidate, (result,) in results_of_candidates([case], tmp_path)}
    assert "moments" in found
    for result in found.values():
        np.testing.assert_allclose(result[0], [[4, 4, 4], [-1.2247356, 0, 1.2247356]], atol=1e-5)
