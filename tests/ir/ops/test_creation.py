"""Constants, fills, sizes and ranges, against NumPy and onnx's reference."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir.constant import Constant
from capgraph.ir.dims import Dim, evaluate, symbol
from capgraph.ir.errors import ExecutionError, ShapeError, TypeRuleError
from capgraph.ir.ops import native
from capgraph.ir.ops.creation import arange_length
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.native_runs import assert_same, only
from tests.ir.ops.onnx_oracle import reference

B, T = symbol("B"), symbol("T")
bounds = st.integers(-7, 7)
steps = st.integers(-3, 3).filter(bool)


def types(name: str, *operands: TensorType, **attrs: Any) -> Any:
    op = native(name)
    (result,) = op.result_types(operands, op.complete_attrs(attrs))
    return result


def test_constant_gives_its_content_read_only() -> None:
    result = only("constant", value=Constant(np.arange(3)))
    assert_same(result, np.arange(3))
    assert not result.flags.writeable


def test_full_repeats_a_scalar() -> None:
    assert_same(only("full", shape=(2, 0), value=Constant(np.float16(3))), np.full((2, 0), 3, np.float16))
    assert_same(
        only("full", shape=(2,), value=Constant(np.array("a", dtype=object))), np.array(["a", "a"], dtype=object)
    )
    assert types("full", shape=(B, 2 * T), value=Constant(np.array(True))) == TensorType(DType.BOOL, (B, 2 * T))


def test_full_refuses_a_vector_and_a_negative_size() -> None:
    with pytest.raises(TypeRuleError, match="rank 0"):
        types("full", shape=(2,), value=Constant(np.zeros(1)))
    with pytest.raises(ShapeError, match="negative size"):
        types("full", shape=(-T - 1,), value=Constant(np.zeros(())))


def test_dynamic_full_reads_its_shape() -> None:
    value = Constant(np.array(2, dtype=np.int8))
    assert_same(only("dynamic_full", np.array([2, 3]), static={0}, value=value), np.full((2, 3), 2, np.int8))
    with pytest.raises(TypeRuleError, match="static length"):
        types("dynamic_full", TensorType(DType.I64, (T,)), value=value)


def test_dims_and_dim_say_sizes() -> None:
    assert_same(only("dims", values=(3, 4)), np.array([3, 4]))
    assert_same(only("dims", values=()), np.zeros(0, dtype=np.int64))
    assert_same(only("dim", value=7), np.array(7))
    assert types("dims", values=(B, T, 3)) == TensorType(DType.I64, (3,))


@given(st.integers(-5, 5), st.none() | st.integers(-5, 5))
def test_shape_clamps_its_bounds(start: int, end: int | None) -> None:
    x = np.zeros((2, 0, 4), dtype=np.float32)
    first, last = (bound + 3 if bound < 0 else bound for bound in (start, 3 if end is None else end))
    sizes = [size for axis, size in enumerate(x.shape) if first <= axis < last]
    assert_same(only("shape", x, start=start, end=end), np.array(sizes, dtype=np.int64))


def test_shape_is_as_onnx() -> None:
    x = np.zeros((2, 0, 4), dtype=np.float32)
    assert_same(only("shape", x, start=-2), reference("Shape", x, start=-2)[0])


def test_size_counts_elements() -> None:
    assert_same(only("size", np.zeros((2, 3, 4))), np.array(24))
    assert_same(only("size", np.zeros(())), np.array(1))


@given(bounds, bounds, steps)
def test_arange_is_python_s_range(start: int, limit: int, step: int) -> None:
    expected = np.array(range(start, limit, step), dtype=np.int32)
    assert_same(only("arange", start=start, limit=limit, step=step, dtype=DType.I32), expected)
    assert_same(only("dynamic_arange", *(np.array(v, np.int32) for v in (start, limit, step))), expected)


@given(st.integers(0, 9), bounds, steps)
def test_arange_over_a_symbol_has_its_exact_length(size: int, shift: int, step: int) -> None:
    forward: Dim = arange_length(shift, T, step)
    assert evaluate(forward, {"T": size}) == len(range(shift, size, step))
    assert evaluate(arange_length(T, shift, step), {"T": size}) == len(range(size, shift, step))


def test_lengths_of_common_ranges_are_plain() -> None:
    assert arange_length(0, T, 1) == T
    assert arange_length(B, B + T, 1) == T
    assert arange_length(0, 2 * T, 2) == T


def test_a_range_needs_a_step_and_numbers() -> None:
    with pytest.raises(ShapeError, match="step"):
        arange_length(0, T, 0)
    with pytest.raises(TypeRuleError, match="range"):
        types("arange", limit=3, dtype=DType.BOOL)
    with pytest.raises(ExecutionError, match="step"):
        native("dynamic_arange").meaning(np.array(1), np.array(2), np.array(0))


@given(*(st.floats(-5, 5, width=16) for _ in range(2)), st.floats(0.25, 2, width=16), st.booleans())
def test_dynamic_arange_of_floats_is_as_onnx(start: float, limit: float, step: float, down: bool) -> None:
    operands = [np.array(value, dtype=np.float32) for value in (start, limit, -step if down else step)]
    expected = reference("Range", *operands)[0]
    found = only("dynamic_arange", *operands)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_the_elements_of_a_range_are_counted_in_f64() -> None:
    start, one = np.float32(-(2.0**-24)), np.float32(1)  # in f32, one - start is one
    assert only("dynamic_arange", np.array(start), np.array(one), np.array(one)).tolist() == [start, one + start]


def test_a_range_of_small_floats_rounds_each_element_once() -> None:
    operands = [np.array(value, dtype=ml_dtypes.bfloat16) for value in (0, 4, 0.1)]
    found = only("dynamic_arange", *operands)
    step = np.float32(operands[2])
    assert_same(found, (np.arange(40, dtype=np.float32) * step).astype(ml_dtypes.bfloat16))


@given(st.integers(0, 4), st.integers(0, 4), st.integers(-6, 6))
def test_eye_like_is_as_numpy(rows: int, columns: int, diagonal: int) -> None:
    x = np.ones((rows, columns), dtype=np.int32)
    assert_same(only("eye_like", x, diagonal=diagonal), np.eye(rows, columns, k=diagonal, dtype=np.int32))


def test_eye_like_may_give_another_dtype() -> None:
    x = np.ones((2, 2), dtype=np.int32)
    assert_same(only("eye_like", x, dtype=DType.BF16), np.eye(2).astype(ml_dtypes.bfloat16))
    with pytest.raises(TypeRuleError, match="cannot give"):
        only("eye_like", x, dtype=DType.STRING)
    with pytest.raises(TypeRuleError, match="rank 2"):
        only("eye_like", np.ones(3))
