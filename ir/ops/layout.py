"""Other shapes and orders of the same elements: reshape, expand, transpose, squeeze, unsqueeze, tile, and block moves.

Where ONNX takes a shape or axes as a tensor, the op here takes them as an attribute whose dims are fully resolved (no 0
or -1 placeholders: `resolve_reshape` does that). Its `dynamic_` form takes the tensor and reads it while running.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind, Attrs
from ..constant import Array
from ..dims import Dim, SymDim, Truth, compare, product
from ..dims.constraints import require_equal
from ..errors import ExecutionError, ShapeError, TypeRuleError
from ..op import ANY, FRESH, I64, Op, Symbolic, Trait, op
from ..types import TensorType, Type
from .creation import check_sizes, operand_length
from .rules import normal_axes, normal_axis, require_one_or, require_rank

_DYNAMIC = Trait.DATA_DEPENDENT | Trait.READS_HOST


def shape_text(shape: Sequence[Dim]) -> str:
    """`[B, 3]`, for messages."""
    return f"[{', '.join(map(str, shape))}]"


def moved(function: Any) -> Symbolic:
    """The symbolic meaning of an op that only moves its operands' elements; its attributes must be plain integers."""

    def rule(_types: Sequence[Type | None], operands: Sequence[Any], attrs: Attrs) -> Any:
        if operands[0] is None or any(_is_symbolic(value) for value in attrs.values()):
            return None
        return function(*operands, **attrs.as_kwargs())

    return rule


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(isinstance(item, SymDim) for item in value)  # pyright: ignore[reportUnknownVariableType]
    return isinstance(value, SymDim)


# ---- reshape


def resolve_reshape(operand_shape: Sequence[Dim], requested: Sequence[Dim], allow_zero: bool) -> tuple[Dim, ...]:
    """The shape that ONNX's Reshape means by `requested`: 0 copies a size (unless `allow_zero`), one -1 is the rest.

    Sizes that were copied, or that stand on both sides, cancel before the rest is divided out, so that it is exact
    for symbolic sizes, and is defined where a copied size is 0. Raises `ShapeError` when nothing can fit, and for -1
    beside a 0 that is none to copy: any rest would do, so ONNX calls it invalid. Symbols are taken not to be 0 there.
    """
    copied = [_copied(operand_shape, axis, dim, allow_zero) for axis, dim in enumerate(requested)]
    unknown = [axis for axis, dim in enumerate(copied) if isinstance(dim, int) and dim == -1]
    if len(unknown) > 1:
        raise ShapeError(f"the shape {shape_text(requested)} leaves more than one size open")
    if unknown:
        if allow_zero and any(isinstance(dim, int) and dim == 0 for dim in copied):
            raise ShapeError(f"the shape {shape_text(requested)} leaves a size open beside a size of 0")
        known = [dim for axis, dim in enumerate(copied) if axis != unknown[0]]
        copied[unknown[0]] = _rest(operand_shape, known, requested)
    return check_sizes(copied)


def _copied(operand_shape: Sequence[Dim], axis: int, dim: Dim, allow_zero: bool) -> Dim:
    if allow_zero or not isinstance(dim, int) or dim != 0:
        return dim
    if axis >= len(operand_shape):
        raise ShapeError(f"the size 0 requested for axis {axis} copies nothing: {shape_text(operand_shape)} is shorter")
    return operand_shape[axis]


def _rest(operand_shape: Sequence[Dim], known: Sequence[Dim], requested: Sequence[Dim]) -> Dim:
    given, taken = Counter(operand_shape), Counter(known)
    total, divisor = product((given - taken).elements()), product((taken - given).elements())
    rest = total // divisor  # a 0 among `known` was copied, and so has cancelled
    if compare(rest * divisor, total) is Truth.NO:
        raise ShapeError(f"{shape_text(operand_shape)} cannot be reshaped to {shape_text(requested)}")
    return rest


def reshape_type(x: TensorType, *, shape: Sequence[Dim]) -> TensorType:
    """`shape`, which must have as many elements as `x`."""
    reason = f"reshape of {shape_text(x.dims)} to {shape_text(shape)} must keep the number of elements"
    require_equal(x.size, product(check_sizes(shape)), reason)
    return x.with_shape(tuple(shape))


def reshape(x: Array, *, shape: Sequence[int]) -> Array:
    """The elements of `x` in row-major order, as a tensor of shape `shape`."""
    return x.reshape(tuple(shape))


def dynamic_reshape_type(x: TensorType, shape: TensorType, *, allow_zero: bool) -> TensorType:
    """As many new sizes as `shape` has elements."""
    return x.with_shape((FRESH,) * operand_length(shape, "the shape operand"))


def dynamic_reshape(x: Array, shape: Array, *, allow_zero: bool) -> Array:
    """`reshape` to a shape read while running: 0 copies a size (unless `allow_zero`), one -1 is the rest."""
    resolved = resolve_reshape(x.shape, shape.tolist(), allow_zero)
    return x.reshape([int(dim) for dim in resolved if isinstance(dim, int)])


# ---- expand, tile


def expand_type(x: TensorType, *, shape: Sequence[Dim]) -> TensorType:
    """`shape`, to which `x` must broadcast."""
    if len(shape) < x.rank:
        raise ShapeError(f"{shape_text(x.dims)} cannot be expanded to {shape_text(shape)}: it has more axes")
    for dim, wanted in zip(x.dims, shape[len(shape) - x.rank :], strict=True):
        require_one_or(wanted, dim, f"{shape_text(x.dims)} must expand to {shape_text(shape)}")
    return x.with_shape(check_sizes(shape))


def expand(x: Array, *, shape: Sequence[int]) -> Array:
    """`x` broadcast to exactly `shape`: axes of size 1 and missing leading axes are repeated."""
    return np.broadcast_to(x, tuple(shape))


def dynamic_expand_type(x: TensorType, shape: TensorType) -> TensorType:
    """New sizes for each axis of the longer shape."""
    rank = max(x.rank, operand_length(shape, "the shape operand"))
    return x.with_shape((FRESH,) * rank)


def dynamic_expand(x: Array, shape: Array) -> Array:
    """`x` broadcast together with a shape read while running: as ONNX's Expand, sizes of 1 there leave `x` as it is."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist())))


def tile_type(x: TensorType, *, repeats: Sequence[Dim]) -> TensorType:
    """Every size times its repeats. Raises `ShapeError` unless there is one for each axis."""
    if len(repeats) != x.rank:
        raise ShapeError(f"tile needs one repeat for each of {x.rank} axes, not {shape_text(repeats)}")
    check_sizes(repeats)
    return x.with_shape(tuple(dim * repeat for dim, repeat in zip(x.dims, repeats, strict=True)))


def tile(x: Array, *, repeats: Sequence[int]) -> Array:
    """`x` repeated `repeats[axis]` times along each axis."""
    return np.tile(x, tuple(repeats))


def dynamic_tile_type(x: TensorType, repeats: TensorType) -> TensorType:
    """New sizes for each axis."""
    if compare(operand_length(repeats, "the repeats operand"), x.rank) is Truth.NO:
        raise ShapeError(f"tile needs one repeat for each of {x.rank} axes, not {repeats}")
    return x.with_shape((FRESH,) * x.rank)


def dynamic_tile(x: Array, repeats: Array) -> Array:
    """`tile` with repeats i64[rank] read while running."""
    return np.tile(x, tuple(repeats.tolist()))


# ---- transpose, squeeze, unsqueeze


def transpose_type(x: TensorType, *, perm: Sequence[int]) -> TensorType:
    """The sizes of `x` in the order of `perm`. Raises `ShapeError` when that is no permutation of its axes."""
    if sorted(perm) != list(range(x.rank)):
        raise ShapeError(f"perm {list(perm)} is no permutation of the {x.rank} axes of {x}")
    return x.with_shape(tuple(x.dims[axis] for axis in perm))


def transpose(x: Array, *, perm: Sequence[int]) -> Array:
    """`x` with its axes reordered: axis i of the result is axis perm[i] of `x`."""
    return x.transpose(tuple(perm))


def squeeze_type(x: TensorType, *, axes: Sequence[int]) -> TensorType:
    """`x` without `axes`, whose sizes must be 1."""
    removed = normal_axes(axes, x.rank)
    for axis in removed:
        require_equal(x.dims[axis], 1, f"axis {axis} of {shape_text(x.dims)} is squeezed, so it must have size 1")
    return x.with_shape(tuple(dim for axis, dim in enumerate(x.dims) if axis not in removed))


def squeeze(x: Array, *, axes: Sequence[int]) -> Array:
    """`x` without `axes`, each of size 1; negative axes count from the end."""
    return x.squeeze(tuple(axes))


def unsqueeze_type(x: TensorType, *, axes: Sequence[int]) -> TensorType:
    """`x` with new axes of size 1 at the positions `axes` of the result."""
    rank = x.rank + len(axes)
    added = normal_axes(axes, rank)
    old = iter(x.dims)
    return x.with_shape(tuple(1 if axis in added else next(old) for axis in range(rank)))


def unsqueeze(x: Array, *, axes: Sequence[int]) -> Array:
    """`x` with new axes of size 1; `axes` are positions in the result, negative ones count from its end."""
    return np.expand_dims(x, tuple(axes))


def dynamic_squeeze_type(x: TensorType, axes: TensorType) -> TensorType:
    """New sizes for the axes that are left."""
    rank = x.rank - operand_length(axes, "the axes operand")
    if rank < 0:
        raise ShapeError(f"{shape_text(x.dims)} has fewer axes than are squeezed: {axes}")
    return x.with_shape((FRESH,) * rank)


def dynamic_squeeze(x: Array, axes: Array) -> Array:
    """`squeeze` with axes i64[n] read while running."""
    return x.squeeze(normal_axes(axes.tolist(), x.ndim))


def dynamic_unsqueeze_type(x: TensorType, axes: TensorType) -> TensorType:
    """New sizes for all axes."""
    return x.with_shape((FRESH,) * (x.rank + operand_length(axes, "the axes operand")))


def dynamic_unsqueeze(x: Array, axes: Array) -> Array:
    """`unsqueeze` with axes i64[n] read while running."""
    return np.expand_dims(x, normal_axes(axes.tolist(), x.ndim + axes.size))


# ---- depth and space


def depth_to_space_type(x: TensorType, *, block_size: int, mode: str) -> TensorType:
    """[N, C, H, W] becomes [N, C/b**2, H*b, W*b]."""
    batch, channels, height, width = _image(x, block_size)
    blocks = _divided(channels, block_size * block_size, "channels of depth_to_space")
    return x.with_shape((batch, blocks, height * block_size, width * block_size))


def depth_to_space(x: Array, *, block_size: int, mode: str) -> Array:
    """Moves channels into b by b blocks of pixels, b = `block_size`: [N, C, H, W] to [N, C/b**2, H*b, W*b].

    In mode `DCR` a channel index is (block row, block column, result channel); in `CRD` the result channel is first.
    """
    batch, channels, height, width = x.shape
    b, depth = block_size, channels // block_size**2
    if mode == "DCR":
        split = x.reshape(batch, b, b, depth, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        split = x.reshape(batch, depth, b, b, height, width).transpose(0, 1, 4, 2, 5, 3)
    return split.reshape(batch, depth, height * b, width * b)


def space_to_depth_type(x: TensorType, *, block_size: int, mode: str) -> TensorType:
    """[N, C, H, W] becomes [N, C*b**2, H/b, W/b]."""
    batch, channels, height, width = _image(x, block_size)
    rows = _divided(height, block_size, "rows of space_to_depth")
    columns = _divided(width, block_size, "columns of space_to_depth")
    return x.with_shape((batch, channels * block_size * block_size, rows, columns))


def space_to_depth(x: Array, *, block_size: int, mode: str) -> Array:
    """Moves b by b blocks of pixels into channels: the inverse of `depth_to_space` with the same mode."""
    batch, channels, height, width = x.shape
    b, rows, columns = block_size, height // block_size, width // block_size
    blocks = x.reshape(batch, channels, rows, b, columns, b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return blocks.transpose(order).reshape(batch, channels * b * b, rows, columns)


def _image(x: TensorType, block_size: int) -> tuple[Dim, ...]:
    require_rank(x, 4, "the image")
    if block_size < 1:
        raise TypeRuleError(f"block_size must be positive, not {block_size}")
    return x.dims


def _divided(dim: Dim, divisor: int, what: str) -> Dim:
    require_equal(dim, dim // divisor * divisor, f"the {what} must be a multiple of {divisor}")
    return dim // divisor


# ---- reverse, roll, reverse_sequence


def reverse_type(x: TensorType, *, axes: Sequence[int]) -> TensorType:
    """The type of `x`."""
    normal_axes(axes, x.rank)
    return x


def reverse(x: Array, *, axes: Sequence[int]) -> Array:
    """`x` with the order along each of `axes` turned round."""
    return np.flip(x, tuple(axes))


def roll_type(x: TensorType, *, axes: Sequence[int], shifts: Sequence[int]) -> TensorType:
    """The type of `x`. Raises `ShapeError` unless there is one shift for each axis."""
    normal_axes(axes, x.rank)
    if len(axes) != len(shifts):
        raise ShapeError(f"roll needs one shift for each of the axes {list(axes)}, not {list(shifts)}")
    return x


def roll(x: Array, *, axes: Sequence[int], shifts: Sequence[int]) -> Array:
    """`x` with its elements moved cyclically by `shifts` along `axes`, towards higher indices when positive."""
    return np.roll(x, tuple(shifts), tuple(axes)) if axes else x


def reverse_sequence_type(x: TensorType, lengths: TensorType, *, batch_axis: int, time_axis: int) -> TensorType:
    """The type of `x`; `lengths` has one element for each batch entry."""
    require_rank(lengths, 1, "the lengths of reverse_sequence")
    batch, time = normal_axis(batch_axis, x.rank), normal_axis(time_axis, x.rank)
    if batch == time:
        raise ShapeError(f"batch_axis and time_axis of reverse_sequence are both {batch}")
    require_equal(x.dims[batch], lengths.dims[0], "reverse_sequence needs one length for each batch entry")
    return x


def reverse_sequence(x: Array, lengths: Array, *, batch_axis: int, time_axis: int) -> Array:
    """Turns round the first lengths[b] steps of each sequence b and leaves the rest (ONNX ReverseSequence).

    A length lies between 0 and the number of steps; of a tensor without elements any does.
    """
    sequences = np.moveaxis(x, (batch_axis, time_axis), (0, 1))
    steps = sequences.shape[1]
    if x.size and np.any((lengths < 0) | (lengths > steps)):
        raise ExecutionError(f"the lengths {lengths.tolist()} must lie between 0 and the number of steps {steps}")
    step = np.arange(steps, dtype=np.int64)[None, :]
    until: Array = lengths[:, None]
    source = np.where(step < until, until - 1 - step, step)
    turned = sequences[np.arange(len(lengths), dtype=np.int64)[:, None], source]
    return np.moveaxis(turned, (0, 1), (batch_axis, time_axis))


_AXES = Attribute("axes", AttrKind.INTS)
_SHAPE = Attribute("shape", AttrKind.DIMS)
_BLOCK = (
    Attribute("block_size", AttrKind.INT),
    Attribute("mode", AttrKind.STRING, "DCR", choices=("DCR", "CRD")),
)


def _view(name: str, attribute: Attribute, infer: Any, meaning: Any, *, in_order: bool) -> Op:
    """A row of a pure view; one that keeps the order of its elements may also be written over its operand."""
    return op(
        name,
        "x: T",
        T=ANY,
        attrs=(attribute,),
        infer=infer,
        meaning=meaning,
        traits=Trait.VIEW | (Trait.RESHAPES if in_order else Trait.NONE),
        aliases=((0, 0),) if in_order else (),
        symbolic=moved(meaning),
    )


def _dynamic(name: str, signature: str, infer: Any, meaning: Any, *attrs: Attribute) -> Op:
    return op(name, signature, T=ANY, I=I64, attrs=attrs, infer=infer, meaning=meaning, traits=_DYNAMIC)


def _moving(name: str, infer: Any, meaning: Any, *attrs: Attribute) -> Op:
    return op(name, "x: T", T=ANY, attrs=attrs, infer=infer, meaning=meaning, symbolic=moved(meaning))


OPS: tuple[Op, ...] = (
    _view("reshape", _SHAPE, reshape_type, reshape, in_order=True),
    _dynamic(
        "dynamic_reshape",
        "x: T, shape: I!",
        dynamic_reshape_type,
        dynamic_reshape,
        Attribute("allow_zero", AttrKind.BOOL, False),
    ),
    _view("expand", _SHAPE, expand_type, expand, in_order=False),
    _dynamic("dynamic_expand", "x: T, shape: I!", dynamic_expand_type, dynamic_expand),
    _moving("tile", tile_type, tile, Attribute("repeats", AttrKind.DIMS)),
    _dynamic("dynamic_tile", "x: T, repeats: I!", dynamic_tile_type, dynamic_tile),
    _view("transpose", Attribute("perm", AttrKind.INTS), transpose_type, transpose, in_order=False),
    _view("squeeze", _AXES, squeeze_type, squeeze, in_order=True),
    _dynamic("dynamic_squeeze", "x: T, axes: I!", dynamic_squeeze_type, dynamic_squeeze),
    _view("unsqueeze", _AXES, unsqueeze_type, unsqueeze, in_order=True),
    _dynamic("dynamic_unsqueeze", "x: T, axes: I!", dynamic_unsqueeze_type, dynamic_unsqueeze),
    _moving("depth_to_space", depth_to_space_type, depth_to_space, *_BLOCK),
    _moving("space_to_depth", space_to_depth_type, space_to_depth, *_BLOCK),
    _moving("reverse", reverse_type, reverse, _AXES),
    _moving("roll", roll_type, roll, _AXES, Attribute("shifts", AttrKind.INTS)),
    op(
        "reverse_sequence",
        "x: T, lengths: I",
        T=ANY,
        I=I64,
        attrs=(Attribute("batch_axis", AttrKind.INT, 1), Attribute("time_axis", AttrKind.INT, 0)),
        infer=reverse_sequence_type,
        meaning=reverse_sequence,
    ),
)
