"""Offsets in one arena for blocks with lifetimes: dynamic storage allocation with known intervals.

The problem is NP-hard; two greedy methods come close, and their result is improved by placing first what sticks out.

* By gaps: blocks in a fixed order, each into the smallest gap between the blocks already placed that live with it.
  Y. Pisarchyk and J. Lee, "Efficient memory management for deep neural net inference" (2020).
* By the skyline: the lowest stretch of time, as seen from above, takes the block that fits into it and lives longest.
  T. Sekiyama, T. Imai and Y. Imamichi, "Profile-guided memory optimization for deep neural networks" (2018).

Each step looks at all blocks at once in NumPy, which is quadratic, but in a few nanoseconds a pair.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

_NEVER = 2**62
"""The rank of a block that is not to be placed now."""

EFFORT = 4_000_000
"""How many pairs of blocks are looked at before the best layout so far is taken: some hundredths of a second."""

CLOSE = 0.02
"""How far above the bound, as a part of it, a layout may be that is good enough."""


@dataclass(frozen=True, slots=True)
class Block:
    """`nbytes` bytes (a multiple of the alignment), needed from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class ArenaLayout:
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


def place(blocks: Sequence[Block]) -> ArenaLayout:
    """Offsets such that no two blocks that are needed at the same time overlap."""
    return _Placement(blocks).best()


class _Placement:
    """The blocks as columns, empty ones left out, and the best layout so far."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.count = len(blocks)
        indices = [i for i, block in enumerate(blocks) if block.nbytes]
        kept = [blocks[i] for i in indices]
        self.index = np.asarray(indices, dtype=np.int64)
        self.size = np.asarray([block.nbytes for block in kept], dtype=np.int64)
        self.first = np.asarray([block.first for block in kept], dtype=np.int64)
        self.stop = np.asarray([block.last + 1 for block in kept], dtype=np.int64)
        self.bound = lower_bound(blocks)
        self.cost = len(kept) * (len(kept) + 1000)  # every step has a cost of its own
        self.offset = np.zeros(len(kept), dtype=np.int64)
        self.height = -1

    def best(self) -> ArenaLayout:
        """Both methods with several orders, in turns; after each the blocks that reach the top come first."""
        lifetime = self.stop - self.first
        by_lifetime = np.lexsort((-self.size, -lifetime))
        by_area = np.lexsort((self.first, -self.size * lifetime))
        by_size = np.lexsort((self.first, -self.size))
        attempts = [
            _Attempt(self._by_skyline, by_lifetime),
            _Attempt(self._by_gaps, by_size),
            _Attempt(self._by_skyline, by_area),
            _Attempt(self._by_gaps, by_lifetime),
            _Attempt(self._by_skyline, by_size),
        ]
        budget = EFFORT
        for attempt in cycle(attempts):
            if 0 <= self.height - self.bound <= self.bound * CLOSE or budget < 0:
                break
            self._try(attempt)
            budget -= self.cost
        offsets = np.zeros(self.count, dtype=np.int64)
        offsets[self.index] = self.offset
        return ArenaLayout(tuple(offsets.tolist()), max(self.height, 0))

    def _try(self, attempt: "_Attempt") -> None:
        """Keeps what the attempt gives if that is better; moves what sticks out to the front of its order."""
        offset = attempt.method(attempt.order)
        tops = offset + self.size
        height = int(tops.max(initial=0))
        if self.height < 0 or height < self.height:
            self.offset, self.height = offset, height
        is_top = tops[attempt.order] == height
        attempt.order = np.concatenate([attempt.order[is_top], attempt.order[~is_top]])

    # ---- by gaps

    def _by_gaps(self, order: Integers) -> Integers:
        offsets = np.zeros(len(order), dtype=np.int64)
        placed = _Placed(len(order))
        for i in order.tolist():
            size, first, stop = int(self.size[i]), int(self.first[i]), int(self.stop[i])
            offsets[i] = placed.add(size, first, stop)
        return offsets

    # ---- by the skyline

    def _by_skyline(self, preference: Integers) -> Integers:
        """`preference` lists the blocks, the most wanted first."""
        offsets = np.zeros(len(preference), dtype=np.int64)
        if not len(preference):
            return offsets
        rank = np.empty(len(preference), dtype=np.int64)
        rank[preference] = np.arange(len(preference))
        by_time = np.argsort(self.first, kind="stable")
        first, stop, rank = self.first[by_time], self.stop[by_time], rank[by_time]
        line = _Skyline(int(first[0]), int(stop.max()))
        left = len(by_time)
        while left:
            low, start, end = line.lowest()
            begin, limit = first.searchsorted((start, end)).tolist()
            ranks = np.where(stop[begin:limit] <= end, rank[begin:limit], _NEVER)
            chosen = begin + int(ranks.argmin()) if len(ranks) else 0
            if not len(ranks) or ranks[chosen - begin] == _NEVER:
                line.lift()
                continue
            offsets[by_time[chosen]] = low
            line.cover(int(first[chosen]), int(stop[chosen]), int(self.size[by_time[chosen]]))
            rank[chosen] = _NEVER
            left -= 1
        return offsets


@dataclass
class _Attempt:
    """A method with the order in which it prefers the blocks."""

    method: Callable[[Integers], Integers]
    order: Integers


class _Placed:
    """Blocks with their places, sorted by offset."""

    def __init__(self, most: int) -> None:
        self._columns = np.empty((4, most), dtype=np.int64)
        self._count = 0

    def add(self, size: int, first: int, stop: int) -> int:
        """The offset of a new block: the smallest gap that takes it, or the top."""
        starts, ends, firsts, stops = self._columns[:, : self._count]
        meets = (firsts < stop) & (stops > first)
        below = np.concatenate([[0], np.maximum.accumulate(ends[meets])])
        gaps = starts[meets] - below[:-1]
        gaps[gaps < size] = np.iinfo(np.int64).max
        chosen = int(gaps.argmin()) if len(gaps) else 0
        is_gap = len(gaps) > 0 and gaps[chosen] < np.iinfo(np.int64).max
        offset = int(below[chosen] if is_gap else below[-1])
        self._insert(int(starts.searchsorted(offset)), (offset, offset + size, first, stop))
        return offset

    def _insert(self, place: int, block: tuple[int, int, int, int]) -> None:
        count = self._count
        self._columns[:, place + 1 : count + 1] = self._columns[:, place:count].copy()
        self._columns[:, place] = block
        self._count += 1


class _Skyline:
    """How high the arena is filled at each step: stretches of steps, each of one height, from left to right."""

    def __init__(self, start: int, end: int) -> None:
        self._height = {start: 0}  # by the first step of a stretch
        self._end = {start: end}
        self._before = {end: start}  # the stretch that ends there
        self._heap = [(0, start)]

    def lowest(self) -> tuple[int, int, int]:
        """Height, start and end of the lowest stretch, the earliest of several."""
        while self._height.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        height, start = self._heap[0]
        return height, start, self._end[start]

    def lift(self) -> None:
        """Raises the lowest stretch, into which nothing fits, to its lower neighbor."""
        _, start, end = self.lowest()
        left, right = self._before.get(start), self._height.get(end)
        sides = [height for height in (self._height[left] if left is not None else None, right) if height is not None]
        self._take(start)
        self._put(start, end, min(sides))

    def cover(self, first: int, stop: int, size: int) -> None:
        """Puts a block onto the lowest stretch, within it."""
        low, start, end = self.lowest()
        self._take(start)
        if start < first:
            self._put(start, first, low)
        if stop < end:
            self._put(stop, end, low)
        self._put(first, stop, low + size)

    def _take(self, start: int) -> None:
        del self._height[start], self._before[self._end.pop(start)]

    def _put(self, start: int, end: int, height: int) -> None:
        """A new stretch, joined with neighbors of its height."""
        left = self._before.get(start)
        if left is not None and self._height[left] == height:
            self._take(left)
            start = left
        if self._height.get(end) == height:
            right = end
            end = self._end[right]
            self._take(right)
        self._height[start], self._end[start], self._before[end] = height, end, start
        heapq.heappush(self._heap, (height, start))
