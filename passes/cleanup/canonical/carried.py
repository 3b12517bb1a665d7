"""Transposes past reshapes: which order of the axes means the same on the other side.

A transpose moves past a reshape when it keeps together, in order, the axes that the reshape cuts from one axis or joins
to one. Axes of size 1 may stand anywhere: only the final shape places them.
"""

from collections.abc import Sequence

from ....ir.dims import Dim
from .axis_groups import axis_groups


def before_reshape(source: Sequence[Dim], middle: Sequence[Dim], perm: Sequence[int]) -> tuple[int, ...] | None:
    """The order in which transposing `source` before a reshape equals transposing `middle` by `perm` after it.

    The reshape that remains goes to the permuted `middle`. None when `perm` tears axes apart.
    """
    groups = axis_groups(source, middle)
    if groups is None:
        return None
    moved = [axis for axis in perm if middle[axis] != 1]
    pieces = [(own, tuple(axis for axis in cut if middle[axis] != 1)) for own, cut in groups]
    at = {cut[0]: (own, cut) for own, cut in pieces if cut}
    order: list[int] = []
    position = 0
    while position < len(moved):
        own, cut = at.get(moved[position], ((), ()))
        if not cut or tuple(moved[position : position + len(cut)]) != cut:
            return None
        order += own
        position += len(cut)
    return (*order, *(axis for own, cut in pieces if not cut for axis in own))


def after_reshape(
    source: Sequence[Dim], perm: Sequence[int], target: Sequence[Dim]
) -> tuple[tuple[Dim, ...], tuple[int, ...]] | None:
    """The shape and order with which reshaping `source` first, and then transposing, gives the same as the reverse.

    What it equals is transposing `source` by `perm` and reshaping that to `target`. None when the reshape joins or
    cuts axes that were not neighbors in `source`.
    """
    groups = axis_groups([source[axis] for axis in perm], target)
    if groups is None:
        return None
    rank_of = {axis: rank for rank, axis in enumerate(axis for axis, size in enumerate(source) if size != 1)}
    pieces = [([rank_of[perm[axis]] for axis in left if perm[axis] in rank_of], right) for left, right in groups]
    if any(ranks != list(range(ranks[0], ranks[0] + len(ranks))) for ranks, _ in pieces if ranks):
        return None
    ordered = sorted(pieces, key=lambda piece: piece[0][0] if piece[0] else len(source))
    places = [axis for _, right in ordered for axis in right]
    return tuple(target[axis] for axis in places), tuple(places.index(axis) for axis in range(len(target)))


def units_in_place(shape: Sequence[Dim], perm: Sequence[int]) -> tuple[int, ...]:
    """The order that differs from `perm` only in that axes of size 1 stay where they are."""
    moved = iter([axis for axis in perm if shape[axis] != 1])
    return tuple(axis if size == 1 else next(moved) for axis, size in enumerate(shape))


def units_as_in_result(shape: Sequence[Dim], perm: Sequence[int]) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
    """A shape like `shape`, with its axes of size 1 where transposing by `perm` puts them, and the order for it."""
    result = [shape[axis] for axis in perm]
    longer = [axis for axis, size in enumerate(shape) if size != 1]
    free = [axis for axis, size in enumerate(result) if size != 1]
    place = dict(zip(longer, free, strict=True))
    placed: list[Dim] = [1] * len(shape)
    for axis, where in place.items():
        placed[where] = shape[axis]
    order = tuple(where if result[where] == 1 else place[axis] for where, axis in enumerate(perm))
    return tuple(placed), order
