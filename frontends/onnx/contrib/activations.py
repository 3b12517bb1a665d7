"""Activations that add a bias first, and SiLU."""

from collections.abc import Collection, Mapping

from ....ir.graph import Node
from ....ir.types import DType
from ..export_context import ExportContext
from .group import DOMAIN, Group, Operator
from .products import biased

_DTYPES = (DType.F32, DType.F16, DType.BF16)
_GELUS = {"none": "BiasGelu", "tanh": "FastGelu"}

OPERATORS = frozenset(Operator(name, dtype) for name in (*_GELUS.values(), "QuickGelu") for dtype in _DTYPES)


def bias_gelu(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """BiasGelu and FastGelu: a product, its bias and the activation. The product stays a node of its own."""
    name = _GELUS[node.attrs["approximate"]]
    if Operator(name, node.output.tensor.dtype) not in available:
        return None
    found = biased(node.operands[0])
    if found is None:
        return None

    def write(ctx: ExportContext) -> None:
        ctx.emit(name, (found.write(ctx), found.bias), node.outputs, domain=DOMAIN)

    return Group(node, found.inner, node.outputs, write)


def fast_gelu(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """FastGelu without a bias."""
    if node.attrs["approximate"] != "tanh" or Operator("FastGelu", node.output.tensor.dtype) not in available:
        return None

    def write(ctx: ExportContext) -> None:
        ctx.emit("FastGelu", node.inputs, node.outputs, domain=DOMAIN)

    return Group(node, frozenset(), node.outputs, write)


def quick_gelu(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """QuickGelu: x sigmoid(alpha x)."""
    if Operator("QuickGelu", node.output.tensor.dtype) not in available:
        return None

    def write(ctx: ExportContext) -> None:
        ctx.emit("QuickGelu", node.inputs, node.outputs, domain=DOMAIN, alpha=float(node.attrs["alpha"]))

    return Group(node, frozenset(), node.outputs, write)


RULES = {"gelu": (bias_gelu, fast_gelu), "silu": (quick_gelu,)}
