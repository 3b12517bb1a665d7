"""Slices, splits, concatenations and pads, against Python's own slices, NumPy and onnx's reference."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir.dims import Dim, dim_max, dim_min, evaluate, symbol
from capgraph.ir.dims.constraints import collect_constraints
from capgraph.ir.errors import ExecutionError, ShapeError, TypeRuleError
from capgraph.ir.op import FRESH
from capgraph.ir.ops import native
from capgraph.ir.ops.slicing import first_taken, slice_size
from capgraph.ir.types import DType, TensorType
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.ir.ops.native_runs import assert_same, only, outcome
from tests.ir.ops.onnx_oracle import reference

B, T, S = symbol("B"), symbol("T"), symbol("S")
LAST = 2**63 - 1
shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
bounds = st.integers(-6, 6) | st.sampled_from([LAST, -LAST - 1, 2**31 - 1, -(2**31) + 1])
steps = st.integers(-3, 3).filter(bool)


def numbered(shape: tuple[int, ...]) -> Any:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def types(name: str, *operands: TensorType | None, **attrs: Any) -> list[tuple[Dim, ...]]:
    op = native(name)
    inferred = op.result_types(operands, op.complete_attrs(attrs))
    return [ty.dims for ty in inferred if isinstance(ty, TensorType)]


def f32(*dims: Dim) -> TensorType:
    return TensorType(DType.F32, dims)


# ---- slice


@pytest.mark.parametrize(
    ("size", "start", "end", "step", "expected"),
    [
        (T, 0, LAST, 1, "T"),
        (T, 0, 2**31 - 1, 1, "T"),
        (T, 0, T, 1, "T"),
        (T, LAST, -LAST - 1, -1, "T"),
        (T, -1, -LAST - 1, -1, "T"),
        (T, 1, LAST, 1, "max(0, T - 1)"),
        (T, 0, -1, 1, "max(0, T - 1)"),
        (T + 1, 1, LAST, 1, "T"),
        (T, -1, LAST, 1, "min(1, T)"),
        (T, T - 1, T, 1, "min(1, T)"),
        (dim_min(1, T), dim_min(1, T) - 1, dim_min(1, T), 1, "min(1, T)"),
        (T + 1, T, T + 1, 1, "1"),
        (T, 0, 64, 1, "min(64, T)"),
        (2048, 0, T, 1, "min(2048, T)"),
        (S + T, S, LAST, 1, "T"),
        (S + T, 0, S, 1, "S"),
        (S + T, -T, LAST, 1, "T"),
        (T, 0, T // 2, 1, "T//2"),
        (T, T // 2, LAST, 1, "T - T//2"),
        (T, 0, LAST, 2, "(T + 1)//2"),
        (T, 1, LAST, 2, "T//2"),
        (2 * T, 0, LAST, 2, "T"),
        (2 * T, 1, LAST, 2, "T"),
    ],
)
def test_the_common_slices_have_plain_sizes(size: Dim, start: Dim, end: Dim, step: int, expected: str) -> None:
    assert str(slice_size(size, start, end, step)) == expected


@given(st.integers(0, 7), bounds, bounds, steps)
def test_integer_bounds_on_a_symbolic_axis_need_no_constraint(size: int, start: int, end: int, step: int) -> None:
    with collect_constraints() as found:
        inferred = slice_size(T, start, end, step)
    assert not found
    assert evaluate(inferred, {"T": size}) == len(range(size)[start:end:step]) == slice_size(size, start, end, step)


forms: st.SearchStrategy[Dim] = st.one_of(
    st.integers(-4, 4),
    st.builds(lambda c: T + c, st.integers(-4, 4)),
    st.builds(lambda c: c - T, st.integers(-2, 4)),
    st.sampled_from([S, S - T, T - S, T // 2, -S, S // 2 - 1, LAST]),
)


@given(st.sampled_from([T, T + 1, S + T, 5, 2 * T]), forms, forms, steps, st.integers(0, 6), st.integers(0, 6))
def test_symbolic_bounds_are_exact_where_their_constraints_hold(
    size: Dim, start: Dim, end: Dim, step: int, t: int, s: int
) -> None:
    sizes = {"T": t, "S": s}
    with collect_constraints() as found:
        inferred = slice_size(size, start, end, step)
    for constraint in found:
        assume(evaluate(constraint.left, sizes) == evaluate(constraint.right, sizes))
    first, last = evaluate(start, sizes), evaluate(end, sizes)
    assert evaluate(inferred, sizes) == len(range(evaluate(size, sizes))[first:last:step])


def test_only_a_bound_of_open_sign_is_taken_to_have_one() -> None:
    with collect_constraints() as found:
        assert slice_size(2048, S - T, S, 1) is not None
    assert [(str(c.left), str(c.right)) for c in found] == [("max(0, S - T)", "S - T")]
    with collect_constraints() as found:
        assert str(slice_size(S, -T, LAST, 1)) == "min(S, T)"
    assert [(str(c.left), str(c.right)) for c in found] == [("min(-1, -T)", "-T")]


@given(shapes, st.data())
def test_slice_is_as_onnx(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(shape)
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(-rank, rank - 1), min_size=1, unique_by=lambda a: a % rank))
    starts, ends = ([data.draw(bounds) for _ in axes] for _ in range(2))
    strides = [data.draw(steps) for _ in axes]
    operands = [np.array(items, dtype=np.int64) for items in (starts, ends, axes, strides)]
    (expected,) = reference("Slice", x, *operands)
    assert_same(only("slice", x, axes=axes, starts=starts, ends=ends, steps=strides), expected)


@given(shapes, st.data())
def test_dynamic_slice_is_as_onnx(shape: tuple[int, ...], data: st.DataObject) -> None:
    """The reference lacks the clamp of a start to the first element, which ONNX says and its shape inference has."""
    x = numbered(shape)
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(-rank, rank - 1), min_size=1, unique_by=lambda a: a % rank))
    starts, ends = ([data.draw(bounds) for _ in axes] for _ in range(2))
    strides = [data.draw(steps) for _ in axes]
    parts = zip(starts, axes, strides, strict=True)
    clamped = [max(start, -shape[axis]) if step < 0 else start for start, axis, step in parts]
    others = [np.array(items, dtype=np.int64) for items in (ends, axes, strides)]
    (expected,) = reference("Slice", x, np.array(clamped, dtype=np.int64), *others)
    operands = (np.array(starts, dtype=np.int64), *others)
    assert_same(only("dynamic_slice", x, *operands, static={1, 2, 3, 4}), expected)


def test_the_start_of_a_symbolic_axis_is_clamped_by_its_size() -> None:
    assert [first_taken(start, T, -1) for start in (2, -1, -2, -LAST)] == [2, -1, dim_max(T - 2, 0), 0]
    assert first_taken(-2, T + 2, -1) == -2
    assert first_taken(-6, T, 1) == -6


def test_dynamic_slice_without_axes_means_the_first() -> None:
    x = numbered((3, 4))
    found = only("dynamic_slice", x, np.array([1]), np.array([3]), None, None, static={1, 2})
    assert_same(found, x[1:3])
    bound = TensorType(DType.I64, (1,))
    assert types("dynamic_slice", f32(B, T), bound, bound, None, None) == [(FRESH, T)]


def test_a_slice_of_one_string_is_an_array_of_objects() -> None:
    found = only("slice", np.array("abc", dtype=object), axes=(), starts=(), ends=(), steps=())
    assert (found.dtype, found.shape, found.item()) == (np.dtype(object), (), "abc")


def test_a_slice_needs_matching_bounds_and_a_step() -> None:
    with pytest.raises(ShapeError, match="one start, end and step"):
        types("slice", f32(3), axes=(0,), starts=(0, 1), ends=(1,), steps=(1,))
    with pytest.raises(ShapeError, match="cannot be 0"):
        types("slice", f32(T), axes=(0,), starts=(0,), ends=(1,), steps=(0,))
    with pytest.raises(ShapeError, match="out of range"):
        types("slice", f32(T), axes=(1,), starts=(0,), ends=(1,), steps=(1,))


# ---- concat, split


@given(shapes, st.data())
def test_concat_and_split_are_inverse_and_as_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    parts = []
    for index, size in enumerate(sizes):
        whole = list(shape)
        whole[axis] = size
        parts.append(numbered(tuple(whole)) + 100 * index)
    joined = only("concat", *parts, axis=axis)
    assert_same(joined, np.concatenate(parts, axis))
    for name, extra in (("split", {"sizes": sizes}), ("dynamic_split", {})):
        operands = (joined,) if extra else (joined, np.array(sizes))
        for found, part in zip(outcome(name, *operands, static={0, 1}, axis=axis, **extra), parts, strict=True):
            assert_same(found, part)


def test_concat_adds_sizes_and_holds_the_others_together() -> None:
    assert types("concat", f32(B, S, 4), f32(B, T, 4), axis=1) == [(B, S + T, 4)]
    with collect_constraints() as found:
        assert types("concat", f32(B, S), f32(3, T), axis=-1) == [(3, S + T)]
    assert [(c.left, c.right) for c in found] == [(B, 3)]
    with pytest.raises(ShapeError, match="agree along axis 0"):
        types("concat", f32(2, S), f32(3, T), axis=1)
    with pytest.raises(TypeRuleError, match="at least one"):
        types("concat", axis=0)
    with pytest.raises(TypeRuleError, match="rank 2"):
        types("concat", f32(2, S), f32(2), axis=0)


def test_split_sizes_add_up() -> None:
    assert types("split", f32(B, 2 * T), axis=1, sizes=(T, T)) == [(B, T), (B, T)]
    with pytest.raises(ShapeError, match="along axis 0 into"):
        types("split", f32(5), axis=0, sizes=(2, 2))
    with pytest.raises(ExecutionError, match="do not split"):
        only("dynamic_split", np.zeros(5), np.array([2, 2]), static={1}, axis=0)


# ---- pad


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@given(st.data())
def test_pad_is_as_onnx(mode: str, data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=0 if mode == "constant" else 1, max_side=4))
    x = numbered(shape)
    pads = [data.draw(st.integers(0, 5)) for _ in range(2 * len(shape))]
    value = np.array(7, dtype=np.float32) if data.draw(st.booleans()) else None
    operands = (x, np.array(pads, dtype=np.int64), value)
    (expected,) = reference("Pad", *operands, mode=mode)
    assert_same(only("pad", x, value, static={0, 1}, pads=pads, mode=mode), expected)
    assert_same(only("dynamic_pad", *operands, None, static={1, 2}, mode=mode), expected)


@given(shapes, st.data())
def test_negative_pads_of_a_constant_cut_off(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(shape) + 1
    begins = [data.draw(st.integers(-size, 3)) for size in shape]
    ends = [data.draw(st.integers(-(size + begin), 3)) for size, begin in zip(shape, begins, strict=True)]
    found = only("pad", x, None, static={0}, pads=[*begins, *ends])
    for index in np.ndindex(*found.shape):
        source = tuple(i - begin for i, begin in zip(index, begins, strict=True))
        is_inside = all(0 <= i < size for i, size in zip(source, shape, strict=True))
        assert found[index] == (x[source] if is_inside else 0)


def test_negative_pads_of_other_modes_cut_off_first() -> None:
    x = np.arange(5)
    assert_same(only("pad", x, None, static={0}, pads=(-1, 2), mode="wrap"), np.array([1, 2, 3, 4, 1, 2]))
    assert_same(only("pad", x, None, static={0}, pads=(2, -1), mode="reflect"), np.array([2, 1, 0, 1, 2, 3]))


def test_dynamic_pad_of_some_axes() -> None:
    x = numbered((2, 3))
    found = only("dynamic_pad", x, np.array([1, 2]), None, np.array([-1], dtype=np.int32), static={1, 3})
    assert_same(found, np.pad(x, ((0, 0), (1, 2))))


def test_pad_fills_other_dtypes() -> None:
    words = np.array(["a"], dtype=object)
    assert only("pad", words, None, static={0}, pads=(1, 0)).tolist() == ["", "a"]
    small = np.ones(1, dtype=ml_dtypes.float8_e4m3fn)
    assert_same(only("pad", small, small, static={0, 1}, pads=(0, 1)), np.ones(2, dtype=ml_dtypes.float8_e4m3fn))
    assert_same(only("pad", np.ones(1, bool), None, static={0}, pads=(0, 1)), np.array([True, False]))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_a_scalar_has_nothing_to_pad(mode: str) -> None:
    assert_same(only("pad", np.array(7), None, pads=(), mode=mode), np.array(7))
    word = np.array("a", dtype=object)
    assert only("pad", word, None, pads=(), mode=mode).item() == "a"


def test_pads_give_exact_sizes_and_are_checked() -> None:
    assert types("pad", f32(B, T), None, pads=(0, 1, 0, S - T)) == [(B, S + 1)]
    with pytest.raises(ShapeError, match="negative size"):
        types("pad", f32(2), None, pads=(-2, -1))
    with pytest.raises(ShapeError, match="for each of 2 axes"):
        types("pad", f32(B, T), None, pads=(1, 1))
    with pytest.raises(TypeRuleError, match="one element"):
        types("pad", f32(3), f32(2), pads=(1, 1))
    with pytest.raises(ShapeError, match="for each of 1 axes"):
        types("dynamic_pad", f32(3, 4), TensorType(DType.I64, (4,)), None, TensorType(DType.I64, (1,)))
