"""Elementwise work: every element depends on the elements at its own place."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from .....ir.dims import Dim, dim_max, dim_min, evaluate, symbols
from .....ir.errors import ShapeError
from .....ir.evaluate import bound_attrs
from .....ir.graph import Value
from .....ir.op import Trait
from .....ir.ops.known import DIM
from .....ir.types import DType, Kind
from .facts import Case, Fact, Fill, Number, Rules, Same, Tail, Tails, Unsafe, met


def aligned(tails: Tails, dims: Sequence[Dim], rank: int) -> list[tuple[Tail | None, Dim]]:
    """(tail, size) for each axis of a broadcast result of `rank`."""
    missing = rank - len(tails)
    return [(None, 1)] * missing + list(zip(tails, dims, strict=True))


def broadcast(case: Case, operands: Sequence[int], rank: int) -> list[Tail | None]:
    """The tails of the broadcast of some operands, without fills."""
    rows = [aligned(case.tails(i), case.shape(i), rank) for i in operands]
    return [_joined(case, [row[axis] for row in rows]) for axis in range(rank)]


def _joined(case: Case, entries: Sequence[tuple[Tail | None, Dim]]) -> Tail | None:
    tails = [tail for tail, _ in entries if tail is not None]
    if not tails:
        return None
    fixed = [size for tail, size in entries if tail is None and size != 1]
    if fixed:
        raise Unsafe(f"an axis that carries {case.symbol} meets one of size {fixed[0]}")
    return met(tails, "operands")


def elementwise(case: Case) -> list[Fact]:
    """Broadcasts keep the dim where it is."""
    if len(case.node.outputs) != 1:
        raise Unsafe("an elementwise op with several results has no rule")
    present = [i for i, fact in enumerate(case.facts) if fact is not None]
    rank = case.node.output.tensor.rank
    tails = broadcast(case, present, rank)
    filled = tuple(
        tail.filled(_fill(case, axis, rank)) if tail is not None else None for axis, tail in enumerate(tails)
    )
    return [Fact(filled, natural=case.node.output.tensor.dtype.kind is Kind.UINT)]


def _fill(case: Case, axis: int, rank: int) -> Fill:
    """What the op makes of the operands' content behind the real elements of a result axis."""
    contents = [_content(fact, axis - rank) if fact is not None else None for fact in case.facts]
    return _computed(case, contents)


def _content(fact: Fact, axis: int) -> Fill:
    """What an operand holds there; `axis` counts from the end."""
    tail = fact.tails[axis] if -axis <= len(fact.tails) else None
    if tail is not None and tail.fill is not None:
        return tail.fill
    return fact.number


def _computed(case: Case, contents: Sequence[Fill]) -> Number | None:
    if case.node.op.has(Trait.IMPURE):
        return None
    arrays: list[np.ndarray | None] = []
    for value, content in zip(case.node.inputs, contents, strict=True):
        if value is None:
            arrays.append(None)
        elif content is None or isinstance(content, Same):
            return None
        else:
            arrays.append(np.asarray(content).astype(value.tensor.dtype.numpy))
    with np.errstate(all="ignore"):
        result = np.asarray(case.node.op.meaning(*arrays, **bound_attrs(case.node, {}))).item()
    return result if isinstance(result, bool | int | float) and not math.isnan(result) else None


def where(case: Case) -> list[Fact]:
    """Behind the real elements of a condition that is known there, one of the two others stands."""
    (fact,) = elementwise(case)
    rank = len(fact.tails)
    tails = tuple(
        tail.filled(_chosen(case, axis - rank)) if tail is not None and tail.fill is None else tail
        for axis, tail in enumerate(fact.tails)
    )
    return [Fact(tails, natural=case.fact(1).natural and case.fact(2).natural, most=_greatest(case, (1, 2)))]


def _greatest(case: Case, operands: Sequence[int]) -> Dim | None:
    """A bound of the elements of several operands."""
    bounds = [case.fact(i).most for i in operands]
    known = [bound for bound in bounds if bound is not None]
    return dim_max(*known) if len(known) == len(bounds) else None


def _chosen(case: Case, axis: int) -> Fill:
    condition = _content(case.fact(0), axis)
    if condition is None:
        return None
    operand = 1 if condition else 2
    value, fact = case.value(operand), case.fact(operand)
    if _is_whole_input(value, fact, axis):
        return Same(value.name)
    return _content(fact, axis)


def _is_whole_input(value: Value, fact: Fact, axis: int) -> bool:
    tail = fact.tails[axis] if -axis <= len(fact.tails) else None
    return value.producer is None and tail is not None and tail.fill is None


def cast(case: Case) -> list[Fact]:
    """As elementwise work; indices stay the indices that a caller gave, and not negative where none is too large."""
    (fact,) = elementwise(case)
    given = case.fact(0)
    if given.is_padded and case.value(0).tensor.dtype.kind is Kind.STRING:
        raise Unsafe("a padded text may not be a number")
    dtypes = case.value(0).tensor.dtype, case.node.output.tensor.dtype
    if not all(dtype.is_integer for dtype in dtypes):
        return [fact]
    return [replace(_cast(given, *dtypes), tails=fact.tails)]


_SIZE_BITS = 31
"""What a bound, which is a size, takes at most."""


def _cast(fact: Fact, before: DType, after: DType) -> Fact:
    """What stays of the bounds of integers: in a narrower type great ones are others, negative ones perhaps."""
    bits = _SIZE_BITS if fact.most is not None else _natural_bits(before)
    is_kept = fact.natural and bits <= _natural_bits(after)
    return replace(
        fact,
        natural=is_kept or after.kind is Kind.UINT,
        most=fact.most if is_kept else None,
        columns=tuple(_cast(part, before, after) for part in fact.columns),
        rows=tuple(_cast(part, before, after) for part in fact.rows),
    )


def _natural_bits(dtype: DType) -> int:
    return dtype.bits - (dtype.kind is not Kind.UINT)


def add(case: Case) -> list[Fact]:
    """The real size plus a dim is the real size of a longer axis."""
    (fact,) = elementwise(case)
    for one, other in ((0, 1), (1, 0)):
        real, more = case.fact(one).real_extent, case.value(other).producer
        if real is not None and more is not None and "value" in more.attrs and more.op is DIM:
            is_natural = case.fact(one).natural and case.fact(other).natural
            return [Fact(fact.tails, real_extent=real + more.attrs["value"], natural=is_natural)]
    return [_combined(case, fact, lambda a, b: a + b)]


def mul(case: Case) -> list[Fact]:
    """Bounds are multiplied."""
    (fact,) = elementwise(case)
    return [_combined(case, fact, lambda a, b: a * b)]


def _combined(case: Case, fact: Fact, combine: Callable[[Dim, Dim], Dim]) -> Fact:
    """With the bound of a result that is not negative: of numbers without one it may wrap around."""
    left, right = case.fact(0), case.fact(1)
    dtype = case.node.output.tensor.dtype
    is_wide = dtype.bits >= _SIZE_BITS
    if not (is_wide and left.natural and right.natural) or left.most is None or right.most is None:
        return fact
    try:
        most = combine(left.most, right.most)
        has_room = _has_room(most, dtype)
    except ShapeError:  # no dim holds a number of it
        return fact
    return replace(fact, natural=True, most=most) if has_room else fact


def _has_room(most: Dim, dtype: DType) -> bool:
    """Whether numbers up to there do not wrap around; of a dim, where sizes of a quarter of the bits leave half."""
    bits = _natural_bits(dtype)
    if isinstance(most, int):
        return most < 1 << bits
    return evaluate(most, dict.fromkeys(symbols(most), 1 << bits // 4)) < 1 << bits - 1


def greater_of(case: Case) -> list[Fact]:
    """Not negative where one of all is not, and as great as any may be."""
    (fact,) = elementwise(case)
    operands = range(len(case.facts))
    is_natural = any(case.fact(i).natural for i in operands)
    return [replace(fact, natural=is_natural, most=_greatest(case, operands))]


def lesser_of(case: Case) -> list[Fact]:
    """Not negative where none is, and no greater than any may be."""
    (fact,) = elementwise(case)
    operands = range(len(case.facts))
    is_natural = all(case.fact(i).natural for i in operands)
    bounds = [bound for i in operands if (bound := _most(case.fact(i))) is not None]
    return [replace(fact, natural=is_natural, most=dim_min(*bounds) if bounds else None)]


def _most(fact: Fact) -> Dim | None:
    """A bound of the elements: what they are, where that is a size."""
    return fact.real_extent if fact.most is None else fact.most


def less(case: Case) -> list[Fact]:
    """`counts < real size` is true for the real elements and false behind them."""
    (fact,) = elementwise(case)
    left, right = case.fact(0), case.fact(1)
    if not left.counts or right.real_extent is None:
        return [fact]
    tails = tuple(
        tail.filled(False) if tail is not None and tail.extent == right.real_extent else tail for tail in fact.tails
    )
    return [Fact(tails)]


RULES: Rules = {
    "where": where,
    "cast": cast,
    "add": add,
    "mul": mul,
    "max": greater_of,
    "min": lesser_of,
    "less": less,
}
