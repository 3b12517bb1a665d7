"""Every s-th element from each start, joined again: space to depth, as Swin merges its patches."""

from collections.abc import Sequence
from itertools import permutations, product
from typing import NamedTuple

from ....ir.dims import Dim
from ....ir.graph import Node, Value
from ....ir.ops.known import SLICE
from ....ir.ops.rules import normal_axes, normal_axis
from ...framework.pattern import Found, Match, Rule
from ...framework.rewriter import Rewriter

MIN_SLICES = 3
"""A reshape, a transpose and a reshape take the place of the slices and the concat."""


class _Strides(NamedTuple):
    """A slice of `x` with `steps[i]` along `axes[i]`, from `starts[i]` to the end."""

    x: Value
    axes: tuple[int, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]


def _strides_of(value: Value) -> _Strides | None:
    """None for anything but such a slice that one node reads, of axes that the steps divide."""
    node = value.producer
    if node is None or node.op is not SLICE or value.use_count != 1:
        return None
    x, attrs = node.operands[0], node.attrs
    axes, starts, steps = normal_axes(attrs["axes"], x.tensor.rank), attrs["starts"], attrs["steps"]
    bounds = zip(axes, starts, attrs["ends"], steps, strict=True)
    if not all(_is_to_the_end(x.shape[axis], start, end, step) for axis, start, end, step in bounds):
        return None
    order = sorted(range(len(axes)), key=axes.__getitem__)
    return _Strides(x, *(tuple(each[index] for index in order) for each in (axes, starts, steps)))


def _is_to_the_end(size: Dim, start: Dim, end: Dim, step: int) -> bool:
    if not (isinstance(size, int) and isinstance(start, int) and isinstance(end, int)):
        return False
    return step > 1 and 0 <= start < step and size % step == 0 and end > size - step + start


def _as_reshapes(rewriter: Rewriter, found: Found) -> Value | None:
    slices = [_strides_of(value) for value in found.root.operands]
    first = slices[0] if len(slices) >= MIN_SLICES else None
    if first is None:
        return None
    same = [each for each in slices if each is not None and (each.x, each.axes, each.steps) == _kind(first)]
    joined = normal_axis(found.root.attrs["axis"], first.x.tensor.rank)
    order = _counting_order([each.starts for each in same], first.steps) if len(same) == len(slices) else None
    return None if order is None or joined in first.axes else _rearranged(rewriter, found.root, first, order, joined)


def _kind(strides: _Strides) -> tuple[Value, tuple[int, ...], tuple[int, ...]]:
    return strides.x, strides.axes, strides.steps


def _counting_order(starts: Sequence[tuple[int, ...]], steps: Sequence[int]) -> tuple[int, ...] | None:
    """In which order the starts count through all that the steps leave, the slowest first; None when they do not."""
    for order in permutations(range(len(steps))):
        counted = product(*(range(steps[index]) for index in order))
        if [tuple(each[index] for index in order) for each in starts] == list(counted):
            return order
    return None


def _rearranged(rewriter: Rewriter, root: Node, strides: _Strides, order: Sequence[int], joined: int) -> Value:
    shape: list[Dim] = []
    outer: list[int] = []  # where the axes of x stand in the cut shape
    inner: dict[int, int] = {}  # and where the starts do
    for axis, size in enumerate(strides.x.shape):
        outer.append(len(shape))
        if axis in strides.axes:
            step = strides.steps[strides.axes.index(axis)]
            inner[strides.axes.index(axis)] = len(shape) + 1
            shape += [size // step, step]
        else:
            shape.append(size)
    perm = (*outer[:joined], *(inner[index] for index in order), *outer[joined:])
    moved = rewriter.op("transpose", rewriter.op("reshape", strides.x, shape=shape), perm=perm)
    return rewriter.op("reshape", moved, shape=root.output.shape)


RULES: tuple[Rule, ...] = (Rule("concat-of-strides", Match("concat", more=True), _as_reshapes),)
