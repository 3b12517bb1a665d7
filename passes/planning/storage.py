"""Storage: which values share memory, and how long each piece of memory is needed.

Values are grouped. A group is one future buffer: the value that it was made for, the views of it, results written in
place, the parts of a concat. Whether a result is a view of its operand, and with which strides, is not decided by the
name of the op but seen: the op's NumPy meaning runs on an array of the operand's strides, and NumPy either gives a view
of it or does not.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...ir.analysis.contents import any_constant_of
from ...ir.constant import Array
from ...ir.evaluate import as_results, bound_attrs
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.plan import Place, View, contiguous_strides, element_bytes
from ...ir.target import Target
from ...ir.types import Kind, TensorType
from .layouts import Layouts


@dataclass
class BufferGroup:
    """A future buffer: `nbytes`, needed from step `first` to step `last`; `members` are the values that live in it."""

    place: Place
    nbytes: int
    first: int
    last: int
    label: str
    members: list[Value] = field(default_factory=list[Value])


@dataclass
class StoragePlan:
    """The groups of a graph, where each value lies (`View.buffer` is the index of its group), and what is free of work.

    `aliases` are the nodes that need no work at run time. `copies` are states that have to be copied at the end: output
    index to input index.
    """

    groups: list[BufferGroup]
    views: dict[Value, View]
    dynamic: dict[Value, int]
    aliases: set[Node]
    copies: dict[int, int]


def assign_storage(
    graph: Graph, target: Target, donated: Collection[str] = (), resident: Collection[str] = ()
) -> StoragePlan:
    """Groups the values of a specialized graph. Every group has a lifetime in steps; arena offsets come later.

    The memory of the inputs called `donated` may be written once nothing reads them any more; those called `resident`
    have memory of their own, outside of the arena, which no step writes.
    """
    return _Assignment(graph, target, donated, resident).run()


class _Assignment:
    def __init__(self, graph: Graph, target: Target, donated: Collection[str], resident: Collection[str]) -> None:
        self.graph = graph
        self.target = target
        self.donated = donated
        self.resident = resident
        self.order = {node: index for index, node in enumerate(graph.nodes)}
        self.last_read = _last_reads(graph, self.order)
        self.states = {graph.outputs[state.output]: graph.inputs[state.input] for state in graph.states}
        self.state_inputs = set(self.states.values())
        self.parts = _parts_of_concats(graph)
        self.layouts = Layouts(graph, target)
        self.result = StoragePlan([], {}, {}, set(), {})

    def run(self) -> StoragePlan:
        for value in self.graph.inputs:
            self._new_group(value, self._input_place(value), -1)
        for node in self.graph.nodes:
            self._assign_node(node)
        for state in self.graph.states:
            self._finish_state(state.input, state.output)
        return self.result

    def _input_place(self, value: Value) -> Place:
        if not is_planned(value):
            return Place.DYNAMIC
        if value in self.state_inputs:
            return Place.STATE
        return Place.INPUT if value.name in self.resident else Place.ARENA

    def _assign_node(self, node: Node) -> None:
        step = self.order[node]
        if node.op.has(Trait.VIEW) and self._assign_views(node):
            self.result.aliases.add(node)
            return
        if node in self.parts.whole:
            self._assign_concat(node)
            return
        for value in node.outputs:
            if not is_planned(value):
                self._new_group(value, Place.DYNAMIC, step)
            elif any_constant_of(value) is not None:
                self._new_group(value, Place.CONSTANT, step)
                self.result.aliases.add(node)
            elif value in self.parts.place:
                self._assign_part(value, step)
            elif not self._assign_in_place(node, value):
                self._new_group(value, Place.ARENA, step)

    # ---- new memory

    def _new_group(self, value: Value, place: Place, step: int) -> int:
        index = len(self.result.groups)
        nbytes = _nbytes(value) if place is not Place.DYNAMIC else 0
        group = BufferGroup(place, nbytes, step, step, value.name)
        self.result.groups.append(group)
        if place is Place.DYNAMIC:
            self.result.dynamic[value] = index
            self._extend(group, value)
        else:
            self._join(index, value, self._view(value, index, 0))
        return index

    def _view(self, value: Value, buffer: int, offset: int) -> View:
        """A value in memory of its own, in the layout that it is to have."""
        row_major = _contiguous_view(value, buffer, offset)
        if value in self.parts.place or value.producer in self.parts.whole:
            return row_major
        strides = self.layouts.strides(value, element_bytes(row_major.dtype), self.result.views)
        return row_major if strides is None else replace(row_major, strides=strides)

    def _join(self, index: int, value: Value, view: View) -> None:
        self.result.views[value] = view
        self._extend(self.result.groups[index], value)

    def _extend(self, group: BufferGroup, value: Value) -> None:
        group.members.append(value)
        group.last = max(group.last, self.last_read[value])

    # ---- views

    def _assign_views(self, node: Node) -> bool:
        source = node.inputs[0]
        base = self.result.views.get(source) if source is not None else None
        if base is None or not all(is_planned(value) for value in node.outputs):
            return False
        views = seen_views(node, base)
        if views is None or not (self.target.strided_views or all(view.is_contiguous for view in views)):
            return False
        for value, view in zip(node.outputs, views, strict=True):
            self._join(base.buffer, value, view)
        return True

    # ---- concats that are written in place

    def _assign_part(self, value: Value, step: int) -> None:
        whole, offset = self.parts.place[value]
        index = self._whole_group(whole, step)
        self._join(index, value, _contiguous_view(value, index, offset))

    def _whole_group(self, whole: Value, step: int) -> int:
        view = self.result.views.get(whole)
        return view.buffer if view is not None else self._new_group(whole, Place.ARENA, step)

    def _assign_concat(self, node: Node) -> None:
        self._whole_group(node.output, self.order[node])
        self.result.aliases.add(node)

    # ---- in place

    def _assign_in_place(self, node: Node, value: Value) -> bool:
        for result, operand in node.op.aliases:
            source = node.inputs[operand] if operand < len(node.inputs) else None
            if node.outputs[result] is value and source is not None and self._may_overwrite(node, source, value):
                base = self.result.views[source]
                self._join(base.buffer, value, self._view(value, base.buffer, base.offset))
                return True
        return False

    def _may_overwrite(self, node: Node, source: Value, value: Value) -> bool:
        """Whether `value` may take the place of `source`: same bytes, and nothing reads that memory afterwards."""
        base = self.result.views.get(source)
        if base is None or base.extent != _nbytes(value):
            return False
        wanted = self._view(value, base.buffer, base.offset)
        has_order = base.is_contiguous and wanted.is_contiguous
        if not has_order and (base.shape, base.strides) != (wanted.shape, wanted.strides):
            return False
        group = self.result.groups[base.buffer]
        if group.place is Place.STATE:
            if self.states.get(value) is not group.members[0]:
                return False
        elif group.place is not Place.ARENA or not self._is_ours(group.members[0]):
            return False
        step = self.order[node]
        if any(self.last_read[member] > step for member in group.members):
            return False
        if not node.op.has(Trait.ELEMENTWISE) and sum(self._lies_in(other, base) for other in node.operands) > 1:
            return False  # what is written at one place may be read at another
        return not any(self._reads_otherwise(other, source, base) for other in node.operands)

    def _lies_in(self, value: Value, base: View) -> bool:
        view = self.result.views.get(value)
        return view is not None and view.buffer == base.buffer

    def _is_ours(self, value: Value) -> bool:
        """Whether the memory made for `value` may be overwritten: that of an input is its caller's."""
        return value.producer is not None or value.name in self.donated

    def _reads_otherwise(self, other: Value, source: Value, base: View) -> bool:
        """Whether another operand lies in the same memory otherwise arranged, and so would see half-written data."""
        view = self.result.views.get(other)
        if other is source or view is None or view.buffer != base.buffer:
            return False
        return (view.offset, view.shape, view.strides) != (base.offset, base.shape, base.strides)

    # ---- states

    def _finish_state(self, source: int, output: int) -> None:
        old, new = self.graph.inputs[source], self.graph.outputs[output]
        if not is_planned(old) or not is_planned(new):
            return
        if self.result.views[old].buffer != self.result.views[new].buffer:
            self.result.copies[output] = source


# ---- facts about graphs and values


def is_planned(value: Value) -> bool:
    """Whether the value is a tensor of known size, for which a plan can reserve memory."""
    ty = value.type
    return is_numeric(value) and isinstance(ty, TensorType) and ty.is_static


def is_numeric(value: Value) -> bool:
    """Whether the value is a tensor of numbers, which lie in memory one by one."""
    return isinstance(value.type, TensorType) and value.type.dtype.kind is not Kind.STRING


def _nbytes(value: Value) -> int:
    size = value.tensor.size
    return (size if isinstance(size, int) else 0) * element_bytes(value.tensor.dtype)


def _static_shape(value: Value) -> tuple[int, ...]:
    return tuple(dim for dim in value.shape if isinstance(dim, int))


def _contiguous_view(value: Value, buffer: int, offset: int) -> View:
    shape, dtype = _static_shape(value), value.tensor.dtype
    return View(buffer, offset, dtype, shape, contiguous_strides(shape, element_bytes(dtype)))


def _last_reads(graph: Graph, order: Mapping[Node, int]) -> dict[Value, int]:
    """The last step that reads each value: the number of steps for a graph output, its own step if nothing reads it."""
    last: dict[Value, int] = {}
    for value in graph.values:
        made = order[value.producer] if value.producer is not None else -1
        reads = [order[use.user] if isinstance(use.user, Node) else len(order) for use in value.uses]
        last[value] = max(reads, default=made)
    return last


def seen_views(node: Node, base: View) -> tuple[View, ...] | None:
    """Where the results of a VIEW node lie when its first operand lies in `base`; None when NumPy has to copy."""
    low, high = base.reach
    memory = np.empty(max(high - low, 1), dtype=np.uint8)
    operand: Array = np.ndarray(base.shape, base.dtype.numpy, memory, -low, base.strides)
    results = as_results(node, node.op.meaning(operand, *(None,) * (len(node.inputs) - 1), **bound_attrs(node, {})))
    start = operand.__array_interface__["data"][0]
    views: list[View] = []
    for result in results:
        if result.size and not np.may_share_memory(result, memory):
            return None
        offset = result.__array_interface__["data"][0] - start if result.size else 0
        views.append(View(base.buffer, base.offset + offset, base.dtype, result.shape, result.strides))
    return tuple(views)


@dataclass
class _Parts:
    """Concats whose operands are written straight into the result: `place` says where (result, byte offset)."""

    place: dict[Value, tuple[Value, int]] = field(default_factory=dict[Value, tuple[Value, int]])
    whole: set[Node] = field(default_factory=set[Node])


def _parts_of_concats(graph: Graph) -> _Parts:
    found = _Parts()
    for node in graph.nodes:
        offsets = _part_offsets(node, found)
        if offsets is not None:
            found.whole.add(node)
            found.place.update({value: (node.output, offset) for value, offset in offsets})
    return found


def _part_offsets(node: Node, found: _Parts) -> list[tuple[Value, int]] | None:
    """The byte offset of each operand of a join whose parts lie one behind another, None if one lives elsewhere."""
    if not node.op.has(Trait.JOINS) or not all(is_planned(value) for value in (*node.operands, node.output)):
        return None
    axis = node.attrs["axis"] % node.output.tensor.rank
    outer = _static_shape(node.output)[:axis]
    if any(size != 1 for size in outer) or len(set(node.operands)) != len(node.operands):
        return None
    if not all(_has_free_home(value, found) for value in node.operands):
        return None
    return list(_running_offsets(node))


def _has_free_home(value: Value, found: _Parts) -> bool:
    producer = value.producer
    if producer is None or value in found.place or producer in found.whole or not producer.inputs:
        return False
    return not producer.op.has(Trait.VIEW) and not value.is_graph_output


def _running_offsets(node: Node) -> Iterator[tuple[Value, int]]:
    offset = 0
    for value in node.operands:
        yield value, offset
        offset += _nbytes(value)
