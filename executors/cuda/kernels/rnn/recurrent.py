"""`lstm`, `gru` and `rnn`: one matmul for the inputs of all steps, then the recurrence (`recurrent_kernels.py`).

The matmul is one like any other, of all directions at once where their weights lie one behind another. Its result, the
states, and what a cell keeps besides lie in scratch memory, in f32 (f64 for f64), as they do in the ops' meaning.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .....ir.graph import Graph
from .....ir.ops import native
from .....ir.plan import View, contiguous_strides, element_bytes
from .....ir.types import DType, TensorType
from ...kernel_ir.launch import BufferPlace, Candidate, Chip, Launch, Lowering, Task
from ...kernel_ir.sources import Source, permuted, source_of
from ...kernel_ir.types import computed
from ..gemm.matmul import lower_matmul
from ..gemm.regions import aligned, scratch_behind
from .cells import Cell, activation_code, cell_of
from .clusters import cluster_launch, fits_cluster
from .kernels import first_states, sole_launch, step_launches
from .recurrence import Recurrence

MOST_LAUNCHES = 4096
"""How many launches the steps of one recurrence may take; beyond, one block goes through all of them."""

SMALL_CELL = 32
"""Up to how many hidden units one block is guessed to be faster than a launch for each step."""


def lower_recurrent(task: Task) -> Iterator[Candidate]:
    """The candidates of a recurrent cell: by steps or by one launch, with each candidate of its matmul."""
    if task.scratch is None or 0 in task.results[-1].shape:
        return
    memory = _memory_of(task)
    if memory.nbytes > task.scratch_bytes:
        return
    recurrence = _recurrence_of(task, memory)
    first = first_states(recurrence)
    if not recurrence.steps:
        yield Candidate("states", (first,), memory.nbytes)
        return
    candidates = dict(_candidates(recurrence, first, task.chip))
    for name, launches, scratch_bytes in _projections(task, memory):
        for matmul, steps in candidates.items():
            yield Candidate("+".join(filter(None, (name, matmul))), (*launches, *steps), scratch_bytes)


def _candidates(recurrence: Recurrence, first: Launch, chip: Chip) -> Iterator[tuple[str, Sequence[Launch]]]:
    is_small = recurrence.hidden <= SMALL_CELL
    if fits_cluster(recurrence, chip):
        yield "cluster", [cluster_launch(recurrence)]
    if is_small:
        yield "sole", [first, sole_launch(recurrence)]
    if recurrence.steps * len(recurrence.cell.phases) <= MOST_LAUNCHES:
        yield "steps", [first, *step_launches(recurrence)]
    if not is_small:
        yield "sole", [first, sole_launch(recurrence)]


# ---- scratch


@dataclass(frozen=True)
class _Memory:
    """The scratch of a recurrence: `projected` is [.., D * G * H] over the first two axes of the input."""

    dtype: DType
    projected: View
    states: BufferPlace
    buffers: tuple[BufferPlace, ...]
    nbytes: int


def _memory_of(task: Task) -> _Memory:
    x, w, last = task.operands[0], task.operands[1], task.results[-1]
    assert x is not None
    assert w is not None
    assert task.scratch is not None
    dtype = DType.F64 if computed(x.dtype) == "double" else DType.F32
    shape = (*x.shape[:2], w.shape[0] * w.shape[1])
    itemsize = element_bytes(dtype)
    buffer, offset = task.scratch.buffer, task.scratch.offset
    projected = View(buffer, offset, dtype, shape, contiguous_strides(shape, itemsize))
    state = math.prod(last.shape)
    sizes = [math.prod(shape), 2 * state, *(state for _ in _cell_of(task).buffers)]
    places: list[BufferPlace] = []
    for size in sizes:
        places.append(BufferPlace(buffer, offset))
        offset += aligned(size * itemsize)
    return _Memory(dtype, projected, places[1], tuple(places[2:]), offset - task.scratch.offset)


# ---- the recurrence


def _cell_of(task: Task) -> Cell:
    return cell_of(task.node.op.name, task.node.attrs)


def _recurrence_of(task: Task, memory: _Memory) -> Recurrence:
    attrs, is_lstm = task.node.attrs, task.node.op.name == "lstm"
    x, _, r, b, lengths, *states = (_source(task, index) for index in range(len(task.operands)))
    assert x is not None
    assert r is not None
    by_sample = bool(attrs["layout"])
    every, *last = (source_of(view) for view in task.results)
    every = permuted(every, (1, 2, 0, 3)) if by_sample else every
    initial = tuple(permuted(each, (1, 0, 2)) if each and by_sample else each for each in states[: len(last)])
    strides = [stride // element_bytes(memory.dtype) for stride in memory.projected.strides[:2]]
    step, row = reversed(strides) if by_sample else strides
    reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[attrs["direction"]]
    return Recurrence(
        cell=_cell_of(task),
        steps=every.shape[0],
        is_reversed=reverse,
        activations=activation_code(task.node.op.name, attrs, len(reverse), computed(memory.dtype)),
        r=r,
        b=b,
        peepholes=states[2] if is_lstm else None,
        lengths=lengths,
        initial=initial,
        every=every,
        last=tuple(permuted(each, (1, 0, 2)) if by_sample else each for each in last),
        projected=BufferPlace(memory.projected.buffer, memory.projected.offset) if x.shape[2] else None,
        projected_strides=(step, row),
        states=memory.states,
        buffers=memory.buffers,
    )


def _source(task: Task, index: int) -> Source | None:
    view = task.operands[index]
    return None if view is None else source_of(view, task.constants.get(index))


# ---- the matmul of all inputs


def _projections(task: Task, memory: _Memory) -> Iterator[tuple[str, Sequence[Launch], int]]:
    """The candidates of the matmul: name, launches, and how much scratch is taken with what lies before."""
    x, w = task.operands[0], task.operands[1]
    assert x is not None
    assert w is not None
    if not x.shape[2]:
        yield "", (), memory.nbytes
        return
    parts = [list(_matmul_candidates(each, memory.nbytes)) for each in _matmuls(task, x, w, memory)]
    for each in zip(*parts, strict=True):  # the same problem in each direction, so the same candidates
        launches = [launch for candidate in each for launch in candidate.launches]
        yield each[0].name, launches, memory.nbytes + max(candidate.scratch_bytes for candidate in each)


def _matmul_candidates(task: Task, used: int) -> Iterator[Candidate]:
    scratch, room = scratch_behind(task, used)
    return lower_matmul(replace(task, scratch=scratch, scratch_bytes=room))


def _matmuls(task: Task, x: View, w: View, memory: _Memory) -> Iterator[Task]:
    """Matmuls x [.., I] @ wᵀ [I, D * G * H]: one, or one for each direction where `w` cannot be seen as one matrix."""
    count, rows, features = w.shape
    by_direction, down, along = w.strides
    has_one_matrix = count == 1 or by_direction == rows * down
    columns = count * rows if has_one_matrix else rows
    for first in range(0, count * rows, columns):
        offset = w.offset + first // rows * by_direction
        weight = View(w.buffer, offset, w.dtype, (features, columns), (along, down))
        made = memory.projected
        part = View(
            made.buffer,
            made.offset + first * element_bytes(made.dtype),
            made.dtype,
            (*made.shape[:2], columns),
            made.strides,
        )
        yield _matmul_task(task, x, weight, part)


def _matmul_task(task: Task, x: View, weight: View, made: View) -> Task:
    graph = Graph("projection")
    operands = [graph.add_input(name, TensorType(v.dtype, v.shape)) for name, v in (("x", x), ("w", weight))]
    node = graph.append(native("matmul"), operands)
    constants = {index: task.constants[index] for index in (0, 1) if index in task.constants}
    return replace(task, node=node, operands=(x, weight), results=(made,), constants=constants)


LOWERINGS: Mapping[str, Lowering] = dict.fromkeys(("lstm", "gru", "rnn"), lower_recurrent)
