"""Parts and their joining: slices of slices and of concats, strided parts joined again, writes that fill a tensor."""

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import NamedTuple

import numpy as np

from ....ir.analysis.contents import constant_of
from ....ir.dims import Dim, Truth, compare, is_at_least
from ....ir.graph import Node, Value
from ....ir.ops.known import SLICE, TENSOR_SCATTER
from ....ir.ops.rules import normal_axes, normal_axis
from ...framework.pattern import Capture, Found, Literal, Match, Rule
from ...framework.rewriter import Rewriter

_FAR = (1 << 31) - 1  # exporters write the largest int32 or int64 for "to the end"


class Span(NamedTuple):
    """Elements `start` to `end` of `x` along one axis, with `0 <= start <= end <= size`."""

    x: Value
    axis: int
    start: Dim
    end: Dim


def span_of(value: Value) -> Span | None:
    """What a slice along one axis with step 1 takes; None for anything else, and where a bound might be clamped."""
    node = value.producer
    if node is None or node.op is not SLICE or len(node.attrs["axes"]) != 1 or node.attrs["steps"] != (1,):
        return None
    x = node.operands[0]
    axis = normal_axis(node.attrs["axes"][0], x.tensor.rank)
    size = x.shape[axis]
    start, end = (_from_front(node.attrs[name][0], size) for name in ("starts", "ends"))
    if start is None or end is None:
        return None
    if isinstance(start, int) and isinstance(end, int):
        end = max(start, end)
    return Span(x, axis, start, end) if is_at_least(end, start) is Truth.YES else None


def _from_front(bound: Dim, size: Dim) -> Dim | None:
    if isinstance(bound, int):
        if isinstance(size, int):
            return min(max(bound + size if bound < 0 else bound, 0), size)
        if bound >= _FAR:
            return size
        bound = bound + size if bound < 0 else bound
    is_inside = is_at_least(bound, 0) is Truth.YES and is_at_least(size, bound) is Truth.YES
    return bound if is_inside else None


def _sliced(rewriter: Rewriter, span: Span) -> Value:
    bounds = {"starts": (span.start,), "ends": (span.end,), "steps": (1,)}
    return rewriter.op("slice", span.x, axes=(span.axis,), **bounds)


# ---- slices of slices, of concats, by indices


def _slice_of_slice(rewriter: Rewriter, found: Found) -> Value | None:
    """Along other axes both slices are one; along the same axis if all bounds are plain."""
    inner, outer, x = found.node("inner"), found.root, found["x"]
    taken = _by_axis(inner)
    for axis, bounds in _by_axis(outer).items():
        joined = bounds if axis not in taken else _joined(taken[axis], bounds, x.shape[axis])
        if joined is None:
            return None
        taken[axis] = joined
    starts, ends, steps = zip(*taken.values(), strict=True)
    return rewriter.op("slice", x, axes=tuple(taken), starts=starts, ends=ends, steps=steps)


_Bounds = tuple[Dim, Dim, int]


def _by_axis(node: Node) -> dict[int, _Bounds]:
    attrs = node.attrs
    axes = normal_axes(attrs["axes"], node.operands[0].tensor.rank)
    return dict(zip(axes, zip(attrs["starts"], attrs["ends"], attrs["steps"], strict=True), strict=True))


def _joined(inner: _Bounds, outer: _Bounds, size: Dim) -> _Bounds | None:
    numbers = [bound for bound in (*inner[:2], *outer[:2], size) if isinstance(bound, int)]
    if len(numbers) < 5 or inner[2] < 1 or outer[2] < 1:
        return None
    start, end, next_start, next_end, length = numbers
    left = range(length)[slice(start, end, inner[2])][slice(next_start, next_end, outer[2])]
    return left.start, max(left.stop, left.start), left.step


def _slice_of_concat(rewriter: Rewriter, found: Found) -> Value | None:
    """Whole operands of the concat, or a part of one of them."""
    span = span_of(found.root.output)
    concat = found.node("concat")
    if span is None or span.axis != normal_axis(concat.attrs["axis"], span.x.tensor.rank):
        return None
    edges: list[Dim] = [0]
    for operand in concat.operands:
        edges.append(edges[-1] + operand.shape[span.axis])
    first, last = (_edge(edges, bound) for bound in (span.start, span.end))
    if first is not None and last is not None and first < last:
        whole = concat.operands[first:last]
        return whole[0] if len(whole) == 1 else rewriter.op("concat", *whole, axis=span.axis)
    for operand, start, end in zip(concat.operands, edges, edges[1:], strict=False):
        if is_at_least(span.start, start) is Truth.YES and is_at_least(end, span.end) is Truth.YES:
            return _sliced(rewriter, Span(operand, span.axis, span.start - start, span.end - start))
    return None


def _edge(edges: list[Dim], bound: Dim) -> int | None:
    return next((index for index, edge in enumerate(edges) if compare(edge, bound) is Truth.YES), None)


def _gather_in_order(rewriter: Rewriter, found: Found) -> Value | None:
    """Indices that follow one another are a slice."""
    x, indices = found["x"], found.constant("indices").array
    axis = normal_axis(found.root.attrs["axis"], x.tensor.rank)
    size = x.shape[axis]
    if indices.ndim != 1 or not indices.size or not isinstance(size, int):
        return None
    first = int(indices[0]) + (size if indices[0] < 0 else 0)
    if not 0 <= first <= size - indices.size or np.any(np.diff(indices.astype(np.int64)) != 1):
        return None
    return _sliced(rewriter, Span(x, axis, first, first + indices.size))


# ---- concats of slices


def _concat_of_slices(rewriter: Rewriter, found: Found) -> Value | None:
    """Neighboring slices of one tensor are one slice; all of it is the tensor itself."""
    root = found.root
    axis = normal_axis(root.attrs["axis"], root.output.tensor.rank)
    spans = [_span_along(value, axis) for value in root.operands]
    parts: list[Span | Value] = []
    for value, span in zip(root.operands, spans, strict=True):
        last = parts[-1] if parts else None
        if span is not None and isinstance(last, Span) and last.x is span.x and last.end == span.start:
            parts[-1] = Span(span.x, axis, last.start, span.end)
        else:
            parts.append(span if span is not None else value)
    if len(parts) == len(root.operands):
        return _rotation(rewriter, root, spans)
    joined = [_sliced(rewriter, part) if isinstance(part, Span) else part for part in parts]
    return joined[0] if len(joined) == 1 else rewriter.op("concat", *joined, axis=axis)


def _span_along(value: Value, axis: int) -> Span | None:
    span = span_of(value)
    return span if span is not None and span.axis == axis else None


def _rotation(rewriter: Rewriter, root: Node, spans: list[Span | None]) -> Value | None:
    """The end of a tensor and then its beginning: a roll."""
    if len(spans) != 2 or any(value.use_count != 1 for value in root.operands):
        return None
    end, beginning = spans
    if end is None or beginning is None:
        return None
    size = end.x.shape[end.axis]
    if end.x is not beginning.x or end.end != size or beginning.start != 0 or end.start != beginning.end:
        return None
    shift = size - end.start
    if not isinstance(shift, int):
        shift = -end.start
    return rewriter.op("roll", end.x, axes=(end.axis,), shifts=(shift,)) if isinstance(shift, int) else None


def _roll_of_roll(rewriter: Rewriter, found: Found) -> Value | None:
    inner, outer, x = found.node("inner"), found.root, found["x"]
    shifts: dict[int, int] = {}
    for node in (inner, outer):
        for axis, shift in zip(normal_axes(node.attrs["axes"], x.tensor.rank), node.attrs["shifts"], strict=True):
            shifts[axis] = shifts.get(axis, 0) + shift
    return rewriter.op("roll", x, axes=tuple(shifts), shifts=tuple(shifts.values()))


def _no_roll(_rewriter: Rewriter, found: Found) -> Value | None:
    return found["x"] if not any(found.root.attrs["shifts"]) else None


# ---- pads


def _pad_of_pad(rewriter: Rewriter, found: Found) -> Value | None:
    """Constant pads with the same value add up where none takes away."""
    inner, outer, x = found.node("inner"), found.root, found["x"]
    if any(node.attrs["mode"] != "constant" for node in (inner, outer)) or inner.inputs[1] is not outer.inputs[1]:
        return None
    both = (*inner.attrs["pads"], *outer.attrs["pads"])
    if not all(is_at_least(pad, 0) is Truth.YES for pad in both):
        return None
    pads = tuple(a + b for a, b in zip(inner.attrs["pads"], outer.attrs["pads"], strict=True))
    return rewriter.op("pad", x, inner.inputs[1], pads=pads, mode="constant")


_X = Capture("x")
_VALUE, _OTHER = Capture("value", is_optional=True), Capture("other", is_optional=True)

_PARTS: tuple[Rule, ...] = (
    Rule("slice-of-slice", Match("slice", Match("slice", _X, name="inner")), _slice_of_slice),
    Rule("slice-of-concat", Match("slice", Match("concat", name="concat", more=True)), _slice_of_concat),
    Rule("gather-in-order", Match("gather", _X, Literal("indices")), _gather_in_order),
    Rule("concat-of-slices", Match("concat", more=True), _concat_of_slices),
    Rule("roll-of-roll", Match("roll", Match("roll", _X, name="inner", only_user=True)), _roll_of_roll),
    Rule("no-roll", Match("roll", _X), _no_roll),
    Rule("pad-of-pad", Match("pad", Match("pad", _X, _VALUE, name="inner", only_user=True), _OTHER), _pad_of_pad),
)


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


_MOST = 1 << 14
"""Longer axes are not looked at."""


def _filled(rewriter: Rewriter, found: Found) -> Value | None:
    """What a loop over steps that was unrolled leaves: a write for each step into what was empty before."""
    root = found.root
    axis, size = _axis(root), root.output.shape[_axis(root)]
    if not isinstance(size, int) or size > _MOST or _is_followed(root):
        return None
    is_written, parts = [False] * size, dict[int, Value]()
    for start, update in _writes(root):
        length = update.shape[axis]
        if not isinstance(length, int) or not 0 < length <= size - start or start < 0:
            return None
        seen = is_written[start : start + length]
        if all(seen):
            continue
        if any(seen):
            return None
        is_written[start : start + length] = [True] * length
        parts[start] = update
        if all(is_written):
            return rewriter.op("concat", *(parts[start] for start in sorted(parts)), axis=axis)
    return None


def _axis(node: Node) -> int:
    return normal_axis(node.attrs["axis"], node.output.tensor.rank)


def _is_followed(node: Node) -> bool:
    """Whether another write follows, from which all of them are seen."""
    return any(user.op is TENSOR_SCATTER and user.inputs[0] is node.output for user in node.output.users)


def _writes(root: Node) -> Iterator[tuple[int, Value]]:
    """Where each write begins and what it writes, the last one first; those into a graph's input are left alone."""
    node: Node | None = root
    while node is not None and node.op is TENSOR_SCATTER and _axis(node) == _axis(root):
        base, update = node.operands[:2]
        start = _start(node.inputs[2])
        if start is None or node.attrs["mode"] != "linear" or base.producer is None:
            return
        yield start, update
        node = base.producer


def _start(positions: Value | None) -> int | None:
    """The one number that all positions are."""
    if positions is None:
        return 0
    content = constant_of(positions)
    if content is None or not content.size or np.any(content.array != content.array[0]):
        return None
    return int(content.array[0])


RULES: tuple[Rule, ...] = (
    *_PARTS,
    Rule("concat-of-strides", Match("concat", more=True), _as_reshapes),
    Rule("writes-that-fill", Match("tensor_scatter", Capture("x"), more=True), _filled),
)
