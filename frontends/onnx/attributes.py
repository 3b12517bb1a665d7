"""Attributes between ONNX protos and the IR."""

from collections.abc import Callable
from typing import Any

from onnx import AttributeProto, GraphProto, TensorProto, TypeProto
from onnx.defs import OpSchema

from ...ir.constant import Constant
from ...ir.dims import SymDim
from ...ir.errors import TypeRuleError, UnsupportedError
from ...ir.types import DType, OpaqueType, OptionalType, SequenceType, TensorType
from .tensors import constant_to_proto, element_number, type_to_proto


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


# The field of AttributeProto for each kind, and how a value or an item of a list is written into it.
_SINGLE: dict[int, tuple[str, Callable[[Any], Any]]] = {
    AttributeProto.FLOAT: ("f", float),
    AttributeProto.INT: ("i", int),
    AttributeProto.STRING: ("s", _bytes),
}
_REPEATED: dict[int, tuple[str, Callable[[Any], Any]]] = {
    AttributeProto.FLOATS: ("floats", float),
    AttributeProto.INTS: ("ints", int),
    AttributeProto.STRINGS: ("strings", _bytes),
    AttributeProto.TENSORS: ("tensors", _message),
    AttributeProto.TYPE_PROTOS: ("type_protos", _message),
}
_MESSAGES: dict[type, tuple[int, str]] = {
    TensorProto: (AttributeProto.TENSOR, "t"),
    TypeProto: (AttributeProto.TYPE_PROTO, "tp"),
    GraphProto: (AttributeProto.GRAPH, "g"),
}
_LISTS: dict[int, int] = {
    AttributeProto.FLOAT: AttributeProto.FLOATS,
    AttributeProto.INT: AttributeProto.INTS,
    AttributeProto.STRING: AttributeProto.STRINGS,
    AttributeProto.TENSOR: AttributeProto.TENSORS,
    AttributeProto.TYPE_PROTO: AttributeProto.TYPE_PROTOS,
}


def attribute_to_proto(name: str, value: Any, schema: OpSchema | None = None) -> AttributeProto:
    """An attribute of an ONNX node; `schema` tells numbers apart that are written alike (1 as int or as float).

    Raises `UnsupportedError` for a symbolic size, which no ONNX attribute can be, `TypeRuleError` for other values.
    """
    formal = schema.attributes.get(name) if schema is not None else None
    kind = attribute_kind(formal) if formal is not None else _kind_of(value)
    proto = AttributeProto(name=name)
    proto.type = AttributeProto.AttributeType.Value(AttributeProto.AttributeType.Name(kind))
    written = _message(value)
    if isinstance(value, tuple | list) and kind in _REPEATED:
        field, convert = _REPEATED[kind]
        getattr(proto, field).extend(convert(_message(item)) for item in value)
    elif type(written) in _MESSAGES and _MESSAGES[type(written)][0] == kind:
        getattr(proto, _MESSAGES[type(written)][1]).CopyFrom(written)
    elif kind in _SINGLE and isinstance(written, int | float | str | bytes):
        field, convert = _SINGLE[kind]
        setattr(proto, field, convert(written))
    else:
        raise TypeRuleError(f"the ONNX attribute {name} cannot be {value!r}")
    return proto


def attribute_kind(formal: Any) -> int:
    """The `AttributeProto.AttributeType` of an attribute of an operator's schema."""
    return int(formal.type.value)


def _kind_of(value: Any) -> int:
    if isinstance(value, tuple | list):
        if any(isinstance(item, float) for item in value):
            return AttributeProto.FLOATS
        return _LISTS.get(_kind_of(value[0]), AttributeProto.INTS) if value else AttributeProto.INTS
    written = _message(value)
    if isinstance(written, str | bytes):
        return AttributeProto.STRING
    if isinstance(written, int | float):
        return AttributeProto.FLOAT if isinstance(written, float) else AttributeProto.INT
    found = _MESSAGES.get(type(written))
    if found is None:
        raise TypeRuleError(f"{value!r} cannot be an ONNX attribute")
    return found[0]
