"""Dead-code elimination: nodes whose results nobody reads go, last ones first. Graph inputs stay: callers pass them."""

from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph import Graph
from ..framework.base import Pass
from ..framework.rewriter import Rewriter


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Erases every node without uses. No op has side effects, so random and foreign ones go as well."""

    name: ClassVar[str] = "eliminate-dead-code"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in graph.reversed_nodes:
            if not node.has_uses and rewriter.may_rewrite("unused", node):
                rewriter.erase(node)
