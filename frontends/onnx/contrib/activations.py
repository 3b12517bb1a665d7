"""Activations that add a bias first, and SiLU."""

from collections.abc import Collection, Mapping

from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.export_context import ExportContext
from .group import DOMAIN, Group, Operator, have_equal_shapes, is_vector, sole_producer
from .products import Biased, biased

_DTYPES = (DType.F32, DType.F16, DType.BF16)
_GELUS = {"none": "BiasGelu", "tanh": "FastGelu"}

OPERATORS = frozenset(
    {
        Operator("Gelu", DType.F32),
        *(Operator(name, dtype) for name in (*_GELUS.values(), "QuickGelu") for dtype in _DTYPES),
    }
)


def bias_gelu(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """BiasGelu and FastGelu: a bias, mostly of a product, and the activation. A product stays a node of its own."""
    name = _GELUS[node.attrs["approximate"]]
    if Operator(name, node.output.tensor.dtype) not in available:
        return None
    found = biased(node.operands[0]) or _shifted(node.operands[0])
    if found is None:
        return None

    def write(ctx: ExportContext) -> None:
        ctx.emit(name, (found.write(ctx), found.bias), node.outputs, domain=DOMAIN)

    return Group(node, found.inner, node.outputs, write)


def _shifted(total: Value) -> Biased | None:
    """A sum with a vector along the last axis."""
    added = sole_producer(total, "add")
    if added is None or not total.tensor.rank:
        return None
    for product, bias in (added.operands, reversed(added.operands)):
        if have_equal_shapes(product, total) and is_vector(bias, total.shape[-1]):
            return Biased(frozenset({added}), bias, product)
    return None


def fast_gelu(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """FastGelu without a bias, which takes no scalar."""
    ty = node.output.tensor
    if node.attrs["approximate"] != "tanh" or Operator("FastGelu", ty.dtype) not in available or not ty.rank:
        return None

    def write(ctx: ExportContext) -> None:
        ctx.emit("FastGelu", node.inputs, node.outputs, domain=DOMAIN)

    return Group(node, frozenset(), node.outputs, write)


def gelu(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """Gelu, which the standard has from opset 20 on."""
    if node.attrs["approximate"] != "none" or Operator("Gelu", node.output.tensor.dtype) not in available:
        return None

    def write(ctx: ExportContext) -> None:
        ctx.emit("Gelu", node.inputs, node.outputs, domain=DOMAIN)

    return Group(node, frozenset(), node.outputs, write)


def quick_gelu(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """QuickGelu: x sigmoid(alpha x)."""
    if Operator("QuickGelu", node.output.tensor.dtype) not in available:
        return None

    def write(ctx: ExportContext) -> None:
        ctx.emit("QuickGelu", node.inputs, node.outputs, domain=DOMAIN, alpha=float(node.attrs["alpha"]))

    return Group(node, frozenset(), node.outputs, write)


RULES = {"gelu": (bias_gelu, fast_gelu, gelu), "silu": (quick_gelu,)}
