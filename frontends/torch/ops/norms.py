"""Normalizations and softmax."""

from collections.abc import Sequence
from typing import Any

import torch

from ....ir.dims import Dim, product
from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering, axis_of
from ..dtypes import dtype_of, torch_dtype_of


def _softmax(native: str) -> Lowering:
    def lower(c: Call, x: Value, dim: int, *_: Any) -> Value:
        wide = c.cast(x, c.dtype)
        if not wide.tensor.rank:
            return c.reshape(c.op(native, c.unsqueeze(wide, 0), axis=0), ())
        return c.op(native, wide, axis=axis_of(dim, wide.tensor.rank))

    return lower


def _layer_norm(c: Call, x: Value, shape: Sequence[Dim], weight: Any, bias: Any, eps: float, *_: Any) -> Value:
    return c.op("layer_norm", x, weight, bias, axis=-len(shape), epsilon=float(eps))


def _native_layer_norm(
    c: Call, x: Value, shape: Sequence[Dim], weight: Any, bias: Any, eps: float
) -> tuple[Value, ...]:
    mean, inverse = _moments(c, x, tuple(range(x.tensor.rank - len(shape), x.tensor.rank)), eps)
    return _layer_norm(c, x, shape, weight, bias, eps), *_saved(c, mean, inverse)


def _saved(c: Call, *statistics: Value) -> list[Value]:
    """Statistics, from result 1 on, as the device of the trace saves them.

    In inference batch norm saves nothing on the CPU, [0], and the running statistics on CUDA. Small floats are saved in
    f32 on CUDA, in the dtype of a weight on the CPU.
    """
    return [
        _saved_statistic(c, result, statistic) for result, statistic in zip(c.results[1:], statistics, strict=False)
    ]


def _saved_statistic(c: Call, result: Any, statistic: Value) -> Value:
    dtype, shape = dtype_of(result.dtype), c.sizes.dims(result.shape)
    return c.full((0,), 0.0, dtype) if shape == (0,) else c.cast(statistic, dtype)


def _moments(c: Call, x: Value, axes: tuple[int, ...], eps: float) -> tuple[Value, Value]:
    """Mean, and 1 / sqrt(variance + eps), over axes that are kept with size 1; in f32 for small floats."""
    wide = c.cast(x, DType.F32) if x.tensor.dtype.is_small_float else x
    mean = c.op("reduce_mean", wide, axes=axes)
    gap = c.op("sub", wide, mean)
    variance = c.op("reduce_mean", c.op("mul", gap, gap), axes=axes)
    return mean, _inverse_deviation(c, variance, eps)


def _inverse_deviation(c: Call, variance: Value, eps: float) -> Value:
    """1 / sqrt(variance + eps), in f32 for small floats."""
    wide = c.cast(variance, DType.F32) if variance.tensor.dtype.is_small_float else variance
    return c.op("rsqrt", c.op("add", wide, c.full_like(wide, float(eps))))


def _rms_norm(c: Call, x: Value, shape: Sequence[Dim], weight: Value | None, eps: float | None) -> Value:
    epsilon = float(torch.finfo(torch_dtype_of(x.tensor.dtype)).eps) if eps is None else float(eps)
    return c.op("rms_norm", x, weight, axis=-len(shape), epsilon=epsilon)


def _batch_norm(
    c: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value, eps: float
) -> Value:
    """By running statistics."""
    count = x.shape[1]
    scale = weight if weight is not None else c.full((count,), 1.0, mean.tensor.dtype)
    shift = bias if bias is not None else c.full((count,), 0.0, mean.tensor.dtype)
    return c.op("batch_norm", x, scale, shift, mean, variance, epsilon=float(eps))


def _batch_norm_of_training(
    c: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    _momentum: float,
    eps: float,
    *_: Any,
) -> Value:
    if not training and mean is not None and variance is not None:
        return _batch_norm(c, x, weight, bias, mean, variance, eps)
    found, inverse = _moments(c, x, (0, *range(2, x.tensor.rank)), eps)
    normal = c.cast(c.op("mul", c.op("sub", c.cast(x, found.tensor.dtype), found), inverse), x.tensor.dtype)
    return _affine(c, normal, weight, bias)


def _affine(c: Call, x: Value, weight: Value | None, bias: Value | None) -> Value:
    """Scaled and shifted by channel, axis 1."""
    behind = range(1, x.tensor.rank - 1)
    if weight is not None:
        x = c.op("mul", x, c.unsqueeze(c.cast(weight, x.tensor.dtype), *behind))
    return x if bias is None else c.op("add", x, c.unsqueeze(c.cast(bias, x.tensor.dtype), *behind))


def _batch_norm_by_running_statistics(
    c: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    _momentum: float,
    eps: float,
) -> tuple[Value | None, ...]:
    return _batch_norm(c, x, weight, bias, mean, variance, eps), *_running_as_saved(c, mean, variance, eps)


def _batch_norm_by_batch(
    c: Call, x: Value, weight: Value | None, bias: Value | None, _training: bool, _momentum: float, eps: float
) -> tuple[Value, ...]:
    """By the batch's own statistics; there are no running ones."""
    mean, inverse = _moments(c, x, (0, *range(2, x.tensor.rank)), eps)
    normal = c.cast(c.op("mul", c.op("sub", c.cast(x, mean.tensor.dtype), mean), inverse), x.tensor.dtype)
    count = (x.shape[1],)
    return _affine(c, normal, weight, bias), *_saved(c, c.reshape(mean, count), c.reshape(inverse, count))


def _batch_norm_with_update(
    c: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    *rest: Any,
) -> list[Any]:
    """By the batch's own statistics, of which the running ones take in a share. Ends with the new running ones."""
    momentum, eps = rest[-2:]
    axes = (0, *range(2, x.tensor.rank))
    dtype = DType.F32 if mean.tensor.dtype.is_small_float else mean.tensor.dtype
    wide = c.cast(x, dtype)
    found, inverse = _moments(c, wide, axes, eps)
    normal = c.cast(c.op("mul", c.op("sub", wide, found), inverse), x.tensor.dtype)
    gap = c.op("sub", wide, found)
    total = c.op("reduce_sum", c.op("mul", gap, gap), axes=axes, keep_dims=False)
    count = c.op("div", c.value(product(x.shape), dtype), c.value(x.shape[1], dtype))
    unbiased = c.op("div", total, c.op("sub", count, c.full_like(count, 1.0)))
    saved_mean, saved_inverse = (c.reshape(each, (x.shape[1],)) for each in (found, inverse))
    news = [_moved(c, c.cast(old, dtype), new, momentum) for old, new in ((mean, saved_mean), (variance, unbiased))]
    reserve = [c.full((0,), 0, DType.U8)] if len(c.results) == 6 else []
    return [_affine(c, normal, weight, bias), *_saved(c, saved_mean, saved_inverse), *reserve, *_running(c, *news)]


def _running(c: Call, *statistics: Value) -> list[Value]:
    """New running statistics, the last results, in the dtype that the trace says."""
    dtypes = [dtype_of(result.dtype) for result in c.results[-2:]]
    return [c.cast(statistic, dtype) for statistic, dtype in zip(statistics, dtypes, strict=True)]


def _moved(c: Call, old: Value, new: Value, momentum: float) -> Value:
    kept = c.op("mul", old, c.full_like(old, 1.0 - momentum))
    return c.op("add", kept, c.op("mul", new, c.full_like(old, momentum)))


def _batch_norm_functional(
    c: Call, x: Value, weight: Any, bias: Any, mean: Value, variance: Value, training: bool, *rest: Any
) -> list[Any]:
    if training:
        return _batch_norm_with_update(c, x, weight, bias, mean, variance, *rest)
    normal = _batch_norm(c, x, weight, bias, mean, variance, rest[-1])
    return [normal, *_running_as_saved(c, mean, variance, rest[-1]), *_running(c, mean, variance)]


def _running_as_saved(c: Call, mean: Value, variance: Value, eps: float) -> list[Value | None]:
    if not c.wants(1) and not c.wants(2):
        return [None, None]
    return [*_saved(c, mean, _inverse_deviation(c, variance, eps))]


def _group_norm(c: Call, x: Value, groups: int, weight: Any, bias: Any, eps: float, *_: Any) -> Value:
    """Of [N, C] or more axes; the native op wants a scale and a bias."""
    channels = x.shape[1]
    if x.tensor.rank < 3:
        wide = c.unsqueeze(x, x.tensor.rank)
        return c.squeeze(_group_norm(c, wide, groups, weight, bias, eps), x.tensor.rank)
    scale = weight if weight is not None else c.full((channels,), 1.0, x.tensor.dtype)
    shift = bias if bias is not None else c.full((channels,), 0.0, x.tensor.dtype)
    return c.op("group_norm", x, scale, shift, groups=groups, epsilon=float(eps))


def _native_group_norm(
    c: Call, x: Value, weight: Any, bias: Any, n: Dim, channels: Dim, size: Dim, groups: int, eps: float
) -> tuple[Value, ...]:
    grouped = c.reshape(x, (n, groups, channels // groups * size))
    mean, inverse = _moments(c, grouped, (2,), eps)
    return _group_norm(c, x, groups, weight, bias, eps), *_saved(c, c.squeeze(mean, 2), c.squeeze(inverse, 2))


def _instance_norm(
    c: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    use_input_stats: bool,
    _momentum: float,
    eps: float,
    *_: Any,
) -> Value:
    if not use_input_stats and mean is not None and variance is not None:
        return _batch_norm(c, x, weight, bias, mean, variance, eps)
    if x.tensor.rank < 3:
        raise NoLowering("instance norm without spatial axes")
    channels = x.shape[1]
    scale = weight if weight is not None else c.full((channels,), 1.0, x.tensor.dtype)
    shift = bias if bias is not None else c.full((channels,), 0.0, x.tensor.dtype)
    return c.op("instance_norm", x, scale, shift, epsilon=float(eps))


TABLE: dict[str, Lowering] = {
    "aten.softmax": _softmax("softmax"),
    "aten._softmax": _softmax("softmax"),
    "aten._safe_softmax": _softmax("softmax"),
    "aten.log_softmax": _softmax("log_softmax"),
    "aten._log_softmax": _softmax("log_softmax"),
    "aten.layer_norm": _layer_norm,
    "aten.native_layer_norm": _native_layer_norm,
    "aten.rms_norm": _rms_norm,
    "aten.batch_norm": _batch_norm_of_training,
    "aten._native_batch_norm_legit_no_training": _batch_norm_by_running_statistics,
    "aten._native_batch_norm_legit_functional": _batch_norm_functional,
    "aten._native_batch_norm_legit.no_stats": _batch_norm_by_batch,
    "aten._batch_norm_with_update_functional": _batch_norm_with_update,
    "aten.group_norm": _group_norm,
    "aten.native_group_norm": _native_group_norm,
    "aten.instance_norm": _instance_norm,
}
