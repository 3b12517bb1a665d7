"""Taking apart what was fused and no kernel can do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from ...ir.graph import Graph, Node
from ...ir.ops.known import FUSED
from ..framework.base import Pass
from ..framework.rewriter import Rewriter


@dataclass(frozen=True)
class TakeApart(Pass):
    """Puts the nodes of fused regions back that `captures` says no kernel is for, or that hold an op in `kept`."""

    name: ClassVar[str] = "take-apart"
    runs_once: ClassVar[bool] = True
    kept: tuple[str, ...] = ()
    captures: Callable[[Node], bool] | None = field(default=None, repr=False)

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in graph.nodes:
            if node.op is FUSED and not self._is_wanted(node) and rewriter.may_rewrite("take-apart", node):
                rewriter.replace(node, *rewriter.inline(node.attrs["body"], node.operands))

    def _is_wanted(self, node: Node) -> bool:
        inside = {each.op.name for each in node.attrs["body"].nodes}
        return inside.isdisjoint(self.kept) and (self.captures is None or self.captures(node))
