"""Where the values of a plan are on the host: NumPy arrays over the arena, constants, states, and callers' arrays."""

from collections.abc import Mapping

import numpy as np

from ...ir.constant import Array, Constant
from ...ir.graph import Node, Value
from ...ir.ops.known import CONSTANT
from ...ir.plan import Place, Plan
from ..replay.recorder import NO_STATES
from .memory import ArenaPart, HostArena, MovingMemory, address_of, array_at


class HostPlacement:
    """An array for every planned value of `plan`.

    The graph's inputs lie in the arena, resident ones in memory of their own that is made when it is first needed,
    until `place` puts an array of the caller in their stead; `placed` has its address. Such arrays, and results that
    are handed out, are `moving`. `states` are the bytes of the
    states by buffer: given by the name of their input, or made here.
    """

    def __init__(self, plan: Plan, arena: HostArena | ArenaPart, states: Mapping[str, Array] = NO_STATES) -> None:
        self.plan = plan
        self.arena = arena
        given = {plan.views[value].buffer: states[value.name] for value in plan.graph.inputs if value.name in states}
        self.states = {
            b.id: as_bytes(given[b.id]) if b.id in given else np.zeros(b.nbytes, dtype=np.uint8)
            for b in plan.buffers
            if b.place is Place.STATE
        }
        self.placed: dict[Value, int] = {}
        self.moving = MovingMemory(plan)
        self._contents = _constants(plan)
        self._residents: dict[int, Array] = {}
        self._memory: dict[int, Array] = {}
        self._arrays: dict[Value, Array] = {}

    def array(self, value: Value) -> Array:
        """The array that a planned value lives in: the same one until its buffer is placed elsewhere or made anew."""
        view = self.plan.views[value]
        if view.buffer in self.moving:
            return self.moving.array(view)
        found = self._arrays.get(value)
        if found is None:
            found = self._arrays[value] = array_at(self._bytes(view.buffer), view)
        return found

    def scratch(self, buffer: int) -> Array:
        """The bytes of a buffer that no value lives in."""
        return self._bytes(buffer)

    def place(self, value: Value, array: Array) -> None:
        """Puts `array`, contiguous and of the type of the graph input `value`, in the stead of its buffer."""
        self.moving.put(self.plan.views[value].buffer, array)
        self.placed[value] = address_of(array)

    def unplace(self, value: Value) -> None:
        """Brings a graph input back to the place that it has in the plan."""
        self.moving.remove(self.plan.views[value].buffer)
        self.placed.pop(value, None)

    def hold(self, states: Mapping[str, Array]) -> None:
        """Has states, by the names of their inputs, in other arrays of the same types."""
        for name, array in states.items():
            buffer = self.plan.views[self.plan.graph.value(name)].buffer
            self.states[buffer] = as_bytes(array)
            self._memory.pop(buffer, None)
            for value in self.in_buffer(buffer):
                self._arrays.pop(value, None)

    def in_buffer(self, buffer: int) -> list[Value]:
        """The values that live in a buffer."""
        return [value for value, view in self.plan.views.items() if view.buffer == buffer]

    def _bytes(self, index: int) -> Array:
        found = self._memory.get(index)
        if found is None:
            found = self._memory[index] = self._made(index)
        return found

    def _made(self, index: int) -> Array:
        buffer = self.plan.buffers[index]
        if buffer.place is Place.CONSTANT:
            return as_bytes(self._contents[index].array)
        if buffer.place is Place.STATE:
            return self.states[index]
        if buffer.place is Place.INPUT:
            return self._residents.setdefault(index, np.zeros(buffer.nbytes, dtype=np.uint8))
        return self.arena.bytes[buffer.offset : buffer.end]


def as_bytes(array: Array) -> Array:
    """The memory of an array as u8[n]; a copy only of one that is not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _constants(plan: Plan) -> dict[int, Constant]:
    """The contents of the constant buffers."""
    found: dict[int, Constant] = {}
    for step in plan.steps:
        for value in step.node.outputs:
            view = plan.views.get(value)
            content = _content(step.node)
            if content is not None and view is not None and plan.buffers[view.buffer].place is Place.CONSTANT:
                found[view.buffer] = content
    return found


def _content(node: Node) -> Constant | None:
    content = node.attrs["value"] if node.op is CONSTANT else None
    return content if isinstance(content, Constant) else None
