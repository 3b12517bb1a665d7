"""Convolutions with the sum and the activation behind them."""

from collections.abc import Collection, Mapping

from ....ir.graph import Node, Value
from ....ir.types import DType
from ..export_context import ExportContext
from .group import DOMAIN, Group, Operator, have_equal_shapes, sole_producer

OPERATORS = frozenset({Operator("FusedConv", DType.F32)})
_RANK = 4


def fused_conv(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """FusedConv: relu(conv(x)) and relu(conv(x) + z), on pictures."""
    if Operator("FusedConv", node.output.tensor.dtype) not in available:
        return None
    added = sole_producer(node.operands[0], "add")
    conv, z = _summands(added) if added is not None else (sole_producer(node.operands[0], "conv"), None)
    if conv is None or conv.output.tensor.rank != _RANK:
        return None
    kernel, pads = conv.operands[1].shape[2:], conv.attrs["pads"]
    if not all(isinstance(size, int) and size >= 0 for size in (*kernel, *pads)):
        return None

    def write(ctx: ExportContext) -> None:
        attrs = conv.attrs
        ctx.emit(
            "FusedConv", (*conv.inputs, z), node.outputs, domain=DOMAIN,
            activation="Relu", kernel_shape=kernel, strides=attrs["strides"] or None, pads=pads or None,
            dilations=attrs["dilations"] or None, group=attrs["groups"],
        )  # fmt: skip

    return Group(node, frozenset({conv, *(() if added is None else (added,))}), node.outputs, write)


def _summands(added: Node) -> tuple[Node | None, Value | None]:
    """The convolution in a sum, and the other operand; of two convolutions the one that is made last."""
    if not have_equal_shapes(*added.operands):
        return None, None
    for first, second in (added.operands[::-1], added.operands):
        conv = sole_producer(first, "conv")
        if conv is not None and second is not first:
            return conv, second
    return None, None


RULES = {"relu": (fused_conv,)}
