"""Activation functions: one operator each, with its attributes."""

from ....ir.graph import Node
from ..export_context import ExportContext
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
    "PRelu": ("prelu",),
    "Shrink": ("shrink", "lambd", "bias"),
}
"""Operators, their native ops, and the attributes that both have."""

IMPORTS = {
    **{operator: import_as(*name_and_attributes) for operator, name_and_attributes in _SAME.items()},
    "Swish": import_as("silu", "alpha"),
}


def export_silu(ctx: ExportContext, node: Node) -> None:
    """The product that Swish is: ONNX Runtime 1.31 has no kernel for the operator itself."""
    x, alpha = node.operands[0], node.attrs["alpha"]
    scaled = x if alpha == 1 else ctx.emit_value("Mul", (x, ctx.constant(alpha, x.tensor.dtype)))
    ctx.emit("Mul", (x, ctx.emit_value("Sigmoid", (scaled,))), node.outputs)


EXPORTS = {
    **{name: export_as(operator, *attributes) for operator, (name, *attributes) in _SAME.items()},
    "silu": export_silu,
}
