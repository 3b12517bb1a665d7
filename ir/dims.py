"""Symbolic dimensions: exact integer expressions over named sizes.

A dimension is an `int` or a `SymDim`. Every symbol is a non-negative integer. A `SymDim` is immutable and always in canonical
form, so that `==` and `hash` answer for the meaning and not for the way in which it was built:

* It is a polynomial with integer coefficients. A factor of a term is an *atom*: a symbol, a floor division, a min or a max. Equal
  atoms are one object; terms are ordered by degree, then by text. A constant is always a plain `int`.
* `a % b` is rewritten as `a - b*(a//b)`.
* In `a//b` whatever divides out is taken out: `(4*T + 6)//4` is `T + 1`, `(B*T*64)//T` is `64*B`. Common factors are cancelled,
  nested divisions joined (`(x//2)//3` is `x//6`), and a constant is brought into `[0, b)`. If every coefficient is negative, the
  division is turned round: `(-T)//4` is `-((T + 3)//4)`.
* min and max are flat, sorted, and without operands that another one always beats: `max(0, T)` is `T`.

**A divisor is taken to be non-zero** whenever it divides out (`T//T` is 1). One that stays is checked when it gets its value.

The form is complete for polynomials. With atoms in it two equal dims may still differ in form (`T - T//2` and `(T + 1)//2`);
`compare` then answers `UNKNOWN`, never a wrong `YES` or `NO`.
"""

import math
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import reduce
from typing import ClassVar, NoReturn, Self, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from .errors import ShapeError

__all__ = [
    "Dim", "Ranges", "SymDim", "Truth", "bind", "ceil_div", "compare", "dim_max", "dim_min", "evaluate", "is_at_least",
    "lower_bound", "parse_dim", "product", "solve", "symbol", "symbols", "upper_bound",
]  # fmt: skip

MAX_TERMS = 200
MAX_DEGREE = 50
MAX_DEPTH = 50
MAX_SIZE = (
    2000  # symbols of one atom, counted as printed: sharing would let the text grow exponentially within MAX_DEPTH
)

_EFFORT = 3  # how many atoms a bound looks into
_MAX_CASES = 8  # operands of a min or max up to which a bound tries each
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Truth(Enum):
    """What is known of a claim about two dims, for all values that their symbols can take."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"

    def __bool__(self) -> NoReturn:
        raise TypeError("a Truth has three values: compare it with `is Truth.YES` or `is Truth.NO`")


class SymDim:
    """A dimension that depends on symbols, in canonical form. Made by `symbol`, operators and `parse_dim`.

    `+ - * // %` take ints and dims on both sides and give an `int` when nothing symbolic is left. There is no order (see
    `is_at_least`) and no truth value. Raises `ShapeError` on division by zero and on expressions that grow past the limits above.
    """

    __slots__ = ("__weakref__", "_bounds", "_const", "_symbols", "_terms")

    def __init__(self, terms: "_Terms", const: int) -> None:
        self._terms = terms
        self._const = const
        self._symbols: frozenset[str] | None = None
        self._bounds: _Interval | None = None

    @property
    def terms(self) -> "_Terms":
        """The (monomial, coefficient) pairs without the constant, in canonical order; never empty."""
        return self._terms

    @property
    def constant(self) -> int:
        """The constant term."""
        return self._const

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols in it."""
        if self._symbols is None:
            self._symbols = frozenset[str]().union(*(atom.symbols for atom in _atoms(self)))
        return self._symbols

    def bind(self, env: "Mapping[str, Dim]") -> "Dim":
        """It with the symbols that `env` names replaced, all at once. Raises `ShapeError` on a negative value or a zero divisor."""
        return _substitute(self, env) if any(name in env for name in self.symbols) else self

    def bounds(self) -> "_Interval":
        """The least and greatest value that can be shown, None where there is none."""
        if self._bounds is None:
            self._bounds = _lower(self, {}, _EFFORT), _negated(_lower(-self, {}, _EFFORT))
        return self._bounds

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, SymDim) and self._const == other._const and self._terms == other._terms

    def __hash__(self) -> int:
        return hash((self._terms, self._const))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"the symbolic dim {self} has no truth value: use compare() or is_at_least()")

    def __str__(self) -> str:
        signed = [(coefficient < 0, _term_text(monomial, abs(coefficient))) for monomial, coefficient in self._terms]
        if self._const:
            signed.append((self._const < 0, str(abs(self._const))))
        is_negative, first = signed[0]
        if is_negative:  # unary minus binds more tightly than //
            first = f"-({first})" if "//" in first and "*" not in first else f"-{first}"
        return first + "".join(f" - {text}" if negative else f" + {text}" for negative, text in signed[1:])

    def __repr__(self) -> str:
        return f"SymDim({self})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> "tuple[Callable[[str], Dim], tuple[str]]":
        return parse_dim, (str(self),)

    def __neg__(self) -> "SymDim":
        return SymDim(tuple([(monomial, -coefficient) for monomial, coefficient in self._terms]), -self._const)

    def __add__(self, other: "Dim") -> "Dim":
        if isinstance(other, int):
            return SymDim(self._terms, self._const + other) if other else self
        if not isinstance(other, SymDim):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        sums = dict(self._terms)
        for monomial, coefficient in other._terms:
            sums[monomial] = sums.get(monomial, 0) + coefficient
        return _polynomial(sums, self._const + other._const)

    def __sub__(self, other: "Dim") -> "Dim":
        return 0 if other is self else self + -other

    def __rsub__(self, other: int) -> "Dim":
        return -self + other

    def __mul__(self, other: "Dim") -> "Dim":
        if isinstance(other, int):
            if not other:
                return 0
            return SymDim(tuple([(monomial, factor * other) for monomial, factor in self._terms]), self._const * other)
        if not isinstance(other, SymDim):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        sums: dict[_Monomial, int] = {}
        for left, a in _all_terms(self):
            for right, b in _all_terms(other):
                monomial = _monomial(left + right) if left and right else left or right
                sums[monomial] = sums.get(monomial, 0) + a * b
        return _polynomial(sums, sums.pop((), 0))

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: "Dim") -> "Dim":
        return _floor_div(self, other) if _is_dim(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> "Dim":
        return _floor_div(other, self) if _is_dim(other) else NotImplemented

    def __mod__(self, other: "Dim") -> "Dim":
        return self - other * _floor_div(self, other) if _is_dim(other) else NotImplemented

    def __rmod__(self, other: int) -> "Dim":
        return other - self * _floor_div(other, self) if _is_dim(other) else NotImplemented


Dim: TypeAlias = int | SymDim
Result = TypeVar("Result")
Ranges: TypeAlias = Mapping[str, tuple[int, int | None]]
_Interval: TypeAlias = tuple[int | None, int | None]


class _Atom(ABC):
    """A factor of a monomial. Atoms are interned by their text, so that equality and hash are those of the object."""

    __slots__ = ("__weakref__", "depth", "operands", "size", "symbols", "text")

    def __init__(self, text: str, operands: tuple[Dim, ...], names: frozenset[str], depth: int, size: int) -> None:
        self.text = text
        self.operands = operands
        self.symbols = names
        self.depth = depth
        self.size = size

    @abstractmethod
    def evaluate(self, env: Mapping[str, int]) -> int: ...

    @abstractmethod
    def bind(self, env: Mapping[str, Dim]) -> Dim: ...

    @abstractmethod
    def interval(self, ranges: Ranges, effort: int) -> _Interval: ...

    def lower_of_sum(self, rest: Dim, coefficient: int, ranges: Ranges, effort: int) -> int | None:
        """A lower bound of `rest + coefficient*self` from what the atom means beside the rest, None when it says nothing."""
        return None


_Monomial: TypeAlias = tuple[_Atom, ...]
_Terms: TypeAlias = tuple[tuple[_Monomial, int], ...]
_interned_atoms: WeakValueDictionary[str, _Atom] = WeakValueDictionary()
_interned_symbols: WeakValueDictionary[str, SymDim] = WeakValueDictionary()
_intern_lock = threading.RLock()


class _Symbol(_Atom):
    __slots__ = ("name",)

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text, (), frozenset((name,)), 0, 1)
        self.name = name

    def evaluate(self, env: Mapping[str, int]) -> int:
        return env[self.name]

    def bind(self, env: Mapping[str, Dim]) -> Dim:
        value = env.get(self.name)
        if value is None:
            return symbol(self.name)
        if isinstance(value, int) and value < 0:
            raise ShapeError(f"the dim {self.text} was bound to {value}, but a dim is never negative")
        return value

    def interval(self, ranges: Ranges, effort: int) -> _Interval:
        return ranges.get(self.name, (0, None))


class _Quotient(_Atom):
    """`numerator // denominator`, both `operands`, reduced by `_floor_div`."""

    __slots__ = ()

    def evaluate(self, env: Mapping[str, int]) -> int:
        numerator, denominator = (_value(operand, env) for operand in self.operands)
        if denominator == 0:
            raise ShapeError(
                f"division by zero in the dim {self.text}", remedy="a dim that divides another must not be 0"
            )
        return numerator // denominator

    def bind(self, env: Mapping[str, Dim]) -> Dim:
        numerator, denominator = (bind(operand, env) for operand in self.operands)
        if isinstance(denominator, int) and denominator == 0:
            raise ShapeError(
                f"division by zero in the dim {self.text}", remedy="a dim that divides another must not be 0"
            )
        return _floor_div(numerator, denominator)

    def interval(self, ranges: Ranges, effort: int) -> _Interval:
        (low, high), (least, most) = (_interval(operand, ranges, effort) for operand in self.operands)
        if least is None or least < 0:  # the divisor's sign is not known
            return None, None
        least, most = max(least, 1), None if most is None else max(most, 1)
        if low is not None:
            low = low // least if low < 0 else 0 if most is None else low // most
        if high is not None:
            high = high // least if high >= 0 else -1 if most is None else high // most
        return low, high

    def lower_of_sum(self, rest: Dim, coefficient: int, ranges: Ranges, effort: int) -> int | None:
        numerator, divisor = self.operands
        if not isinstance(divisor, int):
            return None
        # divisor*(numerator//divisor) lies in [numerator - divisor + 1, numerator]
        nearest = numerator if coefficient < 0 else numerator - (divisor - 1)
        low = _lower(divisor * rest + coefficient * nearest, ranges, effort)
        return None if low is None else -(-low // divisor)


class _Extremum(_Atom):
    """What min and max share: the one is the other's mirror image."""

    __slots__ = ()
    sign: ClassVar[int]  # +1 for min, where the result is at most each operand

    def evaluate(self, env: Mapping[str, int]) -> int:
        return self.sign * min(self.sign * _value(operand, env) for operand in self.operands)

    def interval(self, ranges: Ranges, effort: int) -> _Interval:
        intervals = [_scaled(_interval(operand, ranges, effort), self.sign) for operand in self.operands]
        lows = [low for low, _ in intervals if low is not None]
        highs = [high for _, high in intervals if high is not None]
        low = min(lows) if len(lows) == len(intervals) else None
        return _scaled((low, min(highs) if highs else None), self.sign)

    def lower_of_sum(self, rest: Dim, coefficient: int, ranges: Ranges, effort: int) -> int | None:
        if len(self.operands) > _MAX_CASES:
            return None
        lows = [_lower(rest + coefficient * operand, ranges, effort) for operand in self.operands]
        known = [low for low in lows if low is not None]
        if coefficient * self.sign < 0:  # the sum is at least what it is with any one operand
            return max(known, default=None)
        return min(known) if len(known) == len(lows) else None


class _Min(_Extremum):
    __slots__ = ()
    sign = 1

    def bind(self, env: Mapping[str, Dim]) -> Dim:
        return dim_min(*(bind(operand, env) for operand in self.operands))


class _Max(_Extremum):
    __slots__ = ()
    sign = -1

    def bind(self, env: Mapping[str, Dim]) -> Dim:
        return dim_max(*(bind(operand, env) for operand in self.operands))


# ---- building ----


def symbol(name: str) -> SymDim:
    """The dim called `name`, any non-empty text. One that is no identifier prints in backticks. Raises `ShapeError` if empty."""
    known = _interned_symbols.get(name)
    if known is not None:
        return known
    if not name:
        raise ShapeError("a symbolic dim needs a name", remedy="give it a non-empty name")
    with _intern_lock:
        text = _name_text(name)
        atom = _interned_atoms.setdefault(text, _Symbol(name, text))
        return _interned_symbols.setdefault(name, SymDim((((atom,), 1),), 0))


def dim_min(first: Dim, *rest: Dim) -> Dim:
    """The least of the dims."""
    if isinstance(first, int) and all(isinstance(dim, int) for dim in rest):
        return min(first, *(dim for dim in rest if isinstance(dim, int))) if rest else first
    return _extremum("min", _Min, {first, *rest}, lambda a, b: is_at_least(a, b) is Truth.YES)


def dim_max(first: Dim, *rest: Dim) -> Dim:
    """The greatest of the dims."""
    if isinstance(first, int) and all(isinstance(dim, int) for dim in rest):
        return max(first, *(dim for dim in rest if isinstance(dim, int))) if rest else first
    return _extremum("max", _Max, {first, *rest}, lambda a, b: is_at_least(b, a) is Truth.YES)


def ceil_div(a: Dim, b: Dim) -> Dim:
    """`a / b` rounded up, for a positive `b`. Raises `ShapeError` if `b` is 0."""
    return _floor_div(a + b - 1, b)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of the dims, 1 for none: the number of elements of a shape."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


# ---- asking ----


def bind(dim: Dim, env: Mapping[str, Dim]) -> Dim:
    """`SymDim.bind` for ints too."""
    return dim.bind(env) if isinstance(dim, SymDim) else dim


def evaluate(dim: Dim, env: Mapping[str, int]) -> int:
    """The value of the dim, where `env` gives each symbol a non-negative int (not checked: this is called on every run).

    Raises `ShapeError` when a symbol is missing or a divisor is 0.
    """
    if isinstance(dim, int):
        return dim
    try:
        return _value(dim, env)
    except KeyError:
        missing = ", ".join(sorted(dim.symbols - env.keys()))
        raise ShapeError(
            f"the dim {dim} needs a value for {missing}", remedy="give every symbolic dim a size"
        ) from None


def symbols(dim: Dim) -> frozenset[str]:
    """The names of all symbols in the dim."""
    return dim.symbols if isinstance(dim, SymDim) else frozenset()


def lower_bound(dim: Dim, ranges: Ranges | None = None) -> int | None:
    """A value that the dim never falls below, None if none is found. `ranges` gives symbols tighter (least, greatest) values."""
    if isinstance(dim, int):
        return dim
    return _lower(dim, ranges, _EFFORT) if ranges else dim.bounds()[0]


def upper_bound(dim: Dim, ranges: Ranges | None = None) -> int | None:
    """A value that the dim never exceeds, None if none is found. `ranges` as for `lower_bound`."""
    if isinstance(dim, int):
        return dim
    if not ranges:
        return dim.bounds()[1]
    low = _lower(-dim, ranges, _EFFORT)
    return None if low is None else -low


def compare(a: Dim, b: Dim) -> Truth:
    """Whether a == b: YES for all values of the symbols, NO for none, UNKNOWN when it depends or is not found out."""
    if a is b or a == b:
        return Truth.YES
    difference = _difference(a, b)
    if difference is None:
        return Truth.UNKNOWN
    if isinstance(difference, int):
        return Truth.NO if difference else Truth.YES
    if difference.constant % math.gcd(*(coefficient for _, coefficient in difference.terms)):
        return Truth.NO
    low, high = difference.bounds()
    is_apart = (low is not None and low > 0) or (high is not None and high < 0)
    return Truth.NO if is_apart else Truth.UNKNOWN


def is_at_least(a: Dim, b: Dim) -> Truth:
    """Whether a >= b: YES for all values of the symbols, NO for none, UNKNOWN when it depends or is not found out."""
    difference = _difference(a, b)
    if difference is None:
        return Truth.UNKNOWN
    low, high = lower_bound(difference), upper_bound(difference)
    if low is not None and low >= 0:
        return Truth.YES
    return Truth.NO if high is not None and high < 0 else Truth.UNKNOWN


def solve(expr: Dim, value: int, env: Mapping[str, int]) -> tuple[str, int] | None:
    """The one symbol that `env` leaves open in `expr`, and its value such that `expr == value`.

    None when there is no open symbol or more than one, when it does not stand alone in `a*symbol + b`, and when the solution is
    no non-negative integer. Raises `ShapeError` where `env` makes a divisor 0.
    """
    bound = bind(expr, env)
    if isinstance(bound, int) or len(bound.terms) != 1:
        return None
    (monomial, coefficient), *_ = bound.terms
    solution, remainder = divmod(value - bound.constant, coefficient)
    if len(monomial) != 1 or not isinstance(monomial[0], _Symbol) or remainder or solution < 0:
        return None
    return monomial[0].name, solution


# ---- polynomials ----


def _is_dim(value: object) -> bool:
    return isinstance(value, (int, SymDim))


def _atoms(dim: Dim) -> Iterator[_Atom]:
    if isinstance(dim, SymDim):
        for monomial, _ in dim.terms:
            yield from monomial


def _all_terms(dim: Dim) -> list[tuple[_Monomial, int]]:
    """The terms with the constant as the last one, under the empty monomial."""
    if isinstance(dim, int):
        return [((), dim)] if dim else []
    return [*dim.terms, ((), dim.constant)] if dim.constant else list(dim.terms)


def _atom_text(atom: _Atom) -> str:
    return atom.text


def _monomial(atoms: _Monomial) -> _Monomial:
    if len(atoms) > MAX_DEGREE:
        raise ShapeError(
            f"a symbolic dim multiplies more than {MAX_DEGREE} factors", remedy="name its size by a symbol of its own"
        )
    return tuple(sorted(atoms, key=_atom_text))


def _term_order(term: tuple[_Monomial, int]) -> tuple[int, list[str]]:
    """Higher degree first, then by text: a monomial order, as `_long_division` needs."""
    return -len(term[0]), [atom.text for atom in term[0]]


def _polynomial(sums: dict[_Monomial, int], constant: int) -> Dim:
    terms = [term for term in sums.items() if term[1]]
    if not terms:
        return constant
    if len(terms) > MAX_TERMS:
        raise ShapeError(
            f"a symbolic dim has more than {MAX_TERMS} terms", remedy="name its size by a symbol of its own"
        )
    if len(terms) > 1:
        terms.sort(key=_term_order)
    return SymDim(tuple(terms), constant)


def _of_terms(terms: Iterable[tuple[_Monomial, int]]) -> Dim:
    sums: dict[_Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    return _polynomial(sums, sums.pop((), 0))


def _of_atom(atom: _Atom) -> SymDim:
    return SymDim((((atom,), 1),), 0)


def _intern(kind: type[_Atom], text: Callable[[], str], operands: tuple[Dim, ...]) -> SymDim:
    inner = [atom for operand in operands for atom in _atoms(operand)]
    depth = 1 + max((atom.depth for atom in inner), default=0)
    size = 1 + sum(atom.size for atom in inner)
    if depth > MAX_DEPTH or size > MAX_SIZE:
        raise ShapeError("a symbolic dim is nested too deeply", remedy="name its size by a symbol of its own")
    names = frozenset[str]().union(*(symbols(operand) for operand in operands))
    with _intern_lock:
        written = text()
        return _of_atom(_interned_atoms.setdefault(written, kind(written, operands, names, depth, size)))


def _value(dim: Dim, env: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    total = dim.constant
    for monomial, coefficient in dim.terms:
        for atom in monomial:
            coefficient *= atom.evaluate(env)
        total += coefficient
    return total


def _substitute(dim: SymDim, env: Mapping[str, Dim]) -> Dim:
    total: Dim = dim.constant
    for monomial, coefficient in dim.terms:
        total = total + coefficient * product(atom.bind(env) for atom in monomial)
    return total


def _extremum(name: str, kind: type[_Extremum], dims: set[Dim], is_beaten_by: Callable[[Dim, Dim], bool]) -> Dim:
    flat: set[Dim] = set()
    for dim in dims:
        atom = _only_atom(dim)
        flat.update(atom.operands if isinstance(atom, kind) else (dim,))
    ordered = sorted(flat, key=str)
    # Of two that beat each other (equal in value, different in form) the first stays.
    kept = [
        a for i, a in enumerate(ordered)
        if not any(is_beaten_by(a, b) and (j < i or not is_beaten_by(b, a)) for j, b in enumerate(ordered) if j != i)
    ] or ordered[:1]  # fmt: skip
    if len(kept) == 1:
        return kept[0]
    return _intern(kind, lambda: f"{name}({', '.join(map(str, kept))})", tuple(kept))


def _only_atom(dim: Dim) -> _Atom | None:
    """The atom that the dim is, None if it is anything more than one."""
    if isinstance(dim, int) or dim.constant or len(dim.terms) != 1:
        return None
    (monomial, coefficient), *_ = dim.terms
    return monomial[0] if len(monomial) == 1 and coefficient == 1 else None


# ---- division ----


def _floor_div(numerator: Dim, denominator: Dim) -> Dim:
    if isinstance(denominator, int) and denominator == 0:
        raise ShapeError(f"division by zero: ({numerator})//0", remedy="a dim that divides another must not be 0")
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    if _all_terms(denominator)[0][1] < 0:
        numerator, denominator = -numerator, -denominator
    if len(_all_terms(denominator)) == 1:
        quotient = _divided_by_term(numerator, _all_terms(denominator)[0])
    else:
        quotient = _long_division(numerator, denominator)
    return quotient + _remainder_div(numerator - quotient * denominator, denominator)


def _divided_by_term(numerator: Dim, divisor: tuple[_Monomial, int]) -> Dim:
    """What divides out exactly. Coefficients are cut towards zero; that of the divisor's own monomial is rounded down."""
    monomial, size = divisor
    quotient: list[tuple[_Monomial, int]] = []
    for term, coefficient in _all_terms(numerator):
        factor = _without(term, monomial)
        if factor is not None:
            whole = coefficient // size if coefficient > 0 or not factor else -(-coefficient // size)
            quotient.append((factor, whole))
    return _of_terms(quotient)


def _long_division(numerator: Dim, denominator: Dim) -> Dim:
    """The quotient by a sum, 0 unless the remainder has no negative coefficient (else the result is worse to read and to bound)."""
    lead, size = _all_terms(denominator)[0]
    quotient: Dim = 0
    rest = numerator
    for _ in range(MAX_TERMS):
        steps = ((_without(term, lead), coefficient // size) for term, coefficient in _all_terms(rest))
        step = next(((factor, whole) for factor, whole in steps if factor is not None and whole), None)
        if step is None:
            return quotient if all(coefficient > 0 for _, coefficient in _all_terms(rest)) else 0
        part = _of_terms([step])
        quotient = quotient + part
        rest = rest - part * denominator
    return 0


def _without(monomial: _Monomial, divisor: _Monomial) -> _Monomial | None:
    """The monomial with the divisor's atoms taken out, None where one is missing."""
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _remainder_div(numerator: Dim, denominator: Dim) -> Dim:
    """`numerator // denominator` where nothing divides out any more."""
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    low, gap = lower_bound(numerator), lower_bound(denominator - numerator)
    if low is not None and low >= 0 and gap is not None and gap > 0:
        return 0
    reduced = _cancelled(numerator, denominator)
    if reduced != (numerator, denominator):
        return _floor_div(*reduced)
    if isinstance(denominator, int) and all(
        coefficient < 0 for _, coefficient in _all_terms(numerator - _constant(numerator))
    ):
        return -_floor_div(denominator - 1 - numerator, denominator)
    inner = _unit_quotients(numerator)
    if len(inner) == 1 and _is_positive(denominator):  # a + x//e is (e*a + x)//e, and floors join
        x, e = inner[0].operands
        return _floor_div(e * (numerator - _of_atom(inner[0])) + x, e * denominator)
    return _intern(
        _Quotient, lambda: f"{_operand_text(numerator)}//{_operand_text(denominator)}", (numerator, denominator)
    )


def _constant(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.constant


def _is_positive(divisor: Dim) -> bool:
    low = lower_bound(divisor)
    return low is not None and low >= 0  # a divisor is not 0


def _unit_quotients(dim: Dim) -> list[_Quotient]:
    return [
        monomial[0]
        for monomial, coefficient in _all_terms(dim)
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], _Quotient)
    ]


def _cancelled(numerator: Dim, denominator: Dim) -> tuple[Dim, Dim]:
    """Both without the atoms and the integer factor that they share.

    The numerator's constant need not share the factor: floor((g*p + c)/(g*d)) is floor((p + floor(c/g))/d) for a positive d.
    """
    above, below = _all_terms(numerator), _all_terms(denominator)
    shared: _Monomial = reduce(_shared, (monomial for monomial, _ in above + below))
    rounds = _is_positive(denominator)
    factor = math.gcd(*(size for _, size in below), *(size for monomial, size in above if monomial or not rounds))
    return _reduced(above, shared, factor), _reduced(below, shared, factor)


def _shared(a: _Monomial, b: _Monomial) -> _Monomial:
    left = list(b)
    common: list[_Atom] = []
    for atom in a:
        if atom in left:
            left.remove(atom)
            common.append(atom)
    return tuple(common)


def _reduced(terms: list[tuple[_Monomial, int]], shared: _Monomial, factor: int) -> Dim:
    return _of_terms((_without(monomial, shared) or (), coefficient // factor) for monomial, coefficient in terms)


# ---- bounds ----


def _difference(a: Dim, b: Dim) -> Dim | None:
    try:
        return a - b
    except ShapeError:  # past MAX_TERMS: nothing is known of it, and asking is no error
        return None


def _interval(dim: Dim, ranges: Ranges, effort: int) -> _Interval:
    """Interval arithmetic term by term, but with `effort` left each operand is bounded as well as it can be."""
    if isinstance(dim, int):
        return dim, dim
    if effort > 0:
        return _lower(dim, ranges, effort - 1), _negated(_lower(-dim, ranges, effort - 1))
    return _termwise(dim, ranges, 0)


def _termwise(dim: SymDim, ranges: Ranges, effort: int) -> _Interval:
    low: int | None = dim.constant
    high: int | None = dim.constant
    for monomial, coefficient in dim.terms:
        factors = (atom.interval(ranges, effort) for atom in monomial)
        least, most = _scaled(reduce(_multiplied, factors), coefficient)
        low = None if low is None or least is None else low + least
        high = None if high is None or most is None else high + most
    return low, high


def _lower(dim: Dim, ranges: Ranges, effort: int) -> int | None:
    """The better of the termwise bound and the one that follows from what the first atom standing alone means beside the rest."""
    if isinstance(dim, int):
        return dim
    plain = _termwise(dim, ranges, effort)[0]
    if effort == 0:
        return plain
    for monomial, coefficient in dim.terms:
        if len(monomial) == 1 and not isinstance(monomial[0], _Symbol):
            rest = dim - coefficient * _of_atom(monomial[0])
            meant = _lower_by_meaning(monomial[0], rest, coefficient, ranges, effort - 1)
            return max((low for low in (plain, meant) if low is not None), default=None)
    return plain


def _lower_by_meaning(atom: _Atom, rest: Dim, coefficient: int, ranges: Ranges, effort: int) -> int | None:
    try:
        return atom.lower_of_sum(rest, coefficient, ranges, effort)
    except ShapeError:  # past a size limit on the way: no bound from this
        return None


def _negated(bound: int | None) -> int | None:
    return None if bound is None else -bound


def _scaled(interval: _Interval, factor: int) -> _Interval:
    low, high = (None if bound is None else bound * factor for bound in interval)
    return (low, high) if factor > 0 else (high, low)


def _multiplied(a: _Interval, b: _Interval) -> _Interval:
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


# ---- text ----


def _name_text(name: str) -> str:
    if _IDENTIFIER.fullmatch(name):
        return name
    escaped = [c if c.isprintable() and c not in "`\\" else f"\\u{{{ord(c):x}}}" for c in name]
    return f"`{''.join(escaped)}`"


def _term_text(monomial: _Monomial, size: int) -> str:
    if size == 1 and len(monomial) == 1:
        return monomial[0].text
    factors = [f"({atom.text})" if isinstance(atom, _Quotient) else atom.text for atom in monomial]
    return "*".join(factors if size == 1 else [str(size), *factors])


def _operand_text(dim: Dim) -> str:
    atom = _only_atom(dim)
    is_plain = (isinstance(dim, int) and dim >= 0) or isinstance(atom, (_Symbol, _Extremum))
    return str(dim) if is_plain else f"({dim})"


def parse_dim(text: str) -> Dim:
    """The dim that the text writes, as `str` prints it. Raises `ShapeError` with the position on anything else."""
    return _Parser(text).parse()


class _Parser:
    """Recursive descent: sum of products of signed primaries, with Python's precedence."""

    _TOKEN = re.compile(
        r"\s*(?:(?P<number>[0-9]{1,1000})|(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`]+`)|(?P<sign>//|[-+*%(),]))"
    )
    _ESCAPE = re.compile(r"\\u\{([0-9a-f]{1,6})\}")
    _MAX_PARENTHESES = 2 * MAX_DEPTH + 2

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._open = 0
        self._kind = self._token = ""
        self._next = 0
        self._advance()

    def parse(self) -> Dim:
        dim = self._sum()
        if self._kind != "end":
            raise self._error("expected an operator or the end")
        return dim

    def _advance(self) -> None:
        match = self._TOKEN.match(self._text, self._next)
        if match is not None:
            self._kind = match.lastgroup or ""
            self._token = match[self._kind]
            self._position, self._next = match.start(self._kind), match.end()
            return
        rest = self._text[self._next :].lstrip()
        self._kind, self._token, self._position = ("wrong" if rest else "end"), "", len(self._text) - len(rest)

    def _error(self, problem: str) -> ShapeError:
        return ShapeError(f"cannot read the dim {self._text!r}: {problem} at position {self._position}")

    def _accepts(self, *signs: str) -> str | None:
        if self._kind != "sign" or self._token not in signs:
            return None
        sign = self._token
        self._advance()
        return sign

    def _expect(self, sign: str) -> None:
        if not self._accepts(sign):
            raise self._error(f"expected {sign!r}")

    def _sum(self) -> Dim:
        total = self._product()
        while sign := self._accepts("+", "-"):
            operand = self._product()
            total = total + operand if sign == "+" else total - operand
        return total

    def _product(self) -> Dim:
        total = self._signed()
        while sign := self._accepts("*", "//", "%"):
            operand = self._signed()
            if sign == "*":
                total = total * operand
            else:
                quotient = _floor_div(total, operand)
                total = quotient if sign == "//" else total - operand * quotient
        return total

    def _signed(self) -> Dim:
        is_negative = False
        while self._accepts("-"):
            is_negative = not is_negative
        dim = self._primary()
        return -dim if is_negative else dim

    def _primary(self) -> Dim:
        kind, token = self._kind, self._token
        if kind == "number":
            self._advance()
            return int(token)
        if kind == "name":
            name = self._unquoted(token)
            self._advance()
            is_call = token in ("min", "max") and self._kind == "sign" and self._token == "("
            return self._call(token) if is_call else symbol(name)
        if token != "(":
            raise self._error("expected a number, a name or '('")
        return self._in_parentheses(self._sum)

    def _in_parentheses(self, read: Callable[[], Result]) -> Result:
        self._open += 1
        if self._open > self._MAX_PARENTHESES:
            raise self._error("too many open parentheses")
        self._expect("(")
        result = read()
        self._expect(")")
        self._open -= 1
        return result

    def _operands(self) -> list[Dim]:
        dims = [self._sum()]
        while self._accepts(","):
            dims.append(self._sum())
        return dims

    def _call(self, name: str) -> Dim:
        operands = self._in_parentheses(self._operands)
        return dim_min(*operands) if name == "min" else dim_max(*operands)

    def _unquoted(self, token: str) -> str:
        if not token.startswith("`"):
            return token
        try:
            return self._ESCAPE.sub(lambda match: chr(int(match[1], 16)), token[1:-1])
        except ValueError:
            raise self._error("a name with an escape that is no character") from None
