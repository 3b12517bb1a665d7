"""Rules for operators that correspond one to one to a native op: a row of the table is a call of these.

    IMPORTS = {"Elu": import_as("elu", "alpha"), "ArgMax": import_as("argmax", "axis", keepdims="keep_dims")}
    EXPORTS = {"elu": export_as("Elu", "alpha"), "argmax": export_as("ArgMax", "axis", keepdims="keep_dims")}

Both take the attributes that have one name on both sides as texts, the others as `onnx_name="native_name"`. Operands
and results must be the same in number and order.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ....ir.attrs import AttrKind
from ....ir.graph import Node, Value
from ....ir.op import Op
from ....ir.ops import native
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext, NotNative
from ..schemas import schema_of
from ..tensors import dtype_of


def import_as(name: str, *same: str, **renamed: str) -> Callable[[ImportContext], Sequence[Value | None]]:
    """The import rule of an operator that is the native op `name`.

    An attribute that the node leaves out has the default of the operator's schema, else that of the native op.
    """
    names = {**{attribute: attribute for attribute in same}, **renamed}

    def rule(ctx: ImportContext) -> Sequence[Value | None]:
        op = native(name)
        given = {ours: _imported(ctx, op, onnx_name, ours) for onnx_name, ours in names.items()}
        attrs = {ours: value for ours, value in given.items() if value is not None}
        return ctx.ops(name, *padded_operands(ctx, op), **attrs)

    return rule


def padded_operands(ctx: ImportContext, op: Op) -> tuple[Value | None, ...]:
    """The node's operands, one for each of the native op's: absent ones at the end filled in, surplus ones refused."""
    inputs = list(ctx.inputs)
    least = sum(not operand.is_variadic for operand in op.operands)
    while len(inputs) > least and inputs[-1] is None:
        inputs.pop()
    if len(inputs) > least and not (op.operands and op.operands[-1].is_variadic):
        raise NotNative(f"{op.name} takes {least} operands, not {len(inputs)}")
    return (*inputs, *[None] * (least - len(inputs)))


def attribute_default(ctx: ImportContext, name: str) -> Any:
    """The default that the operator's schema gives attribute `name`, None when it gives none."""
    domain = "" if ctx.proto.domain == "ai.onnx" else ctx.proto.domain
    schema = schema_of(ctx.op_type, ctx.version, domain)
    attribute = schema.attributes.get(name) if schema is not None else None
    if attribute is None or not attribute.default_value.name:
        return None
    return ctx.python_value(attribute.default_value)


def _imported(ctx: ImportContext, op: Op, onnx_name: str, ours: str) -> Any:
    value = ctx.attr(onnx_name) if ctx.has_attr(onnx_name) else attribute_default(ctx, onnx_name)
    kind = op.attrs[ours].kind
    if value is None:
        return None
    if kind is AttrKind.BOOL:
        return bool(value)
    return dtype_of(value) if kind is AttrKind.DTYPE else value


def export_as(op_type: str, *same: str, domain: str = "", **renamed: str) -> Callable[[ExportContext, Node], None]:
    """The export rule of a native op that is the ONNX operator `op_type` of `domain`."""
    names = {**{attribute: attribute for attribute in same}, **renamed}

    def rule(ctx: ExportContext, node: Node) -> None:
        attributes = {onnx_name: node.attrs[ours] for onnx_name, ours in names.items()}
        ctx.emit(op_type, node.inputs, node.outputs, domain=domain, **attributes)

    return rule
