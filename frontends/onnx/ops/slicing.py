"""Slice, Split, Concat, Pad."""

from collections.abc import Sequence
from typing import NamedTuple

from ....ir.analysis.contents import constant_of
from ....ir.dims import Dim, SymDim, Truth, ceil_div, is_at_least
from ....ir.errors import ModelError, ShapeError
from ....ir.graph import Node, Value
from ....ir.op import FRESH
from ....ir.ops.rules import normal_axes, normal_axis
from ....ir.ops.slicing import first_taken
from ....ir.types import DType, TensorType
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext, NotNative
from ..context.partly_known import op_of_shape, ops_of_shapes, partial_dims
from .rows import export_as

_FAR = 2**31 - 1
"""A bound from here on means the end of an axis, as exporters write it."""


class _Part(NamedTuple):
    """What a slice takes along one axis."""

    axis: int
    start: Dim
    end: Dim
    step: int


def _without_far_end(part: _Part, size: Dim) -> _Part:
    """Nothing as 0 to 0 where a slice goes backwards to the end: ONNX Runtime goes to the beginning then."""
    is_far = isinstance(part.end, int) and part.end >= _FAR and (isinstance(size, SymDim) or part.end >= size)
    return _Part(part.axis, 0, 0, 1) if part.step < 0 and is_far else part


# ---- import


def import_slice(ctx: ImportContext) -> Value:
    """Bounds are attributes before opset 10, operands since."""
    x = ctx.input(0)
    if ctx.version < 10:
        starts: tuple[int, ...] = ctx.attr("starts")
        axes = ctx.attr("axes", tuple(range(len(starts))))
        return ctx.op("slice", x, axes=axes, starts=starts, ends=ctx.attr("ends"), steps=(1,) * len(starts))
    first, last = ctx.dims(1, x), ctx.dims(2, x)
    if first is None or last is None:
        return _dynamic_slice(ctx)
    which = tuple(range(len(first))) if ctx.optional(3) is None else ctx.ints(3)
    steps = (1,) * len(first) if ctx.optional(4) is None else ctx.ints(4)
    if which is None or steps is None:
        return _dynamic_slice(ctx)
    if not len(which) == len(first) == len(last) == len(steps):
        raise ModelError(f"Slice has {len(first)} starts, {len(last)} ends, {len(which)} axes and {len(steps)} steps")
    ty = ctx.tensor(0)
    parts = [_without_far_end(_Part(*row), _size(ty, row[0])) for row in zip(which, first, last, steps, strict=True)]
    return ctx.op(
        "slice",
        x,
        axes=which,
        starts=tuple(first_taken(part.start, _size(ty, part.axis), part.step) for part in parts),
        ends=tuple(part.end for part in parts),
        steps=tuple(part.step for part in parts),
    )


def _size(ty: TensorType, axis: int) -> Dim:
    return ty.dims[normal_axis(axis, ty.rank)]


def _dynamic_slice(ctx: ImportContext) -> Value:
    operands = (ctx.input(0), ctx.input(1), ctx.input(2), ctx.optional(3), ctx.optional(4))
    axes = ctx.ints(3)
    if axes is None:
        return ctx.op("dynamic_slice", *operands)
    return op_of_shape(ctx, "dynamic_slice", *operands, shape=_opened(ctx.tensor(0).dims, axes))


def _opened(dims: Sequence[Dim], axes: Sequence[int]) -> list[Dim]:
    """`dims` with new sizes along `axes`."""
    which = normal_axes(axes, len(dims))
    return [FRESH if axis in which else dim for axis, dim in enumerate(dims)]


def import_split(ctx: ImportContext) -> Sequence[Value]:
    """Sizes are an attribute before opset 13, an operand since; without them the parts are equal."""
    x = ctx.input(0)
    axis = normal_axis(ctx.attr("axis", 0), ctx.tensor(0).rank)
    if ctx.has_attr("split"):
        return ctx.ops("split", x, axis=axis, sizes=ctx.attr("split"))
    if ctx.optional(1) is None:
        return ctx.ops("split", x, axis=axis, sizes=_equal_sizes(ctx, axis))
    sizes = ctx.dims(1, x)
    if sizes is not None:
        return ctx.ops("split", x, axis=axis, sizes=sizes)
    known = partial_dims(ctx, ctx.input(1)) or [FRESH] * ctx.output_count
    dims = ctx.tensor(0).dims
    parts = [(*dims[:axis], dim, *dims[axis + 1 :]) for dim in known]
    return ops_of_shapes(ctx, "dynamic_split", x, ctx.input(1), shapes=parts, axis=axis)


def _equal_sizes(ctx: ImportContext, axis: int) -> list[Dim]:
    size = ctx.tensor(0).dims[axis]
    count: int = ctx.attr("num_outputs", ctx.output_count)
    if count < 1 or ctx.output_count > count:
        raise ModelError(f"Split into {count} parts gives {ctx.output_count} results")
    if ctx.version < 18:
        return [size // count] * count
    chunk = ceil_div(size, count)  # the last part is smaller when the size is no multiple
    last = size - chunk * (count - 1)
    if is_at_least(last, 0) is Truth.NO:
        raise NotNative(f"{size} elements cannot be split into {count} parts")  # no harm in a branch that never runs
    return [chunk] * (count - 1) + [last]


def import_concat(ctx: ImportContext) -> Value:
    """Concat."""
    return ctx.op("concat", *(ctx.input(index) for index in range(len(ctx.inputs))), axis=ctx.attr("axis"))


def import_pad(ctx: ImportContext) -> Value:
    """Pads and value are attributes before opset 11, operands since; axes came with opset 18."""
    x, rank, mode = ctx.input(0), ctx.tensor(0).rank, ctx.attr("mode", "constant")
    if ctx.version < 11:
        value = ctx.scalar_like(ctx.attr("value", 0.0), x) if ctx.attr("value", 0.0) else None
        return ctx.op("pad", x, value, pads=ctx.attr("pads"), mode=mode)
    pads, axes = ctx.dims(1, x), ctx.ints(3) if ctx.optional(3) is not None else tuple(range(rank))
    if pads is not None and axes is not None:
        return ctx.op("pad", x, _pad_value(ctx), pads=_all_pads(pads, axes, rank), mode=mode)
    operands = (x, ctx.input(1), _pad_value(ctx), ctx.optional(3))
    if axes is None:
        return ctx.op("dynamic_pad", *operands, mode=mode)
    return op_of_shape(ctx, "dynamic_pad", *operands, shape=_opened(ctx.tensor(0).dims, axes), mode=mode)


def _pad_value(ctx: ImportContext) -> Value | None:
    """The value as a scalar: models give a vector of one element as well."""
    value, content = ctx.optional(2), ctx.array(2)
    if value is None or not ctx.tensor(2).rank or value.tensor.size != 1:
        return value
    if content is not None:
        return ctx.constant(content.reshape(()), value.tensor.dtype)
    return ctx.op("reshape", value, shape=())


def _all_pads(pads: Sequence[Dim], axes: Sequence[int], rank: int) -> list[Dim]:
    """Pads of some axes as pads of all."""
    which = normal_axes(axes, rank)
    if len(pads) != 2 * len(which):
        raise ShapeError(f"Pad needs a begin and an end for each of {len(which)} axes, not {len(pads)} pads")
    complete: list[Dim] = [0] * (2 * rank)
    for position, axis in enumerate(which):
        complete[axis], complete[rank + axis] = pads[position], pads[len(which) + position]
    return complete


IMPORTS = {"Concat": import_concat, "Pad": import_pad, "Slice": import_slice, "Split": import_split}

# ---- export


def export_slice(ctx: ExportContext, node: Node) -> None:
    """Slice; plain bounds as attributes before opset 10.

    Where it may begin before an axis and go backwards, ONNX would take the first element. Then the operand is cut off
    behind the start first, and sliced from its end.
    """
    x = node.operands[0]
    columns = (node.attrs[name] for name in ("axes", "starts", "ends", "steps"))
    parts = [_certain(_Part(*row), _size(x.tensor, row[0])) for row in zip(*columns, strict=True)]
    if ctx.opset < 10 and all(_is_plain(part) for part in parts):
        axes, starts, ends = ([part[place] for part in parts] for place in range(3))
        ctx.emit("Slice", [x], node.outputs, axes=tuple(axes), starts=tuple(starts), ends=tuple(ends))
        return
    cut = [part for part in parts if _may_start_before(part, _size(x.tensor, part.axis))]
    if not cut:
        ctx.emit("Slice", [x, *_bounds(ctx, x, parts)], node.outputs)
        return
    front = ctx.emit_value("Slice", [x, *_bounds(ctx, x, [_Part(part.axis, 0, part.start + 1, 1) for part in cut])])
    rest = [_from_its_end(part) if part in cut else part for part in parts]
    ctx.emit("Slice", [front, *_bounds(ctx, x, rest)], node.outputs)


def _bounds(ctx: ExportContext, x: Value, parts: Sequence[_Part]) -> list[str]:
    """Starts, ends, axes and steps as operands."""
    starts, ends = (ctx.dims_tensor(bounds, x) for bounds in ([p.start for p in parts], [p.end for p in parts]))
    return [starts, ends, ctx.ints([part.axis for part in parts]), ctx.ints([part.step for part in parts])]


def _is_plain(part: _Part) -> bool:
    return isinstance(part.start, int) and isinstance(part.end, int) and part.step == 1


def _certain(part: _Part, size: Dim) -> _Part:
    """Nothing as 0 to 0 also where a slice goes backwards from before the axis, whatever its size is."""
    part = _without_far_end(part, size)
    if part.step > 0 or not isinstance(part.start, int) or part.start >= -1:
        return part
    is_far = part.start <= -_FAR and isinstance(size, SymDim)
    is_before = is_far or is_at_least(-1 - part.start - size, 0) is Truth.YES
    return _Part(part.axis, 0, 0, 1) if is_before else part


def _may_start_before(part: _Part, size: Dim) -> bool:
    """Whether a slice backwards may begin before the axis, and its end can be counted in what is before its start."""
    if part.step > 0 or not isinstance(part.start, int) or part.start >= -1:
        return False
    counts = isinstance(part.end, int) or is_at_least(part.end, 0) is Truth.YES
    return counts and is_at_least(size + part.start, 0) is not Truth.YES


def _from_its_end(part: _Part) -> _Part:
    """A slice that began at a place counted from the end, of what is up to that place."""
    end, start = part.end, part.start
    if isinstance(end, int) and isinstance(start, int) and -_FAR < end < 0:
        end = min(end - start, 0) - 1
    return part._replace(start=-1, end=end)


def export_split(ctx: ExportContext, node: Node) -> None:
    """Split; equal parts by their number, so that no size is computed while running."""
    x, axis, sizes = node.operands[0], node.attrs["axis"], node.attrs["sizes"]
    is_open = any(not isinstance(size, int) for size in sizes)
    is_equal = is_open and len(set(sizes)) == 1
    if is_open and not is_equal and ctx.opset < 13:
        ctx.require_opset(13, "Split into sizes that only running tells")
    if ctx.opset < 13:
        ctx.emit("Split", [x], node.outputs, axis=axis, split=None if is_equal else sizes)
    elif ctx.opset >= 18 and is_equal:
        ctx.emit("Split", [x], node.outputs, axis=axis, num_outputs=len(sizes))
    else:
        ctx.emit("Split", [x, ctx.dims_tensor(sizes, x)], node.outputs, axis=axis)


def export_pad(ctx: ExportContext, node: Node) -> None:
    """Pad, whose value must be a scalar; an attribute as the pads before opset 11."""
    x, value = node.inputs
    assert x is not None  # only the value is optional
    content = constant_of(value)
    if ctx.opset < 11 and (value is None or content is not None):
        if not all(isinstance(pad, int) for pad in node.attrs["pads"]):
            ctx.require_opset(11, "Pad by sizes that only running tells")
        number = 0.0 if content is None else float(content.array.reshape(-1)[0])
        ctx.emit("Pad", [x], node.outputs, mode=node.attrs["mode"], pads=node.attrs["pads"], value=number)
        return
    pads = ctx.dims_tensor(node.attrs["pads"], x)
    ctx.emit("Pad", [x, pads, _scalar(ctx, value)], node.outputs, mode=node.attrs["mode"])


def export_dynamic_pad(ctx: ExportContext, node: Node) -> None:
    """Pad, whose value must be a scalar; onnx reads axes known beforehand as i64 only."""
    x, pads, value, axes = node.inputs
    wide = axes if axes is None or axes.tensor.dtype is DType.I64 else ctx.emit_value("Cast", [axes], to=DType.I64)
    ctx.emit("Pad", [x, pads, _scalar(ctx, value), wide], node.outputs, mode=node.attrs["mode"])


def _scalar(ctx: ExportContext, value: Value | None) -> Value | str | None:
    if value is None or not value.tensor.rank:
        return value
    return ctx.emit_value("Reshape", [value, ctx.constant([], DType.I64)])


EXPORTS = {
    "concat": export_as("Concat", "axis"),
    "dynamic_pad": export_dynamic_pad,
    "dynamic_slice": export_as("Slice"),
    "dynamic_split": export_as("Split", "axis"),
    "pad": export_pad,
    "slice": export_slice,
    "split": export_split,
}
