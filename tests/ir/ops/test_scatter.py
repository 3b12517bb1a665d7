"""Scatters with every reduction, against plain loops and onnx's reference."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir.dims import Dim, symbol
from capgraph.ir.errors import ExecutionError, ShapeError, TypeRuleError
from capgraph.ir.op import FLOATS
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.ir.ops.native_runs import assert_same, only
from tests.ir.ops.onnx_oracle import reference

B, T = symbol("B"), symbol("T")
COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda _old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}
reductions = st.sampled_from(list(COMBINE))
shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)


def numbered(shape: tuple[int, ...]) -> Any:
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)


def types(name: str, *operands: TensorType, **attrs: Any) -> tuple[Dim, ...]:
    op = native(name)
    (result,) = op.result_types(operands, op.complete_attrs(attrs))
    assert isinstance(result, TensorType)
    return result.dims


@given(shapes, reductions, st.data())
def test_scatter_elements_is_as_a_plain_loop(shape: tuple[int, ...], reduction: str, data: st.DataObject) -> None:
    x = numbered(shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    picked = [data.draw(st.integers(0, size)) for size in shape]
    picked[axis] = data.draw(st.integers(0, 5))
    indices = data.draw(hnp.arrays(np.int64, picked, elements=st.integers(-shape[axis], shape[axis] - 1)))
    updates = data.draw(hnp.arrays(np.int64, picked, elements=st.integers(-3, 3)))
    expected = x.copy()
    for position in np.ndindex(*picked):
        target = list(position)
        target[axis] = indices[position]
        expected[tuple(target)] = COMBINE[reduction](expected[tuple(target)], updates[position])
    assert_same(only("scatter_elements", x, indices, updates, axis=axis, reduction=reduction), expected)


@given(shapes, reductions, st.data())
def test_scatter_nd_is_as_a_plain_loop(shape: tuple[int, ...], reduction: str, data: st.DataObject) -> None:
    x = numbered(shape)
    depth = data.draw(st.integers(1, len(shape)))
    count = data.draw(st.lists(st.integers(0, 3), max_size=2))
    columns = [data.draw(hnp.arrays(np.int64, count, elements=st.integers(-n, n - 1))) for n in shape[:depth]]
    indices = np.stack(columns, axis=-1)
    updates = data.draw(hnp.arrays(np.int64, (*count, *shape[depth:]), elements=st.integers(-3, 3)))
    expected = x.copy()
    for position in np.ndindex(*count):
        for rest in np.ndindex(*shape[depth:]):
            target = (*(int(i) for i in indices[position]), *rest)
            expected[target] = COMBINE[reduction](expected[target], updates[(*position, *rest)])
    assert_same(only("scatter_nd", x, indices, updates, static={1}, reduction=reduction), expected)


@pytest.mark.parametrize("reduction", COMBINE)
def test_scatters_are_as_onnx(reduction: str) -> None:
    x, indices = numbered((4, 3)).astype(np.float32), np.array([[1, 0, 3], [0, 2, -1]])
    updates = np.full((2, 3), 2.5, dtype=np.float32)
    attrs: dict[str, Any] = {"reduction": reduction}
    (expected,) = reference("ScatterElements", x, indices, updates, axis=0, **attrs)
    assert_same(only("scatter_elements", x, indices, updates, axis=0, **attrs), expected)
    rows = np.array([[2], [2]] if reduction != "none" else [[2], [0]])
    (expected,) = reference("ScatterND", x, rows, updates, **attrs)
    assert_same(only("scatter_nd", x, rows, updates, static={1}, **attrs), expected)


@pytest.mark.parametrize("dtype", [*sorted(FLOATS, key=str), DType.F8E4M3FN, DType.I4, DType.BOOL])
def test_every_dtype_can_be_reduced(dtype: DType) -> None:
    x, indices = np.zeros(2, dtype=dtype.numpy), np.array([[1]])
    for name, at in (("scatter_nd", indices), ("scatter_elements", indices[0])):
        found = only(name, x, at, np.ones(1, dtype=dtype.numpy), static={1}, reduction="max")
        assert_same(found, np.array([0, 1]).astype(dtype.numpy))


def test_a_sum_of_small_floats_is_rounded_once() -> None:
    x = np.array([256], dtype=ml_dtypes.bfloat16)
    ones = np.ones(8, dtype=ml_dtypes.bfloat16)
    found = only("scatter_elements", x, np.zeros(8, dtype=np.int64), ones, reduction="add")
    assert_same(found, np.array([264], dtype=ml_dtypes.bfloat16))


def test_nan_wins_a_maximum() -> None:
    x, nan = np.ones(1, dtype=np.float32), np.full(1, np.nan, dtype=np.float32)
    assert np.isnan(only("scatter_elements", x, np.zeros(1, dtype=np.int64), nan, reduction="max"))


def test_an_index_out_of_range_is_named() -> None:
    x = np.zeros((2, 3))
    with pytest.raises(ExecutionError, match="scatter_elements: index 3"):
        only("scatter_elements", x, np.array([[3]]), np.zeros((1, 1)), axis=1)
    with pytest.raises(ExecutionError, match="scatter_nd: index -3"):
        only("scatter_nd", x, np.array([[-3]]), np.zeros((1, 3)), static={1})


def test_updates_have_the_shape_that_the_indices_say() -> None:
    x = TensorType(DType.F32, (B, T, 4))
    assert types("scatter_nd", x, TensorType(DType.I64, (5, 2)), TensorType(DType.F32, (5, 4))) == (B, T, 4)
    with pytest.raises(ShapeError, match="updates"):
        types("scatter_nd", x, TensorType(DType.I64, (5, 2)), TensorType(DType.F32, (5, 3)))
    with pytest.raises(TypeRuleError, match="from 1 to 3"):
        types("scatter_nd", x, TensorType(DType.I64, (5, 4)), TensorType(DType.F32, (5,)))
    with pytest.raises(ShapeError, match="one update for each index"):
        types("scatter_elements", x, TensorType(DType.I64, (1, 1, 2)), TensorType(DType.F32, (1, 1, 3)))
    words = TensorType(DType.STRING, (2,))
    with pytest.raises(TypeRuleError, match="reduced"):
        types("scatter_elements", words, TensorType(DType.I64, (1,)), words.with_shape((1,)), reduction="add")
