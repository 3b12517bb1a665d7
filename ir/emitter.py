"""Making nodes: what the builder, the rewriter and the importers share."""

from collections.abc import Mapping, Sequence
from typing import Any

from .attrs import AttrValue
from .constant import Constant
from .graph import Graph, Node, Origin, Value
from .op import Op
from .ops import native
from .types import DType, Type


class Emitter:
    """Makes nodes of `graph` with `origin`, right before the node `anchor` (None: at the end).

    All methods raise what `Graph.append` raises.
    """

    __slots__ = ("anchor", "graph", "origin")

    def __init__(self, graph: Graph, *, anchor: Node | None = None, origin: Origin | None = None) -> None:
        self.graph = graph
        self.anchor = anchor
        self.origin = origin

    def at(self, node: Node | None) -> None:
        """Puts new nodes right before `node` (None: at the end), with its origin."""
        self.anchor = node
        self.origin = node.origin if node is not None else None

    def op(self, name: str, *inputs: Value | None, **attrs: AttrValue) -> Value:
        """A new native node with one result."""
        return self.node(native(name), inputs, attrs).output

    def ops(self, name: str, *inputs: Value | None, **attrs: AttrValue) -> tuple[Value, ...]:
        """A new native node with its results."""
        return self.node(native(name), inputs, attrs).outputs

    def constant(self, content: Any, dtype: DType | str | None = None) -> Value:
        """A new constant from a `Constant`, or of what NumPy makes an array of, in NumPy's choice of dtype if None."""
        if not isinstance(content, Constant):
            content = Constant(content, DType.of(dtype) if dtype is not None else None)
        return self.op("constant", value=content)

    def node(
        self,
        op: Op,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, AttrValue] | None = None,
        types: Sequence[Type] | None = None,
    ) -> Node:
        """A new node of any op; `types` are needed for a foreign one."""
        if self.anchor is None:
            return self.graph.append(op, inputs, attrs, types=types, origin=self.origin)
        return self.graph.insert_before(self.anchor, op, inputs, attrs, types=types, origin=self.origin)
