"""Specialise: a copy of a graph with its symbolic sizes bound to numbers.

Type rules run again on concrete sizes, so what was 'unknown' becomes yes or an error, and constraints that rules
recorded are checked. Symbols that only running can bind (sizes of data-dependent results) stay.
"""

from collections.abc import Mapping
from typing import Any

from ...ir.attrs import Attrs, is_tuple
from ...ir.dims import Dim, SymDim, bind
from ...ir.dims.constraints import collect_constraints
from ...ir.errors import ShapeError
from ...ir.graph import Graph, Node, SymbolTable, Value
from ...ir.types import bind_type, type_symbols


def specialise(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """A copy of `graph` in which every symbol of `sizes` is replaced by its number.

    Raises `ShapeError` when an input symbol has no size, a size is negative, or the sizes break a constraint.
    """
    _check_sizes(graph, sizes)
    return with_sizes(graph, sizes)


def with_sizes(graph: Graph, sizes: Mapping[str, Dim]) -> Graph:
    """A copy of `graph` with other dims for some of its symbols. Raises `ShapeError` where they break a constraint."""
    return _bound_copy(graph, dict(sizes), SymbolTable(graph.symbols.names))


def _check_sizes(graph: Graph, sizes: Mapping[str, int]) -> None:
    needed = frozenset[str]().union(*(type_symbols(value.type) for value in graph.inputs))
    missing = sorted(needed - sizes.keys())
    if missing:
        raise ShapeError(f"no size is given for {', '.join(missing)}", remedy="give every symbolic size of the inputs")
    for name, size in sizes.items():
        if size < 0:
            raise ShapeError(f"size {name} is {size}", remedy="sizes are not negative")


def _bound_copy(graph: Graph, sizes: Mapping[str, Dim], symbols: SymbolTable) -> Graph:
    copy = Graph(graph.name, symbols=symbols)
    copy.metadata.update(graph.metadata)
    where: dict[Value, Value] = {}
    for value in graph.inputs:
        where[value] = copy.add_input(value.name, bind_type(value.type, sizes))
        if value.name in graph.defaults:
            copy.set_default(where[value], graph.defaults[value.name])
    with collect_constraints() as constraints:
        for node in graph.nodes:
            _copy_node(copy, node, where, sizes)
    for constraint in constraints:
        if not _symbols_of(constraint.left) and not _symbols_of(constraint.right):
            constraint.check({})
    copy.set_outputs([where[value] for value in graph.outputs], graph.output_names)
    copy.set_states(graph.states)
    return copy


def _copy_node(copy: Graph, node: Node, where: dict[Value, Value], sizes: Mapping[str, Dim]) -> None:
    operands = [where[value] if value is not None else None for value in node.inputs]
    types = [bind_type(value.type, sizes) for value in node.outputs]
    names = [value.name for value in node.outputs]
    attrs = bound_attrs(node.attrs, sizes, copy.symbols)
    made = copy.append(node.op, operands, attrs, types=types, names=names, origin=node.origin)
    where.update(zip(node.outputs, made.outputs, strict=True))


def bound_attrs(attrs: Attrs, sizes: Mapping[str, Dim], symbols: SymbolTable) -> dict[str, Any]:
    """Attributes for a node of a graph with that table, with other dims for some symbols; regions are copied."""
    return {name: _bound(value, sizes, symbols) for name, value in attrs.items()}


def _bound(value: Any, sizes: Mapping[str, Dim], symbols: SymbolTable) -> Any:
    if isinstance(value, SymDim):
        return bind(value, sizes)
    if is_tuple(value):
        return tuple(_bound(item, sizes, symbols) for item in value)
    if isinstance(value, Graph):
        return _bound_copy(value, sizes, symbols)
    return value


def _symbols_of(dim: Dim) -> frozenset[str]:
    return dim.symbols if isinstance(dim, SymDim) else frozenset()
