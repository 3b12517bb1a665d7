"""Layouts: which values lie channels-last, [N, ..., C] in memory, where the rest lies row-major.

Convolutions are quickest on images that lie so. What they make is laid out channels-last, and what is made from that
place by place (pointwise work, pooling, resizing, joining) keeps the layout, so that nothing is copied in between.
Inputs and outputs of the graph, constants and states are row-major: they are seen from outside.
"""

from collections.abc import Sequence

from ...ir.attrs import AttrValue
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.target import Target

_CONVOLUTIONS = frozenset({"conv", "conv_transpose"})

_PASSES_ON = frozenset(
    {
        "average_pool",
        "batch_norm",
        "group_norm",
        "lp_pool",
        "lrn",
        "max_pool",
        "max_pool_with_indices",
        "pad",
        "resize",
        "fused",
    }
)
"""Ops whose kernels go through places in any order; elementwise ops, reductions and joins do as well."""

_TRAITS = Trait.ELEMENTWISE | Trait.REDUCTION | Trait.JOINS


def channels_last_values(graph: Graph, target: Target) -> frozenset[Value]:
    """The values of a specialised graph that are to lie channels-last on `target`."""
    if not target.channels_last:
        return frozenset()
    found: set[Value] = set()
    for node in graph.nodes:
        if _makes_images(node) or (_passes_on(node) and any(value in found for value in node.operands)):
            found.update(value for value in node.outputs if _may_be_image(value, node, found))
    return frozenset(found)


def channels_last_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of [N, C, ...] in memory as [N, ..., C]."""
    strides = [0] * len(shape)
    strides[1], step = itemsize, itemsize * shape[1]
    for axis in (*reversed(range(2, len(shape))), 0):
        strides[axis], step = step, step * shape[axis]
    return tuple(strides)


def _makes_images(node: Node) -> bool:
    if node.op.name in _CONVOLUTIONS:
        return True
    return any(_holds_convolution(value) for value in node.attrs.values()) if node.op.name == "fused" else False


def _holds_convolution(body: AttrValue) -> bool:
    return isinstance(body, Graph) and any(node.op.name in _CONVOLUTIONS for node in body.nodes)


def _passes_on(node: Node) -> bool:
    return node.op.has(_TRAITS) or node.op.name in _PASSES_ON


def _may_be_image(value: Value, node: Node, found: set[Value]) -> bool:
    """Whether a result has channels and places, as many axes as the images that it is made from, and stays inside."""
    if value.is_graph_output or value.tensor.shape is None or value.tensor.rank < 3:
        return False
    images = [operand for operand in node.operands if operand in found]
    return not images or any(operand.tensor.rank == value.tensor.rank for operand in images)
