"""Elementwise kernels: ops whose meaning is one NumPy ufunc get it with `out=`; activations are a few of them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.constant import Array
from ...ir.graph import Node
from .calls import GREATER, LESSER, ArrayCall, IntoResult

_Operands = Sequence[Array | None]
_Results = tuple[Array, ...]


def is_native(array: Array | None) -> bool:
    """Whether NumPy computes in the dtype as the meanings do: floats below 32 bits are computed in f32 instead."""
    return array is not None and (array.dtype.kind in "biu" or array.dtype in (np.float32, np.float64))


def is_float(array: Array | None) -> bool:
    """Whether the elements are f32 or f64."""
    return array is not None and array.dtype in (np.float32, np.float64)


def _ufunc(function: Any, accepts: Callable[[Array | None], bool] = is_native) -> Any:
    def kernel(_node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
        if len(operands) != function.nin or not accepts(operands[0]):
            return None
        return ArrayCall(function, tuple(operands), results)

    return kernel


def _extremum(function: IntoResult) -> Any:
    def kernel(_node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
        if len(operands) != 2 or not is_native(operands[0]):
            return None
        return ArrayCall(function, tuple(operands), results)

    return kernel


def _reciprocal(_node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    (x,) = operands
    return ArrayCall(np.divide, (x.dtype.type(1), x), results) if x is not None and is_native(x) else None


def _relu(_node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    (x,) = operands
    # The number comes second: NumPy is a third slower the other way round.
    return ArrayCall(GREATER, (x, x.dtype.type(0)), results) if x is not None and is_native(x) else None


def rsqrt_into(x: Array, result: Array) -> None:
    """1 / sqrt(x)."""
    np.sqrt(x, result)
    np.divide(result.dtype.type(1), result, result)


def _rsqrt(_node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    return ArrayCall(rsqrt_into, tuple(operands), results) if is_float(operands[0]) else None


def sigmoid_into(x: Array, result: Array) -> None:
    """1 / (1 + exp(-x)), without overflow; the result may lie over `x`."""
    decayed = np.asarray(np.exp(-np.abs(x)))
    numerator = np.where(x < 0, decayed, x.dtype.type(1))
    np.add(decayed, 1, decayed)
    np.divide(numerator, decayed, result)


def _sigmoid(_node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    return ArrayCall(sigmoid_into, tuple(operands), results) if is_float(operands[0]) else None


def _clip(_node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    x, low, high = operands
    if not is_native(x):
        return None
    if low is not None and high is not None:
        return ArrayCall(clip_into, (x, low, high), results)
    if low is not None or high is not None:
        return ArrayCall(LESSER if low is None else GREATER, (x, high if low is None else low), results)
    return None


def clip_into(x: Array, low: Array, high: Array, result: Array) -> None:
    """The lesser of `high` and of the greater of `x` and `low`."""
    np.maximum(x, low, out=result)
    np.minimum(result, high, out=result)


ELEMENTWISE: dict[str, Any] = {
    "add": _ufunc(np.add),
    "sub": _ufunc(np.subtract),
    "mul": _ufunc(np.multiply),
    "div": _ufunc(np.divide, is_float),
    "min": _extremum(LESSER),
    "max": _extremum(GREATER),
    "neg": _ufunc(np.negative),
    "abs": _ufunc(np.abs),
    "sign": _ufunc(np.sign),
    "floor": _ufunc(np.floor, is_float),
    "ceil": _ufunc(np.ceil, is_float),
    "round": _ufunc(np.rint, is_float),
    "sqrt": _ufunc(np.sqrt, is_float),
    "exp": _ufunc(np.exp, is_float),
    "log": _ufunc(np.log, is_float),
    "sin": _ufunc(np.sin, is_float),
    "cos": _ufunc(np.cos, is_float),
    "tanh": _ufunc(np.tanh, is_float),
    "reciprocal": _reciprocal,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "relu": _relu,
    "clip": _clip,
    "is_nan": _ufunc(np.isnan, is_float),
    "logical_and": _ufunc(np.logical_and),
    "logical_or": _ufunc(np.logical_or),
    "logical_xor": _ufunc(np.logical_xor),
    "logical_not": _ufunc(np.logical_not),
    "bitwise_and": _ufunc(np.bitwise_and),
    "bitwise_or": _ufunc(np.bitwise_or),
    "bitwise_xor": _ufunc(np.bitwise_xor),
    "bitwise_not": _ufunc(np.bitwise_not),
    "equal": _ufunc(np.equal),
    "not_equal": _ufunc(np.not_equal),
    "less": _ufunc(np.less),
    "less_equal": _ufunc(np.less_equal),
    "greater": _ufunc(np.greater),
    "greater_equal": _ufunc(np.greater_equal),
}
"""Kernels by op name."""
