"""The ladder that wastes the fewest padded rows on recorded traffic, found exactly."""

from collections import Counter
from collections.abc import Iterable

from ...ir.errors import InputError


def suggest_buckets(observed: Iterable[int], k: int = 8) -> tuple[int, ...]:
    """The at most `k` bucket sizes that pad the `observed` sizes with the fewest rows in total, ascending.

    Every observed size has a bucket that is at least as large. Exact: dynamic programming over the distinct sizes,
    O(k n²) for n of them; of ladders with equal waste one of the fewest sizes is given. Raises `InputError` for an
    empty sample, a negative size or k below 1.
    """
    counts = Counter(observed)
    sizes = sorted(counts)
    if k < 1 or not sizes or sizes[0] < 0:
        raise InputError("suggest_buckets needs k >= 1 and a sample of sizes that are not negative")
    rows, weighted = _prefix_sums(sizes, counts)
    n = len(sizes)
    # least[j]: the fewest padded rows of the first j sizes with the buckets used so far, the last being sizes[j-1].
    least: list[float] = [0.0] + [float("inf")] * n
    choices: list[list[int]] = []
    best_waste, best_count = float("inf"), 0
    for count in range(1, min(k, n) + 1):
        following: list[float] = [float("inf")] * (n + 1)
        choice = [0] * (n + 1)
        for j in range(count, n + 1):
            for i in range(count - 1, j):
                waste = least[i] + sizes[j - 1] * (rows[j] - rows[i]) - (weighted[j] - weighted[i])
                if waste < following[j]:
                    following[j], choice[j] = waste, i
        least = following
        choices.append(choice)
        if least[n] < best_waste:
            best_waste, best_count = least[n], count
    return _traced(sizes, choices[:best_count])


def _prefix_sums(sizes: list[int], counts: Counter[int]) -> tuple[list[int], list[int]]:
    """For the first j sizes: how many observations there are, and their sum."""
    rows, weighted = [0], [0]
    for size in sizes:
        rows.append(rows[-1] + counts[size])
        weighted.append(weighted[-1] + counts[size] * size)
    return rows, weighted


def _traced(sizes: list[int], choices: list[list[int]]) -> tuple[int, ...]:
    ladder: list[int] = []
    j = len(sizes)
    for choice in reversed(choices):
        ladder.append(sizes[j - 1])
        j = choice[j]
    return tuple(reversed(ladder))
