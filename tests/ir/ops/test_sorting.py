"""Sorts and the first k, against Python's stable sort and onnx's reference."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir.dims import symbol
from capgraph.ir.errors import ExecutionError, ShapeError
from capgraph.ir.op import FRESH
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.ir.ops.native_runs import assert_same, outcome
from tests.ir.ops.onnx_oracle import reference

B, T = symbol("B"), symbol("T")
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.bool_]
shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)


def stable_order(row: list[Any], descending: bool) -> list[int]:
    """Equal elements in order of their indices; NaN greater than all."""
    keys = [(math.isnan(element), 0 if math.isnan(element) else element) for element in row]
    if not descending:
        return sorted(range(len(row)), key=lambda index: keys[index])
    return sorted(sorted(range(len(row))), key=lambda index: keys[index], reverse=True)


def values_of(data: st.DataObject, shape: tuple[int, ...], dtype: Any) -> Any:
    elements = st.integers(0, 3) if np.dtype(dtype).kind in "biu" else st.sampled_from([0.0, 1, -2, 3, np.inf, np.nan])
    drawn = data.draw(hnp.arrays(np.float64, shape, elements=elements.map(float)))
    return drawn.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(shapes, st.booleans(), st.data())
def test_sort_is_stable_in_both_directions(dtype: Any, shape: tuple[int, ...], down: bool, data: st.DataObject) -> None:
    x = values_of(data, shape, dtype)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    values, indices = outcome("sort", x, axis=axis, descending=down)
    rows = np.moveaxis(x, axis, -1).reshape(-1, shape[axis]) if x.size else np.zeros((0, 0), dtype)
    expected = [stable_order(row.astype(np.float64).tolist(), down) for row in rows]
    found = np.moveaxis(indices, axis, -1).reshape(-1, shape[axis]) if x.size else np.zeros((0, 0))
    assert found.tolist() == expected
    assert_same(values, np.take_along_axis(x, indices, axis))


@given(shapes, st.booleans(), st.data())
def test_top_k_is_the_head_of_a_sort(shape: tuple[int, ...], largest: bool, data: st.DataObject) -> None:
    x = values_of(data, shape, np.float32)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    k = data.draw(st.integers(0, shape[axis]))
    for name, operands, attrs in (("top_k", (x,), {"k": k}), ("dynamic_top_k", (x, np.array([k])), {})):
        found = outcome(name, *operands, static={1}, axis=axis, largest=largest, **attrs)
        for result, whole in zip(found, outcome("sort", x, axis=axis, descending=largest), strict=True):
            assert_same(result, np.take(whole, range(k), axis))


@pytest.mark.parametrize("largest", [True, False])
def test_top_k_is_as_onnx(largest: bool) -> None:
    x = np.array([[0, 1, 1, 3], [4, 4, 4, 4], [2, 0, 2, 0]], dtype=np.int32)
    expected = reference("TopK", x, np.array([3]), outputs=2, largest=int(largest), sorted=1, axis=1)
    for found, wanted in zip(outcome("top_k", x, k=3, axis=1, largest=largest), expected, strict=True):
        assert_same(found, wanted)


def test_the_least_integer_and_nan_sort_right_downwards() -> None:
    values, _ = outcome("sort", np.array([-128, 0, 127], dtype=np.int8), descending=True)
    assert values.tolist() == [127, 0, -128]
    _, indices = outcome("sort", np.array([1, np.nan, 2], dtype=np.float32), descending=True)
    assert indices.tolist() == [1, 2, 0]


def test_top_k_takes_no_more_than_there_is() -> None:
    op = native("top_k")
    x = TensorType(DType.F32, (B, T))
    assert op.result_types([x], op.complete_attrs({"k": 3}))[1] == TensorType(DType.I64, (B, 3))
    with pytest.raises(ShapeError, match="more than"):
        op.result_types([TensorType(DType.F32, (2,))], op.complete_attrs({"k": 3}))
    with pytest.raises(ShapeError, match="cannot take"):
        op.result_types([x], op.complete_attrs({"k": -1}))
    dynamic = native("dynamic_top_k")
    assert dynamic.result_types([x, TensorType(DType.I64, (1,))], dynamic.complete_attrs({}))[0] == x.with_shape(
        (B, FRESH)
    )
    with pytest.raises(ExecutionError, match="takes 3 elements"):
        outcome("dynamic_top_k", np.zeros(2, np.float32), np.array([3]))
