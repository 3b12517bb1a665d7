"""Convolutions with the sum and the activation behind them."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto

from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.export_context import ExportContext, Operand
from .group import DOMAIN, Group, Operator, have_equal_shapes, scalar_of, sole_producer

_NAME = "FusedConv"
_RANK = 4
_LARGEST = 3.4028234663852886e38  # of f32: a bound that is not there


class _Activation(NamedTuple):
    """How FusedConv calls an activation; `parameters` are empty where it has none."""

    name: str
    parameters: tuple[float, ...] = ()


def _hard_swish(_node: Node) -> _Activation:
    return _Activation("HardSwish")


def _clip(node: Node) -> _Activation | None:
    _, low, high = node.inputs
    least = -_LARGEST if low is None else scalar_of(low)
    most = _LARGEST if high is None else scalar_of(high)
    if least is None or most is None or not least <= most:
        return None  # not constant, or bounds that cross, or NaN
    return _Activation("Clip", (least, most))


_ACTIVATIONS: Mapping[str, Callable[[Node], _Activation | None]] = {
    "relu": lambda _node: _Activation("Relu"),
    "sigmoid": lambda _node: _Activation("Sigmoid"),
    "tanh": lambda _node: _Activation("Tanh"),
    "leaky_relu": lambda node: _Activation("LeakyRelu", (float(node.attrs["alpha"]),)),
    "hard_sigmoid": lambda node: _Activation("HardSigmoid", (float(node.attrs["alpha"]), float(node.attrs["beta"]))),
    "hard_swish": _hard_swish,
    "clip": _clip,
    "add": lambda _node: _Activation(""),
}
"""By the op at the end of a group; "add" is a sum behind which no activation is."""


def _operator(dtype: DType, activation: str, *, adds: bool) -> Operator:
    return Operator(_NAME, dtype, f"Sum{activation}" if adds else activation)


_OF_SUMS = frozenset(
    _operator(DType.F32, name, adds=True)
    for name in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish", "Clip", "")
)
OPERATORS = _OF_SUMS | {each._replace(kind=each.kind.removeprefix("Sum")) for each in _OF_SUMS if each.kind != "Sum"}
"""The CPU's kernel has all of these (ONNX Runtime 1.31), that of CUDA Relu alone."""

ON_CUDA = frozenset(_operator(DType.F32, "Relu", adds=adds) for adds in (False, True))
RECENT = _OF_SUMS | {_operator(DType.F32, "HardSwish", adds=False)}
"""What older versions of ONNX Runtime take and then get wrong when they lay channels out in blocks.

Up to 1.26 the summand is read as if it lay in blocks, which it does not; up to 1.20 HardSwish fails.
"""


def fused_conv(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """FusedConv: f(conv(x) + z), where the sum or the activation f may be absent, on pictures."""
    activation = _ACTIVATIONS[node.op.name](node)
    added = node if node.op.name == "add" else sole_producer(node.operands[0], "add")
    if (
        activation is None
        or _operator(node.output.tensor.dtype, activation.name, adds=added is not None) not in available
    ):
        return None
    conv, z = _summands(added) if added is not None else (sole_producer(node.operands[0], "conv"), None)
    if conv is None or conv.output.tensor.rank != _RANK or (z is not None and _is_of_other_layout(z)):
        return None
    kernel, pads = conv.operands[1].shape[2:], conv.attrs["pads"]
    if not all(isinstance(size, int) and size >= 0 for size in (*kernel, *pads)):
        return None

    def write(ctx: ExportContext) -> None:
        attrs = conv.attrs
        x, weight, _ = conv.inputs
        ctx.emit(
            _NAME, (x, weight, _bias(ctx, conv, z), z), node.outputs, domain=DOMAIN,
            activation=activation.name or None, activation_params=activation.parameters or None,
            kernel_shape=kernel, strides=attrs["strides"] or None, pads=pads or None,
            dilations=attrs["dilations"] or None, group=attrs["groups"],
        )  # fmt: skip

    inner = {conv} if added is None else {conv, added}
    return Group(node, frozenset(inner - {node}), node.outputs, write)


def _summands(added: Node) -> tuple[Node | None, Value | None]:
    """The convolution in a sum, and the other operand; of two convolutions the one that is made last."""
    if not have_equal_shapes(*added.operands):
        return None, None
    for first, second in (added.operands[::-1], added.operands):
        conv = sole_producer(first, "conv")
        if conv is not None and second is not first:
            return conv, second
    return None, None


def _bias(ctx: ExportContext, conv: Node, z: Value | None) -> Operand:
    """The bias. Before a summand there are zeros in its place: without one ONNX Runtime keeps the layout."""
    bias, channels = conv.inputs[2], conv.operands[1].shape[0]
    if bias is not None or z is None or not isinstance(channels, int):
        return bias
    return ctx.constant(np.zeros(channels), conv.output.tensor.dtype)


_IN_BLOCKS = frozenset({*_ACTIVATIONS, "silu", "max_pool", "average_pool"})


def _is_of_other_layout(value: Value) -> bool:
    """Whether a value comes neither out of a convolution, through sums with others or not, nor from outside.

    ONNX Runtime lays channels out in blocks when it loads a model for the CPU. It leaves a FusedConv alone whose
    summand does not come in blocks, where it would take a Conv: ConvNeXt gets slower by 1%.
    """
    made = value.producer
    while made is not None and made.op.name in _IN_BLOCKS:
        made = _other_summand(made).producer if made.op.name == "add" else made.operands[0].producer
    return made is not None and made.op.name != "conv"


def _other_summand(added: Node) -> Value:
    """What is added to a convolution; any operand where there is none."""
    first, second = added.operands
    is_convolution = second.producer is not None and second.producer.op.name == "conv"
    return first if is_convolution else second


def activations_for_cpu(model: ModelProto) -> frozenset[str]:
    """The activations in a model's convolutions for which CUDA's kernel is not made; a sum alone is "none"."""
    nodes = (node for node in model.graph.node if node.op_type == _NAME and node.domain == DOMAIN)
    return frozenset(_activation_of(node) for node in nodes) - {each.kind for each in ON_CUDA}


def _activation_of(node: NodeProto) -> str:
    return next((each.s.decode() for each in node.attribute if each.name == "activation"), "none")


RULES = dict.fromkeys(_ACTIVATIONS, (fused_conv,))
