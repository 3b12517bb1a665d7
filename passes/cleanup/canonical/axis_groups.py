"""How a reshape cuts and joins axes: which axes of the operand become which axes of the result."""

from collections.abc import Sequence

from ....ir.dims import Dim

AxisGroups = list[tuple[tuple[int, ...], tuple[int, ...]]]


def axis_groups(source: Sequence[Dim], target: Sequence[Dim]) -> AxisGroups | None:
    """Pairs of neighboring axes of `source` and `target` with the same number of elements, as small as can be.

    `[B, 4, 6] -> [B, 24]` gives `((0,), (0,)), ((1, 2), (1,))`. Axes of size 1 that have no partner stand in the group
    before them. None when products of symbolic sizes do not show the groups, or a size is 0.
    """
    if any(dim == 0 for dim in (*source, *target)):
        return None
    groups: AxisGroups = []
    left, right = 0, 0
    while left < len(source) or right < len(target):
        found = _next_group(source, target, left, right)
        if found is None:
            return None
        groups.append((tuple(range(left, found[0])), tuple(range(right, found[1]))))
        left, right = found
    return groups


def _next_group(source: Sequence[Dim], target: Sequence[Dim], left: int, right: int) -> tuple[int, int] | None:
    """Where the group that begins at `left` and `right` ends."""
    if left == len(source) or right == len(target):
        rest = (*source[left:], *target[right:])
        return (len(source), len(target)) if all(dim == 1 for dim in rest) else None
    ends = {source[left]: left + 1}
    size: Dim = source[left]
    for end in range(left + 1, len(source)):
        size = size * source[end]
        ends.setdefault(size, end + 1)
    size = 1
    for end in range(right, len(target)):
        size = size * target[end]
        if size in ends and (size != 1 or ends[size] == left + 1):
            return ends[size], end + 1
    return None
