"""Convolutions. `auto_pad` and `output_shape` are resolved to pads, which are symbolic where sizes are."""

from collections.abc import Sequence
from typing import Any

from ....ir.dims import Dim, Truth, ceil_div, dim_max, is_at_least
from ....ir.errors import ModelError, UnsupportedError
from ....ir.graph import Node, Value
from ..context.dialect import Dialect
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext, NotNative
from .windows import (
    auto_pad,
    convolution_operands,
    padded_operand,
    padding_attrs,
    per_axis,
    spatial_rank,
    split_pads,
    window_attrs,
)

# ---- coming in


def _kernel(ctx: ImportContext, weight: int) -> tuple[Dim, ...]:
    """The kernel's sizes, which stand in the weight's shape; the attribute repeats them."""
    dims = ctx.tensor(weight).dims[2:]
    if len(dims) != spatial_rank(ctx):
        raise ModelError(f"{ctx.op_type}: a weight of rank {len(dims) + 2} for a tensor of rank {ctx.tensor(0).rank}")
    stated = ctx.attr("kernel_shape")
    if stated and any(isinstance(dim, int) and dim != size for dim, size in zip(dims, stated, strict=False)):
        raise ModelError(f"{ctx.op_type}: kernel_shape is {list(stated)}, but the weight is {ctx.tensor(weight)}")
    return dims


def _conv_attrs(ctx: ImportContext, weight: int) -> dict[str, Any]:
    return {**window_attrs(ctx, _kernel(ctx, weight)), "groups": ctx.attr("group", 1)}


def import_conv(ctx: ImportContext) -> Value:
    """Conv."""
    return ctx.op("conv", ctx.input(0), ctx.input(1), ctx.optional(2), **_conv_attrs(ctx, 1))


def import_conv_integer(ctx: ImportContext) -> Value:
    """ConvInteger."""
    return ctx.op("conv_integer", ctx.input(0), ctx.input(1), ctx.optional(2), ctx.optional(3), **_conv_attrs(ctx, 1))


def import_qlinear_conv(ctx: ImportContext) -> Value:
    """QLinearConv."""
    operands = [ctx.input(index) for index in range(8)]
    return ctx.op("qlinear_conv", *operands, ctx.optional(8), **_conv_attrs(ctx, 3))


def import_deform_conv(ctx: ImportContext) -> Value:
    """DeformConv."""
    return ctx.op(
        "deform_conv",
        *(ctx.input(index) for index in range(3)),
        ctx.optional(3),
        ctx.optional(4),
        **_conv_attrs(ctx, 1),
        offset_groups=ctx.attr("offset_group", 1),
    )


def import_conv_transpose(ctx: ImportContext) -> Value:
    """ConvTranspose."""
    kernel, rank = _kernel(ctx, 1), spatial_rank(ctx)
    attrs: dict[str, Any] = {
        "strides": per_axis(ctx, "strides", rank, 1),
        "dilations": per_axis(ctx, "dilations", rank, 1),
        "output_padding": per_axis(ctx, "output_padding", rank, 0),
    }
    pads = _transposed_pads(ctx, kernel, **attrs)
    return ctx.op(
        "conv_transpose", ctx.input(0), ctx.input(1), ctx.optional(2), **attrs, pads=pads, groups=ctx.attr("group", 1)
    )


def _transposed_pads(
    ctx: ImportContext,
    kernel: Sequence[Dim],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    output_padding: Sequence[int],
) -> Sequence[Dim]:
    mode, rank, sizes = auto_pad(ctx), len(kernel), ctx.tensor(0).dims[2:]
    wanted: Sequence[Dim] | None = tuple(ctx.attr("output_shape") or ())[-rank:] or None
    if wanted is None and mode == "NOTSET":
        return per_axis(ctx, "pads", 2 * rank, 0)
    if wanted is None and mode == "VALID":
        return (0,) * (2 * rank)
    if wanted is None:
        wanted = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    totals = [
        stride * (size - 1) + extra + dilation * (width - 1) + 1 - target
        for size, target, width, stride, dilation, extra in zip(
            sizes, wanted, kernel, strides, dilations, output_padding, strict=True
        )
    ]
    return _behind(totals) if mode == "NOTSET" else split_pads(mode, totals)


def _behind(totals: Sequence[Dim]) -> tuple[Dim, ...]:
    """As `split_pads`, but what a result has beyond all windows is behind them: both peers have it so."""
    begins = tuple(dim_max(ceil_div(total, 2), 0) for total in totals)
    return (*begins, *(total - begin for total, begin in zip(totals, begins, strict=True)))


def import_col2im(ctx: ImportContext) -> Value:
    """Col2Im, for an image size that is known at import time."""
    x = ctx.input(0)
    image, block = ctx.dims(1, x), ctx.ints(2)
    if image is None or block is None:
        raise NotNative("an image or block size that only running tells")
    rank = len(image)
    return ctx.op(
        "col2im",
        x,
        image=image,
        block=block,
        strides=per_axis(ctx, "strides", rank, 1),
        pads=per_axis(ctx, "pads", 2 * rank, 0),
        dilations=per_axis(ctx, "dilations", rank, 1),
    )


IMPORTS = {
    "Conv": import_conv,
    "ConvInteger": import_conv_integer,
    "QLinearConv": import_qlinear_conv,
    "DeformConv": import_deform_conv,
    "ConvTranspose": import_conv_transpose,
    "Col2Im": import_col2im,
}

# ---- going out


def _export_convolution(ctx: ExportContext, node: Node, op_type: str, weight: int) -> None:
    kernel = _weight(node, weight).shape[2:]
    x, padding = convolution_operands(ctx, node, kernel)
    ctx.emit(op_type, (x, *node.inputs[1:]), node.outputs, **padding, **_shared(node, kernel))


def _weight(node: Node, index: int) -> Value:
    weight = node.inputs[index]
    assert weight is not None  # no convolution goes without its weight
    return weight


def _shared(node: Node, kernel: Sequence[Dim]) -> dict[str, Any]:
    is_plain = all(isinstance(size, int) for size in kernel)
    return {
        "kernel_shape": tuple(kernel) if is_plain else None,
        "strides": node.attrs["strides"],
        "dilations": node.attrs["dilations"],
        "group": node.attrs["groups"],
    }


def export_conv(ctx: ExportContext, node: Node) -> None:
    """Conv, with symbolic pads as `auto_pad` or a Pad node."""
    _export_convolution(ctx, node, "Conv", 1)


def export_conv_integer(ctx: ExportContext, node: Node) -> None:
    """ConvInteger; its padding stands for the zero point, so no Pad node with zeros can take its place."""
    _export_quantized(ctx, node, "ConvInteger", 1)


def export_qlinear_conv(ctx: ExportContext, node: Node) -> None:
    """QLinearConv; its padding stands for the zero point, so no Pad node with zeros can take its place."""
    _export_quantized(ctx, node, "QLinearConv", 3)


def _export_quantized(ctx: ExportContext, node: Node, op_type: str, weight: int) -> None:
    kernel = _weight(node, weight).shape[2:]
    padding = padding_attrs(node, kernel)
    if padding is None:
        raise UnsupportedError(f"{op_type} takes no symbolic pads", remedy="bind the symbolic sizes first")
    ctx.emit(op_type, node.inputs, node.outputs, **padding, **_shared(node, kernel))


def export_deform_conv(ctx: ExportContext, node: Node) -> None:
    """DeformConv, which has no `auto_pad`; symbolic pads become a Pad node, which is the same: outside is zero."""
    kernel, pads = _weight(node, 1).shape[2:], node.attrs["pads"]
    attrs = {**_shared(node, kernel), "offset_group": node.attrs["offset_groups"]}
    if all(isinstance(pad, int) and pad >= 0 for pad in pads):
        ctx.emit("DeformConv", node.inputs, node.outputs, pads=pads, **attrs)
        return
    operands = (padded_operand(ctx, node), *node.inputs[1:])
    ctx.emit("DeformConv", operands, node.outputs, pads=(0,) * len(pads), **attrs)


def export_conv_transpose(ctx: ExportContext, node: Node) -> None:
    """ConvTranspose; what pads beyond the attribute's range mean is done by a Pad node behind it."""
    kernel, pads = _weight(node, 1).shape[2:], node.attrs["pads"]
    attrs = {**_shared(node, kernel), "output_padding": node.attrs["output_padding"]}
    if all(isinstance(pad, int) and pad >= 0 for pad in pads):
        ctx.emit("ConvTranspose", node.inputs, node.outputs, pads=pads, **attrs)
        return
    if ctx.dialect is Dialect.FAITHFUL and _is_told_by_size(node):
        ctx.emit("ConvTranspose", node.inputs, node.outputs, output_shape=node.output.shape[2:], **attrs)
        return
    x, weight, bias = node.inputs
    half = len(pads) // 2
    whole = ctx.emit_value("ConvTranspose", (x, weight), pads=(0,) * len(pads), **attrs)
    cut = ctx.dims_tensor((0, 0, *(-pad for pad in pads[:half]), 0, 0, *(-pad for pad in pads[half:])), *node.operands)
    operands = (whole, cut, ctx.constant(0, node.output.tensor.dtype))
    if bias is None:
        ctx.emit("Pad", operands, node.outputs, mode="constant")
        return
    column = ctx.emit_value("Unsqueeze", (bias, ctx.ints(range(1, 1 + half))))
    ctx.emit("Add", (ctx.emit_value("Pad", operands, mode="constant"), column), node.outputs)


def _is_told_by_size(node: Node) -> bool:
    """Whether `output_shape` by itself means these pads: sizes are known, and the end has the odd one.

    What is smaller than the operand is left out: onnx's inference gives up there, and finds the model wrong.
    """
    pads, x = node.attrs["pads"], node.operands[0].tensor
    half = len(pads) // 2
    if not (node.output.tensor.is_static and x.is_static) or not all(isinstance(pad, int) for pad in pads):
        return False
    sizes = zip(node.output.tensor.dims[2:], x.dims[2:], strict=True)
    if not all(is_at_least(after, before) is Truth.YES for after, before in sizes):
        return False
    totals = [begin + end for begin, end in zip(pads[:half], pads[half:], strict=True)]
    return tuple(pads) == _behind(totals)


def export_col2im(ctx: ExportContext, node: Node) -> None:
    """Col2Im."""
    pads = node.attrs["pads"]
    if not all(isinstance(pad, int) for pad in pads):
        raise UnsupportedError("Col2Im takes no symbolic pads", remedy="bind the symbolic sizes first")
    image, block = ctx.dims_tensor(node.attrs["image"], *node.operands), ctx.ints(node.attrs["block"])
    names = ("strides", "pads", "dilations")
    attrs = {name: node.attrs[name] for name in names}
    ctx.emit("Col2Im", (*node.inputs, image, block), node.outputs, **attrs)


EXPORTS = {
    "conv": export_conv,
    "conv_integer": export_conv_integer,
    "qlinear_conv": export_qlinear_conv,
    "deform_conv": export_deform_conv,
    "conv_transpose": export_conv_transpose,
    "col2im": export_col2im,
}
