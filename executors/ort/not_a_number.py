"""The greatest and the least of floats with NaN among them, which ONNX Runtime's reductions pass over.

A session gets the reduction with a choice behind it: NaN where some element is. Which it is tells a reduction of bytes.
"""

import math

from ...ir.analysis import all_nodes, nested_graphs
from ...ir.builder import Emitter
from ...ir.graph import Graph, Node
from ...ir.ops.known import REDUCE_MAX, REDUCE_MIN
from ...ir.types import DType


def passes_over(node: Node) -> bool:
    """Whether a node is a reduction that would pass over NaN."""
    return node.op in (REDUCE_MAX, REDUCE_MIN) and node.operands[0].tensor.dtype.is_float


def with_choices(graph: Graph) -> Graph:
    """`graph`, or a copy in which such reductions give NaN where there is some, regions included."""
    if not any(map(passes_over, all_nodes(graph))):
        return graph
    copy = graph.clone()
    for body in nested_graphs(copy):
        for node in [node for node in body.nodes if passes_over(node)]:
            _guard(body, node)
    return copy


def _guard(graph: Graph, node: Node) -> None:
    x, dtype = node.operands[0], node.output.tensor.dtype
    emit = Emitter(graph, anchor=node, origin=node.origin)
    bytes_ = emit.op("cast", emit.op("is_nan", x), to=DType.U8)
    is_any = emit.op("cast", emit.op("reduce_max", bytes_, **node.attrs), to=DType.BOOL)
    nan = emit.constant(math.nan, dtype)
    graph.replace_uses(node.output, emit.op("where", is_any, nan, emit.op(node.op.name, x, **node.attrs)))
    graph.erase(node)
