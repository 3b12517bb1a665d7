"""Conversions between element types: `cast`, `bit_cast`, and linear quantization.

Meanings follow the ONNX operators Cast, BitCast, QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear. Floats
that NumPy lacks are computed on as f32, sub-byte integers as 8-bit ones.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind, Attrs
from ..constant import Array
from ..dims import ceil_div
from ..dims.constraints import require_equal
from ..errors import ShapeError, TypeRuleError
from ..op import ANY, FLOATS, STRINGS, Op, Trait, flops_per_element, op
from ..types import DType, Kind, TensorType, Type
from .elementwise import all_fit, is_small_float
from .rules import normal_axis, require_rank

_BOUNDED = {DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ}
"""The floats for which saturation is a choice: without it what is too large becomes infinite, or NaN."""

_LARGEST = {DType.F8E4M3FN: 448.0, DType.F8E4M3FNUZ: 240.0, DType.F8E5M2: 57344.0, DType.F8E5M2FNUZ: 57344.0}

# ---- cast


def cast(x: Array, *, to: DType, saturate: bool, round_mode: str) -> Array:
    """Each element as the nearest of type `to`; its own type changes nothing.

    Floats become integers by dropping the fraction (undefined out of range), integers smaller integers by dropping high
    bits, complex numbers real ones by dropping the imaginary part; everything but 0 is true. `saturate` holds fp8
    results within the finite range; `round_mode` ("up", "down", "nearest": away from zero, toward it, nearest with ties
    up) is for f8e8m0fnu, which has powers of two only and ignores the sign. A string is read as a Python number in any
    case of letters, and written as NumPy writes it.
    """
    source = DType.of(x.dtype)
    if source is to:
        return x
    if source is DType.STRING:
        x = _parsed(x, to)
    if to is DType.STRING:
        return np.asarray(_widened(x).astype(np.str_).astype(object))
    if to is DType.BOOL:
        return np.asarray(_widened(x) != 0)
    if to.kind is not Kind.COMPLEX and x.dtype.kind == "c":
        x = np.asarray(np.real(x))
    if to is DType.F8E8M0:
        return _powers_of_two(np.asarray(_widened(x).astype(np.float64)), saturate, round_mode)
    if to in _BOUNDED:
        return _to_fp8(_widened(x), to, saturate)
    x = _widened(x)
    return _wrapped(x, to) if to in (DType.U32, DType.U64) and x.dtype.kind == "f" else np.asarray(x.astype(to.numpy))


def _wrapped(x: Array, to: DType) -> Array:
    """Floats as u32 or u64, what is out of range wrapped around: it is undefined, but one value has one result.

    Processors convert to unsigned integers in two ways, which differ out of range; NumPy uses both in one array.
    """
    exceeds = x >= 2.0**63 if to is DType.U64 else np.zeros(x.shape, np.bool_)
    signed = np.where(exceeds, x - 2.0**63, x).astype(np.int64).view(np.uint64)
    return np.where(exceeds, signed ^ np.uint64(2**63), signed).astype(to.numpy)


def _widened(x: Array) -> Array:
    """Sub-byte integers as 8-bit ones, floats that NumPy lacks as f32: ml_dtypes converts few to one another."""
    dtype = DType.of(x.dtype)
    if dtype.is_integer and dtype.bits < 8:
        return np.asarray(x.astype(np.int8))
    if dtype.is_float and (dtype.bits <= 8 or dtype is DType.BF16):
        return np.asarray(x.astype(np.float32))
    return x


def _to_fp8(x: Array, to: DType, saturate: bool) -> Array:
    if x.dtype.kind in "biu":
        x = x.astype(np.float32)
    limit = x.dtype.type(_LARGEST[to])
    return np.asarray((np.clip(x, -limit, limit) if saturate else x).astype(to.numpy))


def _powers_of_two(x: Array, saturate: bool, round_mode: str) -> Array:
    """e8m0: the exponent of |x| between -127 and 127, with a bias of 127; 255 is NaN."""
    fraction, exponent = np.frexp(np.abs(x))  # |x| = fraction * 2**exponent, fraction in [0.5, 1)
    at_least = {"up": np.nextafter(0.5, 1.0), "nearest": 0.75, "down": 1.0}[round_mode]
    biased = exponent - 1 + (fraction >= at_least) + 127
    biased = np.where(x == 0, -1, np.where(np.isinf(x), 255, biased))
    outside = (biased < 0) | (biased > 254)
    held = np.clip(biased, 0, 254)
    codes = np.where(np.isnan(x) | (outside & (not saturate)), 255, held)
    return codes.astype(np.uint8).view(DType.F8E8M0.numpy)


def _parsed(x: Array, to: DType) -> Array:
    """Strings as numbers: of 64 bits, those of a negative integer in two's complement."""
    texts = [text.decode() if isinstance(text, bytes) else str(text) for text in x.reshape(-1).tolist()]
    if to.is_integer:
        return np.array([_integer(text) % 2**64 for text in texts], np.uint64).reshape(x.shape)
    if to.kind is Kind.COMPLEX:
        return np.array([complex(text) for text in texts], np.complex128).reshape(x.shape)
    return np.array([_number(text) for text in texts], np.float64).reshape(x.shape)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _number(text: str) -> float:
    truths = {"true": 1.0, "false": 0.0}
    lowered = text.strip().lower()
    return truths[lowered] if lowered in truths else float(lowered)


def cast_type(x: TensorType, *, to: DType, **_attrs: Any) -> TensorType:
    """The shape of the operand with the dtype `to`."""
    return x.with_dtype(to)


def _symbolic_cast(_types: Sequence[Type | None], operands: Sequence[Any], attrs: Attrs) -> Array | None:
    elements, to = operands[0], attrs["to"]
    if elements is None or to not in (DType.I32, DType.I64):
        return None
    numbers = np.frompyfunc(lambda item: int(item) if isinstance(item, bool) else item, 1, 1)
    made = np.asarray(numbers(elements), dtype=object)
    return made if all_fit(made, TensorType(to, ())) else None


# ---- bit_cast


def bit_cast(x: Array, *, to: DType) -> Array:
    """The same bits taken for elements of type `to`, which has as many."""
    source = DType.of(x.dtype)
    if source.bits < 8:
        return _unpacked(np.asarray(x, order="C").view(np.uint8), to)
    return np.asarray(x, order="C").view(to.numpy)


def _unpacked(codes: Array, to: DType) -> Array:
    """Sub-byte elements from their bits, one element a byte."""
    return np.asarray(codes & (2**to.bits - 1)).astype(np.uint8).view(to.numpy)


def bit_cast_type(x: TensorType, *, to: DType) -> TensorType:
    """The shape of the operand with the dtype `to`. Raises `TypeRuleError` for another width, and for strings."""
    if x.dtype.bits != to.bits or DType.STRING in (x.dtype, to):
        raise TypeRuleError(f"bit_cast: the elements of {x} and {to} do not have the same bits")
    return x.with_dtype(to)


# ---- quantization

_QUANTIZED = frozenset(
    {DType.U2, DType.I2, DType.U4, DType.I4, DType.U8, DType.I8, DType.U16, DType.I16}
    | {*_BOUNDED, DType.F4E2M1, DType.F6E2M3, DType.F6E3M2}
)
_REAL_FLOATS = FLOATS - {DType.F64}


def quantize_linear(
    x: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    to: DType,
    axis: int,
    block_size: int,
    saturate: bool,
    precision: DType | None,
) -> Array:
    """saturate(round(x / scale) + zero_point) in type `to`; halves round to even.

    `scale` has rank 0 (or one element) for the whole tensor, rank 1 for a scale per index of `axis`, and with
    `block_size` the rank of `x`, one scale for each `block_size` indices of `axis`. The quotient is rounded to the type
    `precision`, by default that of `scale`, or of `x` where `scale` is no ordinary float (f32 when neither is). To
    floats the zero point (0, in practice) is added without rounding the quotient to an integer first, and `saturate`
    means what it means to `cast`.
    """
    working = precision or _working_type(DType.of(x.dtype), DType.of(scale.dtype))
    quotient = _quotient(x, _spread(scale, x.shape, axis, block_size), working)
    zero = np.zeros((), np.float32)
    if zero_point is not None:
        zero = _spread(np.asarray(zero_point.astype(np.float32)), x.shape, axis, block_size)
    if not to.is_integer:
        shifted = quotient if zero_point is None else np.asarray(quotient + zero)
        return cast(shifted, to=to, saturate=saturate, round_mode="up")
    low, high = _range(to)
    held = np.clip(np.rint(quotient) + zero, low, high)
    return np.asarray(held.astype(np.int32).astype(to.numpy))


def _working_type(x: DType, scale: DType) -> DType:
    candidates = (dtype for dtype in (scale, x) if dtype in _REAL_FLOATS)
    return next(candidates, DType.F32)


def _quotient(x: Array, scale: Array, precision: DType) -> Array:
    """The quotient x / scale rounded to `precision`, operands included; given as f32, or f64 for f64."""
    rounded = x.astype(precision.numpy), scale.astype(precision.numpy)
    if not is_small_float(rounded[0]):
        return np.asarray(np.divide(*rounded))
    wide = np.divide(*(operand.astype(np.float32) for operand in rounded))
    return np.asarray(np.asarray(wide).astype(precision.numpy).astype(np.float32))


def _range(dtype: DType) -> tuple[int, int]:
    if dtype.kind is Kind.UINT:
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def _spread(parameter: Array, shape: tuple[int, ...], axis: int, block_size: int) -> Array:
    """A scale or zero point in a shape that broadcasts against `shape`."""
    if parameter.ndim == 0 or (parameter.size == 1 and not block_size):
        return parameter.reshape(())
    axis %= len(shape)
    if block_size:
        repeated = np.repeat(parameter, block_size, axis=axis)
        return repeated[(slice(None),) * axis + (slice(shape[axis]),)]
    return parameter.reshape((-1,) + (1,) * (len(shape) - axis - 1))


def dequantize_linear(
    x: Array, scale: Array, zero_point: Array | None = None, *, to: DType, axis: int, block_size: int
) -> Array:
    """(x - zero_point) * scale, computed in f32 and rounded to `to`; shapes of `scale` as for `quantize_linear`."""
    offset = x.astype(np.float32)
    if zero_point is not None:
        offset = offset - _spread(np.asarray(zero_point.astype(np.float32)), x.shape, axis, block_size)
    factor = _spread(np.asarray(scale.astype(np.float32)), x.shape, axis, block_size)
    return np.asarray(np.asarray(offset * factor).astype(to.numpy))


def dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    """`x` as u8, with the scale (f32) and zero point (u8) of its range, which is widened to include 0.

    The scale is 1 when every element is 0, or the range so small that a 255th of it is none.
    """
    low, high = np.min(x, initial=np.float32(0)), np.max(x, initial=np.float32(0))
    scale = (high - low) / np.float32(255) or np.float32(1)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    quantized = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    return np.asarray(quantized), np.asarray(scale, dtype=np.float32), np.asarray(zero).astype(np.uint8)


def quantize_linear_type(
    x: TensorType,
    scale: TensorType,
    zero_point: TensorType | None,
    *,
    to: DType,
    axis: int,
    block_size: int,
    precision: DType | None,
    **_attrs: Any,
) -> TensorType:
    """The shape of `x` with the dtype `to`, the zero point's own. Raises when the scale's shape does not fit."""
    if to not in _QUANTIZED:
        raise TypeRuleError(f"quantize_linear: there is no quantization to {to}")
    if precision not in (None, *_REAL_FLOATS):
        raise TypeRuleError(f"quantize_linear: the quotient cannot be rounded to {precision}")
    if zero_point is not None and zero_point.dtype is not to:
        raise TypeRuleError(f"quantize_linear: the zero point is {zero_point.dtype}, but the result {to}")
    _check_granularity(x, scale, zero_point, axis, block_size)
    return x.with_dtype(to)


def dequantize_linear_type(
    x: TensorType, scale: TensorType, zero_point: TensorType | None, *, to: DType, axis: int, block_size: int
) -> TensorType:
    """The shape of `x` with the dtype `to`, an ordinary float. Raises when the scale's shape does not fit."""
    if to not in _REAL_FLOATS:
        raise TypeRuleError(f"dequantize_linear: the result cannot be {to}", remedy="one of bf16, f16, f32")
    _check_granularity(x, scale, zero_point, axis, block_size)
    return x.with_dtype(to)


def dynamic_quantize_linear_type(x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
    """The quantized tensor, its scale and its zero point."""
    return x.with_dtype(DType.U8), TensorType(DType.F32, ()), TensorType(DType.U8, ())


def _check_granularity(
    x: TensorType, scale: TensorType, zero_point: TensorType | None, axis: int, block_size: int
) -> None:
    if zero_point is not None:
        _check_same_shape(scale, zero_point)
    if block_size < 0:
        raise ShapeError(f"a quantization block cannot have {block_size} elements")
    if scale.rank == 0 or (scale.dims == (1,) and not block_size):
        return
    require_rank(scale, x.rank if block_size else 1, "the scale")
    along = normal_axis(axis, x.rank)
    if not block_size:
        require_equal(scale.dims[0], x.dims[along], f"there is one scale for each index of axis {along}")
        return
    for index, (have, size) in enumerate(zip(scale.dims, x.dims, strict=True)):
        wanted = ceil_div(size, block_size) if index == along else size
        require_equal(have, wanted, f"scales of blocks of {block_size} along axis {along}")


def _check_same_shape(scale: TensorType, zero_point: TensorType) -> None:
    require_rank(zero_point, scale.rank, "the zero point")
    for left, right in zip(scale.dims, zero_point.dims, strict=True):
        require_equal(left, right, "scale and zero point have the same shape")


_TO = Attribute("to", AttrKind.DTYPE)
_AXIS = Attribute("axis", AttrKind.INT, 1)
_BLOCK_SIZE = Attribute("block_size", AttrKind.INT, 0)
_SATURATE = Attribute("saturate", AttrKind.BOOL, default=True)
_PRECISION = Attribute("precision", AttrKind.DTYPE, None)

OPS: tuple[Op, ...] = (
    op(
        "cast",
        "x: T",
        T=ANY,
        attrs=(_TO, _SATURATE, Attribute("round_mode", AttrKind.STRING, "up", ("up", "down", "nearest"))),
        infer=cast_type,
        meaning=cast,
        traits=Trait.ELEMENTWISE,
        symbolic=_symbolic_cast,
    ),
    op(
        "bit_cast",
        "x: T",
        T=ANY - STRINGS,
        attrs=(_TO,),
        infer=bit_cast_type,
        meaning=bit_cast,
        traits=Trait.ELEMENTWISE,
        aliases=((0, 0),),
    ),
    op(
        "quantize_linear",
        "x: X, scale: S, zero_point: Q?",
        X=_REAL_FLOATS | {DType.I32},
        S=_REAL_FLOATS | {DType.I32, DType.F8E8M0},
        Q=_QUANTIZED,
        attrs=(_TO, _AXIS, _BLOCK_SIZE, _SATURATE, _PRECISION),
        infer=quantize_linear_type,
        meaning=quantize_linear,
        flops=flops_per_element(4),
    ),
    op(
        "dequantize_linear",
        "x: Q, scale: S, zero_point: Q?",
        Q=_QUANTIZED | {DType.I32},
        S=_REAL_FLOATS | {DType.F8E8M0},
        attrs=(_TO, _AXIS, _BLOCK_SIZE),
        infer=dequantize_linear_type,
        meaning=dequantize_linear,
        flops=flops_per_element(2),
    ),
    op(
        "dynamic_quantize_linear",
        "x: T",
        T=frozenset({DType.F32}),
        infer=dynamic_quantize_linear_type,
        meaning=dynamic_quantize_linear,
        flops=flops_per_element(5),
    ),
)
