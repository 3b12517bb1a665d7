"""Sample arrays for facts: what an exact and a padded call may hold, and whether two arrays are what a fact claims.

This is the side of the checker: it reads facts as plain data and shares no code with the rules that make them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ....ir.constant import Array
from ....ir.dims import Dim, evaluate, symbols
from ....ir.errors import ShapeError
from .rules.facts import Fact, Fill, Number, Same, Tail

Shape = Sequence[int]
Places = Sequence[Array]
_TOLERANCE = {1: 0.25, 2: 0.05, 4: 1e-4}
"""By bytes: what sums in another order may differ by."""
_GREATEST_DRAWN = 1 << 16


class Refuted(Exception):  # a verdict, no error: the checker catches it
    """A fact does not hold."""


class NoCall(Exception):  # not an error either: there is nothing to try
    """No call has these sizes."""


@dataclass(frozen=True)
class Trial:
    """Sizes of one exact and one padded call, which poison stands in unknown places, and the style of what is drawn.

    Style 0 has numbers of both signs and no zeros among integers, style 1 no negative ones, style 2 zeros for integers,
    style 3 larger integers. `fills` are the inputs whose padding holds a number.
    """

    real: Mapping[str, int]
    padded: Mapping[str, int]
    poison: int
    style: int
    fills: Mapping[str, Number]


class Pair(NamedTuple):
    """One value in the exact and in the padded call."""

    exact: Array
    padded: Array


def symbols_of(fact: Fact) -> frozenset[str]:
    """The symbols that a fact speaks of: those of a bound need not be in the shape of what it bounds."""
    tails = [dim for tail in fact.tails if tail is not None for dim in (tail.outer, tail.extent, tail.inner)]
    dims = [dim for dim in (fact.most, fact.real_extent, *tails) if dim is not None]
    return frozenset[str]().union(*map(symbols, dims), *map(symbols_of, (*fact.rows, *fact.columns)))


# ---- where the real elements are


def shapes_of(dims: Sequence[Dim], trial: Trial) -> tuple[list[int], list[int]]:
    """The sizes of a value in the exact and in the padded call.

    Raises `NoCall` where the padded call has none, so that both fail, and `Refuted` where only the exact one has none.
    """
    padded = _shape(dims, trial.padded)
    if padded is None:
        raise NoCall
    exact = _shape(dims, trial.real)
    if exact is None:
        raise Refuted(f"{list(map(str, dims))} has no size")
    return exact, padded


def _shape(dims: Sequence[Dim], sizes: Mapping[str, int]) -> list[int] | None:
    try:
        shape = [evaluate(dim, sizes) for dim in dims]
    except ShapeError:
        return None
    return shape if min(shape, default=0) >= 0 else None


def places(fact: Fact, exact: Shape, padded: Shape, trial: Trial) -> Places:
    """For each axis the places of its real elements in the padded call. Raises `Refuted` where sizes do not fit."""
    if not len(fact.tails) == len(exact) == len(padded):
        raise Refuted(f"it has {len(padded)} axes and not {len(fact.tails)}")
    return [_places(*each, trial) for each in zip(fact.tails, exact, padded, strict=True)]


def _places(tail: Tail | None, exact: int, padded: int, trial: Trial) -> Array:
    if tail is None or tail.is_free:
        if exact > padded or (tail is None and exact != padded):
            raise Refuted(f"an axis of {exact} real elements has {padded}")
        return np.arange(exact)
    dims = (tail.outer, tail.extent, tail.inner)
    (outer, extent, inner), (outer_padded, longer, inner_padded) = (
        [evaluate(dim, sizes) for dim in dims] for sizes in (trial.real, trial.padded)
    )
    is_apt = (outer * extent * inner, outer * longer * inner) == (exact, padded)
    if not is_apt or (outer, inner) != (outer_padded, inner_padded) or not 0 <= extent <= longer:
        raise Refuted(f"an axis of {exact} real elements, {padded} with padding, is no {list(map(str, dims))}")
    return np.arange(padded).reshape(outer, longer, inner)[:, :extent].reshape(-1)


def _behind(axis: int, where: Places, shape: Shape) -> tuple[Any, ...]:
    """The index of all elements behind the real ones of an axis."""
    is_behind = np.ones(shape[axis], dtype=np.bool_)
    is_behind[where[axis]] = False
    rest = np.flatnonzero(is_behind)
    return tuple(rest if other == axis else slice(None) for other in range(len(shape)))


# ---- drawing


def drawn(
    dims: Sequence[Dim], dtype: np.dtype[Any], fact: Fact, trial: Trial, others: Mapping[str, Pair], seed: int
) -> Pair:
    """Arrays of which the fact is true; poison where it says nothing. `others` are values that it may name."""
    exact, padded = shapes_of(dims, trial)
    if fact.columns or fact.rows:
        axis, parts = (0, fact.rows) if fact.rows else (len(dims) - 1, fact.columns)
        line = (*dims[:axis], 1, *dims[axis + 1 :])
        pairs = [
            drawn(line, dtype, each, trial, others, seed + place)
            for place, each in enumerate(_lines(fact, parts, axis))
        ]
        return Pair(*(np.concatenate([pair[side] for pair in pairs], axis=axis) for side in (0, 1)))
    where = places(fact, exact, padded, trial)
    known = [next(_claims(fact, shape, dtype, trial), None) for shape in (exact, padded)]
    if known[0] is not None and known[1] is not None:
        return Pair(known[0], known[1])
    free = {axis for axis, tail in enumerate(fact.tails) if tail is not None and tail.is_free}
    narrow, narrow_padded = (
        [min(size, 1) if axis in free else size for axis, size in enumerate(shape)] for shape in (exact, padded)
    )
    where = [np.arange(narrow[axis]) if axis in free else each for axis, each in enumerate(where)]
    real = _elements(np.random.default_rng(seed), narrow, dtype, fact, trial)
    if not any(fact.tails):
        return Pair(real, real)
    made = _poison(np.random.default_rng(seed + 1), narrow_padded, dtype, fact, trial)
    made[np.ix_(*where)] = real
    for axis, tail in enumerate(fact.tails):
        if tail is not None and tail.fill is not None:
            behind = _behind(axis, where, narrow_padded)
            content = _content(tail.fill, made, others)
            if content is not None:
                made[behind] = np.broadcast_to(content, made.shape)[behind]
    return Pair(np.broadcast_to(real, exact), np.broadcast_to(made, padded))


def _lines(fact: Fact, parts: Sequence[Fact], axis: int) -> list[Fact]:
    """Facts of rows or columns: where padding is, is said of the whole value."""
    tails = tuple(tail for place, tail in enumerate(fact.tails) if place != axis)
    return [replace(part, tails=(*tails[:axis], None, *tails[axis:])) for part in parts]


def _claims(fact: Fact, shape: Shape, dtype: np.dtype[Any], trial: Trial) -> Iterator[Array]:
    """What each claim about all elements says that they are."""
    if fact.number is not None:
        yield np.full(shape, fact.number).astype(dtype)
    if fact.real_extent is not None:
        yield np.full(shape, evaluate(fact.real_extent, trial.real)).astype(dtype)
    if fact.counts:
        axis = next(axis for axis, tail in enumerate(fact.tails) if tail is not None)
        yield _counted(axis, shape).astype(dtype)


def _counted(axis: int, shape: Shape) -> Array:
    line = [size if other == axis else 1 for other, size in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[axis]).reshape(line), shape)


def _elements(random: np.random.Generator, shape: Shape, dtype: np.dtype[Any], fact: Fact, trial: Trial) -> Array:
    if dtype.kind == "O":
        return random.choice(np.array(["a", "b", "1"], dtype=object), tuple(shape))
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if fact.natural and fact.most is not None:
        most = min(evaluate(fact.most, trial.real), _GREATEST_DRAWN)
        if most < 0 and 0 not in shape:
            raise NoCall  # a value without elements has none at these sizes
        most = max(0, most)
        made = random.integers(0, most, shape, endpoint=True) if trial.style < 2 else np.zeros(shape)
        made.reshape(-1)[-1:] = most
        return made.astype(dtype)
    if trial.style == 2:
        return np.zeros(shape, dtype) if dtype.kind in "iu" else random.integers(1, 4, shape).astype(dtype)
    lowest = 0 if fact.natural or trial.style == 1 or dtype.kind == "u" else -1
    if dtype.kind == "u" or (dtype.kind == "i" and trial.style == 3):  # no index is unsigned
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        made = random.integers(max(lowest, least), min(50, most), shape, endpoint=True).astype(dtype)
        if trial.style == 3 and dtype.kind == "u":
            made.reshape(-1)[-1:] = most
        return made
    if dtype.kind == "i":
        made = random.choice([lowest, 1], tuple(shape))
        made.reshape(-1)[-1:] = lowest or 1  # an index from the end, where there are any
        return np.asarray(made, dtype)
    signed = random.integers(0, 4, shape) * random.choice([lowest or 1, 1], tuple(shape))
    return np.asarray(signed, dtype)


def _poison(random: np.random.Generator, shape: Shape, dtype: np.dtype[Any], fact: Fact, trial: Trial) -> Array:
    """What stands where no fact says anything: one extreme everywhere, or different numbers."""
    if fact.source in trial.fills:
        return np.full(shape, trial.fills[fact.source]).astype(dtype)
    if dtype.kind == "O":
        return np.full(shape, ("poison", "other")[trial.poison], dtype=object)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype) if trial.poison else np.ones(shape, dtype)
    if dtype.kind not in "iu":
        return (
            random.choice([-6.0, 5.0, 0.5], tuple(shape)).astype(dtype)
            if trial.poison
            else np.full(shape, np.nan, dtype)
        )
    limits = np.iinfo(dtype)
    greatest, least = int(limits.max), 0 if fact.natural else int(limits.min)
    if fact.natural and fact.most is not None:
        greatest = max(0, min(evaluate(fact.most, trial.padded), greatest))
    if trial.poison:
        return random.integers(least, greatest, shape, dtype=dtype, endpoint=True)
    return np.full(shape, greatest, dtype)


def _content(fill: Fill, made: Array, others: Mapping[str, Pair]) -> Array | None:
    """What a fill says of the elements behind the real ones of an axis, None for nothing that can be told."""
    if isinstance(fill, Same):
        same = others.get(fill.input)
        return None if same is None else same.padded
    return None if fill is None else np.asarray(fill).astype(made.dtype)


# ---- judging


def refutation(fact: Fact, result: Pair, trial: Trial, others: Mapping[str, Pair]) -> str:
    """What a fact claims of a node's result and what is not so; empty where nothing is."""
    exact, padded = result
    try:
        where = places(fact, exact.shape, padded.shape, trial)
    except Refuted as problem:
        return str(problem)
    is_all_real = all(len(each) == size for each, size in zip(where, padded.shape, strict=True))
    if not is_same(exact, padded if is_all_real else padded[np.ix_(*where)]):
        return "padding changes a real element"
    for axis, tail in enumerate(fact.tails):
        found = _refuted_tail(tail, axis, padded, where, others) if tail is not None else ""
        if found:
            return found
    found = _refuted_source(fact, result, where, trial, others) if fact.source else ""
    return found or _refuted_elements(fact, result, trial, others)


def _refuted_tail(tail: Tail, axis: int, padded: Array, where: Places, others: Mapping[str, Pair]) -> str:
    if tail.is_free:
        first = padded[tuple(slice(0, 1) if other == axis else slice(None) for other in range(padded.ndim))]
        if padded.size and not is_same(np.broadcast_to(first, padded.shape), padded):
            return f"elements along axis {axis} are not equal"
    if tail.fill is None:
        return ""
    behind = _behind(axis, where, padded.shape)
    content = _content(tail.fill, padded, others)
    if content is None or not is_same(np.broadcast_to(content, padded.shape)[behind], padded[behind]):
        return f"behind the real elements of axis {axis} stands not {tail.fill}"
    return ""


def _refuted_elements(fact: Fact, result: Pair, trial: Trial, others: Mapping[str, Pair]) -> str:
    exact, padded = result
    for side, array in enumerate(result):
        if not all(is_same(each, array) for each in _claims(fact, array.shape, array.dtype, trial)):
            return "its elements are not what they are said to be"
        sizes = (trial.real, trial.padded)[side]
        if array.dtype.kind in "iuf" and array.size and fact.natural and array.min() < 0:
            return "an element is negative"
        if fact.most is not None and array.size and array.max() > evaluate(fact.most, sizes):
            return f"an element is above {fact.most}"
    for parts, axis in ((fact.columns, exact.ndim - 1), (fact.rows, 0)):
        for place, part in enumerate(_lines(fact, parts, axis)):
            line = Pair(np.take(exact, [place], axis), np.take(padded, [place], axis))
            found = _refuted_elements(part, line, trial, others)
            if found:
                return found
    return ""


def _refuted_source(fact: Fact, result: Pair, where: Places, trial: Trial, others: Mapping[str, Pair]) -> str:
    """Integers of an input are its elements, up to a cast, with its fill behind them."""
    given = others.get(f"source {fact.source}")
    if given is None:
        return f"no operand comes from input {fact.source}"
    if not {array.dtype.kind for array in (given.exact, result.exact)} <= set("iub"):
        return ""
    exact, padded = (np.isin(mine, theirs.astype(mine.dtype)) for mine, theirs in zip(result, given, strict=True))
    if not exact.all() or (fact.source in trial.fills and not padded.all()):
        return f"its elements are not those of input {fact.source}"
    for axis, tail in enumerate(fact.tails):
        behind = result.padded[_behind(axis, where, result.padded.shape)]
        if tail is not None and not tail.is_free and (behind != trial.fills.get(fact.source, behind)).any():
            return f"behind the real elements of axis {axis} stands not the fill of input {fact.source}"
    return ""


def is_same(a: Array, b: Array) -> bool:
    """Whether two arrays agree: bit for bit but for NaN and the zeros, floats up to sums in another order.

    What is taken out of an array of strings may be a string.
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "iubOU":
        return bool(np.array_equal(a, b))
    if _has_same_bits(a, b) or np.array_equal(a, b, equal_nan=True):
        return True
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    tolerance = _TOLERANCE.get(a.dtype.itemsize, 1e-6)
    return bool(np.allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance, equal_nan=True))


def _has_same_bits(a: Array, b: Array) -> bool:
    """Told in a fraction of the time that comparing halves takes; False where no integer is as long."""
    if a.dtype != b.dtype or a.itemsize > 8:
        return False
    bits = f"u{a.itemsize}"
    return np.array_equal(a.view(bits), b.view(bits))
