"""Patterns that stand for one expression in all its spellings: numbers, products, squares, inverse roots."""

import numpy as np

from ....ir.constant import Constant
from ....ir.types import DType
from ...framework.pattern import Capture, Literal, Match, OneOf, Pattern, is_filled_with

PRECISION = {DType.F64: 1e-6, DType.F32: 1e-6, DType.F16: 1e-3, DType.BF16: 8e-3}
"""How far a constant may be from the number that it stands for: its dtype's rounding. F64 ones often come from f32."""


def about(number: float, name: str = "") -> Literal:
    """A constant that is `number` everywhere, as well as its dtype can hold it."""
    return Literal(name, where=lambda content: is_about(content, number))


def is_about(content: Constant, number: float) -> bool:
    """Whether a constant is `number` everywhere, as well as its dtype can hold it."""
    return content.dtype in PRECISION and is_filled_with(content, number, PRECISION[content.dtype])


def scalar(name: str) -> Literal:
    """One finite number, in a constant of whatever rank."""
    return Literal(name, where=_is_finite_number)


def _is_finite_number(content: Constant) -> bool:
    return content.size == 1 and content.dtype.is_float and bool(np.isfinite(content.array.astype(np.float64)).all())


def number_of(content: Constant) -> float:
    """The number in a constant of one element: the shortest decimal that its dtype rounds to it."""
    return float(str(content.array.reshape(-1)[0]))


def products(*factors: Pattern) -> tuple[Match, ...]:
    """The product of two or three factors, in every association (the order of two operands is free anyway)."""
    if len(factors) == 2:
        return (Match("mul", *factors),)
    return tuple(Match("mul", Match("mul", factors[a], factors[b]), factors[c]) for a, b, c in _PAIR_AND_REST)


_PAIR_AND_REST = ((0, 1, 2), (0, 2, 1), (1, 2, 0))


def square(x: Pattern) -> OneOf:
    """The square of `x`, which holds a capture or a named node, so that both factors are the same value."""
    return OneOf(Match("pow", x, about(2.0)), Match("mul", x, x))


def cube(x: Capture) -> OneOf:
    """The third power of `x`."""
    return OneOf(Match("pow", x, about(3.0)), Match("mul", Match("mul", x, x), x), Match("mul", square(x), x))


def over_root(x: Pattern, inner: Pattern) -> tuple[Match, ...]:
    """`x` divided by the square root of `inner`."""
    root = OneOf(Match("sqrt", inner), Match("pow", inner, about(0.5)))
    inverse = OneOf(
        Match("rsqrt", inner),
        Match("reciprocal", root),
        Match("div", about(1.0), root),
        Match("pow", inner, about(-0.5)),
    )
    return (Match("div", x, root), Match("mul", x, inverse))
