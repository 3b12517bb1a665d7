"""Activation functions."""

from typing import Any

from ....ir.graph import Value
from ..call import Call, Lowering
from .pointwise import clamp


def _plain(native: str, **attrs: Any) -> Lowering:
    return lambda c, x, *_: c.op(native, x, **attrs)


def _relu(c: Call, x: Value) -> Value:
    is_plain = x.tensor.dtype.is_float and not c.reads_bits
    return c.op("relu", x) if is_plain else clamp(c, x, 0)


def _hardtanh(c: Call, x: Value, low: float, high: float) -> Value:
    return clamp(c, x, low, high) if c.reads_bits else c.op("clip", x, c.full_like(x, low), c.full_like(x, high))


def _gelu(c: Call, x: Value, approximate: str) -> Value:
    return c.op("gelu", x, approximate=approximate)


def _elu(c: Call, x: Value, alpha: float, scale: float, input_scale: float) -> Value:
    """`scale` x above 0, below it `scale` `alpha` (exp(`input_scale` x) - 1): elu, celu and selu are cases of it."""
    if scale == 1 and input_scale == 1:
        return c.op("elu", x, alpha=float(alpha))
    zero = c.full_like(x, 0.0)
    below = c.op("min", x, zero)
    grown = c.op("exp", c.op("mul", below, c.full_like(x, float(input_scale))))
    bent = c.op("mul", c.op("sub", grown, c.full_like(x, 1.0)), c.full_like(x, float(alpha * scale)))
    return c.op("where", c.op("greater", x, zero), c.op("mul", x, c.full_like(x, float(scale))), bent)


def _softplus(c: Call, x: Value, beta: float, threshold: float) -> Value:
    scaled = x if beta == 1 else c.op("mul", x, c.full_like(x, float(beta)))
    soft = c.op("softplus", scaled)
    if beta != 1:
        soft = c.op("div", soft, c.full_like(x, float(beta)))
    return c.op("where", c.op("greater", scaled, c.full_like(x, float(threshold))), x, soft)


def _threshold(c: Call, x: Value, threshold: float, value: float) -> Value:
    return c.op("where", c.op("less_equal", x, c.full_like(x, threshold)), c.full_like(x, value), x)


def _prelu(c: Call, x: Value, slope: Value) -> Value:
    """One slope for all, or one for each channel, which is axis 1."""
    if not x.tensor.rank:
        slope = c.reshape(slope, ())
    if slope.tensor.rank == 1 and x.tensor.rank > 2:
        slope = c.unsqueeze(slope, *range(1, x.tensor.rank - 1))
    return c.op("prelu", x, slope)


def _hardshrink(c: Call, x: Value, lambd: float) -> Value:
    outside = c.op("greater", c.op("abs", x), c.full_like(x, float(lambd)))
    kept = c.op("logical_or", outside, c.op("is_nan", x))
    return c.op("where", kept, x, c.full_like(x, 0.0))


def _softshrink(c: Call, x: Value, lambd: float) -> Value:
    """What is outside of a range, by how far it is; NaN stays, of which `shrink` makes 0."""
    return c.op("sub", x, c.op("clip", x, c.full_like(x, -float(lambd)), c.full_like(x, float(lambd))))


def _log_sigmoid(c: Call, x: Value) -> Value:
    return c.op("neg", c.op("softplus", c.op("neg", x)))


def _log_sigmoid_forward(c: Call, x: Value) -> tuple[Value, Any]:
    buffer = c.results[1]  # for the gradient: exp(-|x|) on the CPU, nothing on CUDA, [0]
    if c.sizes.dims(buffer.shape) == x.shape:
        return _log_sigmoid(c, x), c.op("exp", c.op("neg", c.op("abs", x)))
    return _log_sigmoid(c, x), c.full(c.sizes.dims(buffer.shape), 0.0, x.tensor.dtype)


def _glu(c: Call, x: Value, dim: int) -> Value:
    axis = dim % x.tensor.rank
    half = x.shape[axis] // 2
    value, gate = c.ops("split", x, axis=axis, sizes=(half, half))
    return c.op("mul", value, c.op("sigmoid", gate))


TABLE: dict[str, Lowering] = {
    "aten.relu": _relu,
    "aten.relu6": lambda c, x: _hardtanh(c, x, 0.0, 6.0),
    "aten.hardtanh": _hardtanh,
    "aten.gelu": _gelu,
    "aten.silu": _plain("silu"),
    "aten.mish": _plain("mish"),
    "aten.hardswish": _plain("hard_swish"),
    "aten.hardsigmoid": lambda c, x: c.op("hard_sigmoid", x, alpha=1 / 6, beta=0.5),
    "aten.leaky_relu": lambda c, x, slope: c.op("leaky_relu", x, alpha=float(slope)),
    "aten.elu": _elu,
    "aten.celu": lambda c, x, alpha: c.op("celu", x, alpha=float(alpha)),
    "aten.selu": _plain("selu"),
    "aten.softplus": _softplus,
    "aten.threshold": _threshold,
    "aten.prelu": _prelu,
    "aten._prelu_kernel": _prelu,
    "aten.hardshrink": _hardshrink,
    "aten.softshrink": _softshrink,
    "aten.log_sigmoid": _log_sigmoid,
    "aten.log_sigmoid_forward": _log_sigmoid_forward,
    "aten.glu": _glu,
}
