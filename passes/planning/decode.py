"""Uniform decode: where every sequence has a single query, attention need not know lengths before it is launched."""

from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph import Graph
from ...ir.ops import native
from ...ir.padded_attention import padded_attention
from ..framework.base import Pass
from ..framework.exactness import Exactness
from ..framework.rewriter import Rewriter


@dataclass(frozen=True)
class ReadLengthsOnDevice(Pass):
    """Puts attention that can be captured in the place of variable-length attention of one query a sequence at most.

    The launch is then the same whatever the lengths are, and the kernel reads them where they lie. Done on a graph of
    known sizes, so that the sizes of a bucket decide.
    """

    name: ClassVar[str] = "read-lengths-on-device"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING
    runs_once: ClassVar[bool] = True

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        varlen = native("varlen_attention")
        for node in graph.nodes:
            if node.op is varlen and node.attrs["longest"] == 1 and rewriter.may_rewrite("single-queries", node):
                rewriter.replace(node, *rewriter.inline(padded_attention(node), node.operands))
