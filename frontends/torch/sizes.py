"""Symbolic sizes of PyTorch (SymInt, which are sympy expressions) as dims.

Every symbol that PyTorch found in the shapes of inputs is a symbol of the graph. One that it made for a result whose
size only running tells is known once that result has been imported, under the name that the graph gave it.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import torch

from ...ir.dims import Dim, dim_max, dim_min, product, symbol
from ...ir.errors import UnsupportedError
from ...ir.graph import Value


class UnknownSizeError(Exception):
    """A size that no shape tells: it was computed from the content of a tensor."""


class Sizes:
    """Turns sizes into dims. `names` renames PyTorch's symbols; others keep their names."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
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
            return self.dim_of(size.node.expr)
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
        if rule is None:
            raise UnsupportedError(f"the size {expr} cannot be written as a dim ({type(expr).__name__})")
        return rule(self, expr)

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


def _same(sizes: Sizes, expr: Any) -> Dim:
    return sizes.dim_of(expr.args[0])


def _rounded_down(sizes: Sizes, expr: Any) -> Dim:
    numerator, denominator = _fraction(sizes, expr.args[0])
    return numerator // denominator


def _rounded_up(sizes: Sizes, expr: Any) -> Dim:
    numerator, denominator = _fraction(sizes, expr.args[0])
    return (numerator + denominator - 1) // denominator


def _rounded_to_even(sizes: Sizes, expr: Any) -> Dim:
    """The nearest integer; of p / q half-way between two, which is where 2p + q is a multiple of 2q, the even one."""
    p, q = _fraction(sizes, expr.args[0])
    if isinstance(q, int) and q > 1 << 20:
        raise UnsupportedError(f"the size {expr} depends on how floats are rounded")
    below = 2 * p - q
    is_odd_tie = below // (4 * q) - (below - 1) // (4 * q)
    return (2 * p + q) // (2 * q) - is_odd_tie


def _fraction(sizes: Sizes, expr: Any) -> tuple[Dim, Dim]:
    """A number computed from sizes in floats, as numerator and denominator."""
    if expr.is_Float or expr.is_Rational:
        exact = Fraction(float(expr)) if expr.is_Float else Fraction(int(expr.p), int(expr.q))
        return exact.numerator, exact.denominator
    if expr.is_Mul or expr.is_Add:
        return reduce(_times if expr.is_Mul else _plus, (_fraction(sizes, arg) for arg in expr.args))
    name = type(expr).__name__
    if name in ("IntTrueDiv", "FloatTrueDiv"):
        (a, b), (c, d) = (_fraction(sizes, arg) for arg in expr.args)
        return a * d, b * c
    return sizes.dim_of(expr.args[0] if name == "ToFloat" else expr), 1


def _times(left: tuple[Dim, Dim], right: tuple[Dim, Dim]) -> tuple[Dim, Dim]:
    return left[0] * right[0], left[1] * right[1]


def _plus(left: tuple[Dim, Dim], right: tuple[Dim, Dim]) -> tuple[Dim, Dim]:
    return left[0] * right[1] + right[0] * left[1], left[1] * right[1]


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
    "Identity": _same,
    "TruncToInt": _rounded_down,  # sizes are not negative
    "FloorToInt": _rounded_down,
    "CeilToInt": _rounded_up,
    "RoundToInt": _rounded_to_even,
}
