"""An independent check of plans: no two values that are needed at the same time share a byte.

This shares no code with the planner. It goes through the steps, and whenever one writes memory it looks at every value
that is still to be read: none may lie there, except an operand of that very step that the op may overwrite, element by
element. Constants are never written, and a state only by what becomes its next content.
"""

from dataclasses import dataclass

from ...ir.errors import InternalError
from ...ir.graph import Node, Value
from ...ir.op import Trait
from ...ir.plan import Place, Plan, StepKind, View


@dataclass(frozen=True, slots=True)
class _Range:
    """Bytes `start` to `stop` of one memory: the arena (None) or a buffer that has its own."""

    memory: int | None
    start: int
    stop: int

    def overlaps(self, other: "_Range") -> bool:
        return self.memory == other.memory and self.start < other.stop and other.start < self.stop


def check_plan(plan: Plan) -> None:
    """Raises `InternalError` naming the first step and value for which the plan is wrong."""
    _check_order(plan)
    _check_places(plan)
    _check_segments(plan)
    _check_buffers(plan)
    _check_lifetimes(plan)
    _check_states(plan)
    _check_results(plan)
    _check_bodies(plan)


def _check_order(plan: Plan) -> None:
    nodes = list(plan.graph.nodes)
    if [step.node for step in plan.steps] != nodes or [step.index for step in plan.steps] != list(range(len(nodes))):
        raise InternalError("the steps of the plan are not the nodes of its graph in order")
    covered = [index for segment in plan.segments for index in range(segment.start, segment.stop)]
    if covered != list(range(len(nodes))):
        raise InternalError("the segments of the plan do not cover its steps once each")


def _check_places(plan: Plan) -> None:
    for value, view in plan.views.items():
        buffer = plan.buffers[view.buffer]
        if view.shape != value.tensor.shape or view.dtype is not value.tensor.dtype:
            raise InternalError(f"%{value.name} is {value.type}, but its place holds {view.dtype}{list(view.shape)}")
        if view.offset < 0 or view.offset + view.extent > buffer.nbytes:
            raise InternalError(f"%{value.name} reaches beyond its buffer of {buffer.nbytes} bytes")
    for buffer in plan.buffers:
        if buffer.place is not Place.ARENA:
            continue
        if buffer.offset % plan.alignment or buffer.end > plan.arena_bytes:
            raise InternalError(f"buffer {buffer.id} ({buffer.label}) is misaligned or reaches beyond the arena")
    missing = [value for value in plan.graph.values if value not in plan.views and value not in plan.dynamic]
    if missing:
        raise InternalError(f"%{missing[0].name} has no place")


def _check_segments(plan: Plan) -> None:
    """A captured segment holds nothing whose size only running can tell; an eager one says why it is not captured."""
    for segment in plan.segments:
        if segment.is_captured and any(
            value in plan.dynamic
            for step in plan.steps_of(segment)
            for value in (*step.node.operands, *step.node.outputs)
        ):
            raise InternalError(f"the captured steps {segment.start} to {segment.stop} handle values of unknown size")
        if not segment.is_captured and not segment.cuts:
            raise InternalError(f"the steps {segment.start} to {segment.stop} run eagerly for no reason")
        if any(not segment.start <= cut.step < segment.stop for cut in segment.cuts):
            raise InternalError(f"a cut lies outside of the steps {segment.start} to {segment.stop}")


def _check_buffers(plan: Plan) -> None:
    """Each buffer is kept from the step that first writes it to the one that last reads it."""
    last_read = _last_reads(plan)
    made = {value: step.index for step in plan.steps for value in step.node.outputs}
    for value in plan.graph.values:
        buffer = plan.buffer_of(value)
        if not buffer.first <= made.get(value, -1) or buffer.last < last_read[value]:
            kept = f"steps {buffer.first} to {buffer.last}"
            raise InternalError(
                f"%{value.name} is needed up to step {last_read[value]}, but its buffer is kept for {kept}"
            )


def _check_states(plan: Plan) -> None:
    """The next content of a state is in place at the end, or copied there."""
    for state in plan.graph.states:
        old, new = plan.graph.inputs[state.input], plan.graph.outputs[state.output]
        if old not in plan.views or new not in plan.views:
            continue
        is_copied = plan.copies.get(state.output) == state.input
        if not is_copied and _range(plan, plan.views[old]) != _range(plan, plan.views[new]):
            raise InternalError(f"the next content of state %{old.name} is neither in its place nor copied there")
        if is_copied and new is not old and plan.buffer_of(new).place is Place.STATE and _is_copied_over(plan, new):
            raise InternalError(f"%{new.name} is copied to state %{old.name} from a state that a copy overwrites")


def _check_results(plan: Plan) -> None:
    """What is handed out with a run is neither an input nor a state, which are needed by the next."""
    kept = [*plan.graph.inputs, *(plan.graph.outputs[state.output] for state in plan.graph.states)]
    for value in kept:
        if plan.buffer_of(value).place is Place.OUTPUT:
            raise InternalError(f"%{value.name} lies in memory that is handed out with the results")


def _check_bodies(plan: Plan) -> None:
    """Each body has room in the scratch of its node, and a sound plan in which no step writes over an input."""
    scratch = {body: step.scratch for step in plan.steps for body in step.node.regions.values()}
    for body, inner in plan.bodies.items():
        index = scratch.get(body)
        if inner.graph is not body or body not in scratch:
            raise InternalError(f"the plan of body {body.name} belongs to no step")
        room = plan.buffers[index] if index is not None else None
        if inner.arena_bytes and (room is None or room.nbytes < inner.arena_bytes or room.place is not Place.ARENA):
            raise InternalError(f"body {body.name} has no room for its {inner.arena_bytes} bytes")
        if any(inner.buffer_of(value).place not in (Place.INPUT, Place.DYNAMIC) for value in body.inputs):
            raise InternalError(f"an input of body {body.name} lies in the arena, where it would be lost")
        check_plan(inner)


def _is_copied_over(plan: Plan, value: Value) -> bool:
    targets = {plan.views[plan.graph.inputs[source]].buffer for source in plan.copies.values()}
    return plan.views[value].buffer in targets


def _check_lifetimes(plan: Plan) -> None:
    last_read = _last_reads(plan)
    live: dict[Value, _Range] = {}
    for value in plan.graph.inputs:
        if value in plan.views and last_read[value] >= 0:  # one that nothing reads may be overwritten at once
            _write(plan, value, None, live, last_read, -1)
    for step in plan.steps:
        for value in step.node.operands:
            if value in plan.views and value not in live:
                raise InternalError(f"%{value.name} is read after its memory was given away", where=step.node.where())
        if step.kind is StepKind.ALIAS:
            _check_alias(plan, step.node, live)
        for value in step.node.outputs:
            if value in plan.views:
                node = step.node if step.kind is StepKind.COMPUTE else None
                _write(plan, value, node, live, last_read, step.index, writes=step.kind is StepKind.COMPUTE)
        for value in [value for value in live if last_read[value] <= step.index]:
            del live[value]


def _write(
    plan: Plan,
    value: Value,
    node: Node | None,
    live: dict[Value, _Range],
    last_read: dict[Value, int],
    step: int,
    *,
    writes: bool = True,
) -> None:
    """Notes that `value` has its content from now on; the memory that it writes must hold nothing that is needed."""
    place = _range(plan, plan.views[value])
    if writes:
        _check_writable(plan, value, node)
        for other, taken in live.items():
            if not place.overlaps(taken) or (last_read[other] <= step and _may_overwrite(plan, node, value, other)):
                continue
            where = node.where() if node is not None else "the inputs"
            raise InternalError(f"%{value.name} overwrites %{other.name}, which is still needed", where=where)
    live[value] = place


def _check_writable(plan: Plan, value: Value, node: Node | None) -> None:
    """A result may lie in the arena, in memory of its own, and in the state whose next content it becomes."""
    buffer = plan.buffer_of(value)
    if node is None or buffer.place in (Place.ARENA, Place.OUTPUT):
        return
    pairs = ((plan.graph.inputs[state.input], plan.graph.outputs[state.output]) for state in plan.graph.states)
    if buffer.place is Place.STATE and any(new is value and plan.views[old].buffer == buffer.id for old, new in pairs):
        return
    if buffer.place is Place.CONSTANT and not node.inputs:
        return
    raise InternalError(f"%{value.name} is written into a {buffer.place.value}", where=node.where())


def _may_overwrite(plan: Plan, node: Node | None, value: Value, other: Value) -> bool:
    """Whether the op writes `value` over its operand `other` safely: each element over the one that it comes from."""
    if node is None:
        return False
    view, taken = plan.views[value], plan.views[other]
    is_alike = (view.shape, view.strides) == (taken.shape, taken.strides)
    if _range(plan, view) != _range(plan, taken) or not (is_alike or (view.is_contiguous and taken.is_contiguous)):
        return False
    if not node.op.has(Trait.ELEMENTWISE) and node.operands.count(other) > 1:
        return False
    return any(
        node.outputs[result] is value and operand < len(node.inputs) and node.inputs[operand] is other
        for result, operand in node.op.aliases
    )


def _check_alias(plan: Plan, node: Node, live: dict[Value, _Range]) -> None:
    """A step without work gives what already lies in the memory of its operands."""
    operands = [live[value] for value in node.operands if value in live]
    for value in node.outputs:
        place = _range(plan, plan.views[value])
        if not operands or plan.buffers[plan.views[value].buffer].place is Place.CONSTANT or place.start == place.stop:
            continue
        covered = sum(min(place.stop, o.stop) - max(place.start, o.start) for o in operands if place.overlaps(o))
        if covered < place.stop - place.start:
            raise InternalError(f"%{value.name} is said to lie in its operands but does not", where=node.where())


def _range(plan: Plan, view: View) -> _Range:
    buffer = plan.buffers[view.buffer]
    low, high = _reach(view)
    if buffer.place is Place.ARENA:
        base = buffer.offset + view.offset
        return _Range(None, base + low, base + high)
    return _Range(buffer.id, view.offset + low, view.offset + high)


def _reach(view: View) -> tuple[int, int]:
    """The bytes around `offset` that a view touches; negative strides reach below it."""
    if 0 in view.shape:
        return 0, 0
    reaches = [(size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True)]
    low, high = sum(reach for reach in reaches if reach < 0), sum(reach for reach in reaches if reach > 0)
    return low, high + view.dtype.numpy.itemsize


def _last_reads(plan: Plan) -> dict[Value, int]:
    """The last step that reads each value; the number of steps for a graph output."""
    positions = {step.node: step.index for step in plan.steps}
    end = len(plan.steps)
    return {
        value: max((positions[use.user] if isinstance(use.user, Node) else end for use in value.uses), default=-1)
        for value in plan.graph.values
    }
