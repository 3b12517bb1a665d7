"""Symbolic sizes of PyTorch (SymInt, which are sympy expressions) as dims.

Every symbol that PyTorch found in the shapes of inputs is a symbol of the graph. One that it made for a result whose
size only running tells is known once that result has been imported, under the name that the graph gave it.

Sizes that are computed in floats and rounded, `int(0.7 * x.shape[0])`, are dims of integers, and what floats make of
them is guarded or checked.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from functools import reduce
from typing import Any

import torch
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.printers import PythonPrinter

from ...ir.dims import Dim, dim_max, dim_min, evaluate, product, symbol
from ...ir.errors import UnsupportedError
from ...ir.graph import Value


class UnknownSizeError(Exception):
    """A size that no shape tells: it was computed from the content of a tensor."""


@dataclass(frozen=True)
class InFloats:
    """That an expression, as PyTorch computes it, is `dim`, or holds; `names` are the graph's of its symbols."""

    expr: Any
    dim: Dim | None
    names: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        names = dict(self.names)
        words = re.sub(r"\w+", lambda found: names.get(found[0], found[0]), str(self.expr))
        return words if self.dim is None else f"{words} == {self.dim}"

    @property
    def symbols(self) -> frozenset[str]:
        """The sizes that it speaks of."""
        return frozenset(name for _, name in self.names)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds for these sizes, which have all of its symbols."""
        found = _computed(self.expr, {own: sizes[name] for own, name in self.names})
        return bool(found if self.dim is None else found == evaluate(self.dim, sizes))


def _computed(expr: Any, sizes: Mapping[str, int]) -> Any:
    return eval(PythonPrinter().doprint(expr), {"math": math, "torch": torch}, dict(sizes))


def is_computed(expr: Any) -> bool:
    """Whether Python can compute an expression of sizes."""
    try:
        _computed(expr, dict.fromkeys((each.name for each in expr.free_symbols), 2))
    except ArithmeticError:
        return True
    except (NameError, AttributeError, TypeError, SyntaxError):
        return False
    return True


def _numbers_by_expression(guards: Sequence[Any]) -> dict[Any, Any]:
    """Expressions that are a number in all calls, as PyTorch found when it had tensors broadcast."""
    relations = [guard.expr for guard in guards if guard.expr.is_Relational and guard.expr.rel_op == "=="]
    return {each.lhs: each.rhs for each in relations if each.rhs.is_Integer and not each.lhs.is_Symbol}


class Sizes:
    """Turns sizes into dims. `names` renames PyTorch's symbols; others keep their names.

    What no dim says is guarded in `environment`, PyTorch's own of these symbols, which compiles again for other sizes.
    Without one it is refused, and `roundings` are what calls have to be checked for. `guards` are PyTorch's.
    """

    def __init__(
        self, names: Mapping[str, str] | None = None, *, environment: Any = None, guards: Sequence[Any] = ()
    ) -> None:
        self.roundings: dict[str, InFloats] = {}
        self._environment = environment
        self._guarded = _numbers_by_expression(guards)
        self._names = dict(names or {})
        self._found: dict[str, Dim] = {}
        self._fixed: dict[str, int] = {}
        self._tellers: dict[str, tuple[Value, int]] = {}

    def fix(self, shape: Sequence[Any], sizes: Sequence[int]) -> None:
        """Takes the symbols of a shape for numbers from now on: for those that it has when its sizes are these."""
        for dim, size in zip(shape, sizes, strict=True):
            expr = dim.node.expr if isinstance(dim, torch.SymInt) else None
            if expr is not None and expr.is_Symbol:
                self._fixed[expr.name] = size

    def dim(self, size: Any) -> Dim:
        """The dim of an int or SymInt. Raises `UnknownSizeError` where it depends on the content of a tensor."""
        if isinstance(size, torch.SymInt):
            return self.dim_of(size.node.expr.xreplace(self._guarded))
        return int(size)

    def dims(self, shape: Sequence[Any]) -> tuple[Dim, ...]:
        """The dims of a shape."""
        return tuple(self.dim(size) for size in shape)

    def dim_of(self, expr: Any) -> Dim:
        """The dim of a sympy expression over sizes. Raises `UnsupportedError` for one that no dim can say."""
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            return self._symbol(expr.name)
        rule = _RULES.get(type(expr).__name__)
        if rule is not None:
            return rule(self, expr)
        exact = _without_floats(expr) if type(expr).__name__ in _ROUNDED else None
        if exact is not None:
            return self._rounded(expr, *exact)
        if self._environment is None or _asks_running(expr):
            raise UnsupportedError(f"the size {expr} cannot be written as a dim ({type(expr).__name__})")
        return int(self._environment.evaluate_expr(expr))

    def _rounded(self, expr: Any, exact: Any, is_sure: bool) -> Dim:
        """The dim of a number in floats that is rounded to an integer: the exact one, and by how much floats differ."""
        dim = self.dim_of(exact)
        if is_sure or _asks_running(expr):
            return dim
        if self._environment is not None:
            return dim + int(self._environment.evaluate_expr(expr - exact))
        self.roundings.setdefault(str(expr), self.in_floats(expr, dim))
        return dim

    def in_floats(self, expr: Any, dim: Dim | None = None) -> InFloats:
        """What calls are checked for: that an expression is this dim, or holds."""
        names = {each.name: self.name_of(each.name) for each in expr.free_symbols}
        return InFloats(expr, dim, tuple(names.items()))

    def bind_input(self, shape: Sequence[Any]) -> None:
        """Learns the sizes of an input: a call tells also those of which PyTorch was to take nothing for granted."""
        for size in shape:
            expr = size.node.expr if isinstance(size, torch.SymInt) else None
            if expr is not None and expr.is_Symbol and _is_found_by_running(expr.name):
                self._found.setdefault(expr.name, symbol(f"input_{expr.name}"))

    def bind_result(self, shape: Sequence[Any], result: Value) -> None:
        """Learns the sizes that a result has told first: `shape` is what PyTorch calls them."""
        for axis, (size, dim) in enumerate(zip(shape, result.shape, strict=True)):
            expr = size.node.expr if isinstance(size, torch.SymInt) else None
            if expr is not None and expr.is_Symbol and _is_found_by_running(expr.name):
                self._found.setdefault(expr.name, dim)
                self._tellers.setdefault(str(dim), (result, axis))

    def teller(self, dim: Dim) -> tuple[Value, int] | None:
        """A value that has this dim, which only running tells, as the size of an axis; None if none is known."""
        return self._tellers.get(str(dim))

    def name_of(self, torch_name: str) -> str:
        """What the graph calls a symbol of PyTorch's."""
        return self._names.get(torch_name, torch_name)

    def _symbol(self, name: str) -> Dim:
        if name in self._fixed:
            return self._fixed[name]
        if not _is_found_by_running(name):
            return symbol(self.name_of(name))
        if name not in self._found:
            raise UnknownSizeError(name)
        return self._found[name]


def _is_found_by_running(name: str) -> bool:
    """Whether PyTorch made the symbol for a size that only running tells: u0, u1, ..."""
    return name.startswith("u") and name[1:].isdigit()


def _asks_running(expr: Any) -> bool:
    return any(_is_found_by_running(each.name) for each in expr.free_symbols)


def _args(sizes: Sizes, expr: Any) -> list[Dim]:
    return [sizes.dim_of(arg) for arg in expr.args]


def _sum(sizes: Sizes, expr: Any) -> Dim:
    return reduce(lambda a, b: a + b, _args(sizes, expr))


def _product(sizes: Sizes, expr: Any) -> Dim:
    """A product; one with a fraction in it is exact, as sizes are integers."""
    numerator, denominator = expr.as_numer_denom()
    if denominator == 1:
        return product(_args(sizes, expr))
    return sizes.dim_of(numerator) // sizes.dim_of(denominator)


def _power(sizes: Sizes, expr: Any) -> Dim:
    base, exponent = sizes.dim_of(expr.args[0]), int(expr.args[1])
    if exponent < 0:
        raise UnsupportedError(f"the size {expr} is not an integer")
    return product([base] * exponent)


def _floor_div(sizes: Sizes, expr: Any) -> Dim:
    a, b = _args(sizes, expr)
    return a // b


def _modulo(sizes: Sizes, expr: Any) -> Dim:
    a, b = _args(sizes, expr)
    return a % b


def _modular_indexing(sizes: Sizes, expr: Any) -> Dim:
    a, b, modulus = _args(sizes, expr)
    return (a // b) % modulus


def _ceil_div(sizes: Sizes, expr: Any) -> Dim:
    a, b = _args(sizes, expr)
    return (a + b - 1) // b


_RULES: dict[str, Callable[[Sizes, Any], Dim]] = {
    "Add": _sum,
    "Mul": _product,
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": _floor_div,
    "CleanDiv": _floor_div,
    "Mod": _modulo,
    "PythonMod": _modulo,
    "ModularIndexing": _modular_indexing,
    "CeilDiv": _ceil_div,
    "Max": lambda sizes, expr: dim_max(*_args(sizes, expr)),
    "Min": lambda sizes, expr: dim_min(*_args(sizes, expr)),
    "Identity": lambda sizes, expr: sizes.dim_of(expr.args[0]),
}


# ---- rounded from floats

_ROUNDED = ("TruncToInt", "FloorToInt", "CeilToInt", "RoundToInt")
_MOST_DIGITS = 1 << 20
"""Floats with denominators up to this, powers of two, are multiplied with sizes exactly."""


class _Told(IntEnum):
    """What a number in floats tells of the exact one."""

    EXACT = 0
    NEAREST = 1  # a quotient of integers: rounded to integers it is theirs
    ROUNDED = 2


@dataclass(frozen=True)
class _Quotient:
    """A number as a quotient of sympy's integers."""

    above: Any
    below: Any
    told: _Told


def _without_floats(expr: Any) -> tuple[Any, bool] | None:
    """A rounded number by integers alone, and whether floats always give it; None where integers do not say it."""
    number = _quotient(expr.args[0])
    if number is None:
        return None
    p, q, name = number.above, number.below, type(expr).__name__
    if name == "CeilToInt":
        exact = FloorDiv(p + q - 1, q)
    elif name == "RoundToInt":
        exact = _to_even(p, q)
    else:  # sizes are not negative
        exact = FloorDiv(p, q)
    return exact, number.told is not _Told.ROUNDED


def _to_even(p: Any, q: Any) -> Any:
    """The nearest integer of p / q; half-way between two, which is where 2p + q is a multiple of 2q, the even one."""
    below = 2 * p - q
    is_odd_tie = FloorDiv(below, 4 * q) - FloorDiv(below - 1, 4 * q)
    return FloorDiv(2 * p + q, 2 * q) - is_odd_tie


def _quotient(expr: Any) -> _Quotient | None:
    if expr.is_Float:
        return _of_float(float(expr))
    if expr.is_Rational:
        return _Quotient(int(expr.p), int(expr.q), _Told.EXACT)
    name = type(expr).__name__
    if name == "ToFloat":
        return _Quotient(expr.args[0], 1, _Told.EXACT)
    if expr.is_Mul or expr.is_Add or name in ("IntTrueDiv", "FloatTrueDiv"):
        parts = [_quotient(arg) for arg in expr.args]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return reduce(_times if expr.is_Mul else _plus if expr.is_Add else _divided, known)
    return _Quotient(expr, 1, _Told.EXACT) if expr.is_integer else None


def _of_float(number: float) -> _Quotient:
    """A float of few digits, or the simplest fraction whose float it is."""
    exact = Fraction(number)
    if exact.denominator <= _MOST_DIGITS and abs(exact.numerator) <= _MOST_DIGITS:
        return _Quotient(exact.numerator, exact.denominator, _Told.EXACT)
    simple = exact.limit_denominator(_MOST_DIGITS)
    found = simple if float(simple) == number else exact
    return _Quotient(found.numerator, found.denominator, _Told.ROUNDED)


def _times(left: _Quotient, right: _Quotient) -> _Quotient:
    return _Quotient(left.above * right.above, left.below * right.below, _together(left, right))


def _plus(left: _Quotient, right: _Quotient) -> _Quotient:
    above = left.above * right.below + right.above * left.below
    return _Quotient(above, left.below * right.below, _together(left, right))


def _divided(left: _Quotient, right: _Quotient) -> _Quotient:
    told = _Told.NEAREST if left.told is right.told is _Told.EXACT else _Told.ROUNDED
    return _Quotient(left.above * right.below, left.below * right.above, told)


def _together(left: _Quotient, right: _Quotient) -> _Told:
    return _Told.EXACT if left.told is right.told is _Told.EXACT else _Told.ROUNDED
