"""Routing: from the sizes of a call to the bucket that serves it, or to the reason why none does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.errors import InputError
from ...ir.graph import Graph
from ...ir.types import type_symbols
from .ladder import Buckets, check_range, checked_ladder, default_ladder, volume
from .options import ReplayOptions
from .safety import PaddedGraph

BucketKey = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Route:
    """Where a call goes: to bucket `key` (None: it runs eagerly, because of `reason`).

    `rows` are the real rows of a call in that bucket and `padded_rows` those that are added.
    """

    key: BucketKey | None
    reason: str = ""
    rows: int = 0
    padded_rows: int = 0


class Router:
    """Decides for the inputs' symbolic dims of one graph. Pure: the same sizes get the same route."""

    def __init__(self, padded: PaddedGraph, symbols: Sequence[str], options: ReplayOptions) -> None:
        self._symbols = tuple(symbols)
        self._ranges = checked_ranges(options.dynamic, symbols)
        self._beyond = options.beyond
        self.buckets = make_buckets(self._ranges, options.buckets)
        self._padded = padded

    @property
    def serves_all_dims(self) -> bool:
        """Whether every symbolic dim has a range; otherwise no bucket is known beforehand."""
        return self._ranges.keys() >= set(self._symbols)

    def route(self, sizes: Mapping[str, int]) -> Route:
        """The route of a call with these sizes."""
        reason = self._refusal(sizes)
        if not reason:
            bucket = self.buckets.smallest_for(sizes, self._padded.safe_for(sizes.values()))
            if bucket is not None:
                rows = volume([sizes[name] for name in bucket])
                return Route(tuple(bucket.items()), "", rows, volume(list(bucket.values())) - rows)
            reason = self._why_no_bucket(sizes)
        if self._beyond == "exact" and sizes.keys() >= set(self._symbols):
            return Route(tuple((name, sizes[name]) for name in self._symbols), reason, volume(sizes.values()))
        return Route(None, reason)

    def _refusal(self, sizes: Mapping[str, int]) -> str:
        for name in self._symbols:
            if name not in sizes:
                return f"the shapes of the inputs do not tell {name}"
            if name not in self._ranges:
                return f"no range is given for {name}: dynamic={{{name!r}: (1, ...)}}"
            lowest, highest = self._ranges[name]
            if not lowest <= sizes[name] <= highest:
                return f"{name} is outside of its range {lowest} to {highest}"
        return ""

    def _why_no_bucket(self, sizes: Mapping[str, int]) -> str:
        reports = self._padded.reports
        unsafe = [name for name in reports if name not in self._padded.safe_for(sizes.values())]
        if self.buckets.smallest_for(sizes, frozenset(self.buckets.names)) is None or not unsafe:
            return "no bucket is that large"
        report = reports[unsafe[0]]
        reason = report.failure or f"that is proven from size {report.least} on only"
        return f"no bucket has just that {unsafe[0]}, which is not padded: {reason}"


def make_buckets(
    ranges: Mapping[str, tuple[int, int]], given: Mapping[str | tuple[str, ...], Sequence[int | tuple[int, ...]]]
) -> Buckets:
    """The allowed buckets: a ladder for each dim (the user's or the default one), or combinations listed as tuples.

    Raises `InputError` for a dim without a range, or combinations that do not name all dims.
    """
    ladders: dict[str, Sequence[int]] = {}
    for key, sizes in given.items():
        names = (key,) if isinstance(key, str) else key
        unknown = [name for name in names if name not in ranges]
        if unknown:
            raise InputError(
                f"buckets name {unknown[0]!r}, which has no range", remedy=f"dynamic={{{unknown[0]!r}: ...}}"
            )
        if isinstance(key, str):
            ladders[key] = checked_ladder([size for size in sizes if not isinstance(size, tuple)], *ranges[key])
            continue
        if set(names) != set(ranges):
            raise InputError(f"combinations of {', '.join(names)} leave dims out", remedy="name every dim of dynamic")
        return Buckets.of_tuples(names, [size if isinstance(size, tuple) else (size,) for size in sizes])
    return Buckets.of_ladders({name: ladders.get(name) or default_ladder(*bounds) for name, bounds in ranges.items()})


def dims_between(buckets: Buckets, ranges: Mapping[str, tuple[int, int]]) -> list[str]:
    """The dims that calls may have at a size between buckets, so that they would be padded."""
    held = {name: {sizes[axis] for sizes in buckets.sizes} for axis, name in enumerate(buckets.names)}
    return [name for name, (lowest, highest) in ranges.items() if len(held[name]) <= highest - lowest]


def input_symbols(graph: Graph) -> tuple[str, ...]:
    """The symbolic dims that a call chooses."""
    return tuple(sorted(frozenset[str]().union(*(type_symbols(value.type) for value in graph.inputs))))


def checked_ranges(dynamic: Mapping[str, tuple[int, int]], symbols: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The given ranges in the order of `symbols`. Raises `InputError` for an unknown dim or an empty range."""
    for name, bounds in dynamic.items():
        if name not in symbols:
            known = ", ".join(symbols) or "none"
            raise InputError(f"there is no symbolic dim {name!r} among the inputs", remedy=f"the dims are: {known}")
        if len(bounds) != 2 or not all(isinstance(bound, int) for bound in bounds):
            raise InputError(f"the range of {name!r} is {bounds!r}", remedy=f"dynamic={{{name!r}: (1, 64)}}")
        check_range(*bounds)
    return {name: (dynamic[name][0], dynamic[name][1]) for name in symbols if name in dynamic}
