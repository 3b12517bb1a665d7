"""Normalizations: each result has the type of the operand that it normalizes.

Statistics are taken in f32 for smaller floats, and the result is rounded once. Axes of size 0 give empty results.
"""

from typing import Any

import numpy as np

from ...attrs import Attribute, AttrKind
from ...constant import Array
from ...dims import Truth, compare
from ...dims.constraints import require_equal
from ...errors import ShapeError, TypeRuleError
from ...op import FLOATS, Infer, Meaning, Op, Trait, flops_per_element, op
from ...types import TensorType
from ..elementwise import in_f32
from ..reduction import summed
from ..rules import normal_axis, require_broadcast, require_rank

# ---- over one axis


def along_axis_type(x: TensorType, *, axis: int, **_attrs: object) -> TensorType:
    """The type of `x`, which has the axis."""
    normal_axis(axis, x.rank)
    return x


@in_f32
def softmax(x: Array, *, axis: int) -> Array:
    """exp(x) / sum(exp(x)) along `axis`, shifted by the maximum. A slice of nothing but -inf gives NaN."""
    y = x - _max(x, axis)
    np.exp(y, out=y)
    y /= _sum(y, axis)
    return y


@in_f32
def log_softmax(x: Array, *, axis: int) -> Array:
    """The logarithm of `softmax`, without its underflow."""
    y = x - _max(x, axis)
    y -= np.log(_sum(np.exp(y), axis))
    return y


def _max(x: Array, axis: int) -> Array:
    return np.asarray(np.max(x, axis, keepdims=True, initial=-np.inf))


def _sum(x: Array, axis: int) -> Array:
    return summed(x, (axis % x.ndim,), True)


def hardmax(x: Array, *, axis: int) -> Array:
    """1 where the first maximum along `axis` stands, 0 elsewhere."""
    y = np.zeros_like(x)
    if x.size:
        np.put_along_axis(y, np.argmax(x, axis, keepdims=True), y.dtype.type(1), axis)
    return y


@in_f32
def lp_norm(x: Array, *, axis: int, p: int) -> Array:
    """`x` divided by its `p`-norm (1 or 2) along `axis`; a slice of norm 0 gives 0."""
    norm = _sum(np.abs(x), axis) if p == 1 else np.sqrt(_sum(np.square(x), axis))
    is_nothing = norm == 0
    norm[is_nothing] = 1
    return np.where(is_nothing, x.dtype.type(0), x / norm)


def lp_norm_type(x: TensorType, *, axis: int, p: int) -> TensorType:
    """The type of `x`; `p` is 1 or 2."""
    if p not in {1, 2}:
        raise TypeRuleError(f"lp_norm has p = {p}, not 1 or 2")
    return along_axis_type(x, axis=axis)


# ---- over the trailing axes


def trailing_norm_type(x: TensorType, *affine: TensorType | None, axis: int, epsilon: float) -> TensorType:
    """The type of `x`; scale and bias broadcast to it."""
    normal_axis(axis, x.rank)
    for operand, name in zip(affine, ("scale", "bias"), strict=False):
        if operand is not None:
            require_broadcast(operand.dims, x.dims, name)
    return x


@in_f32
def layer_norm(x: Array, scale: Array | None, bias: Array | None, *, axis: int, epsilon: float) -> Array:
    """(x - mean) / sqrt(variance + epsilon) over the axes from `axis` on, times `scale`, plus `bias`."""
    axes = _trailing(x, axis)
    y = x - _mean(x, axes)
    y *= 1 / np.sqrt(_mean(np.square(y), axes) + x.dtype.type(epsilon))
    return _affine(y, scale, bias)


@in_f32
def rms_norm(x: Array, scale: Array | None, *, axis: int, epsilon: float) -> Array:
    """X / sqrt(mean(x²) + epsilon) over the axes from `axis` on, times `scale`."""
    factor = 1 / np.sqrt(_mean(np.square(x), _trailing(x, axis)) + x.dtype.type(epsilon))
    return _affine(x * factor, scale, None)


def _trailing(x: Array, axis: int) -> tuple[int, ...]:
    return tuple(range(axis % x.ndim, x.ndim))


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    return np.asarray(summed(x, axes, True) / x.dtype.type(max(count, 1)))


def _affine(y: Array, scale: Array | None, bias: Array | None) -> Array:
    """`y * scale + bias`, written into `y`."""
    if scale is not None:
        y *= scale
    if bias is not None:
        y += bias
    return y


# ---- per channel: axis 1


def channel_norm_type(x: TensorType, *per_channel: TensorType, **_attrs: object) -> TensorType:
    """The type of `x`; the other operands have one value for each channel, the size of axis 1 (1 for rank 1)."""
    channels = x.dims[1] if x.rank > 1 else 1
    for operand in per_channel:
        require_rank(operand, 1, "an operand per channel")
        require_equal(channels, operand.dims[0], "there must be one value for each channel")
    return x


def spatial_norm_type(x: TensorType, *per_channel: TensorType, **_attrs: object) -> TensorType:
    """As `channel_norm_type`, for an operand with batch and channels."""
    if x.rank < 2:
        raise TypeRuleError(f"batch and channels are missing in {x}")
    return channel_norm_type(x, *per_channel)


def group_norm_type(x: TensorType, *per_channel: TensorType, groups: int, epsilon: float) -> TensorType:
    """As `spatial_norm_type`; `groups` divides the number of channels."""
    spatial_norm_type(x, *per_channel)
    if groups < 1 or compare(x.dims[1] % groups, 0) is Truth.NO:
        raise ShapeError(f"{x.dims[1]} channels cannot be split into {groups} groups")
    return x


def lrn_type(x: TensorType, *, size: int, alpha: float, beta: float, bias: float) -> TensorType:
    """The type of `x`, which has channels; the window is not empty."""
    if size < 1:
        raise TypeRuleError(f"lrn has size {size}, not at least 1")
    return spatial_norm_type(x)


def batch_norm(x: Array, scale: Array, bias: Array, mean: Array, var: Array, *, epsilon: float) -> Array:
    """(x - mean) / sqrt(var + epsilon) * scale + bias with given statistics for each channel (inference).

    Scale and shift of each channel are put together in f64 first, so that `x` is passed over twice.
    """
    factor = scale.astype(np.float64) / np.sqrt(var.astype(np.float64) + epsilon)
    shift = bias.astype(np.float64) - mean.astype(np.float64) * factor
    wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    y = np.multiply(x, _channels(factor.astype(wide), x), dtype=wide)
    y += _channels(shift.astype(wide), x)
    return y.astype(x.dtype, copy=False)


def _channels(values: Array, x: Array) -> Array:
    return values.reshape(-1, *(1,) * (x.ndim - 2))


@in_f32
def instance_norm(x: Array, scale: Array, bias: Array, *, epsilon: float) -> Array:
    """Each channel of each sample normalized by its own mean and variance, times `scale`, plus `bias`."""
    return _grouped(x, scale, bias, x.shape[1], epsilon)


@in_f32
def group_norm(x: Array, scale: Array, bias: Array, *, groups: int, epsilon: float) -> Array:
    """Each of `groups` groups of channels of each sample normalized, times `scale`, plus `bias` (by channel)."""
    return _grouped(x, scale, bias, groups, epsilon)


def _grouped(x: Array, scale: Array, bias: Array, groups: int, epsilon: float) -> Array:
    rows = x.reshape(x.shape[0], groups, x[0].size // groups if x.size else 0)
    y = rows - _mean(rows, (2,))
    y *= 1 / np.sqrt(_mean(np.square(y), (2,)) + x.dtype.type(epsilon))
    return _affine(y.reshape(x.shape), _channels(scale, x), _channels(bias, x))


@in_f32
def lrn(x: Array, *, size: int, alpha: float, beta: float, bias: float) -> Array:
    """X / (bias + alpha / size * sum of squares over `size` neighboring channels) ** beta."""
    channels, before, after = x.shape[1], (size - 1) // 2, size // 2
    square = np.square(x)
    total = square.copy()
    for shift in range(1, min(before, channels - 1) + 1):
        total[:, shift:] += square[:, :-shift]
    for shift in range(1, min(after, channels - 1) + 1):
        total[:, :-shift] += square[:, shift:]
    return x / (bias + alpha / size * total) ** beta


def _norm(name: str, signature: str, infer: Infer, meaning: Meaning, *attrs: Attribute, cost: int, **more: Any) -> Op:
    """A row; in place unless told otherwise, as a result element needs only statistics and the element at its place."""
    more = {"aliases": ((0, 0),), "T": FLOATS, **more}
    return op(name, signature, infer=infer, meaning=meaning, attrs=attrs, flops=flops_per_element(cost), **more)


_AXIS = Attribute("axis", AttrKind.INT, -1)
_EPSILON = Attribute("epsilon", AttrKind.FLOAT, 1e-5)
_PER_CHANNEL = "x: T, scale: T, bias: T"

OPS: tuple[Op, ...] = (
    _norm("softmax", "x: T", along_axis_type, softmax, _AXIS, cost=5, traits=Trait.ROWWISE),
    _norm("log_softmax", "x: T", along_axis_type, log_softmax, _AXIS, cost=5, traits=Trait.ROWWISE),
    _norm("hardmax", "x: T", along_axis_type, hardmax, _AXIS, cost=1, aliases=()),
    _norm("lp_norm", "x: T", lp_norm_type, lp_norm, _AXIS, Attribute("p", AttrKind.INT, 2), cost=3),
    _norm(
        "layer_norm",
        "x: T, scale: T?, bias: T?",
        trailing_norm_type,
        layer_norm,
        _AXIS,
        _EPSILON,
        cost=7,
        traits=Trait.ROWWISE,
    ),
    _norm("rms_norm", "x: T, scale: T?", trailing_norm_type, rms_norm, _AXIS, _EPSILON, cost=4, traits=Trait.ROWWISE),
    _norm(
        "batch_norm",
        "x: T, scale: T1, bias: T1, mean: T2, var: T2",
        channel_norm_type,
        batch_norm,
        _EPSILON,
        cost=2,
        traits=Trait.KEEPS_AXES,
        T1=FLOATS,
        T2=FLOATS,
    ),
    _norm(
        "instance_norm",
        _PER_CHANNEL,
        spatial_norm_type,
        instance_norm,
        _EPSILON,
        cost=7,
        traits=Trait.KEEPS_AXES | Trait.GROUPWISE,
    ),
    _norm(
        "group_norm",
        _PER_CHANNEL,
        group_norm_type,
        group_norm,
        Attribute("groups", AttrKind.INT),
        _EPSILON,
        cost=7,
        traits=Trait.KEEPS_AXES | Trait.GROUPWISE,
    ),
    _norm(
        "lrn",
        "x: T",
        lrn_type,
        lrn,
        Attribute("size", AttrKind.INT),
        Attribute("alpha", AttrKind.FLOAT, 1e-4),
        Attribute("beta", AttrKind.FLOAT, 0.75),
        Attribute("bias", AttrKind.FLOAT, 1.0),
        cost=6,
        traits=Trait.KEEPS_AXES,
        aliases=(),
    ),
)
