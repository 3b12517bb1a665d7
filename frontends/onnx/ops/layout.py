"""Reshape, Flatten, Expand, Tile, Transpose, Squeeze, Unsqueeze, DepthToSpace, SpaceToDepth, ReverseSequence."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ....ir.analysis import constraints
from ....ir.analysis.contents import positive_symbols, take_positive
from ....ir.dims import Dim, SymDim, Truth, compare, dim_max, dim_min, lower_bound, product, upper_bound
from ....ir.dims.constraints import assume_different
from ....ir.errors import ShapeError
from ....ir.graph import Node, Value
from ....ir.op import FRESH
from ....ir.ops.layout import resolve_reshape
from ....ir.ops.rules import broadcast_shapes, normal_axes, normal_axis
from ....ir.types import DType
from ..context.dialect import Dialect
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext, NotNative
from ..context.partly_known import op_of_shape, partial_dims
from .rows import export_as, import_as

# ---- import


def import_reshape(ctx: ImportContext) -> Value:
    """Resolved to plain sizes where the requested shape is known."""
    x, dims = ctx.input(0), ctx.tensor(0).dims
    allow_zero = bool(ctx.attr("allowzero", 0))
    requested = ctx.dims(1, x)
    known = partial_dims(ctx, ctx.input(1)) if requested is None else requested
    if known is not None:
        known = [_unless_special(ctx, dims, axis, dim, allow_zero) for axis, dim in enumerate(known)]
    if requested is not None and known == [*requested]:
        if -1 in requested:
            _take_rest(ctx, [_size_of(dims, axis, dim, allow_zero) for axis, dim in enumerate(requested) if dim != -1])
        return ctx.op("reshape", x, shape=resolve_reshape(dims, requested, allow_zero))
    shape = [_size_of(dims, axis, dim, allow_zero) for axis, dim in enumerate(known)] if known is not None else None
    return op_of_shape(ctx, "dynamic_reshape", x, ctx.input(1), shape=shape, allow_zero=allow_zero)


def _unless_special(ctx: ImportContext, dims: Sequence[Dim], axis: int, requested: Dim, allow_zero: bool) -> Dim:
    """A symbolic size that is taken neither to be -1 nor a 0 that copies another; FRESH where no call tells of it."""
    least = lower_bound(requested)
    if isinstance(requested, int) or (least is not None and least > 0):
        return requested
    if least is None or least < 0:
        if not ctx.scope.are_given((requested,)):
            return FRESH
        assume_different(requested, -1, "-1 in Reshape is the rest")
    mine = dims[axis] if axis < len(dims) else requested
    if not allow_zero and mine not in (0, requested):
        if not ctx.scope.are_given((requested, mine)):
            return FRESH
        assume_different(requested, dim_min(1, mine) - 1, "0 in Reshape copies a size")
    return requested


def _take_rest(ctx: ImportContext, others: Sequence[Dim]) -> None:
    """Notes that sizes beside -1 are not 0: the rest could be anything, so that runtimes refuse it."""
    for dim in others:
        if isinstance(dim, SymDim):
            take_positive(ctx.graph, dim)


def _size_of(dims: Sequence[Dim], axis: int, requested: Dim, allow_zero: bool) -> Dim:
    if requested == -1:
        return FRESH
    if requested != 0 or allow_zero:
        return requested
    return dims[axis] if axis < len(dims) else FRESH


def import_flatten(ctx: ImportContext) -> Value:
    """A reshape to two axes."""
    dims = ctx.tensor(0).dims
    axis: int = ctx.attr("axis", 1)
    if not -len(dims) <= axis <= len(dims):
        raise ShapeError(f"axis {axis} of Flatten is out of range for rank {len(dims)}")
    cut = axis + len(dims) if axis < 0 else axis
    return ctx.op("reshape", ctx.input(0), shape=(product(dims[:cut]), product(dims[cut:])))


def import_expand(ctx: ImportContext) -> Value:
    """To the broadcast of both shapes, where the requested one is known."""
    x, dims = ctx.input(0), ctx.tensor(0).dims
    requested = ctx.dims(1, x)
    if requested is not None and not _is_open(dims, requested):
        return ctx.op("expand", x, shape=broadcast_shapes(dims, requested))
    known = partial_dims(ctx, ctx.input(1)) if requested is None else requested
    return op_of_shape(ctx, "dynamic_expand", x, ctx.input(1), shape=_expanded(dims, known) if known else None)


def _is_open(dims: Sequence[Dim], requested: Sequence[Dim]) -> bool:
    """Whether only running tells which of two sizes, either of which may be 1, is the greater."""
    return any(_may_be_one_beside(*pair) for pair in zip(dims[::-1], requested[::-1], strict=False))


def _may_be_one_beside(mine: Dim, dim: Dim) -> bool:
    if isinstance(mine, int) or isinstance(dim, int) or compare(mine, dim) is not Truth.UNKNOWN:
        return False
    if _is_cut_of(mine, dim) or _is_cut_of(dim, mine):
        return False
    return all(_may_be_more_than(one, 1) and compare(one, 1) is Truth.UNKNOWN for one in (mine, dim))


def _is_cut_of(one: Dim, other: Dim) -> bool:
    """Whether `one` is `min(other, limit)`, as the size of a table's first rows: both are 1 or neither is."""
    limit = upper_bound(one)
    return limit is not None and limit > 1 and one == dim_min(other, limit)


def _may_be_more_than(dim: Dim, limit: int) -> bool:
    bound = upper_bound(dim)
    return bound is None or bound > limit


def _expanded(dims: Sequence[Dim], requested: Sequence[Dim]) -> list[Dim]:
    """The broadcast of two shapes of which the second has open sizes."""
    rank = max(len(dims), len(requested))
    own, asked = ((*[1] * (rank - len(shape)), *shape) for shape in (dims, requested))
    return [_expanded_size(*pair) for pair in zip(own, asked, strict=True)]


def _expanded_size(mine: Dim, dim: Dim) -> Dim:
    if dim != FRESH and _may_be_one_beside(mine, dim):
        return FRESH
    return mine if dim == 1 or compare(mine, 1) is Truth.NO else dim


def import_tile(ctx: ImportContext) -> Value:
    """Static where the repeats are known."""
    x = ctx.input(0)
    repeats = ctx.dims(1, x)
    return ctx.op("dynamic_tile", x, ctx.input(1)) if repeats is None else ctx.op("tile", x, repeats=repeats)


def import_transpose(ctx: ImportContext) -> Value:
    """Reverses the axes unless told otherwise."""
    rank = ctx.tensor(0).rank
    return ctx.op("transpose", ctx.input(0), perm=ctx.attr("perm", tuple(reversed(range(rank)))))


def _axes(ctx: ImportContext) -> tuple[int, ...] | None:
    """The axes as attribute (before opset 13) or operand; None when they are not known."""
    return ctx.attr("axes", None) if ctx.version < 13 else ctx.ints(1)


def import_squeeze(ctx: ImportContext) -> Value:
    """Without axes those go that are 1, or must be for other nodes; other symbolic sizes are taken not to be 1."""
    x, dims = ctx.input(0), ctx.tensor(0).dims
    if not ctx.has_attr("axes") and ctx.optional(1) is None:
        if not ctx.scope.are_given(dims):
            raise NotNative("the rank of the result depends on data")
        ones = _must_be_one(ctx, dims)
        for axis, dim in enumerate(dims):
            if not isinstance(dim, int) and dim not in ones:
                name = f"{dim} of {ctx.proto.name or ctx.proto.output[0]}"
                if ctx.scope.is_one(f"{axis} of {ctx.proto.output[0]}"):
                    ctx.scope.remark("sizes are 1 for Squeeze without axes, as nodes behind it need", name, name)
                    ones |= {dim}
                    continue
                ctx.scope.remark("sizes are taken not to be 1 by Squeeze without axes", name, name)
                assume_different(dim, 1, "Squeeze without axes")
        return ctx.op("squeeze", x, axes=tuple(axis for axis, dim in enumerate(dims) if dim == 1 or dim in ones))
    axes = _axes(ctx)
    return ctx.op("dynamic_squeeze", x, ctx.input(1)) if axes is None else ctx.op("squeeze", x, axes=axes)


def _must_be_one(ctx: ImportContext, dims: Sequence[Dim]) -> frozenset[Dim]:
    """Those of the symbolic `dims` without whose being 1 the nodes so far could not run."""
    if all(isinstance(dim, int) for dim in dims):
        return frozenset()
    pairs = [(each.left, each.right) for each in constraints(ctx.graph)]
    return frozenset(dim for dim in dims if (dim, 1) in pairs or (1, dim) in pairs)


def import_unsqueeze(ctx: ImportContext) -> Value:
    """Static where the axes are known."""
    x, axes = ctx.input(0), _axes(ctx)
    return ctx.op("dynamic_unsqueeze", x, ctx.input(1)) if axes is None else ctx.op("unsqueeze", x, axes=axes)


def import_identity(ctx: ImportContext) -> Value:
    """The operand itself."""
    return ctx.input(0)


IMPORTS = {
    "DepthToSpace": import_as("depth_to_space", "mode", blocksize="block_size"),
    "Expand": import_expand,
    "Flatten": import_flatten,
    "Identity": import_identity,
    "Reshape": import_reshape,
    "ReverseSequence": import_as("reverse_sequence", "batch_axis", "time_axis"),
    "SpaceToDepth": import_as("space_to_depth", "mode", blocksize="block_size"),
    "Squeeze": import_squeeze,
    "Tile": import_tile,
    "Transpose": import_transpose,
    "Unsqueeze": import_unsqueeze,
}

# ---- export


def export_reshape(ctx: ExportContext, node: Node) -> None:
    """Copied sizes are written as 0 and a last open one as -1, so that few shapes are computed while running.

    An open one that follows from the operand's only where that is not empty is computed, unless the model came so.
    """
    x, shape = node.operands[0], node.attrs["shape"]
    written = _placeholders(x.shape, shape)
    is_open = written is None or (-1 in written and 0 in written)  # -1 beside another size that may be 0 says nothing
    if is_open and ctx.dialect is not Dialect.FAITHFUL and _is_written_without_sizes(ctx, node):
        return
    if written is not None and not (is_open and _may_say_nothing(ctx, x, written, shape)):
        ctx.emit("Reshape", [x, ctx.ints(written)], node.outputs)
        return
    if ctx.opset < 14 and any(isinstance(dim, int) and dim == 0 for dim in shape):
        ctx.require_opset(14, "Reshape to a size of 0")
    sizes: tuple[Dim, ...] = tuple(shape)
    if is_exact := ctx.opset >= 14 or None:
        x_name: Value | str = x
    elif axes := _inserted(shape, x.shape, may_be_open=True):
        _emit_with_axes(ctx, "Squeeze", node, axes)
        return
    else:  # a computed size of 0 takes the operand's in its place
        x_name, sizes = _with_zeros_in_place(ctx, x, sizes)
    ctx.emit("Reshape", [x_name, ctx.dims_tensor(sizes, x, *_before(x))], node.outputs, allowzero=is_exact)


def _may_say_nothing(ctx: ExportContext, x: Value, written: Sequence[int], shape: Sequence[Dim]) -> bool:
    """Whether a size that is copied beside -1 may be 0, or -1 may be another size than the one in `shape`."""
    copied = [dim for dim, number in zip(shape, written, strict=True) if number == 0]
    may_be_nothing = any(map(partial(_may_be_nothing, ctx), copied))
    return may_be_nothing or compare(product(x.shape), product(shape)) is not Truth.YES


def _may_be_nothing(ctx: ExportContext, dim: Dim) -> bool:
    ranges = positive_symbols(ctx.node.graph) if ctx.node.graph is not None else {}
    return (lower_bound(dim, ranges) or 0) < 1


def _with_zeros_in_place(ctx: ExportContext, x: Value, shape: tuple[Dim, ...]) -> tuple[Value | str, tuple[Dim, ...]]:
    """What to reshape, and to which sizes: a single one that may be 0 is left open, of several each finds its 0 there.

    `[N, 1, 1]` is repeated to `[N, 0, 1]` where the second size is 0, as N is then: it has no elements to lose.
    """
    computed = [axis for axis, dim in enumerate(shape) if isinstance(dim, SymDim) and _may_be_nothing(ctx, dim)]
    if len(computed) == 1:
        return x, (*shape[: computed[0]], -1, *shape[computed[0] + 1 :])
    moved = [axis for axis in computed if axis >= x.tensor.rank or x.shape[axis] != shape[axis]]
    if not moved or (len(moved) == 1 and moved[0] < x.tensor.rank and isinstance(x.shape[moved[0]], SymDim)):
        return x, shape  # a size that copies one which it is made of is 0 with it
    column = ctx.emit_value("Reshape", [x, ctx.ints([-1, *(1 for _ in shape[1:])])])
    is_something = ctx.emit_value("Cast", [ctx.dims_tensor((1, *shape[1:]), x, *_before(x))], to=DType.BOOL)
    return ctx.emit_value("Tile", [column, ctx.emit_value("Cast", [is_something], to=DType.I64)]), shape


def _is_written_without_sizes(ctx: ExportContext, node: Node) -> bool:
    """Writes a reshape as Unsqueeze, Squeeze, Transpose of sizes of 1, or Flatten, where it is one."""
    x, shape = node.operands[0], node.attrs["shape"]
    if axes := _inserted(x.shape, shape):
        _emit_with_axes(ctx, "Unsqueeze", node, axes)
    elif axes := _inserted(shape, x.shape):
        _emit_with_axes(ctx, "Squeeze", node, axes)
    elif perm := _moved(x.shape, shape):
        ctx.emit("Transpose", [x], node.outputs, perm=perm)
    elif _has_flatten(ctx, x) and (axis := _flattened(x.shape, shape)) is not None:
        ctx.emit("Flatten", [x], node.outputs, axis=axis)
    elif _has_flatten(ctx, x) and (axis := _flattened(x.shape, [dim for dim in shape if dim != 1])) is not None:
        ones = tuple(axis for axis, dim in enumerate(shape) if dim == 1)
        _emit_with_axes(ctx, "Unsqueeze", node, ones, ctx.emit_value("Flatten", [x], axis=axis))
    else:
        return False
    return True


def _moved(operand: Sequence[Dim], shape: Sequence[Dim]) -> tuple[int, ...]:
    """The permutation that makes `shape` of the operand by moving sizes of 1; none where it is another shape."""
    units = [axis for axis, dim in enumerate(operand) if dim == 1]
    others = [axis for axis, dim in enumerate(operand) if dim != 1]
    if [operand[axis] for axis in others] != [dim for dim in shape if dim != 1] or len(operand) != len(shape):
        return ()
    return tuple(units.pop(0) if dim == 1 else others.pop(0) for dim in shape)


def _has_flatten(ctx: ExportContext, x: Value) -> bool:
    """Whether the opset's Flatten takes such elements: before 9 floats alone."""
    return ctx.opset >= 9 or x.tensor.dtype in (DType.F16, DType.F32, DType.F64)


def _flattened(operand: Sequence[Dim], shape: Sequence[Dim]) -> int | None:
    """The axis before which Flatten joins the sizes to the first of `shape`, from which on to the second."""
    if len(shape) != 2:
        return None
    places = range(len(operand) + 1)
    return next((p for p in places if (product(operand[:p]), product(operand[p:])) == tuple(shape)), None)


def _inserted(operand: Sequence[Dim], shape: Sequence[Dim], *, may_be_open: bool = False) -> tuple[int, ...]:
    """The axes of size 1 that `shape` has in addition; none where it is another shape than that.

    Open sizes in addition count as 1 if they may be open: they have to be, where elements are as many.
    """
    axes, rest = [], list(operand)
    for axis, dim in enumerate(shape):
        if rest and rest[0] == dim:
            rest.pop(0)
        elif dim == 1 or (may_be_open and isinstance(dim, SymDim)):
            axes.append(axis)
        else:
            return ()
    return () if rest else tuple(axes)


def _emit_with_axes(
    ctx: ExportContext, op_type: str, node: Node, axes: tuple[int, ...], operand: str | None = None
) -> None:
    x = operand or node.operands[0]
    if ctx.opset < 13:
        ctx.emit(op_type, [x], node.outputs, axes=axes)
    else:
        ctx.emit(op_type, [x, ctx.ints(axes)], node.outputs)


_STEPS_BACK = 4


def _before(x: Value) -> list[Value]:
    """Values that `x` is made of by nodes of one operand: one of them may have the sizes that are asked for."""
    found: list[Value] = []
    while len(found) < _STEPS_BACK and x.producer is not None and len(x.producer.operands) == 1:
        (x,) = x.producer.operands
        found.append(x)
    return found


def _placeholders(operand: Sequence[Dim], shape: Sequence[Dim]) -> list[int] | None:
    """`shape` as plain integers, None where that takes more than one -1, or a 0 that is meant."""
    written: list[int] = []
    for axis, dim in enumerate(shape):
        if isinstance(dim, int):
            written.append(dim)
        else:
            written.append(0 if axis < len(operand) and operand[axis] == dim else -1)
    means_zero = any(isinstance(dim, int) and dim == 0 for dim in shape)
    return None if means_zero or written.count(-1) > 1 else written


def export_expand(ctx: ExportContext, node: Node) -> None:
    """Sizes that the operand has already are written as 1."""
    x, shape = node.operands[0], node.attrs["shape"]
    own = (*[None] * (len(shape) - x.tensor.rank), *x.shape)
    asked = [1 if isinstance(dim, SymDim) and mine == dim else dim for mine, dim in zip(own, shape, strict=True)]
    ctx.emit("Expand", [x, ctx.dims_tensor(asked, x)], node.outputs)


def export_tile(ctx: ExportContext, node: Node) -> None:
    """Tile."""
    x = node.operands[0]
    ctx.emit("Tile", [x, ctx.dims_tensor(node.attrs["repeats"], x)], node.outputs)


def _export_axes(op_type: str) -> Any:
    def rule(ctx: ExportContext, node: Node) -> None:
        axes: tuple[int, ...] = node.attrs["axes"]
        if ctx.opset < 13 and not axes:
            ctx.emit("Identity", node.inputs, node.outputs)
        elif ctx.opset < 13:
            rank = max(node.operands[0].tensor.rank, node.output.tensor.rank)
            ordered = sorted(normal_axes(axes, rank))  # or else inference passes over some before opset 11
            ctx.emit(op_type, node.inputs, node.outputs, axes=ordered)
        else:
            ctx.emit(op_type, [*node.inputs, ctx.ints(axes)], node.outputs)

    return rule


_FIRST = -(2**63)


def export_reverse(ctx: ExportContext, node: Node) -> None:
    """A slice backwards."""
    axes: tuple[int, ...] = node.attrs["axes"]
    bounds = [ctx.ints([number] * len(axes)) for number in (-1, _FIRST)]
    steps = ctx.ints([-1] * len(axes))
    ctx.emit("Slice", [node.inputs[0], *bounds, ctx.ints(axes), steps], node.outputs)


_MAX_INDICES = 1 << 14


def export_roll(ctx: ExportContext, node: Node) -> None:
    """One gather along each axis of known size; otherwise the end is put before the beginning."""
    x = node.operands[0]
    rolled: Any = x
    steps = list(zip(normal_axes(node.attrs["axes"], x.tensor.rank), node.attrs["shifts"], strict=True))
    for axis, shift in steps:
        results = node.outputs if axis == steps[-1][0] else [ctx.writer.new_name(f"{node.output.name}_roll")]
        size = x.shape[axis]
        if isinstance(size, int) and size <= _MAX_INDICES:
            indices = np.roll(np.arange(size, dtype=np.int64), shift)
            ctx.emit("Gather", [rolled, ctx.constant(indices)], results, axis=axis)
        else:
            ctx.emit("Concat", _ends(ctx, x, rolled, axis, shift), results, axis=axis)
        rolled = results[0]
    if not steps:
        ctx.emit("Identity", [x], node.outputs)


def _ends(ctx: ExportContext, x: Value, rolled: Any, axis: int, shift: int) -> list[str]:
    """The last part of a rolled axis and what is before it."""
    cut = (-shift) % dim_max(x.shape[axis], 1)
    where, zero, last = ctx.dims_tensor([cut], x), ctx.ints([0]), ctx.ints([2**63 - 1])
    return [
        ctx.emit_value("Slice", [rolled, where, last, ctx.ints([axis])]),
        ctx.emit_value("Slice", [rolled, zero, where, ctx.ints([axis])]),
    ]


def export_reverse_sequence(ctx: ExportContext, node: Node) -> None:
    """ReverseSequence, which has batch and time in the first two axes: others are moved there and back."""
    x, lengths = node.operands
    batch, time = (normal_axis(node.attrs[name], x.tensor.rank) for name in ("batch_axis", "time_axis"))
    if {batch, time} == {0, 1}:
        ctx.emit("ReverseSequence", [x, lengths], node.outputs, batch_axis=batch, time_axis=time)
        return
    perm = [batch, time, *(axis for axis in range(x.tensor.rank) if axis not in (batch, time))]
    moved = ctx.emit_value("Transpose", [x], perm=tuple(perm))
    turned = ctx.emit_value("ReverseSequence", [moved, lengths], batch_axis=0, time_axis=1)
    ctx.emit("Transpose", [turned], node.outputs, perm=tuple(perm.index(axis) for axis in range(len(perm))))


EXPORTS = {
    "depth_to_space": export_as("DepthToSpace", "mode", blocksize="block_size"),
    "dynamic_expand": export_as("Expand"),
    "dynamic_reshape": export_as("Reshape", allowzero="allow_zero"),
    "dynamic_squeeze": export_as("Squeeze"),
    "dynamic_tile": export_as("Tile"),
    "dynamic_unsqueeze": export_as("Unsqueeze"),
    "expand": export_expand,
    "reshape": export_reshape,
    "reverse": export_reverse,
    "reverse_sequence": export_reverse_sequence,
    "roll": export_roll,
    "space_to_depth": export_as("SpaceToDepth", "mode", blocksize="block_size"),
    "squeeze": _export_axes("Squeeze"),
    "tile": export_tile,
    "transpose": export_as("Transpose", "perm"),
    "unsqueeze": _export_axes("Unsqueeze"),
}
