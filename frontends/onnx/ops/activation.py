"""Activation functions, one operator each, and ONNX Runtime's own variants of Gelu, which add a bias first."""

from collections.abc import Callable

import numpy as np

from ....ir.errors import ShapeError
from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.dialect import Dialect
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext
from .rows import export_as, import_as

_SAME: dict[str, tuple[str, ...]] = {
    "Relu": ("relu",),
    "LeakyRelu": ("leaky_relu", "alpha"),
    "Elu": ("elu", "alpha"),
    "Selu": ("selu", "alpha", "gamma"),
    "Celu": ("celu", "alpha"),
    "ThresholdedRelu": ("thresholded_relu", "alpha"),
    "HardSigmoid": ("hard_sigmoid", "alpha", "beta"),
    "HardSwish": ("hard_swish",),
    "Sigmoid": ("sigmoid",),
    "Softplus": ("softplus",),
    "Softsign": ("softsign",),
    "Mish": ("mish",),
    "Gelu": ("gelu", "approximate"),
    "Shrink": ("shrink", "lambd", "bias"),
}
"""Operators, their native ops, and the attributes that both have."""


def _gelu_of_sum(approximate: str) -> Callable[[ImportContext], Value]:
    def rule(ctx: ImportContext) -> Value:
        x, bias = ctx.input(0), ctx.optional(1)
        return ctx.op("gelu", x if bias is None else ctx.op("add", x, bias), approximate=approximate)

    return rule


def import_quick_gelu(ctx: ImportContext) -> Value:
    """QuickGelu: x sigmoid(alpha x) with another default than Swish."""
    return ctx.op("silu", ctx.input(0), alpha=ctx.attr("alpha", 1.702))


def import_prelu(ctx: ImportContext) -> Value:
    """PRelu; with a slope that is larger than the operand, which the standard rules out and runtimes take, a choice."""
    x, slope = ctx.input(0), ctx.input(1)
    try:
        return ctx.op("prelu", x, slope)
    except ShapeError:
        zero = ctx.scalar_like(0, x)
        return ctx.op("where", ctx.op("less", x, zero), ctx.op("mul", x, slope), x)


IMPORTS = {
    **{operator: import_as(*name_and_attributes) for operator, name_and_attributes in _SAME.items()},
    "PRelu": import_prelu,
    "Swish": import_as("silu", "alpha"),
    "com.microsoft.Gelu": _gelu_of_sum("none"),
    "com.microsoft.BiasGelu": _gelu_of_sum("none"),
    "com.microsoft.FastGelu": _gelu_of_sum("tanh"),
    "com.microsoft.QuickGelu": import_quick_gelu,
}


_SWISH_OPSET = 24
"""The one opset at which ONNX Runtime 1.31, without a kernel for Swish, finds its body."""


def export_silu(ctx: ExportContext, node: Node) -> None:
    """Swish, or the product that it is where ONNX Runtime would refuse it or round `alpha`."""
    x, alpha = node.operands[0], node.attrs["alpha"]
    if ctx.dialect is Dialect.FAITHFUL and ctx.has_opset(_SWISH_OPSET, "Swish"):
        ctx.emit("Swish", (x,), node.outputs, alpha=alpha)
    elif ctx.opset == _SWISH_OPSET and (x.tensor.dtype is not DType.F64 or float(np.float32(alpha)) == alpha):
        ctx.inline_early()
        ctx.emit("Swish", (x,), node.outputs, alpha=alpha)
    else:
        scaled = x if alpha == 1 else ctx.emit_value("Mul", (x, ctx.constant(alpha, x.tensor.dtype)))
        ctx.emit("Mul", (x, ctx.emit_value("Sigmoid", (scaled,))), node.outputs)


def export_prelu(ctx: ExportContext, node: Node) -> None:
    """PRelu; in other types than floats of 32 bits or less, which ONNX Runtime has no kernel for, as a choice."""
    x, slope = node.operands
    dtype = x.tensor.dtype
    if ctx.dialect is Dialect.FAITHFUL or (dtype.is_float and dtype.bits <= 32):
        ctx.emit("PRelu", (x, slope), node.outputs)
        return
    is_below = ctx.emit_value("Less", (x, ctx.constant(0, dtype)))
    ctx.emit("Where", (is_below, ctx.emit_value("Mul", (slope, x)), x), node.outputs)


EXPORTS = {
    "prelu": export_prelu,
    **{name: export_as(operator, *attributes) for operator, (name, *attributes) in _SAME.items()},
    "silu": export_silu,
}
