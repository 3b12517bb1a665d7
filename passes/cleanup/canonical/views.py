"""Reshapes and transposes by turns: one of three goes where a transpose can move past a reshape.

A transpose moves past a reshape when it keeps together, in order, the axes that the reshape cuts from one axis or joins
to one. Axes of size 1 may stand anywhere: only the final shape places them.
"""

from collections.abc import Sequence

from ....ir.dims import Dim
from ....ir.graph import Value
from ....ir.ops.rules import normal_axes
from ...framework.pattern import Capture, Found, Match, Rule
from ...framework.rewriter import Rewriter

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


def _reshape_around_transpose(rewriter: Rewriter, found: Found) -> Value | None:
    """`reshape(transpose(reshape(x)))`: the transpose goes to one of the ends."""
    x, middle, target = found["x"], found.node("first").output.shape, found.root.output.shape
    perm = normal_axes(found.node("move").attrs["perm"], len(middle))
    order = before_reshape(x.shape, middle, perm)
    if order is not None:
        return rewriter.op("reshape", rewriter.op("transpose", x, perm=order), shape=target)
    later = after_reshape(middle, perm, target)
    if later is None:
        return None
    shape, order = later
    return rewriter.op("transpose", rewriter.op("reshape", x, shape=shape), perm=order)


def _transpose_around_reshape(rewriter: Rewriter, found: Found) -> Value | None:
    """`transpose(reshape(transpose(x)))`: the two transposes become one."""
    x, first, middle = found["x"], found.node("first").output.shape, found.node("reshape").output.shape
    inner = normal_axes(found.node("first").attrs["perm"], len(first))
    outer = normal_axes(found.root.attrs["perm"], len(middle))
    order = before_reshape(first, middle, outer)
    if order is not None:
        moved = rewriter.op("transpose", x, perm=tuple(inner[axis] for axis in order))
        return rewriter.op("reshape", moved, shape=found.root.output.shape)
    later = after_reshape(x.shape, inner, middle)
    if later is None:
        return None
    shape, order = later
    return rewriter.op("transpose", rewriter.op("reshape", x, shape=shape), perm=tuple(order[axis] for axis in outer))


def _reshape_of_transpose(rewriter: Rewriter, found: Found) -> Value | None:
    """Where axes of size 1 stand before a reshape says nothing: one form, which further patterns expect."""
    x, move = found["x"], found.node("move")
    perm = normal_axes(move.attrs["perm"], x.tensor.rank)
    order = units_in_place(x.shape, perm)
    if order == perm:
        return None
    return rewriter.op("reshape", rewriter.op("transpose", x, perm=order), shape=found.root.output.shape)


def _transpose_of_reshape(rewriter: Rewriter, found: Found) -> Value | None:
    """Axes of size 1 stand in the reshape's result where they are wanted in the end."""
    middle = found.node("reshape").output.shape
    perm = normal_axes(found.root.attrs["perm"], len(middle))
    shape, order = units_as_in_result(middle, perm)
    if shape == middle:
        return None
    return rewriter.op("transpose", rewriter.op("reshape", found["x"], shape=shape), perm=order)


_X = Capture("x")

RULES: tuple[Rule, ...] = (
    Rule(
        "reshape-around-transpose",
        Match(
            "reshape",
            Match("transpose", Match("reshape", _X, name="first", only_user=True), name="move", only_user=True),
        ),
        _reshape_around_transpose,
    ),
    Rule(
        "transpose-around-reshape",
        Match(
            "transpose",
            Match("reshape", Match("transpose", _X, name="first", only_user=True), name="reshape", only_user=True),
        ),
        _transpose_around_reshape,
    ),
    Rule(
        "reshape-of-transpose",
        Match("reshape", Match("transpose", _X, name="move", only_user=True)),
        _reshape_of_transpose,
    ),
    Rule(
        "transpose-of-reshape",
        Match("transpose", Match("reshape", _X, name="reshape", only_user=True)),
        _transpose_of_reshape,
    ),
)
