"""Writing graphs in Python: for tests, examples and rewrites that make whole graphs.

b = Builder("main")
x = b.input("x", "f32[B, 4]")
y = b.op("softmax", b.op("add", x, b.constant(1.0, "f32")), axis=-1)
graph = b.finish({"y": y})
"""

from collections.abc import Mapping, Sequence
from typing import Any

from .attrs import AttrValue
from .constant import Constant
from .graph import Graph, Node, Origin, SymbolTable, Value
from .op import Op, foreign
from .ops import native
from .text.parser import parse_type
from .types import DType, Type
from .verify import verify


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


class Builder(Emitter):
    """A graph in the making, `graph`. Regions are made by `region`, which shares the symbols."""

    def __init__(self, name: str = "main", *, symbols: SymbolTable | None = None) -> None:
        super().__init__(Graph(name, symbols=symbols))
        self._is_region = symbols is not None

    def input(self, name: str, ty: Type | str) -> Value:
        """A new last input; its type may be given as text, `f32[B, 4]`."""
        return self.graph.add_input(name, parse_type(ty) if isinstance(ty, str) else ty)

    def foreign(
        self,
        name: str,
        operands: Sequence[Value | None],
        types: Sequence[Type | str],
        attrs: Mapping[str, AttrValue] | None = None,
    ) -> tuple[Value, ...]:
        """The results of a foreign op (`onnx.Foo`), which have the given types."""
        parsed = [parse_type(ty) if isinstance(ty, str) else ty for ty in types]
        return self.node(foreign(name), operands, attrs, parsed).outputs

    def region(self, name: str) -> "Builder":
        """The builder of a region; give what its `finish` gives as an attribute."""
        return Builder(name, symbols=self.graph.symbols)

    def finish(self, outputs: Mapping[str, Value] | Sequence[Value]) -> Graph:
        """The graph with these outputs, by name or called as the values are; verified, unless it is a region.

        A region is verified with the graph around it, which says what its symbols mean.
        """
        if isinstance(outputs, Mapping):
            self.graph.set_outputs(list(outputs.values()), list(outputs))
        else:
            self.graph.set_outputs(outputs)
        if not self._is_region:
            verify(self.graph)
        return self.graph
