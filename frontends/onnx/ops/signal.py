"""Spectra. Lengths, steps and axes that ONNX takes as operands are attributes of the native ops."""

from ....ir.errors import UnsupportedError
from ....ir.graph import Node, Value
from ..context.export_context import ExportContext, Operand
from ..context.import_context import ImportContext, NotNative
from ..tensors import dtype_of

# ---- coming in


def import_dft(ctx: ImportContext) -> Value:
    """DFT; the axis was an attribute before opset 20, with another default."""
    x = ctx.input(0)
    length = ctx.dim(1, x) if ctx.optional(1) is not None else None
    if length is None and ctx.optional(1) is not None:
        raise NotNative("a length that only running tells")
    inverse, onesided = bool(ctx.attr("inverse", 0)), bool(ctx.attr("onesided", 0))
    return ctx.op("dft", x, axis=_dft_axis(ctx), length=length, inverse=inverse, onesided=onesided)


def _dft_axis(ctx: ImportContext) -> int:
    if ctx.version < 20:
        return int(ctx.attr("axis", 1))
    if ctx.optional(2) is None:
        return -2
    axis = ctx.ints(2)
    if axis is None or len(axis) != 1:
        raise NotNative("an axis that only running tells")
    return axis[0]


def import_stft(ctx: ImportContext) -> Value:
    """STFT; a frame is as long as the window, or as the signal, when its length is not given."""
    signal, window = ctx.input(0), ctx.optional(2)
    given = [value for value in (signal, window) if value is not None]
    step = ctx.dim(1, *given)
    if ctx.optional(3) is not None:
        length = ctx.dim(3, *given)
    else:
        length = ctx.tensor(2).dims[0] if window is not None else ctx.tensor(0).dims[1]
    if step is None or length is None:
        raise NotNative("a frame length or step that only running tells")
    onesided = bool(ctx.attr("onesided", 1))
    return ctx.op("stft", signal, window, frame_step=step, frame_length=length, onesided=onesided)


def import_mel_weight_matrix(ctx: ImportContext) -> Value:
    """MelWeightMatrix, for a number of bands and a transform length that are known at import time."""
    operands = [ctx.input(index) for index in (2, 3, 4)]
    bands, length = ctx.dim(0, *operands), ctx.dim(1, *operands)
    if bands is None or length is None:
        raise NotNative("a size that only running tells")
    dtype = dtype_of(ctx.attr("output_datatype", 1))
    return ctx.op("mel_weight_matrix", *operands, bands=bands, dft_length=length, dtype=dtype)


IMPORTS = {"DFT": import_dft, "STFT": import_stft, "MelWeightMatrix": import_mel_weight_matrix}

# ---- going out


def export_dft(ctx: ExportContext, node: Node) -> None:
    """DFT, with the axis as operand from opset 20 on."""
    attrs = node.attrs
    length = None if attrs["length"] is None else ctx.dim_scalar(attrs["length"], *node.operands)
    flags = {"inverse": attrs["inverse"], "onesided": attrs["onesided"]}
    x = node.operands[0]
    parts, wanted = x.shape[-1], 2 if attrs["inverse"] else 1
    if attrs["onesided"] and isinstance(parts, int) and parts != wanted:
        kind = "inverse takes complex" if attrs["inverse"] else "transform takes real"
        raise UnsupportedError(f"ONNX's one-sided {kind} numbers", remedy="keep it out of ONNX")
    if ctx.opset < 20:
        ctx.emit("DFT", (x, length), node.outputs, axis=attrs["axis"], **flags)
        return
    ctx.emit("DFT", (x, length, ctx.dim_scalar(attrs["axis"])), node.outputs, **flags)


def export_stft(ctx: ExportContext, node: Node) -> None:
    """STFT."""
    signal, window = node.inputs
    step, length = (ctx.dim_scalar(node.attrs[name], *node.operands) for name in ("frame_step", "frame_length"))
    ctx.emit("STFT", (signal, step, window, length), node.outputs, onesided=node.attrs["onesided"])


def export_mel_weight_matrix(ctx: ExportContext, node: Node) -> None:
    """MelWeightMatrix, whose integers are of one type."""
    rate, low, high = node.inputs
    assert rate is not None  # the op requires its operands
    dtype = rate.tensor.dtype
    sizes: list[Operand] = [ctx.dim_scalar(node.attrs[name], *node.operands) for name in ("bands", "dft_length")]
    if dtype.bits == 32:
        sizes = [ctx.emit_value("Cast", (size,), to=dtype) for size in sizes]
    ctx.emit("MelWeightMatrix", (*sizes, rate, low, high), node.outputs, output_datatype=node.attrs["dtype"])


EXPORTS = {"dft": export_dft, "stft": export_stft, "mel_weight_matrix": export_mel_weight_matrix}
