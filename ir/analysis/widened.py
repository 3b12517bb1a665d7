"""A graph with f64 in the place of f16, bf16 and f32: what a model means before anything is rounded.

Smaller floats stay, as they are how weights are stored. Sizes, names and the order of inputs and outputs are the same.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from ..attrs import is_tuple
from ..constant import Array, Constant, is_array
from ..errors import UnsupportedError
from ..graph import Graph, SymbolTable, Value
from ..types import DType, OptionalType, SequenceType, TensorType, Type

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
