"""The atoms of symbolic dims (symbol, floor division, min, max): what each is worth, and between which bounds.

A dim is a polynomial over atoms (see `symdim`), and an atom's operands are dims again. `symdim` reduces the operands
before it makes an atom; nothing here does.
"""

from __future__ import annotations

import math
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, TypeAlias
from weakref import WeakValueDictionary

from ..errors import ShapeError

if TYPE_CHECKING:
    from .symdim import Dim, SymDim

MAX_NUMBER = 2**63 - 1
MAX_DEPTH = 50
MAX_SIZE = (
    2000  # atoms of one atom, as printed: operands that are shared let the text grow exponentially within MAX_DEPTH
)

EFFORT = 3  # how many atoms a bound looks into
_MAX_CASES = 8  # operands of a min or max up to which a bound tries each
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Interval: TypeAlias = tuple[int | None, int | None]
Ranges: TypeAlias = Mapping[str, tuple[int, int | None]]


class Query:
    """One question for bounds: the ranges of symbols, and what was found on the way, as atoms share operands."""

    __slots__ = ("found", "ranges")

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.found: dict[tuple[Atom, int], Interval] = {}

    def interval(self, atom: Atom, effort: int) -> Interval:
        """The atom's least and greatest value as far as known."""
        found = self.found.get((atom, effort))
        if found is None:
            found = self.found[atom, effort] = atom.interval(self, effort)
        return found


class Atom(ABC):
    """A factor of a monomial. Atoms are interned by their text, so that equality and hash are those of the object."""

    __slots__ = ("__weakref__", "depth", "operands", "size", "symbols", "text")

    def __init__(self, text: str, operands: tuple[Dim, ...], symbols: frozenset[str], depth: int, size: int) -> None:
        self.text = text
        self.operands = operands
        self.symbols = symbols
        self.depth = depth
        self.size = size

    @abstractmethod
    def evaluate(self, env: Mapping[str, int]) -> int:
        """Its value; KeyError where a symbol is missing."""

    @abstractmethod
    def interval(self, query: Query, effort: int) -> Interval:
        """Its least and greatest value as far as known."""

    def lower_of_sum(self, rest: Dim, coefficient: int, query: Query, effort: int) -> int | None:
        """A lower bound of `rest + coefficient*self` from what the atom means beside the rest, if there is one."""
        return None


class Symbol(Atom):
    """A named size."""

    __slots__ = ("name",)

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text, (), frozenset((name,)), 0, 1)
        self.name = name

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The size of that name."""
        return env[self.name]

    def interval(self, query: Query, effort: int) -> Interval:
        """Its range, not negative where none is given."""
        return query.ranges.get(self.name, (0, None))


class Operation(Atom):
    """An atom with operands."""

    __slots__ = ()

    @classmethod
    @abstractmethod
    def write(cls, operands: tuple[Dim, ...]) -> str:
        """The text of the operation on these operands."""


class Quotient(Operation):
    """Floor division of the first operand by the second."""

    __slots__ = ()

    @classmethod
    def write(cls, operands: tuple[Dim, ...]) -> str:
        """`a//b`, operands in parentheses where they need them."""
        return "//".join(_operand_text(operand) for operand in operands)

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The quotient rounded down; `ShapeError` where the divisor is 0."""
        numerator, denominator = (value_of(operand, env) for operand in self.operands)
        if denominator == 0:
            raise division_by_zero(self.text)
        return numerator // denominator

    def interval(self, query: Query, effort: int) -> Interval:
        """Known only for a divisor that is never negative."""
        (low, high), (least, most) = (_interval(operand, query, effort) for operand in self.operands)
        if least is None or least < 0:  # the divisor's sign is not known
            return None, None
        least, most = max(least, 1), None if most is None else max(most, 1)
        if low is not None:
            low = low // least if low < 0 else 0 if most is None else low // most
        if high is not None:
            high = high // least if high >= 0 else -1 if most is None else high // most
        return low, high

    def lower_of_sum(self, rest: Dim, coefficient: int, query: Query, effort: int) -> int | None:
        """Uses that `a//b` lies within 1 of `a/b`: `T - 4*(T//4)` is at least 0."""
        numerator, divisor = self.operands
        if not isinstance(divisor, int):
            return None
        # divisor*(numerator//divisor) lies in [numerator - divisor + 1, numerator].
        nearest = numerator if coefficient < 0 else numerator - (divisor - 1)
        low = lower(divisor * rest + coefficient * nearest, query, effort)
        return None if low is None else -(-low // divisor)


class Extremum(Operation):
    """What min and max share: the one is the other's mirror image."""

    __slots__ = ()
    name: ClassVar[str]
    sign: ClassVar[int]  # +1 for min, where the result is at most each operand

    @classmethod
    def write(cls, operands: tuple[Dim, ...]) -> str:
        """`min(a, b)`."""
        return f"{cls.name}({', '.join(map(str, operands))})"

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The least or the greatest value."""
        return self.sign * min(self.sign * value_of(operand, env) for operand in self.operands)

    def interval(self, query: Query, effort: int) -> Interval:
        """That of the operands' extremum."""
        intervals = [_scaled(_interval(operand, query, effort), self.sign) for operand in self.operands]
        lows = [low for low, _ in intervals if low is not None]
        highs = [high for _, high in intervals if high is not None]
        low = min(lows) if len(lows) == len(intervals) else None
        return _scaled((low, min(highs, default=None)), self.sign)

    def lower_of_sum(self, rest: Dim, coefficient: int, query: Query, effort: int) -> int | None:
        """Tries each operand as the result: `T - min(T, 5)` is at least 0."""
        if len(self.operands) > _MAX_CASES:
            return None
        lows = [lower(rest + coefficient * operand, query, effort) for operand in self.operands]
        known = [low for low in lows if low is not None]
        if coefficient * self.sign < 0:  # the sum is at least what it is with any one operand
            return max(known, default=None)
        return min(known) if len(known) == len(lows) else None


class Min(Extremum):
    """The least of the operands."""

    __slots__ = ()
    name = "min"
    sign = 1


class Max(Extremum):
    """The greatest of the operands."""

    __slots__ = ()
    name = "max"
    sign = -1


Monomial: TypeAlias = tuple[Atom, ...]
Terms: TypeAlias = tuple[tuple[Monomial, int], ...]


# ---- interning ----

_interned: WeakValueDictionary[str, Atom] = WeakValueDictionary()
_intern_lock = threading.Lock()


def symbol_atom(name: str) -> Atom:
    """The atom of that name. Raises `ShapeError` if it is empty."""
    if not name:
        raise ShapeError("a symbolic dim needs a name", remedy="give it a non-empty name")
    text = _name_text(name)
    with _intern_lock:
        return _interned.setdefault(text, Symbol(name, text))


def operation_atom(kind: type[Operation], operands: tuple[Dim, ...]) -> Atom:
    """The atom of that operation on reduced operands. Raises `ShapeError` past MAX_NUMBER, MAX_DEPTH and MAX_SIZE."""
    for operand in operands:
        if isinstance(operand, int) and abs(operand) > MAX_NUMBER:
            raise too_large(operand)
    inner = [atom for operand in operands for atom in atoms_of(operand)]
    depth = 1 + max((atom.depth for atom in inner), default=0)
    size = 1 + sum(atom.size for atom in inner)
    if depth > MAX_DEPTH or size > MAX_SIZE:
        raise ShapeError("a symbolic dim is nested too deeply", remedy="give its size a symbol of its own")
    symbols = frozenset[str]().union(*(atom.symbols for atom in inner))
    text = kind.write(operands)
    with _intern_lock:
        return _interned.setdefault(text, kind(text, operands, symbols, depth, size))


def division_by_zero(text: str) -> ShapeError:
    """The error of a dim, given as text, whose divisor is 0."""
    return ShapeError(f"division by zero in the dim {text}", remedy="a dim that divides another must not be 0")


def too_large(number: int) -> ShapeError:
    """The error of a number in a symbolic dim that 64 bits do not hold."""
    return ShapeError(
        f"a symbolic dim has the number {number}, which 64 bits do not hold",
        remedy="give its size a symbol of its own",
    )


# ---- reading dims ----


def atoms_of(dim: Dim) -> Iterator[Atom]:
    """Every factor of every term, with repetition."""
    if not isinstance(dim, int):
        for monomial, _ in dim.terms:
            yield from monomial


def only_atom(dim: Dim) -> Atom | None:
    """The atom that the dim is, None if it is anything more than one."""
    if isinstance(dim, int) or dim.constant or len(dim.terms) != 1:
        return None
    (monomial, coefficient), *_ = dim.terms
    return monomial[0] if len(monomial) == 1 and coefficient == 1 else None


def value_of(dim: Dim, env: Mapping[str, int]) -> int:
    """The value of the dim; KeyError where a symbol is missing, `ShapeError` where a divisor is 0."""
    if isinstance(dim, int):
        return dim
    total = dim.constant
    for monomial, coefficient in dim.terms:
        total += coefficient * math.prod([atom.evaluate(env) for atom in monomial])
    return total


def _name_text(name: str) -> str:
    if _IDENTIFIER.fullmatch(name):
        return name
    escaped = [c if c.isprintable() and c not in "`\\" else f"\\u{{{ord(c):x}}}" for c in name]
    return f"`{''.join(escaped)}`"


def _operand_text(dim: Dim) -> str:
    is_plain = (isinstance(dim, int) and dim >= 0) or isinstance(only_atom(dim), (Symbol, Extremum))
    return str(dim) if is_plain else f"({dim})"


# ---- bounds ----


def lower(dim: Dim, query: Query, effort: int) -> int | None:
    """The better of two lower bounds: term by term, and from what the first operation that is a term means."""
    if isinstance(dim, int):
        return dim
    plain = _termwise(dim, query, effort)[0]
    if effort == 0:
        return plain
    for position, (monomial, coefficient) in enumerate(dim.terms):
        if len(monomial) == 1 and isinstance(monomial[0], Operation):
            meant = _lower_by_meaning(monomial[0], dim.without_term(position), coefficient, query, effort - 1)
            return max((low for low in (plain, meant) if low is not None), default=None)
    return plain


def upper(dim: Dim, query: Query, effort: int) -> int | None:
    """The mirror image of `lower`."""
    low = lower(-dim, query, effort)
    return None if low is None else -low


def _lower_by_meaning(atom: Atom, rest: Dim, coefficient: int, query: Query, effort: int) -> int | None:
    try:
        return atom.lower_of_sum(rest, coefficient, query, effort)
    except ShapeError:  # past a size limit on the way: no bound from this
        return None


def _interval(dim: Dim, query: Query, effort: int) -> Interval:
    if isinstance(dim, int):
        return dim, dim
    if effort == 0:
        return _termwise(dim, query, 0)
    return lower(dim, query, effort - 1), upper(dim, query, effort - 1)


def _termwise(dim: SymDim, query: Query, effort: int) -> Interval:
    """Interval arithmetic, term by term."""
    low: int | None = dim.constant
    high: int | None = dim.constant
    for monomial, coefficient in dim.terms:
        factors = (query.interval(atom, effort) for atom in monomial)
        least, most = _scaled(reduce(_multiplied, factors), coefficient)
        low = None if low is None or least is None else low + least
        high = None if high is None or most is None else high + most
    return low, high


def _scaled(interval: Interval, factor: int) -> Interval:
    low, high = (None if bound is None else bound * factor for bound in interval)
    return (low, high) if factor > 0 else (high, low)


def _multiplied(a: Interval, b: Interval) -> Interval:
    (a_low, a_high), (b_low, b_high) = a, b
    if a_high is not None and a_high < 0:
        return _scaled(_multiplied(_scaled(a, -1), b), -1)
    if b_high is not None and b_high < 0:
        return _scaled(_multiplied(a, _scaled(b, -1)), -1)
    if a_low is None or b_low is None:
        return None, None
    if a_high is None or b_high is None:
        if a_low < 0 or b_low < 0:
            return None, None
        return a_low * b_low, 0 if a_high == 0 or b_high == 0 else None
    ends = [x * y for x in (a_low, a_high) for y in (b_low, b_high)]
    return min(ends), max(ends)
