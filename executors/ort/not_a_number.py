"""The greatest and the least of floats with NaN among them, which ONNX Runtime passes over or puts anywhere.

A session gets a reduction with a choice behind it: NaN where some element is. Which it is tells a reduction of bytes.
The logarithm of a sum of exponentials over all axes gets one too, as it passes over NaN beside infinity.
The greatest few it looks for among keys: infinity for NaN, the greatest number for infinity, and no more than the one
before that for numbers.
"""

import math

import numpy as np

from ...ir.analysis import all_nodes, nested_graphs
from ...ir.builder import Emitter
from ...ir.graph import Graph, Node
from ...ir.ops.known import DYNAMIC_TOP_K, REDUCE_LOG_SUM_EXP, REDUCE_MAX, REDUCE_MIN, TOP_K
from ...ir.types import DType


def passes_over(node: Node) -> bool:
    """Whether a node looks for the greatest or the least, and would pass over NaN."""
    if node.op is REDUCE_LOG_SUM_EXP:
        return 0 < len(node.attrs["axes"]) == node.operands[0].tensor.rank
    return node.op in (DYNAMIC_TOP_K, REDUCE_MAX, REDUCE_MIN, TOP_K) and node.operands[0].tensor.dtype.is_float


def with_choices(graph: Graph) -> Graph:
    """`graph`, or a copy in which such nodes treat NaN as ours do, regions included."""
    if not any(map(passes_over, all_nodes(graph))):
        return graph
    copy = graph.clone()
    for body in nested_graphs(copy):
        for node in [node for node in body.nodes if passes_over(node)]:
            if node.op in (DYNAMIC_TOP_K, TOP_K):
                _by_keys(body, node)
            else:
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


def _by_keys(graph: Graph, node: Node) -> None:
    x, *more = node.operands
    emit = Emitter(graph, anchor=node, origin=node.origin)
    dtype = DType.F64 if x.tensor.dtype is DType.F64 else DType.F32
    kind = np.float64 if dtype is DType.F64 else np.float32
    greatest = kind(np.finfo(kind).max)
    wide = emit.op("cast", x, to=dtype)
    number = emit.op("min", wide, emit.constant(np.nextafter(greatest, kind(0)), dtype))
    infinite = emit.op("is_inf", wide, detect_negative=False)
    ordered = emit.op("where", infinite, emit.constant(greatest, dtype), number)
    keys = emit.op("where", emit.op("is_nan", wide), emit.constant(math.inf, dtype), ordered)
    types = [node.outputs[0].tensor.with_dtype(dtype), node.outputs[1].type]
    places = emit.node(node.op, (keys, *more), node.attrs, types).outputs[1]
    graph.replace_uses(node.outputs[0], emit.op("gather_elements", x, places, axis=node.attrs["axis"]))
    graph.replace_uses(node.outputs[1], places)
    graph.erase(node)
