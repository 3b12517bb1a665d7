"""Common subexpressions: two nodes that compute the same become one.

Nodes are equal when op, operands (in either order if it is commutative), attributes and result types are. An absent
operand has its place in the comparison, so `clip(x, _, c)` and `clip(x, c, _)` stay apart. Constants are compared by
content up to `max_constant_bytes`; larger ones, which would have to be read, only if that was done before, or they are
the same object.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from ...ir.constant import Constant
from ...ir.graph import Graph, Node
from ...ir.op import Trait
from ..framework.base import Pass
from ..framework.rewriter import Rewriter


@dataclass(frozen=True)
class Cse(Pass):
    """Merges equal pure nodes into the first of them. Nodes that own regions are left alone."""

    name: ClassVar[str] = "cse"
    max_constant_bytes: int = 1 << 20

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        first: dict[Hashable, Node] = {}
        for node in graph.nodes:
            if not node.op.is_pure or node.regions:
                continue
            same = first.setdefault(self._key(node), node)
            if same is not node and rewriter.may_rewrite("duplicate", node):
                rewriter.replace(node, *same.outputs)

    def _key(self, node: Node) -> Hashable:
        inputs = tuple(sorted(node.inputs, key=id)) if node.op.has(Trait.COMMUTATIVE) else node.inputs
        types = tuple(value.type for value in node.outputs) if node.op.has(Trait.DATA_DEPENDENT) else ()
        return (node.op, inputs, self._attrs_key(node), types)

    def _attrs_key(self, node: Node) -> Hashable:
        content = node.attrs.get("value")
        if isinstance(content, Constant) and content.nbytes > self.max_constant_bytes and not content.has_digest:
            return id(content)
        return node.attrs
