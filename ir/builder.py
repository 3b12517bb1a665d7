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
from .graph import Graph, SymbolTable, Value
from .op import foreign
from .ops import native
from .text.parser import parse_type
from .types import DType, Type
from .verify import verify


class Builder:
    """A graph in the making, `graph`. Regions are made by `region`, which shares the symbols."""

    def __init__(self, name: str = "main", *, symbols: SymbolTable | None = None) -> None:
        self.graph = Graph(name, symbols=symbols)
        self._is_region = symbols is not None

    def input(self, name: str, ty: Type | str) -> Value:
        """A new last input; its type may be given as text, `f32[B, 4]`."""
        return self.graph.add_input(name, parse_type(ty) if isinstance(ty, str) else ty)

    def op(self, name: str, *operands: Value | None, **attrs: AttrValue) -> Value:
        """The result of a native op that has one. Raises what `Graph.append` raises."""
        return self.graph.append(native(name), operands, attrs).output

    def ops(self, name: str, *operands: Value | None, **attrs: AttrValue) -> tuple[Value, ...]:
        """The results of a native op, however many."""
        return self.graph.append(native(name), operands, attrs).outputs

    def foreign(
        self,
        name: str,
        operands: Sequence[Value | None],
        types: Sequence[Type | str],
        attrs: Mapping[str, AttrValue] | None = None,
    ) -> tuple[Value, ...]:
        """The results of a foreign op (`onnx.Foo`), which have the given types."""
        parsed = [parse_type(ty) if isinstance(ty, str) else ty for ty in types]
        return self.graph.append(foreign(name), operands, attrs, types=parsed).outputs

    def constant(self, value: Any, dtype: DType | str | None = None) -> Value:
        """A constant of anything that NumPy makes an array of; `dtype` is NumPy's choice unless given."""
        made = Constant(value, DType.of(dtype) if dtype is not None else None)
        return self.op("constant", value=made)

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
