"""Gathers, one_hot, trilu and the cache write, against NumPy, plain loops and onnx's reference."""

from typing import Any

import numpy as np
import pytest
from capgraph.ir.dims import Dim, symbol
from capgraph.ir.errors import ExecutionError, ShapeError, TypeRuleError
from capgraph.ir.op import FRESH
from capgraph.ir.ops import native
from capgraph.ir.ops.indexing import tensor_scatter
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.ir.ops.native_runs import assert_same, only
from tests.ir.ops.onnx_oracle import reference

B, T, S = symbol("B"), symbol("T"), symbol("S")
shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)


def numbered(shape: tuple[int, ...]) -> Any:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def types(name: str, *operands: TensorType | None, **attrs: Any) -> tuple[Dim, ...]:
    op = native(name)
    (result,) = op.result_types(operands, op.complete_attrs(attrs))
    assert isinstance(result, TensorType)
    return result.dims


def f32(*dims: Dim) -> TensorType:
    return TensorType(DType.F32, dims)


def i64(*dims: Dim) -> TensorType:
    return TensorType(DType.I64, dims)


def indices_into(data: st.DataObject, shape: tuple[int, ...], size: int, dtype: Any = np.int64) -> Any:
    return data.draw(hnp.arrays(dtype, shape, elements=st.integers(-size, size - 1)))


# ---- gather


@given(shapes, hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3), st.data())
def test_gather_is_as_onnx(shape: tuple[int, ...], picked: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    indices = indices_into(data, picked, shape[axis], data.draw(st.sampled_from([np.int64, np.int32])))
    assert_same(only("gather", x, indices, axis=axis), reference("Gather", x, indices, axis=axis)[0])


def test_gather_of_strings_and_from_an_empty_axis() -> None:
    words = np.array(["a", "b"], dtype=object)
    assert only("gather", words, np.array(-1)).item() == "b"
    assert only("gather", np.zeros((0, 3)), np.zeros(0, dtype=np.int64)).shape == (0, 3)


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_out_of_range_is_named(index: int) -> None:
    x, at = np.zeros((2, 3)), np.array([0, index])
    with pytest.raises(ExecutionError, match=f"gather: index {index} is out of range for an axis of size 3"):
        only("gather", x, at, axis=1)
    with pytest.raises(ExecutionError, match=f"index {index}"):
        only("gather_elements", x, np.array([[index]]), axis=1)
    with pytest.raises(ExecutionError, match=f"index {index}"):
        only("gather_nd", x, np.array([[0, index]]), static={1})


def test_gather_replaces_an_axis() -> None:
    assert types("gather", f32(B, 30, 4), i64(S, T), axis=1) == (B, S, T, 4)
    assert types("gather", f32(B, 3), i64(), axis=-1) == (B,)
    with pytest.raises(ShapeError, match="out of range"):
        types("gather", f32(B), i64(), axis=1)


def test_gather_follows_shapes() -> None:
    rule = native("gather").symbolic
    assert rule is not None
    attrs = native("gather").complete_attrs({})
    content = np.array([B, T, 3], dtype=object)
    known = [i64(3), i64(2)]
    assert rule(known, [content, np.array([-1, 0], dtype=object)], attrs).tolist() == [3, B]
    assert rule(known, [content, np.array([T, 0], dtype=object)], attrs) is None
    assert rule(known, [None, np.array([0], dtype=object)], attrs) is None


@given(shapes, st.data())
def test_gather_elements_is_as_a_plain_loop(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    picked = [data.draw(st.integers(0, size)) for size in shape]
    picked[axis] = data.draw(st.integers(0, 4))
    indices = indices_into(data, tuple(picked), shape[axis])
    expected = np.zeros(picked, dtype=np.float32)
    for position in np.ndindex(*picked):
        source = list(position)
        source[axis] = indices[position]
        expected[position] = x[tuple(source)]
    # That the indices fit is not known of symbols, so it is no question of types.
    assert_same(only("gather_elements", x, indices, axis=axis), expected)


def test_gather_elements_is_as_onnx() -> None:
    x, indices = numbered((3, 3)), np.array([[1, 2, 0], [2, 0, 0]])
    assert_same(only("gather_elements", x, indices, axis=0), reference("GatherElements", x, indices, axis=0)[0])
    with pytest.raises(ShapeError, match="axis 1"):
        types("gather_elements", f32(3, 2), i64(3, 3), axis=0)
    with pytest.raises(TypeRuleError, match="rank 2"):
        types("gather_elements", f32(3, 2), i64(3), axis=0)


@given(shapes, st.integers(0, 2), st.data())
def test_gather_nd_is_as_a_plain_loop(shape: tuple[int, ...], between: int, data: st.DataObject) -> None:
    x = numbered(shape)
    batch = data.draw(st.integers(0, len(shape) - 1))
    depth = data.draw(st.integers(1, len(shape) - batch))
    columns = [indices_into(data, (*shape[:batch], *[2] * between), shape[batch + i]) for i in range(depth)]
    indices = np.stack(columns, axis=-1)
    expected = np.zeros((*indices.shape[:-1], *shape[batch + depth :]), dtype=np.float32)
    for position in np.ndindex(*indices.shape[:-1]):
        expected[position] = x[position[:batch]][tuple(indices[position])]
    assert_same(only("gather_nd", x, indices, static={1}, batch_dims=batch), expected)


def test_gather_nd_is_as_onnx() -> None:
    x, indices = numbered((2, 2, 2)), np.array([[1], [0]])
    assert_same(
        only("gather_nd", x, indices, static={1}, batch_dims=1), reference("GatherND", x, indices, batch_dims=1)[0]
    )
    assert types("gather_nd", f32(B, T, 5, 6), i64(B, S, 2), batch_dims=1) == (B, S, 6)
    with pytest.raises(TypeRuleError, match="static length"):
        types("gather_nd", f32(B, T), i64(S, T))
    with pytest.raises(TypeRuleError, match="batch_dims"):
        types("gather_nd", f32(B, T), i64(B, 1), batch_dims=2)


# ---- one_hot


@given(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3), st.integers(0, 4), st.data())
def test_one_hot_is_as_a_plain_loop(shape: tuple[int, ...], depth: int, data: st.DataObject) -> None:
    indices = data.draw(hnp.arrays(np.int64, shape, elements=st.integers(-6, 6)))
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    values = np.array([2, 5], dtype=np.int32)
    expected = np.full((*shape, depth), 2, dtype=np.int32)
    for position in np.ndindex(*shape):
        if -depth <= indices[position] < depth:
            expected[(*position, indices[position] % depth)] = 5
    expected = np.moveaxis(expected, -1, axis)
    assert_same(only("one_hot", indices, values, static={1}, depth=depth, axis=axis), expected)
    assert_same(only("dynamic_one_hot", indices, np.array([depth]), values, static={1, 2}, axis=axis), expected)


def test_one_hot_is_as_onnx() -> None:
    indices, values = np.array([1, 9, 2.0], dtype=np.float32), np.array([1, 3], dtype=np.float32)
    (expected,) = reference("OneHot", indices, np.array(10), values, axis=0)
    assert_same(only("one_hot", indices, values, static={1}, depth=10, axis=0), expected)
    assert types("one_hot", i64(B), f32(2), depth=T) == (B, T)
    assert types("dynamic_one_hot", i64(B), i64(), f32(2)) == (B, FRESH)
    with pytest.raises(ShapeError, match="depth"):
        types("one_hot", i64(B), f32(2), depth=-1)


# ---- trilu


@given(hnp.array_shapes(min_dims=2, max_dims=3, min_side=0, max_side=4), st.integers(-5, 5), st.booleans())
def test_trilu_is_as_numpy(shape: tuple[int, ...], diagonal: int, upper: bool) -> None:
    x = numbered(shape) + 1
    expected = np.triu(x, diagonal) if upper else np.tril(x, diagonal)
    assert_same(only("trilu", x, upper=upper, diagonal=diagonal), expected)
    assert_same(only("dynamic_trilu", x, np.array(diagonal), upper=upper), expected)


def test_trilu_keeps_infinities_out() -> None:
    x = np.full((2, 2), -np.inf, dtype=np.float32)
    assert_same(only("trilu", x, upper=True, diagonal=1), np.array([[0, -np.inf], [0, 0]], dtype=np.float32))
    with pytest.raises(TypeRuleError, match="matrices"):
        types("trilu", f32(3))


def test_trilu_of_strings_has_empty_ones_elsewhere() -> None:
    x = np.array([["a", "b"], ["c", "d"]], object)
    expected = np.array([["a", "b"], ["", "d"]], object)
    assert only("trilu", x, upper=True, diagonal=0).tolist() == expected.tolist()
    assert only("dynamic_trilu", x, np.array(0), upper=True).tolist() == expected.tolist()


# ---- tensor_scatter


@pytest.mark.parametrize("mode", ["linear", "circular"])
@given(st.integers(0, 3), st.integers(1, 5), st.booleans(), st.data())
def test_tensor_scatter_is_as_a_plain_loop(mode: str, batch: int, size: int, given_: bool, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, size))
    cache, update = numbered((batch, 2, size, 2)), -1 - numbered((batch, 2, length, 2))
    highest = size - length if mode == "linear" else 2 * size
    positions = data.draw(hnp.arrays(np.int64, batch, elements=st.integers(0, highest))) if given_ else None
    expected = cache.copy()
    for entry in range(batch):
        for step in range(length):
            place = step + (0 if positions is None else positions[entry])
            expected[entry, :, place % size] = update[entry, :, step]
    assert_same(only("tensor_scatter", cache, update, positions, mode=mode), expected)


def test_tensor_scatter_is_as_onnx() -> None:
    cache, update, positions = numbered((2, 1, 4, 3)), -numbered((2, 1, 2, 3)), np.array([1, 3])
    (expected,) = reference("TensorScatter", cache, update, positions, opset=24, mode="circular")
    assert_same(only("tensor_scatter", cache, update, positions, mode="circular"), expected)
    with pytest.raises(ExecutionError, match="into a cache of 4"):
        only("tensor_scatter", cache, update, positions)


def test_tensor_scatter_has_one_position_for_each_batch_entry() -> None:
    cache, update = np.zeros((1, 4, 3), np.float32), np.ones((1, 2, 3), np.float32)
    with pytest.raises(ExecutionError, match="one position for each batch entry: 4 for 1"):
        tensor_scatter(cache, update, np.zeros(4, np.int64), axis=1, mode="circular")


def test_tensor_scatter_keeps_the_type_of_the_cache() -> None:
    assert types("tensor_scatter", f32(B, S, 8), f32(B, T, 8), i64(B)) == (B, S, 8)
    with pytest.raises(ShapeError, match="along axis 0"):
        types("tensor_scatter", f32(B, S), f32(B, S), None)
    with pytest.raises(ShapeError, match="more than"):
        types("tensor_scatter", f32(B, 3, 8), f32(B, 4, 8), None)
    assert native("tensor_scatter").aliases == ((0, 0),)
