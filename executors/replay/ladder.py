"""Ladders: the sizes to which calls are padded, and the choice of the one that a call gets."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ...ir.errors import InputError

SMALL = (1, 2, 4)
FINE_STEP, FINE_END = 8, 256
COARSE_STEP = 16

MOST_RUNGS = 1 << 16
"""Longer default ladders are refused, and more combinations: every one is a plan to be looked at."""


def default_ladder(lowest: int, highest: int) -> tuple[int, ...]:
    """The sizes 1, 2, 4, then every 8 up to 248, then every 16, from `lowest` up to `highest`, which is always one.

    Raises `InputError` for an empty range, and for one that is too long.
    """
    check_range(lowest, highest)
    if (highest - lowest) // COARSE_STEP > MOST_RUNGS:
        raise InputError(
            f"the range {lowest} to {highest} has more sizes than can be recorded",
            remedy="say which ones are: buckets={'batch': [1, 8, 64]}",
        )
    fine = range(FINE_STEP, FINE_END, FINE_STEP)
    coarse = range(FINE_END, highest + 1, COARSE_STEP)
    return (*(size for size in (*SMALL, *fine, *coarse) if lowest <= size < highest), highest)


def checked_ladder(sizes: Sequence[int], lowest: int, highest: int) -> tuple[int, ...]:
    """A user's ladder in order, without repetitions. Raises `InputError` for a size that no call can have."""
    check_range(lowest, highest)
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or not lowest <= size <= highest:
            raise InputError(f"bucket {size!r} is not a size from {lowest} to {highest}", remedy="change dynamic=")
    if not sizes:
        raise InputError("a ladder needs at least one size", remedy="leave buckets out for the default ladder")
    return tuple(sorted(set(sizes)))


def check_range(lowest: int, highest: int) -> None:
    """Raises `InputError` for an empty range."""
    if not 0 <= lowest <= highest:
        raise InputError(f"the range {lowest} to {highest} is empty or negative", remedy="dynamic={'batch': (1, 64)}")


@dataclass(frozen=True)
class Buckets:
    """The allowed combinations of sizes of the dims `names`: `sizes` in order, the largest first."""

    names: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]

    @classmethod
    def of_ladders(cls, ladders: Mapping[str, Sequence[int]]) -> "Buckets":
        """Every combination of one size from each ladder. Raises `InputError` where these are too many."""
        count = math.prod(map(len, ladders.values()))
        if count > MOST_RUNGS:
            raise InputError(
                f"the sizes of {len(ladders)} dims make {count:,} combinations, more than can be recorded",
                remedy="say which ones are, buckets={('batch', 'length'): [(1, 64), (8, 64)]}, or record sizes as "
                "they come, capture={'beyond': 'exact'}",
            )
        return cls.of_tuples(tuple(ladders), list(product(*ladders.values())))

    @classmethod
    def of_tuples(cls, names: Sequence[str], sizes: Sequence[tuple[int, ...]]) -> "Buckets":
        """Just these combinations. Raises `InputError` when one has another length than `names`."""
        for each in sizes:
            if len(each) != len(names):
                raise InputError(f"bucket {each} does not have one size for each of {', '.join(names)}")
        return cls(tuple(names), tuple(sorted(set(sizes), key=lambda each: (volume(each), each), reverse=True)))

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[dict[str, int]]:
        """Each combination by name, the largest first."""
        return (dict(zip(self.names, each, strict=True)) for each in self.sizes)

    def largest(self) -> dict[str, int]:
        """The greatest size of each dim."""
        return {name: max(sizes[axis] for sizes in self.sizes) for axis, name in enumerate(self.names) if self.sizes}

    def smallest_for(self, sizes: Mapping[str, int], may_grow: frozenset[str]) -> dict[str, int] | None:
        """The smallest combination in which `sizes` fits, where only the dims in `may_grow` are padded; None if none.

        Smallest is by the product of sizes.
        """
        wanted = [(sizes[name], name in may_grow) for name in self.names]
        fitting = [each for each in self.sizes if _fits(each, wanted)]
        if not fitting:
            return None
        return dict(zip(self.names, min(fitting, key=lambda each: (volume(each), each)), strict=True))


def _fits(bucket: tuple[int, ...], wanted: Sequence[tuple[int, bool]]) -> bool:
    return all(size == real or (grows and size > real) for size, (real, grows) in zip(bucket, wanted, strict=True))


def volume(sizes: Iterable[int]) -> int:
    """The product of sizes: the rows of a call."""
    return math.prod(sizes)
