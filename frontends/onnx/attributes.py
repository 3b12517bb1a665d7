"""Attributes between ONNX protos and the IR."""

from collections.abc import Callable, Sequence
from typing import Any

from onnx import AttributeProto, GraphProto, TensorProto, TypeProto
from onnx.defs import OpSchema

from ...ir.constant import Constant
from ...ir.dims import SymDim
from ...ir.errors import TypeRuleError, UnsupportedError
from ...ir.types import DType, OpaqueType, OptionalType, SequenceType, TensorType
from .tensors import constant_to_proto, element_number, type_to_proto

_SINGLE: dict[int, tuple[str, Callable[[Any], Any]]] = {
    AttributeProto.FLOAT: ("f", float),
    AttributeProto.INT: ("i", int),
    AttributeProto.STRING: ("s", lambda value: _bytes(value)),
}
_REPEATED: dict[int, tuple[str, Callable[[Any], Any]]] = {
    AttributeProto.FLOATS: ("floats", float),
    AttributeProto.INTS: ("ints", int),
    AttributeProto.STRINGS: ("strings", lambda value: _bytes(value)),
    AttributeProto.TENSORS: ("tensors", lambda value: _message(value)),
    AttributeProto.TYPE_PROTOS: ("type_protos", lambda value: _message(value)),
}
_MESSAGES: dict[type, tuple[int, str]] = {
    TensorProto: (AttributeProto.TENSOR, "t"),
    TypeProto: (AttributeProto.TYPE_PROTO, "tp"),
    GraphProto: (AttributeProto.GRAPH, "g"),
}


def attribute_to_proto(name: str, value: Any, schema: OpSchema | None = None) -> AttributeProto:
    """An attribute of an ONNX node; `schema` tells numbers apart that are written alike (1 as int or as float).

    Raises `UnsupportedError` for a symbolic size: ONNX has none in attributes.
    """
    formal = schema.attributes.get(name) if schema is not None else None
    if isinstance(value, tuple | list):
        return _repeated(name, value, int(formal.type.value) if formal is not None else _kind_of_items(value))
    written = _message(value)
    if type(written) in _MESSAGES:
        kind, field = _MESSAGES[type(written)]
        proto = AttributeProto(name=name, type=kind)
        getattr(proto, field).CopyFrom(written)
        return proto
    kind = int(formal.type.value) if formal is not None else _kind_of(value)
    if kind not in _SINGLE:
        raise TypeRuleError(f"attribute {name} of {schema.name if schema else 'a node'} cannot be {value!r}")
    field, convert = _SINGLE[kind]
    return AttributeProto(name=name, type=kind, **{field: convert(value)})


def _repeated(name: str, values: Sequence[Any], kind: int) -> AttributeProto:
    if kind not in _REPEATED:
        raise TypeRuleError(f"attribute {name} cannot be a list")
    field, convert = _REPEATED[kind]
    return AttributeProto(name=name, type=kind, **{field: [convert(_message(value)) for value in values]})


def _kind_of_items(values: Sequence[Any]) -> int:
    if not values:
        return AttributeProto.INTS
    if any(isinstance(value, float) for value in values):
        return AttributeProto.FLOATS
    return {
        AttributeProto.INT: AttributeProto.INTS,
        AttributeProto.STRING: AttributeProto.STRINGS,
        AttributeProto.TENSOR: AttributeProto.TENSORS,
        AttributeProto.TYPE_PROTO: AttributeProto.TYPE_PROTOS,
    }[_kind_of(values[0])]


def _kind_of(value: Any) -> int:
    if isinstance(value, str | bytes):
        return AttributeProto.STRING
    if isinstance(value, float):
        return AttributeProto.FLOAT
    if isinstance(value, int):
        return AttributeProto.INT
    found = _MESSAGES.get(type(_message(value)))
    if found is None:
        raise TypeRuleError(f"{value!r} cannot be an ONNX attribute")
    return found[0]


def _message(value: Any) -> Any:
    """IR values as the protos or numbers that ONNX writes for them; everything else unchanged."""
    if isinstance(value, SymDim):
        raise UnsupportedError(
            f"an ONNX attribute cannot be the symbolic size {value}", remedy="bind the sizes before exporting"
        )
    if isinstance(value, Constant):
        return constant_to_proto(value, "")
    if isinstance(value, DType):
        return element_number(value)
    if isinstance(value, TensorType | SequenceType | OptionalType | OpaqueType):
        return type_to_proto(value)
    return value


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
