"""Elementwise arithmetic. `Sum` and `Mean` are additions; `Clip` has its bounds as attributes before opset 11."""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from ....ir.analysis.contents import constant_of
from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.dialect import Dialect
from ..context.export_context import ExportContext, Operand
from ..context.import_context import ImportContext
from .rows import export_as, import_as

_SAME = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Pow": "pow",
    "Min": "min",
    "Max": "max",
    "Neg": "neg",
    "Abs": "abs",
    "Sign": "sign",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Reciprocal": "reciprocal",
    "Sqrt": "sqrt",
    "Exp": "exp",
    "Log": "log",
    "Erf": "erf",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Tanh": "tanh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
}
"""Operators without attributes and their native ops."""

# ---- coming in


def import_mod(ctx: ImportContext) -> Value:
    """Mod: with `fmod` the sign of the dividend, else that of the divisor."""
    return ctx.op("fmod" if ctx.attr("fmod", 0) else "mod", ctx.input(0), ctx.input(1))


def import_sum(ctx: ImportContext) -> Value:
    """Sum of one or more operands, from the left."""
    return reduce(lambda total, value: ctx.op("add", total, value), _operands(ctx))


def import_mean(ctx: ImportContext) -> Value:
    """Mean: the sum over the number of operands."""
    total = import_sum(ctx)
    count = len(ctx.inputs)
    return total if count == 1 else ctx.op("div", total, ctx.scalar_like(count, total))


def _operands(ctx: ImportContext) -> list[Value]:
    return [ctx.input(index) for index in range(max(len(ctx.inputs), 1))]


def import_clip(ctx: ImportContext) -> Value:
    """Clip."""
    x = ctx.input(0)
    if ctx.version < 11:
        bounds = [_older_bound(ctx, name, least) for name, least in (("min", -_GREATEST), ("max", _GREATEST))]
    else:
        bounds = [_scalar(ctx, ctx.optional(index)) for index in (1, 2)]
    return ctx.op("clip", x, *bounds) if any(bounds) else x


_GREATEST = float(np.finfo(np.float32).max)


def _older_bound(ctx: ImportContext, name: str, usual: float) -> Value | None:
    """A bound that is an attribute. From opset 6 on one that is not given is the greatest f32, which is no infinity."""
    if ctx.has_attr(name):
        return ctx.scalar_like(ctx.attr(name), ctx.input(0))
    is_wide = ctx.tensor(0).dtype in (DType.F32, DType.F64)
    return ctx.scalar_like(usual, ctx.input(0)) if ctx.version >= 6 and is_wide else None


def _scalar(ctx: ImportContext, bound: Value | None) -> Value | None:
    """A bound as rank 0: some exporters write it as a vector of one element."""
    if bound is None or bound.tensor.rank == 0:
        return bound
    return ctx.op("reshape", bound, shape=())


IMPORTS = {
    **{operator: import_as(name) for operator, name in _SAME.items()},
    "Mod": import_mod,
    "Sum": import_sum,
    "Mean": import_mean,
    "Clip": import_clip,
}

# ---- going out


def export_mod(ctx: ExportContext, node: Node) -> None:
    """Mod, for floats from opset 28 on; before, the one with the dividend's sign, moved where the signs differ."""
    a, b = node.operands
    if ctx.dialect is Dialect.FAITHFUL and node.output.tensor.dtype.is_float:
        ctx.has_opset(28, "Mod of floats with the sign of the divisor")
    if ctx.opset >= 28 or not node.output.tensor.dtype.is_float:
        ctx.emit("Mod", (a, b), node.outputs, fmod=0)
        return
    zero = ctx.constant(0, node.output.tensor.dtype)
    remainder = ctx.emit_value("Mod", (a, b), fmod=1)
    signs = (ctx.emit_value("Less", (remainder, zero)), ctx.emit_value("Less", (b, zero)))
    is_whole = ctx.emit_value("Equal", (remainder, zero))
    is_other = ctx.emit_value("And", (ctx.emit_value("Xor", signs), ctx.emit_value("Not", (is_whole,))))
    ctx.emit("Where", (is_other, ctx.emit_value("Add", (remainder, b)), remainder), node.outputs)


def export_fmod(ctx: ExportContext, node: Node) -> None:
    """Mod with the sign of the dividend."""
    ctx.emit("Mod", node.inputs, node.outputs, fmod=1)


def export_sign(ctx: ExportContext, node: Node) -> None:
    """Sign; of 16 bits by way of f32 for runtimes, as ONNX Runtime has 0 for NaN of these."""
    dtype = node.output.tensor.dtype
    if ctx.dialect is Dialect.FAITHFUL or dtype not in (DType.F16, DType.BF16):
        ctx.emit("Sign", node.inputs, node.outputs)
        return
    wide = ctx.emit_value("Cast", node.inputs, to=DType.F32)
    ctx.emit("Cast", (ctx.emit_value("Sign", (wide,)),), node.outputs, to=dtype)


def export_rsqrt(ctx: ExportContext, node: Node) -> None:
    """Reciprocal of Sqrt."""
    ctx.emit("Reciprocal", (ctx.emit_value("Sqrt", node.inputs),), node.outputs)


def _is_compared_by_halves(ctx: ExportContext, node: Node) -> bool:
    """Whether ONNX Runtime's CPU would tell the least and the greatest by the lower 32 bits alone."""
    return ctx.dialect is not Dialect.FAITHFUL and node.output.tensor.dtype is DType.I64


def _export_extremum(operator: str) -> Callable[[ExportContext, Node], None]:
    def rule(ctx: ExportContext, node: Node) -> None:
        """Min or Max; of i64, for runtimes, the choice that it is."""
        chosen, *others = node.operands
        if not others or not _is_compared_by_halves(ctx, node):
            _require_broadcasts(ctx, operator, node.operands)
            ctx.emit(operator, node.inputs, node.outputs)
            return
        found: Operand = chosen
        for step, other in enumerate(others, 1):
            is_first = ctx.emit_value("Less", (found, other) if operator == "Min" else (other, found))
            results = node.outputs if step == len(others) else [ctx.writer.new_name(f"{node.output.name}_chosen")]
            ctx.emit("Where", (is_first, found, other), results)
            found = results[0]

    return rule


def _require_broadcasts(ctx: ExportContext, operator: str, operands: Sequence[Value]) -> None:
    if len({each.tensor.shape for each in operands}) > 1:
        ctx.require_opset(8, f"{operator} of different shapes")


def _clip_by_choices(ctx: ExportContext, node: Node) -> None:
    held: Operand = node.inputs[0]
    bounds = [(index, bound) for index, bound in enumerate(node.inputs[1:]) if bound is not None]
    for step, (index, bound) in enumerate(bounds, 1):
        is_beyond = ctx.emit_value("Less", (bound, held) if index else (held, bound))
        results = node.outputs if step == len(bounds) else [ctx.writer.new_name(f"{node.output.name}_held")]
        ctx.emit("Where", (is_beyond, bound, held), results)
        held = results[0]
    if not bounds:
        ctx.emit("Identity", (held,), node.outputs)


def export_clip(ctx: ExportContext, node: Node) -> None:
    """Clip with its bounds as operands; before opset 11 as attributes, or Max and Min where they are computed."""
    x, *bounds = node.inputs
    if _is_compared_by_halves(ctx, node):
        _clip_by_choices(ctx, node)
        return
    is_float = node.output.tensor.dtype.is_float
    if ctx.opset >= 11:
        # ONNX Runtime takes the greatest number, which is no infinity, for a bound that is not there.
        is_told = is_float and ctx.dialect is not Dialect.FAITHFUL
        written = [
            ctx.constant(end, node.output.tensor.dtype) if bound is None and is_told else bound
            for bound, end in zip(bounds, (-np.inf, np.inf), strict=True)
        ]
        ctx.emit("Clip", (x, *written), node.outputs)
        return
    found = [constant_of(bound) for bound in bounds]
    if all(bound is None or content is not None for bound, content in zip(bounds, found, strict=True)):
        ends = (-np.inf, np.inf) if is_float else (None, None)
        low, high = (
            end if content is None else float(content.array.reshape(-1)[0])
            for content, end in zip(found, ends, strict=True)
        )
        ctx.emit("Clip", (x,), node.outputs, min=low, max=high)
        return
    _require_broadcasts(ctx, "Max or Min", node.operands)
    below, above = bounds
    raised = x if below is None else ctx.emit_value("Max", (x, below))
    ctx.emit("Identity" if above is None else "Min", (raised, above), node.outputs)


EXPORTS = {
    **{name: export_as(operator) for operator, name in _SAME.items()},
    "sign": export_sign,
    "mod": export_mod,
    "fmod": export_fmod,
    "rsqrt": export_rsqrt,
    "clip": export_clip,
    "max": _export_extremum("Max"),
    "min": _export_extremum("Min"),
}
