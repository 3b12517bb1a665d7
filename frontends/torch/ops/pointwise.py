"""Elementwise arithmetic. PyTorch promotes dtypes, the IR does not: operands are cast to the dtype of the result."""

import math

import torch

from ....ir.builder import Emitter
from ....ir.graph import Value
from ....ir.ops.interfaces import composed_ops
from ....ir.types import DType, Kind
from ..call import Call, Lowering, NoLowering, Operand, Scalar
from ..dtypes import torch_dtype_of

# ---- one operand


def _unary(native: str) -> Lowering:
    """An op in the dtype of the result: what gives floats for integers is computed in floats."""
    return lambda c, x, *_: c.op(native, c.cast(x, c.dtype))


def _rounding(native: str) -> Lowering:
    """An op that leaves integers as they are."""
    return lambda c, x, *_: c.op(native, x) if x.tensor.dtype.is_float else x


def _real(x: Value) -> Value:
    if x.tensor.dtype.kind is Kind.COMPLEX:
        raise NoLowering("a complex operand")
    return x


def _sign(c: Call, x: Value) -> Value:
    if x.tensor.dtype is DType.BOOL:
        return x
    sign = c.op("sign", _real(x))
    if not x.tensor.dtype.is_float:
        return sign
    return c.op("where", c.op("is_nan", x), c.full_like(x, 0.0), sign)  # PyTorch's sign of NaN is 0


def _round_decimals(c: Call, x: Value, decimals: int) -> Value:
    if not x.tensor.dtype.is_float:
        raise NoLowering("decimals of integers")
    scale = c.full_like(x, 10.0 ** abs(decimals))
    first, last = ("mul", "div") if decimals >= 0 else ("div", "mul")
    return c.op(last, c.op("round", c.op(first, x, scale)), scale)


def _trunc(c: Call, x: Value) -> Value:
    if not x.tensor.dtype.is_float:
        return x
    return c.op("where", c.op("greater", x, c.full_like(x, 0.0)), c.op("floor", x), c.op("ceil", x))


def _times(factor: float) -> Lowering:
    """Multiplication by a number, in the dtype of the result."""

    def lower(c: Call, x: Value) -> Value:
        wide = c.cast(x, c.dtype)
        return c.op("mul", wide, c.full_like(wide, factor))

    return lower


def _exp2(c: Call, x: Value) -> Value:
    wide = c.cast(x, c.dtype)
    return c.op("pow", c.full_like(wide, 2.0), wide)


def _log_of_base(base: float) -> Lowering:
    def lower(c: Call, x: Value) -> Value:
        logarithm = c.op("log", c.cast(x, c.dtype))
        return c.op("div", logarithm, c.full_like(logarithm, math.log(base)))

    return lower


def _log1p(c: Call, x: Value) -> Value:
    """log(1 + x), with the rounding of 1 + x made up for (Kahan)."""
    wide = c.cast(x, c.dtype)
    one = c.full_like(wide, 1.0)
    shifted = c.op("add", wide, one)
    exact = c.op("div", c.op("mul", c.op("log", shifted), wide), c.op("sub", shifted, one))
    is_small = c.op("equal", shifted, one)
    infinite = c.op("is_inf", shifted, detect_negative=False)
    return c.op("where", is_small, wide, c.op("where", infinite, shifted, exact))


def _expm1(c: Call, x: Value) -> Value:
    """exp(x) - 1, with the rounding of exp(x) made up for (Kahan)."""
    wide = c.cast(x, c.dtype)
    one = c.full_like(wide, 1.0)
    grown = c.op("exp", wide)
    less = c.op("sub", grown, one)
    exact = c.op("div", c.op("mul", less, wide), c.op("log", grown))
    plain = c.op("logical_or", c.op("equal", less, c.full_like(wide, -1.0)), c.op("is_inf", grown))
    return c.op("where", c.op("equal", grown, one), wide, c.op("where", plain, less, exact))


def _erfc(c: Call, x: Value) -> Value:
    wide = c.cast(x, c.dtype)
    return c.op("sub", c.full_like(wide, 1.0), c.op("erf", wide))


def _sinc(c: Call, x: Value) -> Value:
    wide = c.cast(x, c.dtype)
    angle = c.op("mul", wide, c.full_like(wide, math.pi))
    ratio = c.op("div", c.op("sin", angle), angle)
    return c.op("where", c.op("equal", wide, c.full_like(wide, 0.0)), c.full_like(wide, 1.0), ratio)


def _square(c: Call, x: Value) -> Value:
    wide = c.cast(x, c.dtype)
    return c.op("mul", wide, wide)


def _logit(c: Call, x: Value, eps: float | None) -> Value:
    wide = c.cast(x, c.dtype)
    one = c.full_like(wide, 1.0)
    held = wide if eps is None else c.op("clip", wide, c.full_like(wide, eps), c.full_like(wide, 1.0 - eps))
    return c.op("log", c.op("div", held, c.op("sub", one, held)))


def _nan_to_num(c: Call, x: Value, nan: float | None, posinf: float | None, neginf: float | None) -> Value:
    if not x.tensor.dtype.is_float:
        return x
    limit = float(torch.finfo(torch_dtype_of(x.tensor.dtype)).max)
    high = limit if posinf is None else posinf
    low = -limit if neginf is None else neginf
    above, below = c.op("is_inf", x, detect_negative=False), c.op("is_inf", x, detect_positive=False)
    number = c.op("where", c.op("is_nan", x), c.full_like(x, nan or 0.0), x)
    return c.op("where", above, c.full_like(x, high), c.op("where", below, c.full_like(x, low), number))


# ---- two operands


def _binary(native: str) -> Lowering:
    return lambda c, a, b, *_: c.op(native, c.value(a, c.dtype), c.value(b, c.dtype))


def _add(c: Call, a: Operand, b: Operand, alpha: Scalar = 1) -> Value:
    if c.dtype is DType.BOOL:
        return c.op("logical_or", c.value(a, DType.BOOL), c.value(b, DType.BOOL))
    return c.op("add", c.value(a, c.dtype), _scaled(c, b, alpha))


def _scaled(c: Call, x: Operand, alpha: Scalar) -> Value:
    value = c.value(x, c.dtype)
    return value if isinstance(alpha, int | float) and alpha == 1 else c.op("mul", value, c.value(alpha, c.dtype))


def _mul(c: Call, a: Operand, b: Operand) -> Value:
    native = "logical_and" if c.dtype is DType.BOOL else "mul"
    return c.op(native, c.value(a, c.dtype), c.value(b, c.dtype))


def _div(c: Call, a: Operand, b: Operand, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "floor":
        return _floor_divide(c, a, b)
    quotient = c.op("div", c.value(a, c.dtype), c.value(b, c.dtype))
    return _trunc(c, quotient) if rounding_mode == "trunc" else quotient


def _floor_divide(c: Call, a: Operand, b: Operand) -> Value:
    left, right = c.value(a, c.dtype), c.value(b, c.dtype)
    if not c.dtype.is_float:
        return floor_quotient(c, left, right, is_positive=isinstance(b, int) and b > 0)
    return _floor_quotient_of_floats(c, left, right)


def floor_quotient(c: Emitter, a: Value, b: Value, *, is_positive: bool) -> Value:
    """The quotient of integers rounded down, of which no part wraps around: the truncated one, or one less.

    `is_positive` says of `b` that it is above 0.
    """
    quotient = c.op("div", a, b)
    if a.tensor.dtype.kind is Kind.UINT:
        return quotient
    whole = c.op("mul", quotient, b)
    if is_positive:
        is_above = c.op("greater", whole, a)
    else:  # where the remainder of the truncated quotient is not that of the one rounded down
        is_above = c.op("not_equal", c.op("sub", a, whole), c.op("mod", a, b))
    return c.op("sub", quotient, c.op("cast", is_above, to=a.tensor.dtype))


def _floor_quotient_of_floats(c: Call, a: Value, b: Value) -> Value:
    """The quotient rounded down, by the remainder as Python does: the quotient itself may round up.

    Zeros have the sign of the quotient.
    """
    zero, one = c.full_like(b, 0.0), c.full_like(b, 1.0)
    ratio, rest = c.op("div", a, b), c.op("fmod", a, b)
    has_other_sign = c.op("logical_xor", c.op("less", rest, zero), c.op("less", b, zero))
    is_above = c.op("logical_and", c.op("not_equal", rest, zero), has_other_sign)
    whole = c.op("sub", c.op("round", c.op("div", c.op("sub", a, rest), b)), c.op("where", is_above, one, zero))
    exact = c.op("where", c.op("not_equal", whole, zero), whole, c.op("mul", ratio, zero))
    return c.op("where", c.op("equal", b, zero), ratio, exact)


def _pow(c: Call, a: Operand, b: Operand) -> Value:
    base = c.value(a, c.dtype)
    if isinstance(b, int | float) and not isinstance(b, bool) and isinstance(a, Value):
        if b == 2:
            return _square(c, a)
        if abs(b) == 0.5 and c.dtype.is_float and c.dtype is not DType.F16:  # as PyTorch: it shows at -0.0 and -inf
            return c.op("sqrt" if b > 0 else "rsqrt", base)
    return c.op("pow", base, c.value(b, c.dtype))


def _atan2(c: Call, a: Value, b: Value) -> Value:
    """The angle of the point (b, a), from the arctangent of the ratio; left of 0 and at -0.0, half a turn more."""
    y, x = c.value(a, c.dtype), c.value(b, c.dtype)
    zero = c.full_like(x, 0.0)
    infinite = c.op("logical_and", c.op("is_inf", y), c.op("is_inf", x))
    ratio = c.op("where", infinite, c.op("mul", c.op("sign", y), c.op("sign", x)), c.op("div", y, x))
    is_point = c.op("logical_or", c.op("not_equal", y, zero), c.op("not_equal", x, zero))
    angle = c.op("where", is_point, c.op("atan", ratio), y)
    half_turn = _with_sign(c, c.full_like(x, math.pi), y)
    return c.op("where", _is_negative(c, x), c.op("add", angle, half_turn), angle)


def _hypot(c: Call, a: Value, b: Value) -> Value:
    """The length of (a, b), scaled by the longer side so that squares stay in range."""
    x, y = c.op("abs", c.value(a, c.dtype)), c.op("abs", c.value(b, c.dtype))
    long, short = c.op("max", x, y), c.op("min", x, y)
    ratio = c.op("div", short, long)
    length = c.op("mul", long, c.op("sqrt", c.op("add", c.op("mul", ratio, ratio), c.full_like(x, 1.0))))
    is_end = c.op("logical_or", c.op("equal", long, c.full_like(x, 0.0)), c.op("is_inf", long))
    return c.op("where", is_end, long, length)


def _extreme_but_nan(native: str) -> Lowering:
    """The functions fmax and fmin: where one operand is NaN, the other."""

    def lower(c: Call, a: Value, b: Value) -> Value:
        x, y = c.value(a, c.dtype), c.value(b, c.dtype)
        chosen = c.op(native, x, y)
        if not c.dtype.is_float:
            return chosen
        return c.op("where", c.op("is_nan", x), y, c.op("where", c.op("is_nan", y), x, chosen))

    return lower


def _copysign(c: Call, a: Operand, b: Operand) -> Value:
    return _with_sign(c, c.op("abs", c.value(a, c.dtype)), c.value(b, c.dtype))


def _with_sign(c: Call, size: Value, y: Value) -> Value:
    """Positive numbers with the signs of others."""
    return c.op("where", _is_negative(c, y), c.op("neg", size), size)


def _is_negative(c: Call, x: Value) -> Value:
    """Whether floats have a sign; the reciprocal tells that of zeros."""
    zero = c.full_like(x, 0.0)
    return c.op("logical_or", c.op("less", x, zero), c.op("less", c.op("reciprocal", x), zero))


def _signbit(c: Call, x: Value) -> Value:
    return _is_negative(c, x) if x.tensor.dtype.is_float else c.op("less", x, c.full_like(x, 0))


def _xlogy(c: Call, a: Operand, b: Operand) -> Value:
    x, y = c.value(a, c.dtype), c.value(b, c.dtype)
    zero = c.full_like(x, 0.0)
    product = c.op("mul", x, c.op("log", y))
    nothing = c.op("logical_and", c.op("equal", x, zero), c.op("logical_not", c.op("is_nan", y)))
    return c.op("where", nothing, zero, product)


def _logaddexp(c: Call, a: Value, b: Value) -> Value:
    x, y = c.value(a, c.dtype), c.value(b, c.dtype)
    greater, less = c.op("max", x, y), c.op("min", x, y)
    gap = c.op("sub", less, greater)
    total = c.op("add", greater, _log1p(c, c.op("exp", gap)))
    return c.op("where", c.op("equal", x, y), c.op("add", x, c.full_like(x, math.log(2.0))), total)


def _ldexp(c: Call, a: Value, b: Value) -> Value:
    return c.op("mul", c.value(a, c.dtype), _exp2(c, b))


def _angle(c: Call, x: Value) -> Value:
    """Of real numbers: half a turn below 0."""
    wide = c.cast(_real(x), c.dtype)
    zero = c.full_like(wide, 0.0)
    turned = c.op("where", c.op("less", wide, zero), c.full_like(wide, math.pi), zero)
    return c.op("where", c.op("is_nan", wide), wide, turned)


# ---- three operands


def clamp(c: Call, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """`x` held between two bounds; where bits are read, a zero at a bound of zero keeps its sign."""
    value = c.cast(x, c.dtype)
    if low is not None:
        value = _held(c, value, low, "max", "less")
    return value if high is None else _held(c, value, high, "min", "greater")


def _held(c: Call, x: Value, bound: Operand, extremum: str, is_beyond: str) -> Value:
    limit = c.value(bound, c.dtype)
    if isinstance(bound, Value) or not c.dtype.is_float or not c.reads_bits:
        return c.op(extremum, x, limit)
    return c.op("where", c.op(is_beyond, x, limit), limit, x)


def _clamp_min(c: Call, x: Value, low: Operand) -> Value:
    return clamp(c, x, low)


def _lerp(c: Call, start: Value, end: Value, weight: Operand) -> Value:
    """From `start` to `end`, in the form that is exact at both ends."""
    w = c.value(weight, c.dtype)
    gap = c.op("sub", end, start)
    from_start = c.op("add", start, c.op("mul", w, gap))
    from_end = c.op("sub", end, c.op("mul", gap, c.op("sub", c.full_like(start, 1.0), w)))
    return c.op("where", c.op("less", c.op("abs", w), c.full_like(start, 0.5)), from_start, from_end)


def _addcmul(c: Call, x: Value, a: Value, b: Value, value: Scalar) -> Value:
    product = c.op("mul", c.cast(a, c.dtype), c.cast(b, c.dtype))
    return c.op("add", c.cast(x, c.dtype), _scaled(c, product, value))


def _multiply_add(c: Call, a: Value | Scalar, b: Value | Scalar, x: Value | Scalar) -> Value:
    return c.op("add", c.op("mul", c.value(a, c.dtype), c.value(b, c.dtype)), c.value(x, c.dtype))


def _addcdiv(c: Call, x: Value, a: Value, b: Value, value: Scalar) -> Value:
    quotient = c.op("div", c.cast(a, c.dtype), c.cast(b, c.dtype))
    return c.op("add", c.cast(x, c.dtype), _scaled(c, quotient, value))


_SAME_NAME = (
    *("sqrt", "rsqrt", "reciprocal", "exp", "log", "erf", "sigmoid", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)

_COMPOSED = [name for name in composed_ops() if hasattr(torch.ops.aten, name)]

TABLE: dict[str, Lowering] = {
    **{f"aten.{name}": _unary(name) for name in (*_SAME_NAME, *_COMPOSED)},
    "aten.special_erf": _unary("erf"),
    "aten.special_expit": _unary("sigmoid"),
    "aten.neg": _unary("neg"),
    "aten.positive": lambda _c, x: x,
    "aten.abs": lambda c, x: x if x.tensor.dtype is DType.BOOL else c.op("abs", _real(x)),
    "aten.sign": _sign,
    "aten.sgn": _sign,
    "aten.floor": _rounding("floor"),
    "aten.ceil": _rounding("ceil"),
    "aten.round.default": _rounding("round"),
    "aten.round.decimals": _round_decimals,
    "aten.trunc": _trunc,
    "aten.fix": _trunc,
    "aten.frac": lambda c, x: c.op("sub", x, _trunc(c, x)),
    "aten.deg2rad": _times(math.pi / 180),
    "aten.rad2deg": _times(180 / math.pi),
    "aten.exp2": _exp2,
    "aten.special_exp2": _exp2,
    "aten.log2": _log_of_base(2.0),
    "aten.log10": _log_of_base(10.0),
    "aten.log1p": _log1p,
    "aten.special_log1p": _log1p,
    "aten.expm1": _expm1,
    "aten.special_expm1": _expm1,
    "aten.erfc": _erfc,
    "aten.sinc": _sinc,
    "aten.special_sinc": _sinc,
    "aten.square": _square,
    "aten.logit": _logit,
    "aten.nan_to_num": _nan_to_num,
    "aten.add": _add,
    "aten.sub": lambda c, a, b, alpha=1: c.op("sub", c.value(a, c.dtype), _scaled(c, b, alpha)),
    "aten.rsub": lambda c, a, b, alpha=1: c.op("sub", c.value(b, c.dtype), _scaled(c, a, alpha)),
    "aten.mul": _mul,
    "aten.div": _div,
    "aten.floor_divide": _floor_divide,
    "aten.true_divide": _div,
    "aten.pow": _pow,
    "aten.remainder": lambda c, a, b: c.op("mod", c.value(a, c.dtype), c.value(b, c.dtype)),
    "aten.fmod": _binary("fmod"),
    "aten.maximum": _binary("max"),
    "aten.minimum": _binary("min"),
    "aten.fmax": _extreme_but_nan("max"),
    "aten.fmin": _extreme_but_nan("min"),
    "aten.atan2": _atan2,
    "aten.hypot": _hypot,
    "aten.copysign": _copysign,
    "aten.signbit": _signbit,
    "aten.xlogy": _xlogy,
    "aten.special_xlogy": _xlogy,
    "aten.logaddexp": _logaddexp,
    "aten.ldexp": _ldexp,
    "aten.angle": _angle,
    "aten.clamp": clamp,
    "aten.clamp_min": _clamp_min,
    "aten.clamp_max": lambda c, x, high: clamp(c, x, None, high),
    "aten.lerp": _lerp,
    "aten.addcmul": _addcmul,
    "aten.addcdiv": _addcdiv,
    "prims.fma": _multiply_add,
}
