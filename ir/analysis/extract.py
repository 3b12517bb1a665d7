"""A part of a graph as a graph of its own, and a graph with f64 in the place of smaller floats.

Smaller floats stay, as they are how weights are stored. Sizes, names and the order of inputs and outputs are the same.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cmp_to_key
from typing import Any

import numpy as np

from ..attrs import is_tuple
from ..constant import Array, Constant, is_array
from ..errors import UnsupportedError
from ..graph import Graph, Node, SymbolTable, Value
from ..types import DType, OptionalType, SequenceType, TensorType, Type
from .contents import POSITIVE, SIGNS_READ


def extract(graph: Graph, outputs: Sequence[Value], inputs: Collection[Value]) -> tuple[Graph, tuple[Value, ...]]:
    """The nodes between `inputs` and `outputs` as a new graph, and the values that became its inputs, in their order.

    What `outputs` need and `inputs` do not give is taken in as nodes too, up to the inputs of `graph`; inputs that they
    do not need are left out. Names and origins stay; regions are copied, constants shared. The time is that of the
    part, however large `graph` is.
    """
    cut = set(inputs)
    kept = _needed(outputs, cut)
    read = {*outputs, *(value for node in kept for value in node.operands)}
    taken = sorted(cut | {value for value in read if value.producer is None}, key=_value_order)
    return part_of(graph, sorted(kept, key=_node_order), taken, outputs), tuple(taken)


@cmp_to_key
def _node_order(one: Node, other: Node) -> int:
    return -1 if one.precedes(other) else 1


@cmp_to_key
def _value_order(one: Value, other: Value) -> int:
    """Inputs stand before results, and these as their nodes do."""
    first, then = one.producer, other.producer
    if first is None or then is None or first is then:
        return -1 if (first is not None, one.index) < (then is not None, other.index) else 1
    return -1 if first.precedes(then) else 1


def part_of(graph: Graph, nodes: Iterable[Node], inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
    """`nodes`, in an order in which they can run, as a new graph that takes `inputs` and gives `outputs`.

    The time is that of the part, however large `graph` is. Names and origins stay; regions are copied, constants
    shared.
    """
    part = Graph(graph.name, symbols=SymbolTable(graph.symbols.names))
    where = {value: part.add_input(value.name, value.type) for value in inputs}
    for node in nodes:
        _copy(part, node, where)
    part.set_outputs([where[value] for value in outputs])
    part.metadata |= {key: value for key, value in graph.metadata.items() if key in (POSITIVE, SIGNS_READ)}
    return part


def _needed(outputs: Sequence[Value], cut: Collection[Value]) -> set[Node]:
    kept: set[Node] = set()
    pending = [value for value in outputs if value not in cut]
    while pending:
        node = pending.pop().producer
        if node is None or node in kept:
            continue
        kept.add(node)
        pending += [value for value in node.operands if value not in cut]
    return kept


def _copy(part: Graph, node: Node, where: dict[Value, Value]) -> None:
    operands = [where[value] if value is not None else None for value in node.inputs]
    attrs = {
        name: value.clone_with_map(part.symbols)[0] if isinstance(value, Graph) else value
        for name, value in node.attrs.items()
    }
    types = [value.type for value in node.outputs]
    names = [value.name for value in node.outputs]
    made = part.append(node.op, operands, attrs, types=types, names=names, origin=node.origin)
    for old, new in zip(node.outputs, made.outputs, strict=True):
        where.setdefault(old, new)


def cone_boundary(outputs: Sequence[Value], depth: int) -> set[Value]:
    """The values that are exactly `depth` nodes before `outputs`, where a cone of that depth is cut off.

    Constants are never cut: they belong to what they feed.
    """
    frontier = {value.producer for value in outputs if value.producer is not None}
    seen = set(frontier)
    for _ in range(depth - 1):
        found = {value.producer for node in frontier for value in node.operands if value.producer is not None}
        frontier = {node for node in found if node not in seen}
        seen |= frontier
    return {
        value
        for node in seen
        for value in node.operands
        if value.producer is not None and value.producer not in seen and value.producer.inputs
    }


_NARROW = (DType.F16, DType.BF16, DType.F32)


def widened(graph: Graph) -> Graph:
    """A copy that computes in f64.

    Raises `UnsupportedError` for foreign ops, `TypeRuleError` where an op does not take f64.
    """
    return _widened(graph, SymbolTable(graph.symbols.names))


def widened_array(array: Any) -> Any:
    """What an input of the graph is in the wide copy: floats as f64, anything else as it is."""
    if not is_array(array) or array.dtype.hasobject:
        return array
    return array.astype(np.float64) if DType.of(array.dtype) in _NARROW else array


def _widened(graph: Graph, symbols: SymbolTable) -> Graph:
    copy = Graph(graph.name, symbols=symbols)
    where: dict[Value, Value] = {}
    for value in graph.inputs:
        where[value] = copy.add_input(value.name, _type(value.type))
        if value.name in graph.defaults:
            copy.set_default(where[value], _constant(graph.defaults[value.name]))
    for node in graph.nodes:
        if node.op.is_foreign:
            raise UnsupportedError(f"{node.op.name} has no meaning in f64", where=node.where())
        attrs = {name: _attr(value, symbols) for name, value in node.attrs.items()}
        operands = [None if value is None else where[value] for value in node.inputs]
        types = [_type(value.type) for value in node.outputs]
        made = copy.append(node.op, operands, attrs, types=types, origin=node.origin)
        where.update(zip(node.outputs, made.outputs, strict=True))
    copy.set_outputs([where[value] for value in graph.outputs], graph.output_names)
    return copy


def _attr(value: Any, symbols: SymbolTable) -> Any:
    if isinstance(value, Graph):
        return _widened(value, symbols)
    if isinstance(value, Constant):
        return _constant(value)
    if isinstance(value, DType):
        return DType.F64 if value in _NARROW else value
    if isinstance(value, TensorType | SequenceType | OptionalType):
        return _type(value)
    return tuple(_attr(item, symbols) for item in value) if is_tuple(value) else value


def _constant(content: Constant) -> Constant:
    if content.dtype not in _NARROW:
        return content
    wide: Array = content.array.astype(np.float64)
    return Constant(wide, DType.F64)


def _type(ty: Type) -> Type:
    if isinstance(ty, TensorType):
        return TensorType(DType.F64, ty.shape) if ty.dtype in _NARROW else ty
    if isinstance(ty, SequenceType | OptionalType):
        return replace(ty, element=_type(ty.element))
    return ty
