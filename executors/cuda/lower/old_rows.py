"""Attention over caches that are states: old rows are read before the kernel waits, and the new one it writes itself.

Of such a cache a plan writes one row of each sample, at a place that lies in device memory. All other rows are from
earlier calls, which have ended: the plan's first kernel starts behind all that was enqueued before, as it is not
allowed to overlap. The new rows and their rotation, with that of the queries, become part of the launch of attention,
so that their own steps have none. What these read has to be there until then, and nobody else may read what they made.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from ....ir.graph import Graph, Node, Value
from ....ir.ops.known import ATTENTION, ROTARY_EMBEDDING, TENSOR_SCATTER
from ....ir.plan import Place as Home
from ....ir.plan import Plan, StepKind, View
from ..kernel_ir.launch import Candidate, KernelLaunch
from ..kernel_ir.prefetch import Ahead, can_prefetch, prefetching
from ..kernel_ir.sources import Source, source_of
from ..kernels.attention.attention import attention_of, by_head
from ..kernels.attention.new_rows import NewRows, Rotation, can_rotate
from ..kernels.attention.tensor_cores import ahead_of, launch_with_rows, shape_named
from ..kernels.gemm.own_kernel_epilogue import broadcast_to
from .lowering import LoweredStep

Chosen = tuple[Candidate | None, ...]
_Range = tuple[Home | int, int, int]


def kept_for_attention(graph: Graph, views: Mapping[Value, View]) -> Iterator[tuple[Value, Node]]:
    """What attention of one query reads if it rotates heads and writes caches itself, with the node of attention."""
    rotations = {views[node.output].buffer: node for node in graph.nodes if node.op is ROTARY_EMBEDDING}
    for node in graph.nodes:
        if node.op is not ATTENTION or node.operands[0].shape[-2 if node.operands[0].tensor.rank == 4 else 1] != 1:
            continue
        writes = [each.producer for each in node.operands[1:3] if each.producer is not None]
        if any(write.op is not TENSOR_SCATTER for write in writes):
            continue
        new = [value for write in writes for value in write.operands[1:]]
        turned = [rotations.get(views[value].buffer) for value in (node.operands[0], *new)]
        read = [value for each in turned if each is not None for value in each.operands]
        yield from ((value, node) for value in (*new, *read))


def with_old_rows(plan: Plan, candidates: Sequence[LoweredStep], chosen: Sequence[Candidate | None]) -> Chosen:
    """The chosen candidates of a plan's steps, in which attention reads old rows early and writes new ones."""
    found, search = list(chosen), _Search(plan, candidates)
    for index, each in enumerate(candidates):
        candidate = chosen[index]
        if each.step.node.op is ATTENTION and candidate is not None:
            joined = search.joined(index, candidate)
            if joined is not None:
                for member in joined.others:
                    found[member] = Candidate("joined", ())
                found[index] = replace(candidate, launches=(joined.launch,))
                _ask_ahead(found, index, joined.wanted)
    return tuple(chosen) if found == list(chosen) else tuple(_begun_alone(found))


def _ask_ahead(chosen: list[Candidate | None], index: int, wanted: tuple[Ahead, ...]) -> None:
    """Lets the kernel in front of a step bring what is wanted into the cache, where it can."""
    before = next((at for at in range(index - 1, -1, -1) if _launches(chosen[at])), None)
    candidate = None if before is None else chosen[before]
    if before is None or candidate is None:
        return
    *others, last = candidate.launches
    if isinstance(last, KernelLaunch) and can_prefetch(last):
        chosen[before] = replace(candidate, launches=(*others, prefetching(last, wanted)))


def _launches(candidate: Candidate | None) -> int:
    return 0 if candidate is None else len(candidate.launches)


@dataclass(frozen=True, slots=True)
class _Joined:
    launch: KernelLaunch
    wanted: tuple[Ahead, ...]
    """What it reads before it waits."""
    others: tuple[int, ...]
    """The steps whose work it does besides."""


class _Search:
    """Who makes and reads the values of a plan; views of a value count as the value."""

    def __init__(self, plan: Plan, candidates: Sequence[LoweredStep]) -> None:
        self.plan = plan
        self.candidates = candidates
        self._roots: dict[Value, Value] = {}
        self._maker: dict[Value, int] = {}
        self._readers: defaultdict[Value, set[int]] = defaultdict(set)
        for index, each in enumerate(candidates):
            node = each.step.node
            if each.step.kind is StepKind.ALIAS and node.operands:
                self._roots |= {value: self._root(node.operands[0]) for value in node.outputs}
                continue
            self._maker |= dict.fromkeys(node.outputs, index)
            for value in node.operands:
                self._readers[self._root(value)].add(index)
        self._outputs = {self._root(value) for value in plan.graph.outputs}

    def _root(self, value: Value) -> Value:
        return self._roots.get(value, value)

    def joined(self, index: int, candidate: Candidate) -> _Joined | None:
        """The launch of attention with the steps that it can do besides: the writes, and if possible the rotation."""
        writes = [self._write(value) for value in self.candidates[index].step.node.operands[1:3]]
        known = [write for write in writes if write is not None]
        if len(known) < 2:
            return None
        rotations = self._rotations(index, known)
        tries = (rotations, frozenset[int]()) if rotations else (rotations,)
        found = (self._launch(index, candidate, known, rotations) for rotations in tries)
        return next((each for each in found if each is not None), None)

    def _write(self, cache: Value) -> int | None:
        """The step that writes one row of each sample of a cache, and no other does; None where more may be new."""
        write = self._maker.get(self._root(cache))
        node = None if write is None else self.candidates[write].step.node
        if write is None or node is None or node.op is not TENSOR_SCATTER or node.attrs["mode"] != "linear":
            return None
        if len(node.operands) < 3:
            return None
        old, update, _ = node.operands[:3]
        is_row = len(update.shape) == 4 and node.attrs["axis"] % 4 == 2 and update.shape[2] == 1
        if not is_row or self.plan.views[old] != self.plan.views[cache] or old not in self.plan.graph.inputs:
            return None
        buffer = self.plan.views[cache].buffer
        writers = [
            step
            for step, each in enumerate(self.candidates)
            if each.step.kind is not StepKind.ALIAS
            and any(self.plan.views[value].buffer == buffer for value in each.step.node.outputs)
        ]
        is_copied = any(self._buffer_of_input(source) == buffer for source in self.plan.copies.values())
        is_state = self.plan.buffers[buffer].place is Home.STATE
        return write if is_state and writers == [write] and not is_copied else None

    def _buffer_of_input(self, index: int) -> int:
        return self.plan.views[self.plan.graph.inputs[index]].buffer

    def _rotations(self, index: int, writes: Sequence[int]) -> frozenset[int]:
        """The steps that rotate the queries and the new row of keys, where only these read what they make."""
        group = {index, *writes}
        found = set[int]()
        for value in (self.candidates[index].step.node.operands[0], self.candidates[writes[0]].step.node.operands[1]):
            turned = self._root(value)
            maker = self._maker.get(turned)
            is_rotation = maker is not None and self.candidates[maker].step.node.op is ROTARY_EMBEDDING
            if maker is not None and is_rotation and turned not in self._outputs and self._readers[turned] <= group:
                found.add(maker)
        return frozenset(found)

    def _launch(
        self, index: int, candidate: Candidate, writes: Sequence[int], rotations: frozenset[int]
    ) -> _Joined | None:
        task, shape = self.candidates[index].task, shape_named(candidate.name)
        attention = None if task is None else attention_of(task)
        group = sorted({index, *writes, *rotations})
        if attention is None or shape is None or not self._may_wait(group, index):
            return None
        node, keys, values = (self.candidates[step].step.node for step in (index, *writes))
        turned = [self._turned(value, rotations) for value in (node.operands[0], keys.operands[1])]
        query, key = (self._before(value, rotations) for value in (node.operands[0], keys.operands[1]))
        value, *places = (
            source_of(self.plan.views[each]) for each in (values.operands[1], keys.operands[2], values.operands[2])
        )
        rotation = self._rotation(rotations, turned, attention.batch)
        if (
            query is None
            or key is None
            or (rotations and (rotation is None or not can_rotate(rotation, attention.depth)))
        ):
            return None
        rows = NewRows(key, value, places[0], places[1], rotation)
        launch = launch_with_rows(replace(attention, q=query), shape, rows)
        if launch is None:
            return None
        wanted = tuple(map(ahead_of, (attention.k, attention.v), repeat(shape)))
        return _Joined(launch, wanted, tuple(step for step in group if step != index))

    def _turned(self, value: Value, rotations: frozenset[int]) -> bool:
        return self._maker.get(self._root(value)) in rotations

    def _before(self, value: Value, rotations: frozenset[int]) -> Source | None:
        """Heads [B, H, 1, D] of a value, where one of these rotations made it: as they are before."""
        view = self.plan.views[value]
        if not self._turned(value, rotations):
            return _heads(view, self._head_count(value))
        node = self.candidates[self._maker[self._root(value)]].step.node
        made, source = (self._sides(node, each) for each in (node.output, node.operands[0]))
        part = _heads(view, made.shape[1] if len(view.shape) == 3 else 0)
        offset = view.offset - self.plan.views[node.output].offset
        step = made.strides[1] * self.plan.views[node.output].dtype.numpy.itemsize
        if part is None or part.strides[1] != made.strides[1] or part.shape[3] != made.shape[3] or offset % step:
            return None
        return replace(source.at(offset // step * source.strides[1]), shape=part.shape)

    def _head_count(self, value: Value) -> int:
        """Of queries with heads side by side, as their attention has them."""
        return next((use.attrs["heads"] for use in self._attentions(value)), 0)

    def _attentions(self, value: Value) -> Iterator[Node]:
        return (use for use in value.users if use.op is ATTENTION and use.operands[0] is value)

    def _sides(self, node: Node, value: Value) -> Source:
        """What a rotation reads or makes, as [B, H, 1, D]."""
        source = source_of(self.plan.views[value])
        return source if len(source.shape) == 4 else by_head(source, node.attrs["heads"])

    def _rotation(self, rotations: frozenset[int], turned: Sequence[bool], batch: int) -> Rotation | None:
        """The one rotation that these steps do; None where they are several, or none."""
        found = set[Rotation]()
        for step in rotations:
            node = self.candidates[step].step.node
            if len(node.inputs) > 3 and node.inputs[3] is not None:
                return None
            depth = self._sides(node, node.operands[0]).shape[3]
            if node.attrs["rotary_dim"] not in (0, depth):
                return None
            tables = (source_of(self.plan.views[value]) for value in node.operands[1:3])
            cosines, sines = (broadcast_to(table, (batch, 1, table.shape[2])) for table in tables)
            cosines, sines = (
                replace(table, shape=(batch, table.shape[2]), strides=(table.strides[0], table.strides[2]))
                for table in (cosines, sines)
            )
            found.add(Rotation(cosines, sines, node.attrs["interleaved"], turned[0], turned[1]))
        return next(iter(found)) if len(found) == 1 else None

    # ---- what lies where

    def _may_wait(self, group: list[int], last: int) -> bool:
        """Whether all of a group may be done where its last step is, which is attention."""
        first = group[0]
        if group[-1] != last or not any(each.start <= first and last < each.stop for each in self.plan.segments):
            return False
        results = [self._root(value) for index in group for value in self.candidates[index].step.node.outputs]
        if any(first < reader < last and reader not in group for value in results for reader in self._readers[value]):
            return False
        for index in group[:-1]:
            between = [other for other in range(index + 1, last) if other not in group]
            written = [place for other in (*between, last) for place in self._written(other)]
            if any(_meet(one, other) for one in self._reads(index, group) for other in written):
                return False
        return True

    def _reads(self, index: int, group: list[int]) -> Iterator[_Range]:
        """What a step of a group reads that no step of it makes; of the cache that it writes to it reads nothing."""
        node = self.candidates[index].step.node
        for place, value in enumerate(node.operands):
            is_cache = node.op is TENSOR_SCATTER and place == 0
            if not is_cache and self._maker.get(self._root(value)) not in group:
                yield self._range(self.plan.views[value])

    def _written(self, index: int) -> Iterator[_Range]:
        if self.candidates[index].step.kind is not StepKind.ALIAS:
            yield from (self._range(self.plan.views[value]) for value in self.candidates[index].step.node.outputs)

    def _range(self, view: View) -> _Range:
        """The bytes of a view: which memory, from where to where."""
        buffer, (low, high) = self.plan.buffers[view.buffer], view.reach
        if buffer.place is Home.ARENA:
            return Home.ARENA, buffer.offset + view.offset + low, buffer.offset + view.offset + high
        return view.buffer, view.offset + low, view.offset + high


def _heads(view: View, heads: int) -> Source | None:
    """A view as [B, H, T, D]."""
    source = source_of(view)
    if len(source.shape) == 4:
        return source
    return by_head(source, heads) if heads else None


def _meet(one: _Range, other: _Range) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def _begun_alone(chosen: Sequence[Candidate | None]) -> Iterator[Candidate | None]:
    """The candidates with a first kernel that starts when all before it has ended."""
    is_first = True
    for each in chosen:
        first = None if each is None or not each.launches else each.launches[0]
        if each is not None and is_first and isinstance(first, KernelLaunch):
            yield replace(each, launches=(replace(first, may_overlap=False), *each.launches[1:]))
        else:
            yield each
        is_first = is_first and first is None
