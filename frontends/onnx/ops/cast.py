"""Casts and linear quantization. A quantized type comes from the zero point, an attribute, or is u8."""

from typing import Any

import numpy as np

from ....ir.dims import SymDim
from ....ir.errors import ModelError
from ....ir.graph import Node, Value
from ....ir.ops import native
from ....ir.types import DType, Kind, TensorType
from ..context.dialect import Dialect
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext
from ..tensors import dtype_of
from .rows import attribute_default, import_as

# ---- coming in


def import_cast(ctx: ImportContext) -> Value:
    """Cast, and CastLike, whose type is that of an operand.

    Of a single known number the result is a constant: exporters write the bounds of a Range as casts of floats.
    """
    to = ctx.tensor(1).dtype if ctx.op_type == "CastLike" else dtype_of(ctx.attr("to", 0))
    saturate = bool(ctx.attr("saturate", 1))
    round_mode = ctx.attr("round_mode", "up")
    number = ctx.array(0)
    if number is not None and number.size == 1 and Kind.STRING not in (to.kind, ctx.tensor(0).dtype.kind):
        with np.errstate(all="ignore"):
            known = native("cast").meaning(number, to=to, saturate=saturate, round_mode=round_mode)
        return ctx.constant(known, to)
    return ctx.op("cast", ctx.input(0), to=to, saturate=saturate, round_mode=round_mode)


def import_quantize(ctx: ImportContext) -> Value:
    """QuantizeLinear."""
    (scale, zero_point), declared = _scale_and_zero(ctx), ctx.attr("output_dtype", 0)
    to = zero_point.tensor.dtype if zero_point is not None else DType.U8
    if declared:
        if zero_point is not None and dtype_of(declared) is not to:
            raise ModelError(f"QuantizeLinear: output_dtype is {dtype_of(declared)}, but the zero point is {to}")
        to = dtype_of(declared)
    precision = ctx.attr("precision", 0)
    return ctx.op(
        "quantize_linear",
        ctx.input(0),
        scale,
        zero_point,
        to=to,
        saturate=bool(ctx.attr("saturate", 1)),
        precision=dtype_of(precision) if precision else None,
        **_granularity(ctx),
    )


def import_dequantize(ctx: ImportContext) -> Value:
    """DequantizeLinear."""
    declared = ctx.attr("output_dtype", 0)
    to = dtype_of(declared) if declared else ctx.tensor(1).dtype
    return ctx.op("dequantize_linear", ctx.input(0), *_scale_and_zero(ctx), to=to, **_granularity(ctx))


def _scale_and_zero(ctx: ImportContext) -> tuple[Value, Value | None]:
    """Scale and zero point: of an axis that is not there they can only be one, whatever size the model names."""
    scale, zero = ctx.input(1), _zero_point(ctx)
    if not _has_one_scale(ctx):
        return scale, zero
    return ctx.op("reshape", scale, shape=()), None if zero is None else ctx.op("reshape", zero, shape=())


def _has_one_scale(ctx: ImportContext) -> bool:
    """Whether the size of the scale is open, and its axis none of the operand's."""
    x, scale = ctx.input(0).type, ctx.tensor(1)
    if not isinstance(x, TensorType) or x.shape is None or scale.shape is None or len(scale.shape) != 1:
        return False
    return isinstance(scale.shape[0], SymDim) and not -x.rank <= _axis(ctx) < x.rank


def _axis(ctx: ImportContext) -> int:
    axis = ctx.attr("axis", attribute_default(ctx, "axis"))
    return 1 if axis is None else int(axis)


def _zero_point(ctx: ImportContext) -> Value | None:
    """The zero point in the shape of the scale: for one scale some models give a vector of one element."""
    value = ctx.optional(2)
    if value is None or value.tensor.rank == ctx.tensor(1).rank or value.tensor.size != 1:
        return value
    return ctx.op("reshape", value, shape=ctx.tensor(1).dims)


def _granularity(ctx: ImportContext) -> dict[str, int]:
    """Axis and block size; those of one scale mean nothing, whatever the model says."""
    if not ctx.tensor(1).rank or _has_one_scale(ctx):
        return {}
    return {"axis": _axis(ctx), "block_size": ctx.attr("block_size", 0)}


IMPORTS = {
    "Cast": import_cast,
    "CastLike": import_cast,
    "BitCast": import_as("bit_cast", "to"),
    "QuantizeLinear": import_quantize,
    "DequantizeLinear": import_dequantize,
    "DynamicQuantizeLinear": import_as("dynamic_quantize_linear"),
    "com.microsoft.QuantizeLinear": import_quantize,
    "com.microsoft.DequantizeLinear": import_dequantize,
}

# ---- going out


def export_cast(ctx: ExportContext, node: Node) -> None:
    """Cast; what only 8-bit floats know is said for them alone."""
    to = node.attrs["to"]
    is_fp8 = to.kind is Kind.FLOAT and to.bits == 8
    saturate = node.attrs["saturate"] if is_fp8 else None
    round_mode = node.attrs["round_mode"] if to is DType.F8E8M0 else None
    ctx.emit("Cast", node.inputs, node.outputs, to=to, saturate=saturate, round_mode=round_mode)


def export_bit_cast(ctx: ExportContext, node: Node) -> None:
    """BitCast."""
    ctx.emit("BitCast", node.inputs, node.outputs, to=node.attrs["to"])


def export_quantize(ctx: ExportContext, node: Node) -> None:
    """QuantizeLinear; before opset 21 only a zero point can say that the result is not u8."""
    x, scale, zero_point = node.inputs
    assert x is not None
    to: DType = node.attrs["to"]
    says_type = zero_point is None and to is not DType.U8
    domain = _domain(ctx, node, to, x.tensor.dtype)
    given: Value | str | None = zero_point
    if says_type and ctx.opset < 21 and scale is not None and scale.tensor.rank == 0:
        given, says_type = ctx.constant(0, to), False
    ctx.emit(
        "QuantizeLinear",
        (x, scale, given),
        node.outputs,
        domain="" if says_type else domain,
        output_dtype=to if says_type else None,
        saturate=node.attrs["saturate"] if to.is_float else None,
        precision=node.attrs["precision"],
        **_exported_granularity(node),
    )


def export_dequantize(ctx: ExportContext, node: Node) -> None:
    """DequantizeLinear; the result's type is said where it is not that of the scale."""
    scale = node.inputs[1]
    to: DType = node.attrs["to"]
    output_dtype = None if scale is not None and scale.tensor.dtype is to else to
    domain = _domain(ctx, node, node.operands[0].tensor.dtype, to)
    granularity = _exported_granularity(node)
    ctx.emit("DequantizeLinear", node.inputs, node.outputs, domain=domain, output_dtype=output_dtype, **granularity)


def _domain(ctx: ExportContext, node: Node, dtype: DType, floats: DType) -> str:
    """The domain of the operator: before opset 21 that of 16 bits is ONNX Runtime's own, where a model has such.

    It takes f32 and f16, each with scales of its own type.
    """
    is_missing = ctx.opset < 21 and dtype in (DType.U16, DType.I16)
    is_taken = node.operands[1].tensor.dtype is floats and floats in (DType.F32, DType.F16)
    is_plain = not node.attrs["block_size"] and not node.attrs.get("precision")
    has_own = ctx.dialect is Dialect.ORT or 0 < ctx.came_at < 21
    return "com.microsoft" if is_missing and is_taken and is_plain and has_own else ""


def _exported_granularity(node: Node) -> dict[str, Any]:
    """Axis and block size, left out where they mean nothing."""
    scale = node.inputs[1]
    is_whole = scale is not None and scale.tensor.rank == 0
    block_size = node.attrs["block_size"] or None
    return {"axis": None if is_whole else node.attrs["axis"], "block_size": None if is_whole else block_size}


def export_dynamic_quantize(ctx: ExportContext, node: Node) -> None:
    """DynamicQuantizeLinear."""
    ctx.emit("DynamicQuantizeLinear", node.inputs, node.outputs)


EXPORTS = {
    "cast": export_cast,
    "bit_cast": export_bit_cast,
    "quantize_linear": export_quantize,
    "dequantize_linear": export_dequantize,
    "dynamic_quantize_linear": export_dynamic_quantize,
}
