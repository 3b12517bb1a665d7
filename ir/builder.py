"""Writing graphs in Python: for tests, examples and rewrites that make whole graphs.

b = Builder("main")
x = b.input("x", "f32[B, 4]")
y = b.op("softmax", b.op("add", x, b.constant(1.0, "f32")), axis=-1)
graph = b.finish({"y": y})
"""

from collections.abc import Mapping, Sequence

from .attrs import AttrValue
from .emitter import Emitter
from .graph import Graph, SymbolTable, Value
from .op import foreign
from .text.parser import parse_type
from .types import Type
from .verify import verify


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
