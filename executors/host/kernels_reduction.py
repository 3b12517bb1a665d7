"""Reductions and normalizations written into their result; what they allocate is one number for each row."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...ir.constant import Array
from ...ir.graph import Node
from ...ir.ops.reduction import summed
from ...ir.ops.rules import normal_axes
from .calls import ArrayCall
from .kernels_elementwise import is_float

_Operands = Sequence[Array | None]
_Results = tuple[Array, ...]


def _reduced(reduce: Callable[..., Any]) -> Any:
    def kernel(node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
        x = operands[0]
        if x is None or not is_float(x):
            return None
        axes = normal_axes(node.attrs["axes"], x.ndim)
        return ArrayCall(partial(reduce, axes=axes, keep=node.attrs["keep_dims"]), (x,), results)

    return kernel


def sum_into(x: Array, result: Array, *, axes: tuple[int, ...], keep: bool) -> None:
    """The sum over `axes`."""
    summed(x, axes, keep, result)


def product_into(x: Array, result: Array, *, axes: tuple[int, ...], keep: bool) -> None:
    """The product over `axes`."""
    np.multiply.reduce(x, axis=axes, keepdims=keep, dtype=x.dtype, out=result)


def _mean(node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    x = operands[0]
    if x is None or not is_float(x):
        return None
    axes = normal_axes(node.attrs["axes"], x.ndim)
    count = x.dtype.type(math.prod(x.shape[axis] for axis in axes))
    return ArrayCall(partial(mean_into, axes=axes, keep=node.attrs["keep_dims"], count=count), (x,), results)


def mean_into(x: Array, result: Array, *, axes: tuple[int, ...], keep: bool, count: Any) -> None:
    """The mean over `axes`, of `count` elements each."""
    summed(x, axes, keep, result)
    np.divide(result, count, result)


def _softmax(node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    if not is_float(operands[0]):
        return None
    return ArrayCall(partial(softmax_into, axis=node.attrs["axis"]), tuple(operands), results)


def softmax_into(x: Array, result: Array, *, axis: int) -> None:
    """exp(x) / sum(exp(x)) along `axis`, shifted by the maximum; the result may lie over `x`."""
    np.subtract(x, np.max(x, axis, keepdims=True, initial=-np.inf), result)
    np.exp(result, result)
    np.divide(result, summed(result, (axis % result.ndim,), True), result)


def _layer_norm(node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    x, scale, bias = operands
    if x is None or not is_float(x) or not _have_dtype(x, scale, bias):
        return None
    axes = tuple(range(node.attrs["axis"] % x.ndim, x.ndim))
    function = partial(layer_norm_into, axes=axes, epsilon=x.dtype.type(node.attrs["epsilon"]))
    return ArrayCall(function, (x, scale, bias), results)


def _have_dtype(x: Array, *others: Array | None) -> bool:
    return all(other is None or other.dtype == x.dtype for other in others)


def layer_norm_into(
    x: Array, scale: Array | None, bias: Array | None, result: Array, *, axes: tuple[int, ...], epsilon: Any
) -> None:
    """(x - mean) / sqrt(variance + epsilon) over `axes`, times `scale`, plus `bias`; the result may lie over `x`."""
    count = x.dtype.type(max(math.prod(x.shape[axis] for axis in axes), 1))
    np.subtract(x, summed(x, axes, True) / count, result)
    variance = summed(np.square(result), axes, True) / count
    np.multiply(result, 1 / np.sqrt(variance + epsilon), result)
    if scale is not None:
        np.multiply(result, scale, result)
    if bias is not None:
        np.add(result, bias, result)


def _batch_norm(node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    if not is_float(operands[0]):
        return None
    return ArrayCall(partial(batch_norm_into, epsilon=node.attrs["epsilon"]), tuple(operands), results)


def batch_norm_into(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, result: Array, *, epsilon: float
) -> None:
    """`x` by factor and shift of its channel, which are put together in f64; the result may lie over `x`."""
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    shift = bias.astype(np.float64) - mean.astype(np.float64) * factor
    shape = (-1, *(1,) * (x.ndim - 2))
    np.multiply(x, factor.astype(x.dtype).reshape(shape), result)
    np.add(result, shift.astype(x.dtype).reshape(shape), result)


REDUCTION: dict[str, Any] = {
    "reduce_sum": _reduced(sum_into),
    "reduce_prod": _reduced(product_into),
    "reduce_mean": _mean,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
}
"""Kernels by op name."""
