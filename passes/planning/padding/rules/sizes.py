"""Dims of padded calls: the range of the padded symbol decides minima and maxima."""

from .....ir.dims import Dim, Ranges, SymDim, bind, dim_max, dim_min, lower_bound, symbol
from .....ir.dims.atoms import Atom, Extremum, Min, Symbol


def narrowed(dim: Dim, ranges: Ranges) -> Dim:
    """`dim` with minima and maxima decided that `ranges` decides: `min(512, T)` is `T` where T is at most 512."""
    if isinstance(dim, int):
        return dim
    total: Dim = dim.constant
    for monomial, coefficient in dim.terms:
        term: Dim = coefficient
        for atom in monomial:
            term = term * _narrowed_atom(atom, ranges)
        total = total + term
    return total


def _narrowed_atom(atom: Atom, ranges: Ranges) -> Dim:
    if isinstance(atom, Symbol):
        return symbol(atom.name)
    operands = [narrowed(operand, ranges) for operand in atom.operands]
    if not isinstance(atom, Extremum):
        return operands[0] // operands[1]
    sign = 1 if isinstance(atom, Min) else -1
    kept = operands[:1]
    for other in operands[1:]:
        if any(_is_at_most(sign * each, sign * other, ranges) for each in kept):
            continue
        kept = [each for each in kept if not _is_at_most(sign * other, sign * each, ranges)] + [other]
    return dim_min(*kept) if sign > 0 else dim_max(*kept)


def _is_at_most(a: Dim, b: Dim, ranges: Ranges) -> bool:
    low = lower_bound(b - a, ranges)
    return low is not None and low >= 0


def is_below(a: Dim, b: Dim, ranges: Ranges) -> bool:
    """Whether a < b for all sizes in the ranges."""
    return _is_at_most(a + 1, b, ranges)


def grows(dim: Dim, name: str, ranges: Ranges) -> bool:
    """Whether a greater `name` never makes the dim smaller."""
    longer: Dim = bind(dim, {name: symbol(name) + 1}) if isinstance(dim, SymDim) else dim
    return _is_at_most(dim, longer, ranges)
