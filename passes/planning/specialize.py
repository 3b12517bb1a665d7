"""Specialize: a graph with its symbolic sizes bound to numbers.

Type rules run again on concrete sizes, so what was 'unknown' becomes yes or an error, and constraints that rules
recorded are checked. Symbols that only running can bind (sizes of data-dependent results) stay; those that a rule knows
by now, as where two branches come to give the same sizes, are bound too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...ir.attrs import Attrs, is_tuple
from ...ir.binding import mentioned
from ...ir.dims import Dim, SymDim, bind
from ...ir.dims.constraints import collect_constraints
from ...ir.errors import CapgraphError, ShapeError
from ...ir.graph import Graph, Node, SymbolTable, Value
from ...ir.ops.regions import attribute_symbols, free_symbols
from ...ir.types import type_symbols
from ..cleanup.static_shapes import known_by_rule
from ..framework.base import Pass
from ..framework.rewriter import Rewriter


@dataclass(frozen=True)
class Specialize(Pass):
    """Binds every symbol of `sizes`, pairs of name and number. Raises as `specialize` does.

    Each node that mentions one counts as a rewrite. Within a budget that does not cover all of them the inputs stay
    symbolic, so that nodes with sizes and nodes without are one graph.
    """

    name: ClassVar[str] = "specialize"
    runs_once: ClassVar[bool] = True
    refusals: ClassVar[tuple[type[CapgraphError], ...]] = (CapgraphError,)
    sizes: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}{{{', '.join(f'{name}={size}' for name, size in self.sizes)}}}" if self.sizes else self.name

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        sizes = dict(self.sizes)
        _check_sizes(graph, sizes)
        found = _nodes_with(graph, sizes)
        inputs = [value for value in graph.inputs if not type_symbols(value.type).isdisjoint(sizes)]
        chosen = rewriter.allowed("bind-sizes", found)
        if chosen or (inputs and not found):
            _bind(graph, inputs if len(chosen) == len(found) else (), chosen, sizes)
            rewriter.edited()


def _nodes_with(graph: Graph, sizes: Mapping[str, Dim]) -> list[Node]:
    """The nodes that mention one of the symbols in an attribute, or the type of an operand or a result."""
    values = {value for value in graph.values if not type_symbols(value.type).isdisjoint(sizes)}
    return [
        node
        for node in graph.nodes
        if not values.isdisjoint(node.inputs)
        or not values.isdisjoint(node.outputs)
        or ((node.op.bound_attrs or node.op.is_foreign) and not attribute_symbols(node).isdisjoint(sizes))
    ]


def specialize(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """A copy of `graph` in which every symbol of `sizes` is replaced by its number.

    Raises `ShapeError` when an input symbol has no size, a size is negative, or the sizes break a constraint.
    """
    _check_sizes(graph, sizes)
    return with_sizes(graph, sizes)


def with_sizes(graph: Graph, sizes: Mapping[str, Dim]) -> Graph:
    """A copy of `graph` with other dims for some of its symbols. Raises `ShapeError` where they break a constraint."""
    return _bound(graph.clone(), sizes)


def _check_sizes(graph: Graph, sizes: Mapping[str, int]) -> None:
    needed = frozenset[str]().union(*(type_symbols(value.type) for value in graph.inputs))
    missing = sorted(needed - sizes.keys())
    if missing:
        raise ShapeError(f"no size is given for {', '.join(missing)}", remedy="give every symbolic size of the inputs")
    for name, size in sizes.items():
        if size < 0:
            raise ShapeError(f"size {name} is {size}", remedy="sizes are not negative")


def _bound(graph: Graph, sizes: Mapping[str, Dim]) -> Graph:
    """`graph`, with other dims put in."""
    _bind(graph, graph.inputs, _nodes_with(graph, sizes), sizes)
    return graph


def _bind(graph: Graph, inputs: Iterable[Value], nodes: Sequence[Node], sizes: Mapping[str, Dim]) -> None:
    """Puts other dims into the types and attributes of inputs and nodes, and asks the nodes' rules again."""
    for value in inputs:
        graph.bind_type(value, sizes)
        graph.set_default(value, graph.defaults.get(value.name))
    with collect_constraints() as constraints:
        for node in nodes:
            for value in node.outputs:
                graph.bind_type(value, sizes)
            graph.set_attrs(node, **bound_attrs(node.attrs, sizes, graph.symbols))
    for constraint in constraints:
        if not _symbols_of(constraint.left) and not _symbols_of(constraint.right):
            constraint.check({})
    if known := _known_by_now(graph, nodes):
        _bind(graph, (), _nodes_with(graph, known), known)
    graph.set_states(graph.states)


def _known_by_now(graph: Graph, nodes: Iterable[Node]) -> dict[str, Dim]:
    """The sizes that nodes made symbols for, and that their rules know now that the operands or regions have sizes."""
    left = [node for node in nodes if mentioned(value.type for value in node.outputs)]
    around = mentioned(value.type for value in graph.inputs) | free_symbols(graph) if left else frozenset[str]()
    return {name: size for node in left for name, size in known_by_rule(node, around).items()}


def bound_attrs(attrs: Attrs, sizes: Mapping[str, Dim], symbols: SymbolTable) -> dict[str, Any]:
    """Attributes for a node of a graph with that table, with other dims for some symbols; regions are copied."""
    return {name: _bound_attr(value, sizes, symbols) for name, value in attrs.items()}


def _bound_attr(value: Any, sizes: Mapping[str, Dim], symbols: SymbolTable) -> Any:
    if isinstance(value, SymDim):
        return bind(value, sizes)
    if is_tuple(value):
        return tuple(_bound_attr(item, sizes, symbols) for item in value)
    if isinstance(value, Graph):
        return _bound(value.clone_with_map(symbols)[0], sizes)
    return value


def _symbols_of(dim: Dim) -> frozenset[str]:
    return dim.symbols if isinstance(dim, SymDim) else frozenset()
