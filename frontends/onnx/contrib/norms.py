"""Activations that add a bias first, SiLU, and normalizations of a sum. Layer norm before opset 17."""

from collections.abc import Collection, Iterator, Mapping

from onnx import GraphProto, ModelProto, NodeProto

from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.export_context import ExportContext
from ..ops.normalization import export_layer_norm
from .group import DOMAIN, Group, Operator, have_equal_shapes, is_inside, is_vector, sole_producer
from .matmuls import Biased, biased

_DTYPES = (DType.F32, DType.F16, DType.BF16)
_GELUS = {"none": "BiasGelu", "tanh": "FastGelu"}

_ACTIVATIONS = frozenset(
    {
        Operator("Gelu", DType.F32),
        *(Operator(name, dtype) for name in (*_GELUS.values(), "QuickGelu") for dtype in _DTYPES),
    }
)


def bias_gelu(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """BiasGelu and FastGelu: a bias, mostly of a matmul, and the activation. A matmul stays a node of its own."""
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
    for matmul, bias in (added.operands, reversed(added.operands)):
        if have_equal_shapes(matmul, total) and is_vector(bias, total.shape[-1]):
            return Biased(frozenset({added}), bias, matmul)
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


_NAMES = {"layer_norm": "SkipLayerNormalization", "rms_norm": "SkipSimplifiedLayerNormalization"}
_RANKS = (2, 3)

_SUMS = frozenset(Operator(name, dtype) for name in _NAMES.values() for dtype in (DType.F32, DType.F16, DType.BF16))
OPERATORS = _ACTIVATIONS | _SUMS | {Operator("LayerNormalization", DType.F32)}

SLOW_ON_CPU = frozenset(Operator(name, DType.F32) for name in _NAMES.values())
"""GPT-2 and ViT take 1.14 times as long with it as with a sum and a norm, Llama 1.02 times."""


def skip_norm(node: Node, available: Collection[Operator], order: Mapping[Node, int]) -> Group | None:
    """SkipLayerNormalization and SkipSimplifiedLayerNormalization, which give the sum as well where others read it."""
    name, added = _NAMES[node.op.name], node.operands[0].producer
    x = node.operands[0]
    if added is None or added.op.name != "add" or Operator(name, x.tensor.dtype) not in available:
        return None
    if not _is_plain(node) or not have_equal_shapes(*added.operands) or added.operands[0] is added.operands[1]:
        return None
    later = [user for user in x.users if user is not node]
    if any(order[user] < order[node] for user in later):
        return None  # they would read the sum before it is there
    total = None if is_inside((x,), {node}) else x
    first, second, bias = _parts(added)
    inner = frozenset({added} | (bias.inner if bias is not None else frozenset()))

    def write(ctx: ExportContext) -> None:
        given = first if bias is None else bias.write(ctx)
        weights = node.inputs[1:] if name == "SkipLayerNormalization" else node.inputs[1:2]
        operands = (given, second, *weights, *(() if bias is None else (bias.bias,)))
        results = (node.output, None, None, total)
        ctx.emit(name, operands, results, domain=DOMAIN, epsilon=node.attrs["epsilon"])

    return Group(node, inner, node.outputs if total is None else (node.output, total), write)


def layer_norm(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """LayerNormalization, which ONNX Runtime has at every opset: in the default domain, see `in_default_domain`."""
    if Operator("LayerNormalization", node.output.tensor.dtype) not in available:
        return None

    def write(ctx: ExportContext) -> None:
        export_layer_norm(ctx, node, domain=DOMAIN)

    return Group(node, frozenset(), node.outputs, write)


def in_default_domain(model: ModelProto) -> None:
    """Moves operators to where ONNX Runtime has them, and onnx's checker, which has run, would refuse them."""
    is_needed = False
    for node in _all_nodes(model.graph):
        if node.domain == DOMAIN and node.op_type == "LayerNormalization":
            node.domain = ""
        is_needed |= node.domain == DOMAIN
    if not is_needed:
        kept = [entry for entry in model.opset_import if entry.domain != DOMAIN]
        del model.opset_import[:]
        model.opset_import.extend(kept)


def _all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _all_nodes(attribute.g)


def _is_plain(node: Node) -> bool:
    """Whether a norm is over the last axis alone, with a weight (and no more than a bias) for each of its elements."""
    ty = node.operands[0].tensor
    if ty.shape is None or len(ty.shape) not in _RANKS or node.attrs["axis"] % len(ty.shape) != len(ty.shape) - 1:
        return False
    return is_vector(node.inputs[1], ty.shape[-1]) and all(
        value is None or is_vector(value, ty.shape[-1]) for value in node.inputs[2:]
    )


def _parts(added: Node) -> tuple[Value, Value, Biased | None]:
    """The two operands of a sum, and the first of them as a matmul with a bias if one is."""
    a, b = added.operands
    for first, second in ((a, b), (b, a)):
        found = biased(first)
        if found is not None:
            return first, second, found
    return a, b, None


RULES = {
    "gelu": (bias_gelu, fast_gelu, gelu),
    "silu": (quick_gelu,),
    "layer_norm": (skip_norm, layer_norm),
    "rms_norm": (skip_norm,),
}
