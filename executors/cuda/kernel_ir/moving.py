"""Ops that move elements: views that had to be written out, concat, split, tile, blocks of pixels, roll, pad."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from ....ir.constant import Constant
from ....ir.errors import UnsupportedError
from ....ir.ops.rules import normal_axes, normal_axis
from ....ir.types import DType
from . import flat
from .copies import Part, copy_of
from .launch import Candidate, Lowering, Task
from .layouts import Layout, contiguous, dense, layout_of
from .pointwise import has_types
from .program import KernelProgram, raw
from .types import Name, literals

PartsOf = Callable[[Task], Sequence[Part]]


def copying(parts_of: PartsOf) -> Lowering:
    """The lowering of an op that copies parts."""

    def lower(task: Task) -> Iterator[Candidate]:
        if has_types(task.node):
            yield Candidate("copy", copy_of(parts_of(task), task.chip))

    return lower


def operand(task: Task, index: int = 0) -> Layout:
    """Where an operand lies that is not optional."""
    view = task.operands[index]
    assert view is not None
    return layout_of(view)


def result(task: Task, index: int = 0) -> Layout:
    """Where a result lies."""
    return layout_of(task.results[index])


# ---- views


def _reshaped(task: Task) -> list[Part]:
    """Row-major order on both sides, one of which is contiguous."""
    source, target = operand(task), result(task)
    if contiguous(target):
        return [(source, dense(target.dtype, source.shape, target.place))]
    if contiguous(source):
        return [(dense(source.dtype, target.shape, source.place), target)]
    raise UnsupportedError("a reshape from strides to strides")


def _transposed(task: Task) -> list[Part]:
    return [(operand(task).permuted(task.node.attrs["perm"]), result(task))]


def _expanded(task: Task) -> list[Part]:
    target = result(task)
    return [(operand(task).broadcast(target.shape), target)]


def _sliced(task: Task) -> list[Part]:
    source, target, attrs = operand(task), result(task), task.node.attrs
    axes = normal_axes(attrs["axes"], len(source.shape))
    for axis, start, end, step in zip(axes, attrs["starts"], attrs["ends"], attrs["steps"], strict=True):
        taken = range(*slice(start, end, step).indices(source.shape[axis]))
        source = source.part(axis, taken.start if taken else 0, len(taken), step)
    return [(source, target)]


# ---- parts


def _joined(task: Task) -> list[Part]:
    target = result(task)
    axis = normal_axis(task.node.attrs["axis"], len(target.shape))
    parts: list[Part] = []
    start = 0
    for index in range(len(task.operands)):
        source = operand(task, index)
        size = source.shape[axis]
        place = target.part(axis, start, size)
        start += size
        if (source.place, source.strides) != (place.place, place.strides):
            parts.append((source, place))
    return parts


def _parted(task: Task) -> list[Part]:
    source = operand(task)
    axis = normal_axis(task.node.attrs["axis"], len(source.shape))
    parts: list[Part] = []
    start = 0
    for index in range(len(task.results)):
        target = result(task, index)
        piece = source.part(axis, start, target.shape[axis])
        start += target.shape[axis]
        if (piece.place, piece.strides) != (target.place, target.strides):
            parts.append((piece, target))
    return parts


def _tiled(task: Task) -> list[Part]:
    source, target = operand(task), result(task)
    for axis, repeats in reversed(list(enumerate(task.node.attrs["repeats"]))):
        target = target.split(axis, (repeats, source.shape[axis]))
        source = source.inserted(axis, repeats)
    return [(source, target)]


def _reversed(task: Task) -> list[Part]:
    source = operand(task)
    for axis in normal_axes(task.node.attrs["axes"], len(source.shape)):
        size = source.shape[axis]
        source = source.part(axis, max(size - 1, 0), size, -1)
    return [(source, result(task))]


def _rolled(task: Task) -> list[Part]:
    source, target, attrs = operand(task), result(task), task.node.attrs
    axes = normal_axes(attrs["axes"], len(source.shape))
    turns: list[list[tuple[int, int, int]]] = []
    for axis, shift in zip(axes, attrs["shifts"], strict=True):
        size = source.shape[axis]
        moved = shift % size if size else 0
        turns.append([(0, moved, size - moved), (size - moved, 0, moved)])
    parts: list[Part] = []
    for choice in product(*turns):
        piece, place = source, target
        for axis, (start, to, size) in zip(axes, choice, strict=True):
            piece, place = piece.part(axis, start, size), place.part(axis, to, size)
        parts.append((piece, place))
    return parts


# ---- blocks of pixels


def _depth_to_space(task: Task) -> list[Part]:
    source, target, b = operand(task), result(task), task.node.attrs["block_size"]
    depth = target.shape[1]
    if task.node.attrs["mode"] == "DCR":
        blocks = source.split(1, (b, b, depth)).permuted((0, 3, 4, 1, 5, 2))
    else:
        blocks = source.split(1, (depth, b, b)).permuted((0, 1, 4, 2, 5, 3))
    return [(blocks, target.split(3, (source.shape[3], b)).split(2, (source.shape[2], b)))]


def _space_to_depth(task: Task) -> list[Part]:
    source, target, b = operand(task), result(task), task.node.attrs["block_size"]
    channels, rows, columns = source.shape[1], target.shape[2], target.shape[3]
    blocks = source.split(3, (columns, b)).split(2, (rows, b))
    if task.node.attrs["mode"] == "DCR":
        return [(blocks.permuted((0, 3, 5, 1, 2, 4)), target.split(1, (b, b, channels)))]
    return [(blocks.permuted((0, 1, 3, 5, 2, 4)), target.split(1, (channels, b, b)))]


# ---- computed places


def lower_programs(program_of: Callable[[Task], KernelProgram], name: str) -> Lowering:
    """The lowering of an op that one program without reductions does."""

    def lower(task: Task) -> Iterator[Candidate]:
        if has_types(task.node):
            yield Candidate(name, flat.launch([program_of(task)], task.chip))

    return lower


def _single(layout: Layout) -> Layout:
    """The one element of a tensor, of no axes."""
    return layout.without(range(len(layout.shape)))


def zero(layout: Layout) -> str:
    """The element 0 of what `layout` holds, as a computed value."""
    return literals(Constant(np.zeros((), layout.dtype.numpy)))[0]


def _padded(task: Task) -> KernelProgram:
    source, target = raw(operand(task)), raw(result(task))
    pads, rank = task.node.attrs["pads"], len(source.shape)
    program = KernelProgram(target.shape)
    at = [program.coordinate(axis) if pads[axis] or pads[rank + axis] else None for axis in range(rank)]
    if task.node.attrs["mode"] == "constant":
        value = _constant_pad(program, task, source, at)
    else:
        value = _mirrored_pad(program, task, source, at)
    program.store(value, target)
    return program


def _constant_pad(program: KernelProgram, task: Task, source: Layout, at: Sequence[Name | None]) -> Name:
    pads = task.node.attrs["pads"]
    begins = pads[: len(source.shape)]
    has_fill = len(task.operands) > 1 and task.operands[1] is not None
    fill = program.load(_single(raw(operand(task, 1)))) if has_fill else Name(zero(source), source.dtype)
    inside = [
        f"${axis} >= {begin}ll && ${axis} < {begin + size}ll"
        for axis, (begin, size) in enumerate(zip(begins, source.shape, strict=True))
        if at[axis] is not None
    ]
    offset = -sum(begin * stride for begin, stride in zip(begins, source.strides, strict=True))
    seen = Layout(source.dtype, program.domain, source.strides, source.place, source.alignment)
    if not inside:
        return program.load(seen)
    return program.fetch(seen, f"({offset}ll)", *at, fill, condition=" && ".join(inside), default=f"${len(at)}")


_MIRRORS = {
    "edge": "({q} < 0 ? 0 : {q} >= {n} ? {n} - 1 : {q})",
    "wrap": "remainder_of({q}, {n})",
    "reflect": "({n} == 1 ? 0ll : {n} - 1 - magnitude({n} - 1 - remainder_of({q}, 2 * {n} - 2)))",
}


def _mirrored_pad(program: KernelProgram, task: Task, source: Layout, at: Sequence[Name | None]) -> Name:
    pads, rank, mode = task.node.attrs["pads"], len(source.shape), task.node.attrs["mode"]
    strides = [0 if place is not None else stride for place, stride in zip(at, source.strides, strict=True)]
    terms: list[str] = []
    for axis, place in enumerate(at):
        if place is None:
            continue
        begin, end = pads[axis], pads[rank + axis]
        kept = source.shape[axis] - max(-begin, 0) - max(-end, 0)
        mirrored = _MIRRORS[mode].format(q=f"(${axis} - {max(begin, 0)}ll)", n=f"{kept}ll")
        terms.append(f"({mirrored} + {max(-begin, 0)}) * {source.strides[axis]}")
    seen = Layout(source.dtype, program.domain, tuple(strides), source.place, source.alignment)
    return program.fetch(seen, " + ".join(terms), *at) if terms else program.load(seen)


def _triangle(task: Task) -> KernelProgram:
    source, target, attrs = raw(operand(task)), raw(result(task)), task.node.attrs
    program = KernelProgram(target.shape)
    rank = len(target.shape)
    x = program.load(source)
    row, column = program.coordinate(rank - 2), program.coordinate(rank - 1)
    if task.node.op.name == "trilu":
        diagonal = Name(f"{attrs['diagonal']}ll", DType.I64)
    else:
        diagonal = program.load(_single(operand(task, 1)))
    relation = ">=" if attrs["upper"] else "<="
    form = f"$0 - $1 {relation} $2 ? $3 : {zero(source)}"
    program.store(program.define(source.dtype, form, column, row, diagonal, x), target)
    return program


def _reversed_sequence(task: Task) -> KernelProgram:
    source, lengths, target = raw(operand(task)), operand(task, 1), raw(result(task))
    rank, attrs = len(source.shape), task.node.attrs
    batch, time = normal_axis(attrs["batch_axis"], rank), normal_axis(attrs["time_axis"], rank)
    program = KernelProgram(target.shape)
    step = program.coordinate(time)
    spread = [lengths.strides[0] if axis == batch else 0 for axis in range(rank)]
    until = program.load(Layout(lengths.dtype, target.shape, tuple(spread), lengths.place, lengths.alignment))
    size = f"{source.shape[time]}ll"
    held = program.define(until.dtype, f"$0 < 0 ? 0ll : $0 > {size} ? {size} : $0", until)
    at = program.define(until.dtype, "$0 < $1 ? $1 - 1 - $0 : $0", step, held)
    strides = tuple(0 if axis == time else stride for axis, stride in enumerate(source.strides))
    seen = Layout(source.dtype, target.shape, strides, source.place, source.alignment)
    program.store(program.fetch(seen, f"$0 * {source.strides[time]}", at), target)
    return program


LOWERINGS: Mapping[str, Lowering] = {
    "reshape": copying(_reshaped),
    "squeeze": copying(_reshaped),
    "unsqueeze": copying(_reshaped),
    "transpose": copying(_transposed),
    "expand": copying(_expanded),
    "slice": copying(_sliced),
    "concat": copying(_joined),
    "split": copying(_parted),
    "tile": copying(_tiled),
    "reverse": copying(_reversed),
    "roll": copying(_rolled),
    "depth_to_space": copying(_depth_to_space),
    "space_to_depth": copying(_space_to_depth),
    "pad": lower_programs(_padded, "pad"),
    "trilu": lower_programs(_triangle, "triangle"),
    "dynamic_trilu": lower_programs(_triangle, "triangle"),
    "reverse_sequence": lower_programs(_reversed_sequence, "reversed"),
}
"""Ops that move elements and compute nothing."""
