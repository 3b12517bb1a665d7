"""Sizes that nodes mention without an operand that has them: the inputs of a graph that tell them."""

from collections.abc import Collection, Iterable

from ...ir.attrs import AttrValue
from ...ir.dims import SymDim
from ...ir.graph import Graph, Node, Value
from ...ir.types import type_symbols


def size_givers(graph: Graph, nodes: Iterable[Node], known: Collection[Value]) -> list[Value]:
    """Inputs of `graph` that `nodes` need, besides the values `known`, only to know sizes that they mention."""
    bound = frozenset[str]().union(*(type_symbols(value.type) for value in known))
    missing = frozenset[str]().union(*map(_mentioned, nodes)) - bound
    return [value for value in graph.inputs if type_symbols(value.type) & missing]


def _mentioned(node: Node) -> frozenset[str]:
    types = (type_symbols(value.type) for value in node.outputs)
    attrs = (_symbols_in(node.attrs[name]) for name in node.op.bound_attrs)
    return frozenset[str]().union(*types, *attrs)


def _symbols_in(value: AttrValue) -> frozenset[str]:
    if isinstance(value, SymDim):
        return value.symbols
    if isinstance(value, tuple):
        return frozenset[str]().union(*map(_symbols_in, value))
    if isinstance(value, Graph):
        return frozenset[str]().union(*map(_mentioned, value.nodes))
    return frozenset()
