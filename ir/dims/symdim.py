"""`SymDim`, a symbolic dimension, and the canonical form that it is always in.

Equal expressions that were built in different ways are equal objects with equal hashes:

* A `SymDim` is a polynomial with integer coefficients. A factor of a term is an *atom*: a symbol, a floor division, a
  min or a max. Equal atoms are one object; terms are ordered by degree, then by text. A constant is always an `int`.
* `a % b` is rewritten as `a - b*(a//b)`.
* In `a//b` whatever divides out is taken out: `(4*T + 6)//4` is `T + 1`, `(B*T*64)//T` is `64*B`. Common factors are
  cancelled, nested divisions joined (`(x//2)//3` is `x//6`), and a constant is brought into `[0, b)`. If every
  coefficient is negative, the division is turned round: `(-T)//4` is `-((T + 3)//4)`.
* min and max are flat, sorted, and without operands that another one always beats: `max(0, T)` is `T`.

**A divisor is taken to be non-zero** whenever it divides out (`T//T` is 1). One that stays is checked when it is bound.

The form is complete for polynomials. With atoms two equal dims may still differ in form: `T - T//2` and `(T + 1)//2`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import NoReturn, Self, TypeAlias
from weakref import WeakValueDictionary

from ..errors import ShapeError
from .atoms import (
    EFFORT,
    MAX_NUMBER,
    Atom,
    Extremum,
    Interval,
    Max,
    Min,
    Monomial,
    Operation,
    Query,
    Quotient,
    Symbol,
    Terms,
    atoms_of,
    division_by_zero,
    lower,
    only_atom,
    operation_atom,
    symbol_atom,
    too_large,
    upper,
)

MAX_TERMS = 200
MAX_DEGREE = 50


class SymDim:
    """A dimension that depends on symbols, in canonical form. Made by `symbol`, operators and `parse_dim`.

    `+ - * // %` take ints and dims on both sides and give an `int` when nothing symbolic is left. There is no order
    (see `is_at_least`) and no truth value. Raises `ShapeError` on division by zero and past MAX_TERMS, MAX_DEGREE,
    MAX_NUMBER, MAX_DEPTH and MAX_SIZE.
    """

    __slots__ = ("__weakref__", "_bounds", "_constant", "_symbols", "_terms")

    def __init__(self, terms: Terms, constant: int) -> None:
        for _, factor in terms:
            if not -MAX_NUMBER <= factor <= MAX_NUMBER:
                raise too_large(factor)
        if not -MAX_NUMBER <= constant <= MAX_NUMBER:
            raise too_large(constant)
        self._terms = terms
        self._constant = constant
        self._symbols: frozenset[str] | None = None
        self._bounds: Interval | None = None

    @property
    def terms(self) -> Terms:
        """The (monomial, coefficient) pairs without the constant, in canonical order; never empty."""
        return self._terms

    @property
    def constant(self) -> int:
        """The constant term."""
        return self._constant

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols in it."""
        if self._symbols is None:
            self._symbols = frozenset[str]().union(*(atom.symbols for atom in atoms_of(self)))
        return self._symbols

    def bind(self, env: "Mapping[str, Dim]") -> "Dim":
        """It with the symbols that `env` names replaced, all at once.

        Raises `ShapeError` on a negative size and where a divisor becomes 0.
        """
        return _substituted(self, env) if any(name in env for name in self.symbols) else self

    def bounds(self) -> Interval:
        """The least and the greatest value that can be shown, None where there is none."""
        if self._bounds is None:
            query = Query({})
            self._bounds = lower(self, query, EFFORT), upper(self, query, EFFORT)
        return self._bounds

    def without_term(self, position: int) -> "Dim":
        """The rest when that one of `terms` is taken away."""
        terms = self._terms[:position] + self._terms[position + 1 :]
        return SymDim(terms, self._constant) if terms else self._constant

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, SymDim) and self._constant == other._constant and self._terms == other._terms

    def __hash__(self) -> int:
        return hash((self._terms, self._constant))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"the symbolic dim {self} has no truth value: use compare() or is_at_least()")

    def __str__(self) -> str:
        first, *others = _all_terms(self)
        text = _term_text(*first) if first[1] > 0 else f"-{_negated_text(*first)}"
        return text + "".join(
            f" {'-' if coefficient < 0 else '+'} {_term_text(monomial, abs(coefficient))}"
            for monomial, coefficient in others
        )

    def __repr__(self) -> str:
        return f"SymDim({self})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> "tuple[Callable[[str], Dim], tuple[str]]":
        from .parser import parse_dim  # which reads what this class makes

        return parse_dim, (str(self),)

    def __neg__(self) -> "SymDim":
        return SymDim(tuple([(monomial, -coefficient) for monomial, coefficient in self._terms]), -self._constant)

    def __add__(self, other: "Dim") -> "Dim":
        if isinstance(other, int):
            return SymDim(self._terms, self._constant + other) if other else self
        if not isinstance(other, SymDim):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        sums = dict(self._terms)
        for monomial, coefficient in other._terms:
            sums[monomial] = sums.get(monomial, 0) + coefficient
        return _polynomial(sums, self._constant + other._constant)

    def __sub__(self, other: "Dim") -> "Dim":
        return 0 if other is self else self + -other

    def __rsub__(self, other: int) -> "Dim":
        return -self + other

    def __mul__(self, other: "Dim") -> "Dim":
        if isinstance(other, int):
            if not other:
                return 0
            return SymDim(
                tuple([(monomial, factor * other) for monomial, factor in self._terms]), self._constant * other
            )
        if not isinstance(other, SymDim):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return _of_terms(
            (_monomial(left, right), a * b) for left, a in _all_terms(self) for right, b in _all_terms(other)
        )

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: "Dim") -> "Dim":
        return floor_div(self, other) if _is_dim(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> "Dim":
        return floor_div(other, self) if _is_dim(other) else NotImplemented

    def __mod__(self, other: "Dim") -> "Dim":
        return self - other * floor_div(self, other) if _is_dim(other) else NotImplemented

    def __rmod__(self, other: int) -> "Dim":
        return other - self * floor_div(other, self) if _is_dim(other) else NotImplemented


Dim: TypeAlias = int | SymDim

_interned_symbols: WeakValueDictionary[str, SymDim] = WeakValueDictionary()


def symbol(name: str) -> SymDim:
    """The dim called `name`, any non-empty text; one that is no identifier prints in backticks.

    Raises `ShapeError` if it is empty.
    """
    known = _interned_symbols.get(name)
    return _interned_symbols.setdefault(name, _of_atom(symbol_atom(name))) if known is None else known


def _is_dim(value: object) -> bool:
    return isinstance(value, (int, SymDim))


# ---- polynomials ----


def _all_terms(dim: Dim) -> list[tuple[Monomial, int]]:
    """The terms with the constant as the last one, under the empty monomial."""
    if isinstance(dim, int):
        return [((), dim)] if dim else []
    return [*dim.terms, ((), dim.constant)] if dim.constant else list(dim.terms)


def _of_terms(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    return _polynomial(sums, sums.pop((), 0))


def _of_atom(atom: Atom) -> SymDim:
    return SymDim((((atom,), 1),), 0)


def _polynomial(sums: dict[Monomial, int], constant: int) -> Dim:
    terms = [term for term in sums.items() if term[1]]
    if not terms:
        return constant
    if len(terms) > MAX_TERMS:
        raise ShapeError(f"a symbolic dim has more than {MAX_TERMS} terms", remedy="give its size a symbol of its own")
    if len(terms) > 1:
        terms.sort(key=_term_order)
    return SymDim(tuple(terms), constant)


def _term_order(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    """Higher degree first, then by text: a monomial order, as `_long_division` needs."""
    return -len(term[0]), [atom.text for atom in term[0]]


def _monomial(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    if len(left) + len(right) > MAX_DEGREE:
        raise ShapeError(
            f"a symbolic dim has more than {MAX_DEGREE} factors", remedy="give its size a symbol of its own"
        )
    return tuple(sorted(left + right, key=lambda atom: atom.text))


def _term_text(monomial: Monomial, size: int) -> str:
    if size == 1 and len(monomial) == 1:
        return monomial[0].text
    factors = [f"({atom.text})" if isinstance(atom, Quotient) else atom.text for atom in monomial]
    return "*".join(factors if size == 1 and factors else [str(size), *factors])


def _negated_text(monomial: Monomial, coefficient: int) -> str:
    """What follows a leading minus, which binds more tightly than //."""
    text = _term_text(monomial, -coefficient)
    return f"({text})" if coefficient == -1 and isinstance(monomial[0], Quotient) and len(monomial) == 1 else text


# ---- binding ----


def bind(dim: Dim, env: Mapping[str, Dim]) -> Dim:
    """`SymDim.bind` for ints too."""
    return dim if isinstance(dim, int) else dim.bind(env)


def _substituted(dim: SymDim, env: Mapping[str, Dim]) -> Dim:
    total: Dim = dim.constant
    for monomial, coefficient in dim.terms:
        term: Dim = coefficient
        for atom in monomial:
            term = term * _bound_atom(atom, env)
        total = total + term
    return total


def _bound_atom(atom: Atom, env: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        return _bound_symbol(atom, env)
    operands = [bind(operand, env) for operand in atom.operands]
    if isinstance(atom, Extremum):
        return extremum(type(atom), operands)
    if operands[1] == 0:
        raise division_by_zero(atom.text)
    return floor_div(*operands)


def _bound_symbol(atom: Symbol, env: Mapping[str, Dim]) -> Dim:
    size = env.get(atom.name)
    if size is None:
        return _of_atom(atom)
    if isinstance(size, int) and size < 0:
        raise ShapeError(f"the dim {atom.text} was bound to {size}, but a dim is never negative")
    return size


# ---- min and max ----


def dim_min(first: Dim, *rest: Dim) -> Dim:
    """The least of the dims."""
    return extremum(Min, [first, *rest])


def dim_max(first: Dim, *rest: Dim) -> Dim:
    """The greatest of the dims."""
    return extremum(Max, [first, *rest])


def extremum(kind: type[Extremum], dims: Iterable[Dim]) -> Dim:
    """The min or max of the dims, reduced."""
    flat: set[Dim] = set()
    for dim in dims:
        atom = only_atom(dim)
        flat.update(atom.operands if isinstance(atom, kind) else (dim,))
    ordered = sorted(flat, key=str)
    # Of two that beat each other (equal in value, different in form) the first stays.
    kept = [
        a
        for i, a in enumerate(ordered)
        if not any(
            i != j and _is_beaten(kind, a, b) and (j < i or not _is_beaten(kind, b, a)) for j, b in enumerate(ordered)
        )
    ] or ordered[:1]
    return kept[0] if len(kept) == 1 else _operation(kind, *kept)


def _is_beaten(kind: type[Extremum], a: Dim, b: Dim) -> bool:
    """Whether b is always as good as a or better: then a can go."""
    gap = difference(a, b)
    low = None if gap is None else _lower_bound(kind.sign * gap)
    return low is not None and low >= 0


def difference(a: Dim, b: Dim) -> Dim | None:
    """`a - b`, or None where that alone is past a size limit: asking about two dims is no error."""
    try:
        return a - b
    except ShapeError:
        return None


def _lower_bound(dim: Dim) -> int | None:
    return dim if isinstance(dim, int) else dim.bounds()[0]


def _operation(kind: type[Operation], *operands: Dim) -> SymDim:
    return _of_atom(operation_atom(kind, operands))


# ---- division ----


def floor_div(numerator: Dim, denominator: Dim) -> Dim:
    """`numerator // denominator`, ints included. Raises `ShapeError` if the denominator is 0."""
    if denominator == 0:
        raise division_by_zero(f"({numerator})//0")
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    divisor = _all_terms(denominator)
    if divisor[0][1] < 0:
        return floor_div(-numerator, -denominator)
    is_sum = len(divisor) > 1
    quotient = _long_division(numerator, denominator) if is_sum else _divided_by_term(numerator, *divisor[0])
    return quotient + _remainder_div(numerator - quotient * denominator, denominator)


def _divided_by_term(numerator: Dim, divisor: Monomial, size: int) -> Dim:
    """What divides out. Coefficients are cut towards zero; that of the divisor's own monomial is rounded down."""
    quotient: list[tuple[Monomial, int]] = []
    for monomial, coefficient in _all_terms(numerator):
        factor = _without(monomial, divisor)
        if factor is not None:
            whole = coefficient // size if coefficient > 0 or not factor else -(-coefficient // size)
            quotient.append((factor, whole))
    return _of_terms(quotient)


def _long_division(numerator: Dim, denominator: Dim) -> Dim:
    """The quotient by a sum; 0 if the remainder has a negative coefficient: that is worse to read and to bound."""
    lead, size = _all_terms(denominator)[0]
    quotient: Dim = 0
    rest = numerator
    for _ in range(MAX_TERMS):
        steps = ((_without(monomial, lead), coefficient // size) for monomial, coefficient in _all_terms(rest))
        step = next(((factor, whole) for factor, whole in steps if factor is not None and whole), None)
        if step is None:
            return quotient if all(coefficient > 0 for _, coefficient in _all_terms(rest)) else 0
        part = _of_terms([step])
        quotient = quotient + part
        rest = rest - part * denominator
    return 0


def _remainder_div(numerator: Dim, denominator: Dim) -> Dim:
    """`numerator // denominator` where nothing divides out any more."""
    if numerator == 0:
        return 0
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    low, gap = _lower_bound(numerator), _lower_bound(denominator - numerator)
    if low is not None and low >= 0 and gap is not None and gap > 0:
        return 0
    reduced = _cancelled(numerator, denominator)
    if reduced != (numerator, denominator):
        return floor_div(*reduced)
    if isinstance(denominator, int) and all(
        coefficient < 0 for monomial, coefficient in _all_terms(numerator) if monomial
    ):
        return -floor_div(denominator - 1 - numerator, denominator)
    inner = _unit_quotients(numerator)
    if len(inner) == 1 and _is_positive(denominator):  # a + x//e is (e*a + x)//e, and floors join
        x, e = inner[0].operands
        return floor_div(e * (numerator - _of_atom(inner[0])) + x, e * denominator)
    return _operation(Quotient, numerator, denominator)


def _is_positive(divisor: Dim) -> bool:
    low = _lower_bound(divisor)
    return low is not None and low >= 0  # a divisor is not 0


def _unit_quotients(dim: Dim) -> list[Quotient]:
    return [
        monomial[0]
        for monomial, coefficient in _all_terms(dim)
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Quotient)
    ]


def _cancelled(numerator: Dim, denominator: Dim) -> tuple[Dim, Dim]:
    """Both without the atoms and the integer factor that they share.

    The numerator's constant need not share the factor g: floor((g*p + c)/(g*d)) is floor((p + floor(c/g))/d) for d > 0.
    """
    above, below = _all_terms(numerator), _all_terms(denominator)
    shared: Monomial = reduce(_shared, (monomial for monomial, _ in above + below))
    may_round = _is_positive(denominator)
    factor = math.gcd(*(size for _, size in below), *(size for monomial, size in above if monomial or not may_round))
    return _reduced(above, shared, factor), _reduced(below, shared, factor)


def _reduced(terms: list[tuple[Monomial, int]], shared: Monomial, factor: int) -> Dim:
    return _of_terms((_without(monomial, shared) or (), coefficient // factor) for monomial, coefficient in terms)


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """The monomial with the divisor's atoms taken out, None where one is missing."""
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _shared(a: Monomial, b: Monomial) -> Monomial:
    left = list(b)
    common: list[Atom] = []
    for atom in a:
        if atom in left:
            left.remove(atom)
            common.append(atom)
    return tuple(common)
