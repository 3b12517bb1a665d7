"""Recurrent cells."""

from collections.abc import Callable
from typing import Any

from ....ir.analysis.contents import constant_of
from ....ir.dims import Dim
from ....ir.errors import UnsupportedError
from ....ir.graph import Node, Value
from ....ir.ops import native
from ....ir.types import DType
from ..context.dialect import Dialect
from ..context.export_context import ExportContext, Operand
from ..context.import_context import ImportContext
from .rows import padded_operands

_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
_FLAGS = ("input_forget", "linear_before_reset")
_WEIGHT_RANK = 3
_STATES = (5, 6)  # operands that hold a state: initial_h, initial_c


def _importing(name: str) -> Callable[[ImportContext], tuple[Value, ...]]:
    def rule(ctx: ImportContext) -> tuple[Value, ...]:
        op = native(name)
        attrs: dict[str, Any] = {key: ctx.attr(key) for key in op.attrs if ctx.has_attr(key)}
        attrs |= {key: bool(attrs[key]) for key in _FLAGS if key in attrs}
        if name == "rnn" and "activations" in attrs:  # the operator's own default names two for one direction as well
            attrs["activations"] = attrs["activations"][: 2 if attrs.get("direction") == "bidirectional" else 1]
        operands = list(padded_operands(ctx, op))
        operands[2] = _of_size(ctx, name)
        return ctx.ops(name, *operands, **attrs)

    return rule


def _of_size(ctx: ImportContext, name: str) -> Value:
    """The recurrent weight; in the shape that `hidden_size` gives it where its type leaves that open."""
    weight, hidden = ctx.input(2), ctx.attr("hidden_size")
    if hidden is None or len(weight.shape) != _WEIGHT_RANK or isinstance(weight.shape[2], int):
        return weight
    return ctx.op("reshape", weight, shape=(weight.shape[0], _GATES[name] * hidden, hidden))


IMPORTS = {op_type: _importing(op_type.lower()) for op_type in ("LSTM", "GRU", "RNN")}


def _hidden_size(node: Node) -> int | None:
    """The hidden size by whatever tells it: ONNX Runtime wants the attribute, other than the standard."""
    gates = _GATES[node.op.name]
    _, weight, recurrence, bias, _, *states = node.inputs[:7]
    known: list[Dim] = []
    for value, axis, divisor in (
        (recurrence, 2, 1),
        (recurrence, 1, gates),
        (weight, 1, gates),
        (bias, 1, 2 * gates),
        *((state, 2, 1) for state in states),
        *((value, value.tensor.rank - 1, 1) for value in node.outputs),
    ):
        if value is not None:
            known.append(value.shape[axis] // divisor)
    return next((size for size in known if isinstance(size, int)), None)


def require_hidden_size(ctx: ExportContext, size: int | None) -> None:
    """Raises `UnsupportedError` where no attribute and no shape tells the hidden size, which ONNX Runtime wants."""
    if size is None and ctx.dialect is Dialect.ORT:
        raise UnsupportedError(
            "ONNX Runtime wants hidden_size, and no shape of a weight or state tells it",
            remedy="give these inputs of the model shapes, or write standard operators",
        )


def export_cell(ctx: ExportContext, node: Node) -> None:
    """LSTM, GRU or RNN in layout 0, the only one that runtimes have; layout 1 is written as transpositions for them."""
    attrs = {name: value for name, value in node.attrs.items() if name != "layout" and value != ()}
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
    size = _hidden_size(node)
    require_hidden_size(ctx, size)
    kept = _states_of_no_step(ctx, node)
    made = [ctx.writer.new_name(f"{node.outputs[i].name}_step") if i in kept else y for i, y in enumerate(results)]
    ctx.emit(node.op.name.upper(), operands, made, hidden_size=size, **attrs)
    if kept:
        column = ctx.emit_value("Reshape", (operands[4], ctx.ints((-1, 1))))
        is_empty = ctx.emit_value("Equal", (column, ctx.constant(0, DType.I32)))
        for place, state in kept.items():
            ctx.emit("Where", (is_empty, operands[state], made[place]), (results[place],))
    if is_batch_first:
        for value, written in zip(node.outputs, results, strict=True):
            perm = (1, 0, 2) if value.tensor.rank == 3 else (2, 0, 1, 3)
            ctx.emit("Transpose", (written,), (value,), perm=perm)


def _states_of_no_step(ctx: ExportContext, node: Node) -> dict[int, int]:
    """By last state that is read, the operand that it is where a sequence has no step, for which ONNX Runtime has 0."""
    lengths = node.inputs[4]
    if lengths is None or ctx.dialect is Dialect.FAITHFUL or ctx.opset < 9:  # before there is no Where
        return {}
    known = constant_of(lengths)
    if known is not None and (known.array > 0).all():
        return {}
    pairs = zip(range(1, len(node.outputs)), _STATES, strict=False)
    read = {place: at for place, at in pairs if node.outputs[place].has_uses or node.outputs[place].is_graph_output}
    return {place: at for place, at in read.items() if node.inputs[at] is not None}


EXPORTS = dict.fromkeys(("lstm", "gru", "rnn"), export_cell)
