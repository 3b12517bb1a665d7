"""Dims: the sizes of a shape, each an `int` or a symbolic `SymDim`, and what can be asked of them.

    rows = symbol("batch") * 12
    rows // 4 == 3 * symbol("batch")           # equal in meaning is equal
    evaluate(rows, {"batch": 2}) == 24
    compare(rows, rows + 1) is Truth.NO        # for no batch

Every symbol is a non-negative integer, and divisors are taken to be non-zero. `symdim` describes the canonical form.
"""

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NoReturn

from ..errors import ShapeError
from .atoms import EFFORT, Query, Ranges, Symbol, lower, upper, value_of
from .parser import parse_dim
from .symdim import Dim, SymDim, bind, difference, dim_max, dim_min, floor_div, symbol

__all__ = [
    "Dim",
    "Ranges",
    "SymDim",
    "Truth",
    "bind",
    "ceil_div",
    "compare",
    "difference",
    "dim_max",
    "dim_min",
    "evaluate",
    "is_at_least",
    "lower_bound",
    "parse_dim",
    "product",
    "solve",
    "symbol",
    "symbols",
    "upper_bound",
]


class Truth(Enum):
    """What is known of a claim about two dims, for all values that their symbols can take."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"

    def __bool__(self) -> NoReturn:
        raise TypeError("a Truth has three values: compare it with `is Truth.YES` or `is Truth.NO`")


def ceil_div(a: Dim, b: Dim) -> Dim:
    """`a / b` rounded up, for a positive `b`. Raises `ShapeError` if `b` is 0."""
    return floor_div(a + b - 1, b)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of the dims, 1 for none: the number of elements of a shape."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def evaluate(dim: Dim, env: Mapping[str, int]) -> int:
    """The value of the dim, where `env` gives each symbol a non-negative int.

    The sizes are not checked, as this is called on every run. Raises `ShapeError` when a symbol is missing or a
    divisor is 0.
    """
    if isinstance(dim, int):
        return dim
    try:
        return value_of(dim, env)
    except KeyError:
        missing = ", ".join(sorted(dim.symbols - env.keys()))
        raise ShapeError(
            f"the dim {dim} needs a value for {missing}", remedy="give every symbolic dim a size"
        ) from None


def symbols(dim: Dim) -> frozenset[str]:
    """The names of all symbols in the dim."""
    return dim.symbols if isinstance(dim, SymDim) else frozenset()


def lower_bound(dim: Dim, ranges: Ranges | None = None) -> int | None:
    """A value that the dim never falls below, None if none is found.

    `ranges` narrows symbols to (least, greatest), both included; greatest None is no limit.
    """
    if isinstance(dim, int):
        return dim
    return lower(dim, Query(ranges), EFFORT) if ranges else dim.bounds()[0]


def upper_bound(dim: Dim, ranges: Ranges | None = None) -> int | None:
    """A value that the dim never exceeds, None if none is found. `ranges` as for `lower_bound`."""
    if isinstance(dim, int):
        return dim
    if not ranges:
        return dim.bounds()[1]
    return upper(dim, Query(ranges), EFFORT)


def compare(a: Dim, b: Dim) -> Truth:
    """Whether a == b: YES for all values of the symbols, NO for none, UNKNOWN when it depends or is not found out."""
    if a is b or a == b:
        return Truth.YES
    gap = difference(a, b)
    if gap is None:
        return Truth.UNKNOWN
    if isinstance(gap, int):
        return Truth.NO if gap else Truth.YES
    if gap.constant % math.gcd(*(coefficient for _, coefficient in gap.terms)):
        return Truth.NO
    low, high = gap.bounds()
    is_apart = (low is not None and low > 0) or (high is not None and high < 0)
    return Truth.NO if is_apart else Truth.UNKNOWN


def is_at_least(a: Dim, b: Dim, ranges: Ranges | None = None) -> Truth:
    """Whether a >= b: YES for all values of the symbols, NO for none, UNKNOWN when it depends or is not found out.

    `ranges` as for `lower_bound`.
    """
    gap = difference(a, b)
    if gap is None:
        return Truth.UNKNOWN
    low, high = lower_bound(gap, ranges), upper_bound(gap, ranges)
    if low is not None and low >= 0:
        return Truth.YES
    return Truth.NO if high is not None and high < 0 else Truth.UNKNOWN


def solve(expr: Dim, value: int, env: Mapping[str, int]) -> tuple[str, int] | None:
    """The one symbol that `env` leaves open in `expr`, and its value such that `expr == value`.

    None when there is no open symbol or more than one, when it does not stand alone in `a*symbol + b`, and when the
    solution is no non-negative integer. Raises `ShapeError` where `env` makes a divisor 0.
    """
    bound = bind(expr, env)
    if isinstance(bound, int) or len(bound.terms) != 1:
        return None
    (monomial, coefficient), *_ = bound.terms
    solution, remainder = divmod(value - bound.constant, coefficient)
    if len(monomial) != 1 or not isinstance(monomial[0], Symbol) or remainder or solution < 0:
        return None
    return monomial[0].name, solution
