"""Ops that select: what they find does not depend on padding that they cannot choose.

A twin with a bound makes a dim by itself: its count is the real size, and zeros stand behind the entries it found.
"""

from collections.abc import Callable
from dataclasses import replace

from .....ir.dims import Dim, dim_max
from .....ir.ops.rules import normal_axis
from .facts import Case, Fact, Mask, Number, Rules, Tail, Tails, Unsafe


def _require_unchosen(case: Case, operand: int, fill: Number) -> None:
    """Sees to it that an operand that is searched holds what is never chosen behind its real elements."""
    tails = case.tails(operand)
    if any(tail is not None and not tail.is_prefix for tail in tails):
        raise Unsafe(f"what it finds lies elsewhere where {case.symbol} is larger")
    masks = [Mask(operand, axis, fill) for axis, tail in enumerate(tails) if tail is not None and tail.number != fill]
    if masks:
        raise Unsafe(f"it would find padding of {case.symbol}", masks)


def _most(dims: tuple[Dim, ...]) -> Dim | None:
    """The greatest index into any of some axes."""
    return dim_max(*dims) - 1 if dims else None


def non_zero(case: Case) -> list[Fact]:
    """Zeros behind the real elements are not found; where the others are does not change."""
    _require_unchosen(case, 0, 0)
    return [_indices(case.shape(0), (None, None))]


def _indices(dims: tuple[Dim, ...], tails: Tails) -> Fact:
    """One row of indices into each of some axes."""
    rows = tuple(Fact((None,), natural=True, most=dim - 1) for dim in dims)
    return Fact(tails, natural=True, most=_most(dims), rows=rows)


def compress(case: Case) -> list[Fact]:
    """Slices are chosen by conditions that are false behind the real ones; other axes stay as they are."""
    _require_unchosen(case, 1, False)
    x, axis = case.fact(0), case.node.attrs["axis"]
    if axis is None:
        if any(tail is not None for tail in x.tails[1:]) or not all(tail is None or tail.is_prefix for tail in x.tails):
            raise Unsafe(f"elements of {case.symbol} lie elsewhere where it is larger")
        return [Fact((None,), natural=x.natural, most=x.most)]
    where = normal_axis(axis, len(x.tails))
    along = x.tails[where]
    if along is not None and not along.is_prefix:
        raise Unsafe(f"slices of {case.symbol} lie elsewhere where it is larger")
    tails: Tails = tuple(None if i == where or tail is None else tail.filled(None) for i, tail in enumerate(x.tails))
    return [Fact(tails, natural=x.natural, most=x.most)]


def unique(case: Case) -> list[Fact]:
    """What is distinct among padding cannot be told from what is distinct among real elements."""
    case.require_unpadded(0)
    indices = Fact((None,), natural=True, most=_most((case.value(0).tensor.size,)))
    distinct = Fact((None,) * case.node.outputs[0].tensor.rank)
    return [distinct, indices, indices, Fact((None,), natural=True)]


_BOXES, _SCORES, _THRESHOLD = 0, 1, 4


def non_max_suppression(case: Case) -> list[Fact]:
    """Boxes by their scores: one of minus infinity is above no threshold."""
    case.require_unpadded(2, 3, 4)
    if case.fact(_SCORES).is_padded and case.optional(_THRESHOLD) is None:
        raise Unsafe(f"without a threshold it may select padding of {case.symbol}")
    if any(tail is not None and not tail.is_prefix for tail in case.tails(_BOXES)):
        raise Unsafe(f"boxes of {case.symbol} lie elsewhere where it is larger")
    _require_unchosen(case, _SCORES, float("-inf"))
    columns = _indices(case.shape(_SCORES), (None, None))
    return [replace(columns, rows=(), columns=columns.rows)]


def _bounded(case: Case, rule: Callable[[Case], list[Fact]], axes: tuple[int | None, ...]) -> list[Fact]:
    """What it finds comes first, zeros behind it; its count is the real size. `axes` are those of its results."""
    size: Dim = case.node.attrs["size"]
    if not case.mentions(size):
        return [*rule(case), Fact((), natural=True, most=size)]
    case.require_unpadded(*range(len(case.facts)))
    found = [_tailed(fact, axis, size) for fact, axis in zip(rule(case), axes, strict=True)]
    return [*found, Fact((), natural=True, most=size, real_extent=size)]


def _tailed(fact: Fact, axis: int | None, size: Dim) -> Fact:
    if axis is None:
        return fact
    tails = tuple(Tail(size, fill=0) if i == axis else tail for i, tail in enumerate(fact.tails))
    return replace(fact, tails=tails)


def _axis(case: Case) -> int:
    axis = case.node.attrs["axis"]
    return 0 if axis is None else normal_axis(axis, case.value(0).tensor.rank)


def bounded_non_zero(case: Case) -> list[Fact]:
    """Indices of what is found, then zeros."""
    return _bounded(case, non_zero, (1,))


def bounded_compress(case: Case) -> list[Fact]:
    """The chosen slices, then zeros."""
    return _bounded(case, compress, (_axis(case),))


def bounded_unique(case: Case) -> list[Fact]:
    """The distinct slices, then zeros."""
    return _bounded(case, unique, (_axis(case), 0, None, 0))


def bounded_non_max_suppression(case: Case) -> list[Fact]:
    """The selected boxes, then zeros."""
    return _bounded(case, non_max_suppression, (0,))


RULES: Rules = {
    "non_zero": non_zero,
    "compress": compress,
    "unique": unique,
    "non_max_suppression": non_max_suppression,
    "bounded_non_zero": bounded_non_zero,
    "bounded_compress": bounded_compress,
    "bounded_unique": bounded_unique,
    "bounded_non_max_suppression": bounded_non_max_suppression,
}
