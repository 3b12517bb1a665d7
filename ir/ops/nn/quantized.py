"""Matmuls and convolutions of quantized tensors: `matmul_integer`, `qlinear_matmul`, `conv_integer`, `qlinear_conv`.

A quantized tensor stands for `(x - zero_point) * scale`. Sums of products of 8-bit integers are exact: they are
computed by BLAS in a float that holds them all (f32 up to 2**24, else f64), and wrap to 32 bits as ONNX allows.
"""

from typing import Any

import ml_dtypes
import numpy as np

from ...constant import Array
from ...dims import Dim
from ...errors import TypeRuleError
from ...op import FLOAT8, Op, op
from ...types import DType, TensorType
from .conv import CONV_ATTRS, check_bias, conv_flops, conv_shape, convolve
from .linear import matmul_flops, matmul_shape, multiply

_BYTES = frozenset({DType.I8, DType.U8})
_BYTES_OR_FLOAT8 = _BYTES | {d for d in FLOAT8 if d is not DType.F8E8M0}
_SCALES = frozenset({DType.F32, DType.F16, DType.BF16})
_F32 = frozenset({DType.F32})
_I32 = frozenset({DType.I32})
_GREATEST_PRODUCT = 255 * 255
"""Of two 8-bit integers with their zero points taken off."""


def _exact_float(terms: int) -> Any:
    """The float dtype that holds every sum of `terms` products exactly."""
    return np.float32 if terms * _GREATEST_PRODUCT <= 1 << 24 else np.float64


def _centered(x: Array, zero: Array | None, dtype: Any) -> Array:
    """`x - zero` in the float `dtype`; 8-bit values and their differences are exact in it."""
    wide = x.astype(dtype)
    return wide if zero is None else np.asarray(wide - zero.astype(dtype))


def _to_i32(exact: Array) -> Array:
    return exact.astype(np.int64).astype(np.int32)


def _per_row(parameter: Array) -> Array:
    """A scale or zero point for rows: a vector `[M]` stands for `[M, 1]`."""
    return parameter.reshape(-1, 1) if parameter.ndim == 1 and parameter.size != 1 else parameter


def _per_channel(parameter: Array, rank: int) -> Array:
    """A scale or zero point for output channels, in a shape that broadcasts to an array `[M, ...]` of this rank."""
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1, *[1] * (rank - 1))


# ---- matmul


def _matmul_integer_type(a: TensorType, b: TensorType, *_zeros: TensorType | None) -> TensorType:
    return TensorType(DType.I32, matmul_shape(a.dims, b.dims))


def matmul_integer(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    """`(a - a_zero) @ (b - b_zero)` in i32, as ONNX MatMulInteger.

    Zero points are scalars, or one for each row of `a` (`[M]` or `[..., M, 1]`) and for each column of `b` (`[N]` or
    `[..., 1, N]`).
    """
    dtype = _exact_float(a.shape[-1])
    row_zero = None if a_zero is None else _per_row(a_zero)
    return _to_i32(multiply(_centered(a, row_zero, dtype), _centered(b, b_zero, dtype)))


def _qlinear_matmul_type(
    a: TensorType,
    _a_scale: TensorType,
    _a_zero: TensorType,
    b: TensorType,
    _b_scale: TensorType,
    _b_zero: TensorType,
    _y_scale: TensorType,
    y_zero: TensorType,
) -> TensorType:
    return TensorType(y_zero.dtype, matmul_shape(a.dims, b.dims))


def qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    y_scale: Array,
    y_zero: Array,
) -> Array:
    """The matmul of quantized matrices, quantized again in the dtype of `y_zero`, as ONNX QLinearMatMul.

    Parameters of `a` are scalars or one for each row, those of `b` scalars or one for each column.
    """
    dtype = _exact_float(a.shape[-1]) if a.dtype.kind in "iu" and b.dtype.kind in "iu" else np.float64
    matmul = multiply(_centered(a, _per_row(a_zero), dtype), _centered(b, b_zero, dtype))
    a_scale, b_scale, y_scale = (scale.astype(np.float32) for scale in (_per_row(a_scale), b_scale, _per_row(y_scale)))
    return _requantized(matmul, a_scale * b_scale / y_scale, _per_row(y_zero))


def _requantized(exact: Array, scale: Array, zero: Array) -> Array:
    """`exact * scale` rounded half to even, plus the zero point, saturated to its dtype."""
    scaled = exact.astype(np.float32) * scale
    if zero.dtype.kind in "iu":
        limits = np.iinfo(zero.dtype)
        shifted = np.rint(scaled) + zero.astype(np.float32)
        return np.asarray(np.clip(shifted, limits.min, limits.max)).astype(zero.dtype)
    greatest = float(ml_dtypes.finfo(zero.dtype).max)  # type: ignore[no-untyped-call]
    return np.asarray(np.clip(scaled + zero.astype(np.float32), -greatest, greatest)).astype(zero.dtype)


# ---- conv


def _conv_integer_type(
    x: TensorType, weight: TensorType, _x_zero: TensorType | None, w_zero: TensorType | None, **attrs: Any
) -> TensorType:
    shape = conv_shape(x, weight, **attrs)
    _check_per_channel(w_zero, shape[1])
    return TensorType(DType.I32, shape)


def _check_per_channel(parameter: TensorType | None, channels: Dim) -> None:
    if parameter is None or parameter.rank == 0 or parameter.dims == (1,):
        return
    if parameter.rank != 1:
        raise TypeRuleError(
            f"a parameter of a quantized weight is a scalar or has one entry per channel, not {parameter}"
        )
    check_bias(parameter, channels)


def conv_integer(x: Array, weight: Array, x_zero: Array | None, w_zero: Array | None, **attrs: Any) -> Array:
    """Convolution of `x - x_zero` with `weight - w_zero` in i32, as ONNX ConvInteger; padding stands for `x_zero`.

    `x_zero` is a scalar; `w_zero` a scalar or `[M]`, one for each output channel.
    """
    return _to_i32(_exact_convolution(x, weight, x_zero, w_zero, **attrs))


def _exact_convolution(x: Array, weight: Array, x_zero: Array | None, w_zero: Array | None, **attrs: Any) -> Array:
    dtype = _exact_float(int(np.prod(weight.shape[1:])))
    channel_zero = None if w_zero is None else _per_channel(w_zero, weight.ndim)
    input_zero = None if x_zero is None else x_zero.reshape(())
    return convolve(_centered(x, input_zero, dtype), _centered(weight, channel_zero, dtype), **attrs)


def _qlinear_conv_type(
    x: TensorType,
    _x_scale: TensorType,
    _x_zero: TensorType,
    weight: TensorType,
    w_scale: TensorType,
    w_zero: TensorType,
    _y_scale: TensorType,
    y_zero: TensorType,
    bias: TensorType | None,
    **attrs: Any,
) -> TensorType:
    shape = conv_shape(x, weight, **attrs)
    check_bias(bias, shape[1])
    _check_per_channel(w_scale, shape[1])
    _check_per_channel(w_zero, shape[1])
    return TensorType(y_zero.dtype, shape)


def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    weight: Array,
    w_scale: Array,
    w_zero: Array,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None,
    **attrs: Any,
) -> Array:
    """Convolution of quantized tensors, quantized again in the dtype of `y_zero`, as ONNX QLinearConv.

    Scale and zero point of the weight are scalars or one for each output channel; the i32 `bias` `[M]` has the scale
    `x_scale * w_scale` and no zero point.
    """
    sums = _exact_convolution(x, weight, x_zero, w_zero, **attrs)
    if bias is not None:
        sums = sums.astype(np.float64) + bias.reshape(-1, *[1] * (x.ndim - 2))
    scale = x_scale.reshape(()) * _per_channel(w_scale, x.ndim - 1) / y_scale.reshape(())
    return _requantized(sums, scale, y_zero.reshape(()))


OPS: tuple[Op, ...] = (
    op(
        "matmul_integer",
        "a: A, b: B, a_zero: A?, b_zero: B?",
        A=_BYTES,
        B=_BYTES,
        infer=_matmul_integer_type,
        meaning=matmul_integer,
        flops=matmul_flops,
    ),
    op(
        "qlinear_matmul",
        "a: A, a_scale: S, a_zero: A, b: B, b_scale: S, b_zero: B, y_scale: S, y_zero: Y",
        A=_BYTES_OR_FLOAT8,
        B=_BYTES_OR_FLOAT8,
        S=_SCALES,
        Y=_BYTES_OR_FLOAT8,
        infer=_qlinear_matmul_type,
        meaning=qlinear_matmul,
        flops=matmul_flops,
    ),
    op(
        "conv_integer",
        "x: X, weight: W, x_zero: X?, w_zero: W?",
        X=_BYTES,
        W=_BYTES,
        attrs=CONV_ATTRS,
        infer=_conv_integer_type,
        meaning=conv_integer,
        flops=conv_flops,
    ),
    op(
        "qlinear_conv",
        "x: X, x_scale: S, x_zero: X, weight: W, w_scale: S, w_zero: W, y_scale: S, y_zero: Y, bias: B?",
        X=_BYTES,
        W=_BYTES,
        Y=_BYTES,
        S=_F32,
        B=_I32,
        attrs=CONV_ATTRS,
        infer=_qlinear_conv_type,
        meaning=qlinear_conv,
        flops=lambda inputs, outputs, attrs: conv_flops((inputs[0], inputs[3]), outputs, attrs),
    ),
)
