"""Comparisons, booleans, bits, tests of floats, and Where."""

from ....ir.errors import ModelError
from ....ir.graph import Node, Value
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext
from .rows import export_as, import_as

_SAME = {
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "Not": "logical_not",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "BitwiseNot": "bitwise_not",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "IsNaN": "is_nan",
    "Where": "where",
}
"""Operators without attributes and their native ops."""

_SHIFTS = {"LEFT": "shift_left", "RIGHT": "shift_right"}


def import_shift(ctx: ImportContext) -> Value:
    """BitShift in either direction."""
    direction = ctx.attr("direction")
    if direction not in _SHIFTS:
        raise ModelError(f"BitShift goes LEFT or RIGHT, not {direction!r}")
    return ctx.op(_SHIFTS[direction], ctx.input(0), ctx.input(1))


IMPORTS = {
    **{operator: import_as(name) for operator, name in _SAME.items()},
    "BitShift": import_shift,
    "IsInf": import_as("is_inf", "detect_negative", "detect_positive"),
}


def export_not_equal(ctx: ExportContext, node: Node) -> None:
    """Equal, turned over."""
    ctx.emit("Not", (ctx.emit_value("Equal", node.inputs),), node.outputs)


def export_shift(ctx: ExportContext, node: Node) -> None:
    """BitShift; of signed integers from opset 28 on, which the element types tell."""
    direction = next(key for key, name in _SHIFTS.items() if name == node.op.name)
    ctx.emit("BitShift", node.inputs, node.outputs, direction=direction)


EXPORTS = {
    **{name: export_as(operator) for operator, name in _SAME.items()},
    **dict.fromkeys(_SHIFTS.values(), export_shift),
    "not_equal": export_not_equal,
    "is_inf": export_as("IsInf", "detect_negative", "detect_positive"),
}
