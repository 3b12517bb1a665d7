"""Normalizations. Before opset 13 the softmax family works on its operand as a matrix, split at `axis`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir.analysis.contents import constant_of
from ....ir.constant import Constant
from ....ir.dims import Dim, Truth, compare, is_at_least, product
from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.dialect import Dialect
from ..context.export_context import ExportContext, Operand
from ..context.import_context import ImportContext, NotNative
from .rows import attribute_default, export_as, import_as

FLOAT = 1  # ONNX's number for f32: the only precision of statistics that the native ops have

_LEAST_RANK = 2  # axes of what has batch and channels

# ---- coming in


def _softmax(name: str) -> Callable[[ImportContext], Value]:
    def rule(ctx: ImportContext) -> Value:
        x, ty = ctx.input(0), ctx.tensor(0)
        axis = int(ctx.attr("axis", attribute_default(ctx, "axis")))
        if ctx.version >= 13 or axis in {-1, ty.rank - 1}:
            return ctx.op(name, x, axis=axis)
        if 0 in ty.dims:
            return x  # no elements; a matrix of none would not tell the sizes that only running tells
        start = axis % ty.rank if axis < 0 else axis
        rows = ctx.op("reshape", x, shape=(*ty.dims[:start], product(ty.dims[start:])))
        return ctx.op("reshape", ctx.op(name, rows, axis=-1), shape=ty.dims)

    return rule


def import_layer_norm(ctx: ImportContext) -> Value | Sequence[Value]:
    """LayerNormalization, and its statistics where they are results.

    ONNX Runtime, which had it before onnx, takes a scale of another element type, which is the result's then.
    """
    _require_f32_statistics(ctx)
    axis, epsilon = ctx.attr("axis", -1), ctx.attr("epsilon", 1e-5)
    x, scale = ctx.input(0), ctx.input(1)
    given = x if x.tensor.dtype is scale.tensor.dtype else ctx.op("cast", x, to=scale.tensor.dtype)
    y = ctx.op("layer_norm", given, scale, ctx.optional(2), axis=axis, epsilon=epsilon)
    if not any(ctx.wants(index) for index in range(1, ctx.output_count)):
        return y
    axes = tuple(range(axis % x.tensor.rank, x.tensor.rank))
    mean, _, var = _moments(ctx, _as(ctx, x, DType.F32), axes)
    root = ctx.op("sqrt", ctx.op("add", var, ctx.scalar_like(epsilon, var)))
    return (y, mean, ctx.op("reciprocal", root))[: ctx.output_count]


def import_mean_variance_norm(ctx: ImportContext) -> Value:
    """MeanVarianceNormalization as ONNX's formula has it, with the smallest divisor of ONNX's function body.

    Where the mean is large nothing is left of the mean of squares less the square of the mean, which that body takes.
    """
    x, dtype = ctx.input(0), ctx.tensor(0).dtype
    axes = tuple(ctx.attr("axes", (0, 2, 3))) or tuple(range(x.tensor.rank))
    _, centered, var = _moments(ctx, _as(ctx, x, _wide(dtype)), axes)
    root = ctx.op("sqrt", var)
    return _as(ctx, ctx.op("div", centered, ctx.op("add", root, ctx.scalar_like(1e-9, root))), dtype)


def _moments(ctx: ImportContext, x: Value, axes: tuple[int, ...]) -> tuple[Value, Value, Value]:
    """The mean over `axes`, what `x` differs from it by, and the variance."""
    mean = ctx.op("reduce_mean", x, axes=axes, keep_dims=True)
    centered = ctx.op("sub", x, mean)
    return mean, centered, ctx.op("reduce_mean", ctx.op("mul", centered, centered), axes=axes, keep_dims=True)


def import_rms_norm(ctx: ImportContext) -> Value:
    """RMSNormalization; a scale of another element type is left to the function body."""
    _require_inference(ctx)
    return ctx.op("rms_norm", ctx.input(0), ctx.input(1), axis=ctx.attr("axis", -1), epsilon=ctx.attr("epsilon", 1e-5))


def import_batch_norm(ctx: ImportContext) -> Value | Sequence[Value]:
    """BatchNormalization with given statistics, one for each channel, or since opset 14 with those of the batch."""
    if ctx.attr("training_mode", 0) and ctx.tensor(0).rank >= _LEAST_RANK:
        return _trained_batch_norm(ctx)
    _require_inference(ctx)
    if ctx.attr("training_mode", 0) or not ctx.attr("spatial", 1):
        raise NotNative("statistics of the batch itself, or of each activation")
    return ctx.op("batch_norm", *(ctx.input(index) for index in range(5)), epsilon=ctx.attr("epsilon", 1e-5))


def _trained_batch_norm(ctx: ImportContext) -> tuple[Value, ...]:
    """As its parts: ONNX Runtime's kernel writes the running statistics over its operands, whoever reads them."""
    x, rank, dtype = ctx.input(0), ctx.tensor(0).rank, ctx.tensor(0).dtype
    wide = _wide(dtype)
    axes = tuple(axis for axis in range(rank) if axis != 1)

    def as_column(index: int) -> Value:
        value = _as(ctx, ctx.input(index), wide)
        return ctx.op("unsqueeze", value, axes=tuple(range(1, rank - 1))) if rank > _LEAST_RANK else value

    def running(index: int, now: Value) -> Value:
        before, momentum = _as(ctx, ctx.input(index), wide), ctx.attr("momentum", 0.9)
        kept = ctx.op("mul", before, ctx.scalar_like(momentum, before))
        taken = ctx.op("mul", ctx.op("squeeze", now, axes=axes), ctx.scalar_like(1 - momentum, before))
        return _as(ctx, ctx.op("add", kept, taken), ctx.tensor(index).dtype)

    x = _as(ctx, x, wide)
    mean, centered, var = _moments(ctx, x, axes)
    root = ctx.op("sqrt", ctx.op("add", var, ctx.scalar_like(ctx.attr("epsilon", 1e-5), var)))
    scaled = ctx.op("mul", ctx.op("div", centered, root), as_column(1))
    y = _as(ctx, ctx.op("add", scaled, as_column(2)), dtype)
    return y, running(3, mean), running(4, var)


def _wide(dtype: DType) -> DType:
    return dtype if dtype is DType.F64 else DType.F32


def _as(ctx: ImportContext, value: Value, dtype: DType) -> Value:
    return value if value.tensor.dtype is dtype else ctx.op("cast", value, to=dtype)


def import_group_norm(ctx: ImportContext) -> Value:
    """GroupNormalization; before opset 21 scale and bias have a value for each group, here spread over its channels."""
    _require_inference(ctx)
    groups = int(ctx.attr("num_groups"))
    scale, bias = ctx.input(1), ctx.input(2)
    if ctx.version < 21:
        channels = ctx.tensor(0).dims[1]
        scale, bias = (_spread(ctx, value, groups, channels) for value in (scale, bias))
    return ctx.op("group_norm", ctx.input(0), scale, bias, groups=groups, epsilon=ctx.attr("epsilon", 1e-5))


def _spread(ctx: ImportContext, by_group: Value, groups: int, channels: Dim) -> Value:
    if not isinstance(channels, int):
        raise NotNative("a symbolic number of channels in groups")
    column = ctx.op("reshape", by_group, shape=(groups, 1))
    return ctx.op("reshape", ctx.op("expand", column, shape=(groups, channels // groups)), shape=(channels,))


def _require_inference(ctx: ImportContext) -> None:
    if any(ctx.wants(index) for index in range(1, ctx.output_count)):
        raise NotNative("statistics as results")
    _require_f32_statistics(ctx)


def _require_f32_statistics(ctx: ImportContext) -> None:
    if ctx.attr("stash_type", FLOAT) != FLOAT:
        raise NotNative("statistics in another precision than f32")


IMPORTS = {
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "Hardmax": _softmax("hardmax"),
    "LpNormalization": import_as("lp_norm", "axis", "p"),
    "LayerNormalization": import_layer_norm,
    "RMSNormalization": import_rms_norm,
    "BatchNormalization": import_batch_norm,
    "InstanceNormalization": import_as("instance_norm", "epsilon"),
    "GroupNormalization": import_group_norm,
    "MeanVarianceNormalization": import_mean_variance_norm,
    "LRN": import_as("lrn", "size", "alpha", "beta", "bias"),
}

# ---- going out


def _export_softmax(op_type: str) -> Callable[[ExportContext, Node], None]:
    def rule(ctx: ExportContext, node: Node) -> None:
        axis, rank = node.attrs["axis"], node.outputs[0].tensor.rank
        if ctx.opset >= 13:
            ctx.emit(op_type, node.inputs, node.outputs, axis=axis)
            return
        place = axis % rank
        if all(dim == 1 for dim in node.outputs[0].shape[place + 1 :]):  # the matrix has as many rows then
            ctx.emit(op_type, node.inputs, node.outputs, axis=place)
            return
        perm = tuple(rank - 1 if each == place else place if each == rank - 1 else each for each in range(rank))
        last = ctx.emit_value("Transpose", node.inputs, perm=perm)
        ctx.emit("Transpose", (ctx.emit_value(op_type, (last,), axis=rank - 1),), node.outputs, perm=perm)

    return rule


def export_layer_norm(ctx: ExportContext, node: Node, *, domain: str = "") -> None:
    """LayerNormalization, whose scale is not optional."""
    x, scale, bias = node.inputs
    scale_name = _scale(ctx, node, scale)
    ctx.emit("LayerNormalization", (x, scale_name, bias), node.outputs, domain=domain, **_trailing(node))


def export_rms_norm(ctx: ExportContext, node: Node) -> None:
    """RMSNormalization, whose scale is not optional."""
    x, scale = node.inputs
    ctx.emit("RMSNormalization", (x, _scale(ctx, node, scale)), node.outputs, **_trailing(node))


def _trailing(node: Node) -> dict[str, Any]:
    return {"axis": node.attrs["axis"], "epsilon": node.attrs["epsilon"]}


def _scale(ctx: ExportContext, node: Node, scale: Value | None) -> Value | str:
    """The scale in the shape of what is normalized: the operators' implementations want no broadcasting."""
    x = node.operands[0]
    dims = x.shape[node.attrs["axis"] % x.tensor.rank :]
    if scale is not None and _may_be(scale.shape, dims):
        return scale
    if scale is None and all(isinstance(dim, int) for dim in dims):
        return ctx.constant(np.ones(dims, x.tensor.dtype.numpy), x.tensor.dtype)
    given = scale if scale is not None else ctx.constant(1, x.tensor.dtype)
    return ctx.emit_value("Expand", (given, ctx.dims_tensor(dims, x)))


def _may_be(shape: Sequence[Dim], wanted: Sequence[Dim]) -> bool:
    is_same_rank = len(shape) == len(wanted)
    return is_same_rank and all(compare(*pair) is not Truth.NO for pair in zip(shape, wanted, strict=True))


def export_group_norm(ctx: ExportContext, node: Node) -> None:
    """GroupNormalization of opset 21, where scale and bias have a value for each channel; in f32 its parts.

    ONNX Runtime has no kernel of its own for it; instance norm over the groups takes half the time (docs/optimizer.md).
    """
    groups, epsilon = node.attrs["groups"], node.attrs["epsilon"]
    x, scale, bias = node.operands
    if x.tensor.dtype is DType.F32 and ctx.dialect is not Dialect.FAITHFUL:
        _export_by_groups(ctx, node, x, scale, bias)
        return
    ctx.emit("GroupNormalization", node.inputs, node.outputs, num_groups=groups, epsilon=epsilon)


def _export_by_groups(ctx: ExportContext, node: Node, x: Value, scale: Value, bias: Value) -> None:
    groups = node.attrs["groups"]
    batch, *rest = x.shape
    may_be_empty = is_at_least(x.tensor.size, 1) is not Truth.YES or None  # or a size of 0 is another's place
    by_group = ctx.dims_tensor((batch, groups, product(rest) // groups), x)
    rows = ctx.emit_value("Reshape", (x, by_group), allowzero=may_be_empty)
    one, zero = (ctx.constant(np.full(groups, number, np.float32)) for number in (1, 0))
    normal = ctx.emit_value("InstanceNormalization", (rows, one, zero), epsilon=node.attrs["epsilon"])
    back = ctx.emit_value("Reshape", (normal, ctx.dims_tensor(x.shape, x)), allowzero=may_be_empty)
    scaled = ctx.emit_value("Mul", (back, _by_channel(ctx, scale, x)))
    ctx.emit("Add", (scaled, _by_channel(ctx, bias, x)), node.outputs)


def _by_channel(ctx: ExportContext, values: Value, x: Value) -> Operand:
    """One value for each channel, in a shape that broadcasts over the axes after it."""
    axes = range(1, x.tensor.rank - 1)
    content = constant_of(values)
    if content is not None:
        return ctx.constant(Constant(content.array.reshape(-1, *(1 for _ in axes)), content.dtype))
    return ctx.emit_value("Reshape", (values, ctx.ints((-1, *(1 for _ in axes)))))


EXPORTS = {
    "softmax": _export_softmax("Softmax"),
    "log_softmax": _export_softmax("LogSoftmax"),
    "hardmax": _export_softmax("Hardmax"),
    "lp_norm": export_as("LpNormalization", "axis", "p"),
    "layer_norm": export_layer_norm,
    "rms_norm": export_rms_norm,
    "batch_norm": export_as("BatchNormalization", "epsilon"),
    "instance_norm": export_as("InstanceNormalization", "epsilon"),
    "group_norm": export_group_norm,
    "lrn": export_as("LRN", "size", "alpha", "beta", "bias"),
}
