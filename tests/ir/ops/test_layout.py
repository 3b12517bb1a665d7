"""Reshapes, expansions and moves, against NumPy and onnx's reference; and their exact symbolic sizes."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from capgraph.ir.dims import Dim, dim_min, evaluate, symbol
from capgraph.ir.dims.constraints import collect_constraints
from capgraph.ir.errors import ExecutionError, ShapeError, TypeRuleError
from capgraph.ir.op import Trait
from capgraph.ir.ops import native
from capgraph.ir.ops.layout import resolve_reshape
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.ir.ops.native_runs import assert_same, only
from tests.ir.ops.onnx_oracle import reference

Array = npt.NDArray[Any]
B, T, S = symbol("B"), symbol("T"), symbol("S")
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)


def numbered(*shape: int) -> Array:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def shape_of(name: str, dims: tuple[Dim, ...], **attrs: Any) -> tuple[Dim, ...]:
    op = native(name)
    (result,) = op.result_types([TensorType(DType.F32, dims)], op.complete_attrs(attrs))
    assert isinstance(result, TensorType)
    return result.dims


# ---- reshape


@pytest.mark.parametrize(
    ("operand", "requested", "allow_zero", "expected"),
    [
        ((B, T, 768), (0, -1, 12, 64), False, (B, T, 12, 64)),
        ((B, T, 768), (0, 0, 12, -1), False, (B, T, 12, 64)),
        ((B, T, 768), (-1, 768), False, (B * T, 768)),
        ((B * T, 64), (B, -1, 64), False, (B, T, 64)),
        ((B, 12, T, 64), (B, 12, -1), False, (B, 12, 64 * T)),
        ((2 * T,), (-1, 2), False, (T, 2)),
        ((0, 3, 4), (0, -1), False, (0, 12)),
        ((3, 0), (3, 0), True, (3, 0)),
        ((0, 3), (0, 5), True, (0, 5)),
        ((), (-1,), False, (1,)),
        ((0, 3), (5, 0, -1), False, (5, 3, 0)),
        ((6,), (), False, ()),
    ],
)
def test_a_requested_shape_is_resolved_exactly(operand: Any, requested: Any, allow_zero: bool, expected: Any) -> None:
    assert resolve_reshape(operand, requested, allow_zero) == expected


@pytest.mark.parametrize(
    ("operand", "requested", "problem"),
    [
        ((2, 3), (-1, -1), "more than one"),
        ((2, 3), (4, -1), "cannot be reshaped"),
        ((2, 3), (2, 3, 0), "copies nothing"),
        ((2, 3), (-2, 3), "negative"),
        ((2 * T + 1,), (2, -1), "cannot be reshaped"),
    ],
)
def test_a_requested_shape_that_cannot_be_is_refused(operand: Any, requested: Any, problem: str) -> None:
    with pytest.raises(ShapeError, match=problem):
        resolve_reshape(operand, requested, allow_zero=False)


def test_a_size_cannot_be_found_beside_a_zero() -> None:
    with pytest.raises(ShapeError, match="beside a size of 0"):
        resolve_reshape((2, 3), (0, -1), allow_zero=True)
    with pytest.raises(ShapeError, match="beside a size of 0"):  # any size would do, whatever the operand's are
        resolve_reshape((0, 3), (0, -1), allow_zero=True)


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int]]:
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
    factors = [factor for size in shape for factor in ((2, size // 2) if size % 2 == 0 else (size,))]
    order = draw(st.permutations(factors))
    for axis, size in enumerate(order[: len(shape)]):
        if size == shape[axis] and draw(st.booleans()):
            order[axis] = 0
    if draw(st.booleans()):
        order[draw(st.integers(0, len(order) - 1))] = -1
    return shape, order


@given(reshapes())
def test_reshape_is_as_onnx(case: tuple[tuple[int, ...], list[int]]) -> None:
    shape, requested = case
    x = numbered(*shape)
    (expected,) = reference("Reshape", x, np.array(requested))
    resolved = resolve_reshape(shape, requested, allow_zero=False)
    assert_same(only("reshape", x, static={0}, shape=resolved), expected)
    assert_same(only("dynamic_reshape", x, np.array(requested), static={1}), expected)


@given(shapes.filter(bool), st.data())
def test_what_is_resolved_for_symbols_is_right_for_their_sizes(shape: tuple[int, ...], data: st.DataObject) -> None:
    sizes = {f"s{axis}": size for axis, size in enumerate(shape)}
    operand = tuple(symbol(name) for name in sizes)
    cut = data.draw(st.integers(0, len(shape) - 1))
    requested = (*operand[:cut], -1)
    resolved = resolve_reshape(operand, requested, allow_zero=True)
    assert [evaluate(dim, sizes) for dim in resolved] == [*shape[:cut], math.prod(shape[cut:])]


def test_reshape_counts_elements() -> None:
    assert shape_of("reshape", (B, 4), shape=(2 * B, 2)) == (2 * B, 2)
    with collect_constraints() as found:
        shape_of("reshape", (B, T), shape=(S,))
    assert [str(constraint).split(" (")[0] for constraint in found] == ["B*T == S"]
    with pytest.raises(ShapeError, match="number of elements"):
        shape_of("reshape", (2, 3), shape=(5,))


# ---- expand, tile


@given(shapes, st.data())
def test_expand_is_as_onnx(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(*shape)
    widened = [data.draw(st.integers(0, 3)) if size == 1 else size for size in shape]
    target = data.draw(st.lists(st.integers(0, 2), max_size=2)) + widened
    (expected,) = reference("Expand", x, np.array(target, dtype=np.int64))
    assert_same(only("expand", x, shape=target), expected)
    assert_same(only("dynamic_expand", x, np.array(target, dtype=np.int64), static={1}), expected)


def test_dynamic_expand_leaves_axes_that_are_asked_to_be_1() -> None:
    x = numbered(3, 1)
    assert_same(only("dynamic_expand", x, np.array([2, 1, 6]), static={1}), np.broadcast_to(x, (2, 3, 6)))


def test_expand_keeps_symbols_and_refuses_what_cannot_fit() -> None:
    assert shape_of("expand", (1, T), shape=(B, 1, T)[::2]) == (B, T)
    with collect_constraints() as found:
        assert shape_of("expand", (dim_min(1, T),), shape=(3,)) == (3,)
    assert [(each.left, each.right) for each in found] == [(dim_min(1, T), 1)]
    with collect_constraints() as found:
        assert shape_of("expand", (dim_min(1, T), dim_min(1, B)), shape=(T, 0)) == (T, 0)
    assert not found
    with pytest.raises(ShapeError, match="must expand"):
        shape_of("expand", (3,), shape=(4,))
    with pytest.raises(ShapeError, match="more axes"):
        shape_of("expand", (3, 4), shape=(4,))


@given(shapes, st.data())
def test_tile_is_as_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(*shape)
    repeats = [data.draw(st.integers(0, 3)) for _ in shape]
    expected = np.tile(x, repeats)
    assert_same(only("tile", x, repeats=repeats), expected)
    assert_same(only("dynamic_tile", x, np.array(repeats, dtype=np.int64), static={1}), expected)


def test_tile_needs_a_repeat_for_each_axis() -> None:
    assert shape_of("tile", (B, 3), repeats=(2, T)) == (2 * B, 3 * T)
    with pytest.raises(ShapeError, match="one repeat for each"):
        shape_of("tile", (B, 3), repeats=(2,))


# ---- transpose, squeeze, unsqueeze


@given(shapes, st.data())
def test_transpose_is_as_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(*shape)
    perm = data.draw(st.permutations(range(len(shape))))
    assert_same(only("transpose", x, perm=perm), np.transpose(x, perm))


def test_transpose_needs_a_permutation() -> None:
    assert shape_of("transpose", (B, T, 3), perm=(2, 0, 1)) == (3, B, T)
    with pytest.raises(ShapeError, match="permutation"):
        shape_of("transpose", (B, T), perm=(0, 0))


@given(shapes, st.data())
def test_unsqueeze_and_squeeze_are_as_onnx_and_inverse(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(*shape)
    rank = len(shape) + 2
    axes = data.draw(st.lists(st.integers(-rank, rank - 1), min_size=2, max_size=2, unique_by=lambda a: a % rank))
    (wide,) = reference("Unsqueeze", x, np.array(axes))
    assert_same(only("unsqueeze", x, axes=axes), wide)
    assert_same(only("dynamic_unsqueeze", x, np.array(axes), static={1}), wide)
    assert_same(only("squeeze", wide, axes=axes), x)
    assert_same(only("dynamic_squeeze", wide, np.array(axes), static={1}), x)


def test_a_squeezed_axis_must_have_size_1() -> None:
    with collect_constraints() as found:
        assert shape_of("squeeze", (B, T), axes=(-2,)) == (T,)
    assert [(constraint.left, constraint.right) for constraint in found] == [(B, 1)]
    with pytest.raises(ShapeError, match="size 1"):
        shape_of("squeeze", (B, 2), axes=(1,))
    with pytest.raises(ShapeError, match="repeat"):
        shape_of("unsqueeze", (B,), axes=(0, -3))


# ---- depth and space


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@given(st.tuples(*(st.integers(0, 2) for _ in range(4))), st.integers(1, 3))
def test_depth_to_space_is_as_onnx(mode: str, shape: tuple[int, ...], b: int) -> None:
    x = numbered(shape[0], shape[1] * b * b, *shape[2:])
    (expected,) = reference("DepthToSpace", x, blocksize=b, mode=mode)
    assert_same(only("depth_to_space", x, static={0}, block_size=b, mode=mode), expected)
    assert_same(only("space_to_depth", expected, static={0}, block_size=b, mode=mode), x)


def test_space_to_depth_is_as_onnx() -> None:
    x = numbered(2, 3, 4, 6)
    assert_same(only("space_to_depth", x, static={0}, block_size=2), reference("SpaceToDepth", x, blocksize=2)[0])


def test_blocks_must_divide_the_image() -> None:
    assert shape_of("space_to_depth", (B, 3, 2 * T, 4), block_size=2) == (B, 12, T, 2)
    with pytest.raises(ShapeError, match="multiple of 4"):
        shape_of("depth_to_space", (B, 6, T, 4), block_size=2)
    with pytest.raises(TypeRuleError, match="positive"):
        shape_of("depth_to_space", (B, 6, T, 4), block_size=0)


# ---- reverse, roll, reverse_sequence


@given(shapes.filter(bool), st.data())
def test_reverse_and_roll_are_as_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(*shape)
    axes = data.draw(st.lists(st.integers(-len(shape), -1), unique=True))
    shifts = [data.draw(st.integers(-4, 4)) for _ in axes]
    assert_same(only("reverse", x, axes=axes), np.flip(x, tuple(axes)))
    rolled = only("roll", x, axes=axes, shifts=shifts)
    expected = x
    for axis, shift in zip(axes, shifts, strict=True):
        size = x.shape[axis]
        if size:
            expected = np.take(expected, [(index - shift) % size for index in range(size)], axis)
    assert_same(rolled, expected)


def test_roll_needs_a_shift_for_each_axis() -> None:
    with pytest.raises(ShapeError, match="one shift for each"):
        shape_of("roll", (B, T), axes=(0, 1), shifts=(1,))


@given(st.integers(0, 3), st.integers(0, 4), st.booleans(), st.data())
def test_reverse_sequence_is_as_onnx(batch: int, time: int, time_first: bool, data: st.DataObject) -> None:
    lengths = np.array([data.draw(st.integers(0, time)) for _ in range(batch)], dtype=np.int64)
    x = numbered(time, batch, 2) if time_first else numbered(batch, time, 2)
    axes = {"time_axis": 0, "batch_axis": 1} if time_first else {"time_axis": 1, "batch_axis": 0}
    rows = np.moveaxis(x, 1, 0) if time_first else x
    expected = [np.concatenate([row[:length][::-1], row[length:]]) for row, length in zip(rows, lengths, strict=True)]
    turned = np.array(expected, dtype=np.float32).reshape(batch, time, 2)
    assert_same(only("reverse_sequence", x, lengths, **axes), np.moveaxis(turned, 0, 1) if time_first else turned)
    if batch and time and lengths.all():
        assert_same(
            np.moveaxis(turned, 0, 1) if time_first else turned, reference("ReverseSequence", x, lengths, **axes)[0]
        )


def test_reverse_sequence_of_nothing_takes_any_lengths() -> None:
    assert only("reverse_sequence", numbered(0, 2), np.array([1, 3])).shape == (0, 2)


def test_reverse_sequence_refuses_lengths_beyond_the_sequence() -> None:
    with pytest.raises(ExecutionError, match="number of steps 3"):
        only("reverse_sequence", numbered(3, 1), np.array([4]))
    with pytest.raises(ShapeError, match="both 0"):
        only("reverse_sequence", numbered(3, 1), np.array([4]), batch_axis=0, time_axis=-2)


# ---- facts that drivers rely on


@given(shapes.filter(bool))
def test_views_share_the_operand_s_memory(shape: tuple[int, ...]) -> None:
    x = numbered(*shape)
    rank = len(shape)
    views: dict[str, dict[str, Any]] = {
        "reshape": {"shape": (x.size,)},
        "expand": {"shape": (2, *shape)},
        "transpose": {"perm": tuple(reversed(range(rank)))},
        "unsqueeze": {"axes": (0,)},
    }
    for name, attrs in views.items():
        assert native(name).has(Trait.VIEW)
        result = native(name).meaning(x, **attrs)
        assert result.base is x or result.base is x.base or not x.size


def test_roll_over_no_axis_moves_nothing() -> None:
    for x in (np.array(7), np.arange(3)):
        assert_same(only("roll", x, axes=(), shifts=()), x)


def test_the_dynamic_forms_are_not_capturable() -> None:
    for name in ("reshape", "expand", "tile", "squeeze", "unsqueeze"):
        assert not native(f"dynamic_{name}").is_capturable
        assert native(name).is_capturable


def test_symbolic_meanings_move_dims() -> None:
    content = np.array([B, T, 3, 4], dtype=object)
    ty = [TensorType(DType.I64, (4,))]
    for name, attrs, expected in [
        ("reshape", {"shape": (2, 2)}, [[B, T], [3, 4]]),
        ("tile", {"repeats": (2,)}, [B, T, 3, 4, B, T, 3, 4]),
        ("unsqueeze", {"axes": (0,)}, [[B, T, 3, 4]]),
        ("reverse", {"axes": (0,)}, [4, 3, T, B]),
    ]:
        op = native(name)
        assert op.symbolic is not None
        assert op.symbolic(ty, [content], op.complete_attrs(attrs)).tolist() == expected
        assert op.symbolic(ty, [None], op.complete_attrs(attrs)) is None
