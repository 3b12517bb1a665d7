"""Function bodies that operators' schemas bring along: what an operator means in terms of simpler ones."""

from typing import Any

from onnx import FunctionProto, NodeProto

from ....ir.errors import ModelError
from ..context.import_context import ImportContext
from ..schemas import schema_of
from ..tensors import type_to_proto

_WRONG = {
    "AffineGrid": "drops a batch of 1, as its Squeeze names no axes",
    "Celu": "makes a vector of a scalar, as its alpha is one",
}
"""Operators whose bodies do not mean them, and why."""


def schema_function(ctx: ImportContext, domain: str) -> FunctionProto | None:
    """The body of the node's operator as a function over its inputs, None when its schema has none."""
    schema: Any = schema_of(ctx.op_type, ctx.version, domain)  # onnx's stubs leave out all that is about functions
    if schema is None or ctx.op_type in _WRONG or not (schema.has_function or schema.has_context_dependent_function):
        return None
    body = _context_dependent(schema, ctx) if schema.has_context_dependent_function else _fixed(schema, ctx)
    if body is None:
        return None
    given = {proto.name for proto in body.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            body.attribute_proto.append(attribute.default_value)
    return body


def _fixed(schema: Any, ctx: ImportContext) -> FunctionProto | None:
    version = _newest(schema.function_opset_versions, ctx.version)
    return FunctionProto.FromString(schema.get_function_with_opset_version(version)) if version else None


def _context_dependent(schema: Any, ctx: ImportContext) -> FunctionProto | None:
    version = _newest(schema.context_dependent_function_opset_versions, ctx.version)
    if not version:
        return None
    node = _resolved(ctx)
    types = [type_to_proto(v.type).SerializeToString() if v is not None else b"" for v in ctx.inputs]
    try:
        body = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
    except ValueError as error:
        raise ModelError(f"onnx cannot say what this {ctx.op_type} means: {error}") from error
    return FunctionProto.FromString(body) if body else None


def _newest(versions: list[int], limit: int) -> int:
    return max((version for version in versions if version <= limit), default=0)


def _resolved(ctx: ImportContext) -> NodeProto:
    """The node with the attributes that it refers to in an enclosing function filled in."""
    node = NodeProto()
    node.CopyFrom(ctx.proto)
    del node.attribute[:]
    node.attribute.extend(ctx.attributes.values())
    return node
