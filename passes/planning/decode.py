"""Uniform decode: where every sequence has a single query, attention need not know lengths before it is launched."""

from ...ir.graph import Graph
from ...ir.ops import native
from ...ir.padded_attention import padded_attention


def read_lengths_on_device(graph: Graph) -> None:
    """Puts attention that can be captured in the place of variable-length attention of one query a sequence at most.

    The launch is then the same whatever the lengths are, and the kernel reads them where they lie. Done on a graph of
    known sizes, so that the sizes of a bucket decide.
    """
    varlen = native("varlen_attention")
    for node in graph.nodes:
        if node.op is varlen and node.attrs["longest"] == 1:
            (result,) = graph.inline(padded_attention(node), node.operands, node)
            graph.replace_uses(node.output, result)
            graph.erase(node)
