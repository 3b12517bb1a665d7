"""A plan with memory on the host: each step is prebound calls or, where sizes depend on data, runs by its meaning."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...ir.constant import Array
from ...ir.errors import CaptureError
from ...ir.evaluate import BoundRegion, Sizes, as_results, bound_attrs, checked, run_meaning
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.plan import Place, Plan, Segment, Step, StepKind
from ..replay.recorder import NO_STATES, Cut
from ..steps import CompiledRegion, Steps
from .bodies import PlannedBody, PlannedRegion
from .calls import ArrayCall, CallList, ThroughMeaning, store
from .kernels import call_of
from .memory import POISON, ArenaPart, HostArena, address_of
from .placement import HostPlacement

if TYPE_CHECKING:
    from .recorder import HostRecorder


_RUN_BY_MEANING = Trait.DATA_DEPENDENT | Trait.READS_HOST | Trait.CONTROL_FLOW | Trait.FOREIGN


class SavedArrays(NamedTuple):
    """The content of the arena, of the states and of what is handed out, the latter two by buffer."""

    arena: Array
    states: Mapping[int, Array]
    fresh: Mapping[int, Array]


class HostPlan:
    """`plan` over `arena`, which other plans may use in turn, and `states` likewise, by input: a `BoundPlan`.

    While a recorder records, values can be neither written nor read.
    """

    def __init__(self, plan: Plan, arena: HostArena | ArenaPart, states: Mapping[str, Array] = NO_STATES) -> None:
        self.plan = plan
        self.arena = arena
        self.placement = HostPlacement(plan, arena, states)
        self.is_recording = False
        self._has_fresh = any(buffer.place is Place.OUTPUT for buffer in plan.buffers)
        self._sizes: Sizes = {}
        self._dynamic: dict[Value, Any] = {}
        self._ends = plan.dynamic_ends()
        self._planned_bodies = {
            body: PlannedBody(HostPlan(plan.bodies[body], self._part(step.scratch)))
            for step in plan.steps
            for body in step.node.regions.values()
            if body in plan.bodies
        }
        others = [body for node in plan.graph.nodes for body in node.regions.values() if body not in plan.bodies]
        self._bodies = {body: Steps(body) for body in others}
        self._prepared: dict[Segment, CallList] = {}
        self._targets: dict[int, Array] = {}
        self._sources: dict[int, Array | int] = {}

    def _part(self, buffer: int | None) -> ArenaPart:
        """The bytes of a buffer of the arena; none at all for None."""
        found = self.plan.buffers[buffer] if buffer is not None else None
        return ArenaPart(self.arena, found.offset, found.nbytes) if found is not None else ArenaPart(self.arena, 0, 0)

    # ---- inputs

    def load(self, index: int, given: Any, fill: Any = None) -> None:
        """See `BoundPlan.load`."""
        self._refuse_while_recording("an input is written")
        array = self._targets.get(index)
        if array is None:
            value = self.plan.graph.inputs[index]
            if value in self.plan.dynamic:
                self._dynamic[value] = given
                return
            array = self._targets[index] = self.placement.array(value)
        if array.shape == given.shape:
            array[...] = given
            return
        array[tuple([slice(size) for size in given.shape])] = given
        if fill is not None:
            for tail in tails(array, given.shape):
                tail[...] = fill

    def place(self, index: int, given: Array) -> bool:
        """See `BoundPlan.place`: the array must be contiguous, aligned and of the planned shape."""
        self._refuse_while_recording("an input is moved")
        value = self.plan.graph.inputs[index]
        view = self.plan.views.get(value)
        if view is None or self.plan.buffers[view.buffer].place not in (Place.ARENA, Place.INPUT):
            return False
        flags = given.flags
        if given.shape != view.shape or not (given.size and flags.c_contiguous and flags.aligned):
            return False
        was_placed = value in self.placement.placed
        self.placement.place(value, given)
        self._targets.pop(index, None)
        if not was_placed:
            self._moved(value)
        return True

    def unplace(self, index: int) -> None:
        """See `BoundPlan.unplace`."""
        self._refuse_while_recording("an input is moved")
        value = self.plan.graph.inputs[index]
        self.placement.unplace(value)
        self._targets.pop(index, None)
        self._moved(value)

    def placed_address(self, index: int) -> int | None:
        """See `BoundPlan.placed_address`."""
        return self.placement.placed.get(self.plan.graph.inputs[index])

    def address_of(self, given: Array) -> int:
        """See `BoundPlan.address_of`."""
        return address_of(given)

    def move_states(self, states: Mapping[str, Array]) -> None:
        """See `BoundPlan.move_states`."""
        self._refuse_while_recording("a state is moved")
        self.placement.hold(states)
        self._prepared.clear()
        self._targets.clear()
        self._sources.clear()

    def readers_of(self, index: int) -> frozenset[int]:
        """The steps that read the buffer of input `index`, by whatever view of it."""
        view = self.plan.views[self.plan.graph.inputs[index]]
        seen = set(self.placement.in_buffer(view.buffer))
        return frozenset(step.index for step in self.plan.steps if not seen.isdisjoint(step.node.operands))

    def _moved(self, value: Value) -> None:
        self._sources.clear()
        readers = self.readers_of(value.index)
        for calls in self._prepared.values():
            calls.remake(readers)

    # ---- a run

    def start(self, sizes: Mapping[str, int] | None = None) -> None:
        """See `BoundPlan.start`: forgets the sizes that the last run found. A body is told those around it.

        Raises `ResourceError` when there is no memory for results.
        """
        self._sizes = dict(self.plan.sizes if sizes is None else sizes)
        if self._has_fresh:
            self.placement.moving.renew()

    def run(self, segment: Segment) -> None:
        """See `BoundPlan.run`. Raises `ExecutionError` and `ResourceError` naming the node."""
        prepared = self._prepared.get(segment)
        if prepared is None:
            prepared = self._prepared[segment] = CallList(self.plan.steps_of(segment), self._lowered)
        prepared()

    def finish(self) -> None:
        """See `BoundPlan.finish`: copies the new content of states that were not updated in place."""
        graph = self.plan.graph
        for output, source in self.plan.copies.items():
            np.copyto(self.placement.array(graph.inputs[source]), self.placement.array(graph.outputs[output]))

    def result(self, index: int, shape: Cut | None = None) -> Any:
        """See `BoundPlan.result`. Raises `CaptureError` while recording: the host would have to wait."""
        self._refuse_while_recording("a value is read on the host")
        value = self.plan.graph.outputs[index]
        array = self._value(value)
        if shape is None or not isinstance(array, np.ndarray) or shape == array.shape:
            return array
        return array[tuple([slice(size) for size in shape])]

    def copy_of_result(self, index: int, shape: Cut | None = None) -> Any:
        """See `BoundPlan.copy_of_result`: no copy is made of what lies in memory of this run."""
        again = self._result_again(index) if shape is None else None
        if again is not None:
            return again
        found = self.result(index, shape)
        if not isinstance(found, np.ndarray):
            return found
        view = self.plan.views.get(self.plan.graph.outputs[index])
        if view is None:
            return found.copy("K")
        is_handed_over = self.placement.moving.hand_over(view, found)
        if shape is None and (is_handed_over or view.buffer not in self.placement.moving):
            self._sources[index] = view.buffer if is_handed_over else found
        return found if is_handed_over else found.copy("K")

    def _result_again(self, index: int) -> Array | None:
        """An uncut output, got as before: a copy of the same memory, or what is handed out; None the first time."""
        source = None if self.is_recording else self._sources.get(index)
        if source is None:
            return None
        return self.placement.moving.handed_again(source) if isinstance(source, int) else source.copy("K")

    def forget(self) -> None:
        """See `BoundPlan.forget`."""
        self._dynamic.clear()
        if self._has_fresh:
            self.placement.moving.drop()

    # ---- steps as calls

    def calls_of(self, step: Step) -> tuple[ArrayCall, ...]:
        """The prebound calls of a step whose operands and results are planned. Raises `CaptureError` for another."""
        if step.kind is StepKind.ALIAS:
            return ()
        node = step.node
        if not self._is_static(node):
            raise CaptureError(f"{node.op.name} has no fixed place for all its values", where=node.where())
        operands = [None if value is None else self.placement.array(value) for value in node.inputs]
        results = tuple([self.placement.array(value) for value in node.outputs])
        if not node.regions:
            scratch = None if step.scratch is None else self.placement.scratch(step.scratch)
            return (call_of(node, operands, results, scratch),)
        meaning = partial(node.op.meaning, **bound_attrs(node, dict(self.plan.sizes), self._region))
        return (ArrayCall(ThroughMeaning(meaning, len(results)), tuple(operands), results),)

    def _lowered(self, step: Step) -> list[Callable[[], Any]]:
        ending = self._ends.get(step.index)
        after = [] if ending is None else [partial(self._end, ending)]
        if step.kind is StepKind.ALIAS or self._is_static(step.node):
            return [*map(self.placement.moving.bound, self.calls_of(step)), *after]
        return [partial(self._run_dynamic, step.node), *after]

    def _is_static(self, node: Node) -> bool:
        planned = self.plan.views
        return not node.op.has(_RUN_BY_MEANING) and all(v in planned for v in (*node.operands, *node.outputs))

    def _run_dynamic(self, node: Node) -> None:
        operands = [None if value is None else self._value(value) for value in node.inputs]
        for value, result in zip(node.outputs, self._meant(node, operands), strict=True):
            self._keep(value, checked(value, result, self._sizes))

    def _meant(self, node: Node, operands: Sequence[Any]) -> tuple[Any, ...]:
        if not node.regions:
            return run_meaning(node, operands, self._sizes)
        return as_results(node, node.op.meaning(*operands, **bound_attrs(node, self._sizes, self._region)))

    def _region(self, body: Graph, sizes: Sizes) -> BoundRegion:
        planned = self._planned_bodies.get(body)
        if planned is not None:
            return PlannedRegion(body, sizes, planned)
        return CompiledRegion(body, sizes, self._bodies[body])

    def _value(self, value: Value) -> Any:
        return self._dynamic[value] if value in self.plan.dynamic else self.placement.array(value)

    def _keep(self, value: Value, result: Any) -> None:
        if value not in self.plan.dynamic:
            store((result,), (self.placement.array(value),))
            return
        self._dynamic[value] = _off_arena(result)

    def _end(self, values: Sequence[Value]) -> None:
        for value in values:
            self._dynamic.pop(value, None)

    # ---- recording and verification

    def recorder(self) -> "HostRecorder":
        """See `BoundPlan.recorder`."""
        from .recorder import HostRecorder

        return HostRecorder(self)

    def live_results(self, segment: Segment) -> list[Array]:
        """See `BoundPlan.live_results`."""
        self._refuse_while_recording("a value is read on the host")
        inside = {step.node for step in self.plan.steps_of(segment)}
        seen = [v for step in self.plan.steps_of(segment) for v in step.node.outputs if v.is_read_outside(inside)]
        return [np.array(self.placement.array(value)) for value in seen]

    def save(self) -> SavedArrays:
        """See `BoundPlan.save`."""
        states = {index: memory.copy() for index, memory in self.placement.states.items()}
        fresh = {index: memory.copy() for index, memory in self.placement.moving.fresh.items()}
        return SavedArrays(self.arena.bytes[: self.plan.arena_bytes].copy(), states, fresh)

    def restore(self, saved: SavedArrays) -> None:
        """See `BoundPlan.restore`."""
        self.arena.bytes[: self.plan.arena_bytes] = saved.arena
        for index, content in saved.states.items():
            self.placement.states[index][...] = content
        memory = self.placement.moving.fresh
        for index, content in saved.fresh.items():
            memory[index][...] = content

    def poison(self, step: int | None = None) -> None:
        """See `BoundPlan.poison`."""
        self._refuse_while_recording("memory is written")
        needed = [
            b for b in self.plan.buffers if step is not None and b.place is Place.ARENA and b.first < step <= b.last
        ]
        free = 0
        for buffer in sorted(needed, key=lambda buffer: buffer.offset):
            self.arena.bytes[free : buffer.offset] = POISON
            free = max(free, buffer.end)
        self.arena.bytes[free:] = POISON
        for index, memory in self.placement.moving.fresh.items():
            buffer = self.plan.buffers[index]
            if step is None or not buffer.first < step <= buffer.last:
                memory[...] = POISON

    def _refuse_while_recording(self, what: str) -> None:
        if self.is_recording:
            raise CaptureError(f"{what} while steps are recorded", remedy="end the recording first")


def tails(array: Array, shape: Sequence[int]) -> list[Array]:
    """Views that cover, without overlap, the part of `array` that lies beyond `shape`."""
    found: list[Array] = []
    for axis, size in enumerate(shape):
        if size < array.shape[axis]:
            found.append(array[(*[slice(before) for before in shape[:axis]], slice(size, None))])
    return found


def _off_arena(result: Any) -> Any:
    """The result, or its elements, copied where they are views of the arena, whose bytes are used again."""
    if isinstance(result, list):
        return [_off_arena(element) for element in result]
    return result.copy() if isinstance(result, np.ndarray) and result.base is not None else result
