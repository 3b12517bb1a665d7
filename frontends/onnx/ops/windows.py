"""Attributes of sliding windows, which convolutions and pools share: defaults and `auto_pad` in, symbolic pads out."""

from collections.abc import Sequence
from typing import Any

from ....ir.dims import Dim, dim_max
from ....ir.errors import ModelError, UnsupportedError
from ....ir.graph import Node
from ..context.export_context import ExportContext, Operand
from ..context.import_context import ImportContext, NotNative

# ---- coming in


def spatial_rank(ctx: ImportContext) -> int:
    """The number of spatial axes of the first operand, `[N, C, D1, ...]`."""
    rank = ctx.tensor(0).rank - 2
    if rank < 1:
        raise NotNative(f"{ctx.op_type} of a tensor without spatial axes")
    return rank


def per_axis(ctx: ImportContext, name: str, count: int, default: int) -> tuple[int, ...]:
    """An attribute with `count` entries, `default` for each when it is left out."""
    given = tuple(ctx.attr(name) or (default,) * count)
    if len(given) != count:
        raise ModelError(f"{ctx.op_type}: attribute {name} has {len(given)} entries, not {count}")
    return given


def auto_pad(ctx: ImportContext) -> str:
    """NOTSET, VALID, SAME_UPPER or SAME_LOWER."""
    mode: str = ctx.attr("auto_pad", "NOTSET") or "NOTSET"
    if mode not in {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}:
        raise ModelError(f"{ctx.op_type}: auto_pad is {mode!r}")
    return mode


def same_pads(
    mode: str, sizes: Sequence[Dim], kernel: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[Dim, ...]:
    """The pads with which there are `ceil(size / stride)` windows along each axis."""
    totals = [
        dim_max((size - 1) // stride * stride + dilation * (width - 1) + 1 - size, 0)
        for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    return split_pads(mode, totals)


def split_pads(mode: str, totals: Sequence[Dim]) -> tuple[Dim, ...]:
    """All begins, then all ends: an odd one is at the end with SAME_UPPER, else at the begin."""
    halves = tuple(total // 2 for total in totals)
    rests = tuple(total - half for total, half in zip(totals, halves, strict=True))
    return (*halves, *rests) if mode == "SAME_UPPER" else (*rests, *halves)


def window_attrs(ctx: ImportContext, kernel: Sequence[Dim]) -> dict[str, Any]:
    """strides, pads and dilations of a convolution or pool with this kernel; `auto_pad` is resolved."""
    rank = spatial_rank(ctx)
    if len(kernel) != rank:
        raise ModelError(f"{ctx.op_type}: the kernel has {len(kernel)} axes, not {rank}")
    strides, dilations = per_axis(ctx, "strides", rank, 1), per_axis(ctx, "dilations", rank, 1)
    mode = auto_pad(ctx)
    pads: Sequence[Dim] = (0,) * (2 * rank)
    if mode == "NOTSET":
        pads = per_axis(ctx, "pads", 2 * rank, 0)
    elif mode != "VALID":
        pads = same_pads(mode, ctx.tensor(0).dims[2:], kernel, strides, dilations)
    return {"strides": strides, "pads": pads, "dilations": dilations}


# ---- going out


def padding_attrs(node: Node, kernel: Sequence[Dim]) -> dict[str, Any] | None:
    """The attribute `pads`, or `auto_pad` where symbolic pads are what that stands for; None when neither says it."""
    pads: tuple[Dim, ...] = node.attrs["pads"]
    if all(isinstance(pad, int) and pad >= 0 for pad in pads):
        return {"pads": pads}
    x = node.inputs[0]
    assert x is not None  # no window op goes without its first operand
    strides = node.attrs["strides"]
    dilations = node.attrs.get("dilations", (1,) * len(strides))
    for mode in ("SAME_UPPER", "SAME_LOWER"):
        if pads == same_pads(mode, x.shape[2:], kernel, strides, dilations):
            return {"auto_pad": mode}
    return None


def padded_operand(ctx: ExportContext, node: Node) -> str:
    """The first operand of a convolution with its zeros around it, for pads that no attribute can say."""
    x = node.inputs[0]
    assert x is not None  # no window op goes without its first operand
    pads = node.attrs["pads"]
    half = len(pads) // 2
    widths = ctx.dims_tensor((0, 0, *pads[:half], 0, 0, *pads[half:]), *node.operands)
    return ctx.emit_value("Pad", (x, widths, ctx.constant(0, x.tensor.dtype)), mode="constant")


def convolution_operands(ctx: ExportContext, node: Node, kernel: Sequence[Dim]) -> tuple[Operand, dict[str, Any]]:
    """The first operand of a convolution and its padding attribute."""
    padding = padding_attrs(node, kernel)
    if padding is not None:
        return node.inputs[0], padding
    return padded_operand(ctx, node), {"pads": (0,) * len(node.attrs["pads"])}


def pool_padding(node: Node) -> dict[str, Any]:
    """The padding attribute of a pool. Raises `UnsupportedError` for symbolic pads that ONNX cannot say."""
    padding = padding_attrs(node, node.attrs["kernel"])
    if padding is None:
        raise UnsupportedError(
            f"ONNX has no pool with pads {list(map(str, node.attrs['pads']))}",
            remedy="bind the symbolic sizes, or pad with a pad node first",
        )
    return padding
