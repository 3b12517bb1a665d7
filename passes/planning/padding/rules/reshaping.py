"""Where an axis with a tail is found again after a reshape."""

from collections.abc import Sequence

from .....ir.dims import Dim, product, symbols
from .facts import Tail, Tails, Unsafe, is_equal


def reshaped(tails: Tails, old: Sequence[Dim], new: Sequence[Dim], symbol: str) -> Tails:
    """The tails of a reshape's result. Raises `Unsafe` where two tails merge or one is torn apart.

    Row-major, a tail is [before, extent, after]; it lies in a result axis whose size is an outer part of `before`
    times extent times an inner part of `after`.
    """
    result: list[Tail | None] = [None] * len(new)
    for axis, tail in enumerate(tails):
        if tail is None:
            continue
        before = product(old[:axis]) * tail.outer
        after = tail.inner * product(old[axis + 1 :])
        place = _place(tail, before, after, new, symbol)
        if place is None or result[place[0]] is not None:
            raise Unsafe(f"the reshape tears axis {axis}, which carries {symbol}, apart or merges it with another")
        result[place[0]] = place[1]
    return tuple(result)


def _place(tail: Tail, before: Dim, after: Dim, new: Sequence[Dim], symbol: str) -> tuple[int, Tail] | None:
    for axis, size in enumerate(new):
        if symbol not in symbols(size):
            continue
        outer = _quotient(before, product(new[:axis]))
        inner = _quotient(after, product(new[axis + 1 :]))
        if outer is not None and inner is not None and is_equal(outer * tail.extent * inner, size):
            return axis, Tail(tail.extent, outer, inner, tail.fill)
    return None


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """`a / b` where it is exact."""
    if b == 0:
        return None
    quotient = a // b
    return quotient if is_equal(quotient * b, a) else None
