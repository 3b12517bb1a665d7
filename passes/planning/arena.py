"""Offsets in one arena for blocks with lifetimes: dynamic storage allocation with known intervals.

The problem is NP-hard; greedy orders come close and are improved by moving what sticks out. References: B. Gergov,
"Algorithms for compile-time memory optimization" (1999); Y. Pisarchyk and J. Lee, "Efficient memory management for deep
neural net inference" (2020), whose greedy-by-size this follows in spirit.
"""

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass

IMPROVEMENT_ROUNDS = 64
"""How many times the blocks at the top of the arena are tried elsewhere first."""


@dataclass(frozen=True, slots=True)
class Block:
    """`nbytes` bytes (a multiple of the alignment), needed from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Layout:
    """An offset for each block, and the size of the arena."""

    offsets: tuple[int, ...]
    nbytes: int


def lower_bound(blocks: Sequence[Block]) -> int:
    """The largest sum of blocks that are needed at the same step: no arena can be smaller."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.nbytes
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.nbytes
    live = peak = 0
    for step in sorted(changes):
        live += changes[step]
        peak = max(peak, live)
    return peak


def place(blocks: Sequence[Block]) -> Layout:
    """Offsets such that no two blocks that are needed at the same time overlap.

    Tries several greedy orders, then moves the blocks that reach the top to the front of the best order.
    """
    bound = lower_bound(blocks)
    best: Layout | None = None
    best_order: list[int] = []
    for key in _ORDERS:
        order = sorted(range(len(blocks)), key=lambda index: key(blocks[index]))
        layout = _place_in_order(blocks, order)
        if best is None or layout.nbytes < best.nbytes:
            best, best_order = layout, order
        if best.nbytes == bound:
            return best
    assert best is not None  # _ORDERS is not empty
    return _improved(blocks, best, best_order, bound)


_ORDERS: tuple[Callable[[Block], tuple[int, ...]], ...] = (
    lambda block: (-block.nbytes, block.first),
    lambda block: (-block.nbytes * (block.last - block.first + 1), block.first),
    lambda block: (block.first, -block.nbytes),
    lambda block: (-(block.last - block.first), -block.nbytes),
)


def _improved(blocks: Sequence[Block], layout: Layout, order: list[int], bound: int) -> Layout:
    for _ in range(IMPROVEMENT_ROUNDS):
        if layout.nbytes == bound:
            break
        top = [i for i in order if layout.offsets[i] + blocks[i].nbytes == layout.nbytes]
        order = top + [i for i in order if i not in top]
        tried = _place_in_order(blocks, order)
        if tried.nbytes < layout.nbytes:
            layout = tried
    return layout


def _place_in_order(blocks: Sequence[Block], order: Sequence[int]) -> Layout:
    """Each block in turn goes into the smallest gap that fits between blocks already placed that live with it."""
    offsets = [0] * len(blocks)
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; sorted by offset
    top = 0
    for index in order:
        block = blocks[index]
        if not block.nbytes:
            continue
        offset = _best_gap(block, placed)
        offsets[index] = offset
        insort(placed, (offset, offset + block.nbytes, block.first, block.last))
        top = max(top, offset + block.nbytes)
    return Layout(tuple(offsets), top)


def _best_gap(block: Block, placed: Sequence[tuple[int, int, int, int]]) -> int:
    cursor = 0
    best, best_size = -1, 0
    for offset, end, first, last in placed:
        if last < block.first or block.last < first:
            continue
        gap = offset - cursor
        if gap >= block.nbytes and (best < 0 or gap < best_size):
            best, best_size = cursor, gap
        cursor = max(cursor, end)
    return cursor if best < 0 else best
