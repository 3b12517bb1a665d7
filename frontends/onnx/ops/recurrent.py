"""Recurrent cells."""

from collections.abc import Callable
from typing import Any

from ....ir.graph import Node, Value
from ....ir.ops import native
from ....ir.types import DType
from ..context import ImportContext
from ..dialect import Dialect
from ..export_context import ExportContext, Operand
from .rows import padded_operands

_FLAGS = ("input_forget", "linear_before_reset")
_STATES = (5, 6)  # operands that hold a state: initial_h, initial_c


def _importing(name: str) -> Callable[[ImportContext], tuple[Value, ...]]:
    def rule(ctx: ImportContext) -> tuple[Value, ...]:
        op = native(name)
        attrs: dict[str, Any] = {key: ctx.attr(key) for key in op.attrs if ctx.has_attr(key)}
        attrs |= {key: bool(attrs[key]) for key in _FLAGS if key in attrs}
        if name == "rnn" and "activations" in attrs:  # the operator's own default names two for one direction as well
            attrs["activations"] = attrs["activations"][: 2 if attrs.get("direction") == "bidirectional" else 1]
        return ctx.ops(name, *padded_operands(ctx, op), **attrs)

    return rule


IMPORTS = {op_type: _importing(op_type.lower()) for op_type in ("LSTM", "GRU", "RNN")}


def export_cell(ctx: ExportContext, node: Node) -> None:
    """LSTM, GRU or RNN in layout 0, the only one that runtimes have; layout 1 is written as transpositions for them."""
    attrs = {name: value for name, value in node.attrs.items() if name != "layout" and value != ()}
    hidden = node.operands[2].shape[2]
    operands: list[Operand] = list(node.inputs)
    if node.inputs[4] is not None and node.inputs[4].tensor.dtype is not DType.I32:
        operands[4] = ctx.emit_value("Cast", (node.inputs[4],), to=DType.I32)
    results: list[Operand] = list(node.outputs)
    is_batch_first = bool(node.attrs["layout"]) and ctx.dialect is not Dialect.FAITHFUL
    if node.attrs["layout"] and not is_batch_first:
        ctx.require_opset(14, f"{node.op.name} with the batch first")
        attrs["layout"] = 1
    if is_batch_first:
        for index in (0, *_STATES):
            if index < len(operands) and operands[index] is not None:
                operands[index] = ctx.emit_value("Transpose", (operands[index],), perm=(1, 0, 2))
        results = [ctx.writer.new_name(f"{value.name}_time_first") for value in node.outputs]
    size = hidden if isinstance(hidden, int) else None
    ctx.emit(node.op.name.upper(), operands, results, hidden_size=size, **attrs)
    if is_batch_first:
        for value, written in zip(node.outputs, results, strict=True):
            perm = (1, 0, 2) if value.tensor.rank == 3 else (2, 0, 1, 3)
            ctx.emit("Transpose", (written,), (value,), perm=perm)


EXPORTS = dict.fromkeys(("lstm", "gru", "rnn"), export_cell)
