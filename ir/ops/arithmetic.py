"""Elementwise arithmetic: operands broadcast as in NumPy, all of one dtype, and so is the result.

Meanings follow the ONNX operators of the same name. Floats below 32 bits are computed in f32 and rounded once. Integers
wrap around; an integer divided by 0 gives 0.
"""

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ..attrs import Attrs
from ..constant import Array
from ..dims import Dim, dim_max, dim_min
from ..op import FLOATS, NUMBERS, SIGNED, DTypes, Op, Symbolic, Trait, flops_per_element, op
from ..types import DType, TensorType, Type
from . import special
from .elementwise import in_f32, is_natural, symbolic_elements, unary
from .rules import broadcast_type, require_rank

# ---- quotients, remainders, powers


def div(a: Array, b: Array) -> Array:
    """Quotient; of integers the exact one rounded toward zero."""
    if a.dtype.kind not in "iu":
        return np.asarray(np.divide(a, b))
    quotient = np.floor_divide(a, b)
    rounded_down = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return np.asarray(quotient + rounded_down, dtype=a.dtype)


def _symbolic_div(a: Dim, b: Dim) -> Dim | None:
    if b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a // b if (a < 0) == (b < 0) else -(-a // b)
    quotient = a // b
    # Rounding down and rounding towards zero are the same where nothing is rounded, or nothing is negative.
    return quotient if quotient * b == a or (is_natural(a) and is_natural(b - 1)) else None


def mod(a: Array, b: Array) -> Array:
    """The remainder a - floor(a/b)*b: the sign of the divisor; zeros of floats have the dividend's, as in PyTorch."""
    found: Array = np.remainder(a, b)
    return found if found.dtype.kind in "iu" else np.where(found == 0, np.fmod(a, b), found)


def _symbolic_mod(a: Dim, b: Dim) -> Dim | None:
    """None where the result would hold a division by what may be 0: as a dim that is an error, as an element none."""
    if b == 0:
        return None
    quotient = a // b
    return a - b * quotient if quotient * b == a or is_natural(b - 1) or is_natural(-b - 1) else None


def _symbolic_fmod(a: Dim, b: Dim) -> Dim | None:
    quotient = _symbolic_div(a, b)
    return None if quotient is None else a - b * quotient


def power(x: Array, exponent: Array) -> Array:
    """`x` to the power `exponent`, in the dtype of `x` whatever that of the exponent.

    An integer to a negative power is 0 unless it is 1 or -1; to a float power, the float result rounded toward zero.
    """
    if x.dtype.kind == "i":
        return _integer_power(x, exponent) if exponent.dtype.kind in "iu" else _power(x, exponent, np.float64)
    is_narrow = x.dtype.itemsize <= 4 and exponent.dtype.itemsize <= 4 and exponent.dtype.kind not in "iu"
    return _power(x, exponent, np.float32 if is_narrow else np.float64)


def _power(x: Array, exponent: Array, precision: type[np.floating[Any]]) -> Array:
    raised = np.power(x.astype(precision), exponent.astype(precision))
    return np.asarray(np.asarray(raised).astype(x.dtype))


def _integer_power(x: Array, exponent: Array) -> Array:
    # Two's complement: the power modulo 2**64 of the sign-extended base has the right low bits for every width.
    raised = np.power(x.astype(np.uint64), np.maximum(exponent, 0).astype(np.uint64))
    reciprocal = np.where(x == 1, 1, np.where(x == -1, 1 - 2 * (exponent & 1).astype(np.int8), 0))
    return np.asarray(np.where(exponent < 0, reciprocal.astype(x.dtype), raised.astype(x.dtype)))


def power_type(x: TensorType, exponent: TensorType) -> TensorType:
    """Operands broadcast; the result has the dtype of the base."""
    return broadcast_type(x, exponent)


# ---- extrema


def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """min(high, max(x, low)): where the bounds cross, `high` wins. NaN stays. Bounds have rank 0."""
    raised = x if low is None else np.maximum(x, low)
    return np.asarray(raised if high is None else np.minimum(raised, high))


def clip_type(x: TensorType, low: TensorType | None, high: TensorType | None) -> TensorType:
    """The result has the type of `x`; bounds are scalars."""
    for bound, name in ((low, "the lower bound"), (high, "the upper bound")):
        if bound is not None:
            require_rank(bound, 0, name)
    return x


def _clipped(x: Dim, low: Dim, high: Dim) -> Dim:
    return dim_min(dim_max(x, low), high)


def _symbolic_clip(types: Sequence[Type | None], operands: Sequence[Any], attrs: Attrs) -> Any:
    present = [operand for operand, ty in zip(operands, types, strict=True) if ty is not None]
    if len(present) == 3:
        return symbolic_elements(_clipped)(types, present, attrs)
    if len(present) == 1:
        return operands[0]
    return symbolic_elements(dim_max if types[1] is not None else dim_min)(types, present, attrs)


def folded(function: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    """A meaning that reduces one or more operands by a function of two."""
    return lambda *operands: np.asarray(reduce(function, operands))


def _flops_of_fold(inputs: Sequence[Type | None], outputs: Sequence[Type], _attrs: Attrs) -> Dim:
    result = outputs[0]
    return result.size * (len(inputs) - 1) if isinstance(result, TensorType) else 0


# ---- functions of one operand


def reciprocal(x: Array) -> Array:
    """1 / x."""
    return np.asarray(np.divide(1, x, dtype=x.dtype))


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x)."""
    return reciprocal(np.asarray(np.sqrt(x)))


def _symbolic_abs(x: Dim) -> Dim | None:
    if is_natural(x):
        return x
    return -x if is_natural(-x) else None


def _symbolic_sign(x: Dim) -> Dim | None:
    if is_natural(x - 1):
        return 1
    if x == 0:
        return 0
    return -1 if is_natural(-x - 1) else None


# ---- the table


def _binary(
    name: str,
    function: Callable[..., Any],
    doc: str,
    *,
    symbolic: Callable[..., Any],
    cost: int = 1,
    traits: Trait = Trait.NONE,
) -> Op:
    return op(
        name,
        "a: T, b: T",
        T=NUMBERS,
        infer=broadcast_type,
        meaning=in_f32(function),
        traits=traits | Trait.ELEMENTWISE | Trait.BROADCASTS,
        aliases=((0, 0), (0, 1)),
        flops=flops_per_element(cost),
        symbolic=symbolic_elements(symbolic),
        doc=doc,
    )


def _extremum(name: str, function: Callable[..., Any], doc: str, symbolic: Callable[..., Any]) -> Op:
    return op(
        name,
        "first: T, *others: T",
        T=NUMBERS,
        infer=broadcast_type,
        meaning=in_f32(folded(function)),
        traits=Trait.COMMUTATIVE | Trait.ELEMENTWISE | Trait.BROADCASTS | Trait.UNROUNDED,
        aliases=((0, 0),),
        flops=_flops_of_fold,
        symbolic=symbolic_elements(symbolic),
        doc=doc,
    )


def _unary(
    name: str,
    function: Callable[..., Any],
    doc: str,
    cost: int = 1,
    *,
    dtypes: DTypes = FLOATS,
    symbolic: Symbolic | None = None,
    traits: Trait = Trait.NONE,
) -> Op:
    return unary(name, function, doc, dtypes=dtypes, cost=cost, symbolic=symbolic, traits=traits)


_STEPS = Trait.IDEMPOTENT | Trait.UNROUNDED

OPS: tuple[Op, ...] = (
    _binary("add", np.add, "Sum.", symbolic=operator.add, traits=Trait.COMMUTATIVE),
    _binary("sub", np.subtract, "Difference.", symbolic=operator.sub),
    _binary("mul", np.multiply, "Product.", symbolic=operator.mul, traits=Trait.COMMUTATIVE),
    _binary("div", div, div.__doc__ or "", symbolic=_symbolic_div),
    _binary("mod", mod, mod.__doc__ or "", symbolic=_symbolic_mod, cost=3),
    _binary("fmod", np.fmod, "a - trunc(a/b)*b: the sign of the dividend.", symbolic=_symbolic_fmod, cost=3),
    op(
        "pow",
        "x: T, exponent: E",
        T=FLOATS | {DType.I32, DType.I64},
        E=NUMBERS,
        infer=power_type,
        meaning=power,
        traits=Trait.ELEMENTWISE | Trait.BROADCASTS,
        aliases=((0, 0),),
        flops=flops_per_element(8),
    ),
    _extremum("min", np.minimum, "The least of one or more operands; NaN if one is.", dim_min),
    _extremum("max", np.maximum, "The greatest of one or more operands; NaN if one is.", dim_max),
    op(
        "clip",
        "x: T, low: T?, high: T?",
        T=NUMBERS,
        infer=clip_type,
        meaning=in_f32(clip),
        traits=Trait.ELEMENTWISE | Trait.UNROUNDED,
        aliases=((0, 0),),
        flops=flops_per_element(2),
        symbolic=_symbolic_clip,
    ),
    _unary(
        "neg",
        np.negative,
        "-x.",
        dtypes=SIGNED | FLOATS,
        symbolic=symbolic_elements(operator.neg),
        traits=Trait.INVOLUTION | Trait.UNROUNDED,
    ),
    _unary("abs", np.abs, "Magnitude.", dtypes=NUMBERS, symbolic=symbolic_elements(_symbolic_abs), traits=_STEPS),
    _unary(
        "sign",
        np.sign,
        "-1, 0 or 1; NaN for NaN.",
        dtypes=NUMBERS,
        symbolic=symbolic_elements(_symbolic_sign),
        traits=_STEPS,
    ),
    _unary("floor", np.floor, "The greatest integer not above x.", traits=_STEPS),
    _unary("ceil", np.ceil, "The least integer not below x.", traits=_STEPS),
    _unary("round", np.rint, "The nearest integer, halves to the even one.", traits=_STEPS),
    _unary("reciprocal", reciprocal, "1 / x."),
    _unary("sqrt", np.sqrt, "Square root; NaN below 0."),
    _unary("rsqrt", rsqrt, "1 / sqrt(x).", 2),
    _unary("exp", np.exp, "e to the power x.", 4),
    _unary("log", np.log, "Natural logarithm; NaN below 0.", 4),
    _unary("erf", special.erf, "The error function, 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x.", 8),
    _unary("sin", np.sin, "Sine of radians.", 4),
    _unary("cos", np.cos, "Cosine of radians.", 4),
    _unary("tan", np.tan, "Tangent of radians.", 4),
    _unary("asin", np.arcsin, "Inverse sine in radians; NaN outside [-1, 1].", 4),
    _unary("acos", np.arccos, "Inverse cosine in radians; NaN outside [-1, 1].", 4),
    _unary("atan", np.arctan, "Inverse tangent in radians.", 4),
    _unary("sinh", np.sinh, "Hyperbolic sine.", 4),
    _unary("cosh", np.cosh, "Hyperbolic cosine.", 4),
    _unary("tanh", np.tanh, "Hyperbolic tangent.", 4, traits=Trait.ACTIVATION),
    _unary("asinh", np.arcsinh, "Inverse hyperbolic sine.", 4),
    _unary("acosh", np.arccosh, "Inverse hyperbolic cosine; NaN below 1.", 4),
    _unary("atanh", np.arctanh, "Inverse hyperbolic tangent; NaN outside [-1, 1].", 4),
)
