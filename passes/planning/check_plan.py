"""An independent check of plans: no two values that are needed at the same time share a byte.

This shares no code with the planner. It goes through the steps, and whenever one writes memory it looks at every value
that is still to be read: none may lie there, except an operand of that very step whose buffer the op may overwrite.
"""

from dataclasses import dataclass

from ...ir.errors import InternalError
from ...ir.graph import Node, Value
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
    _check_lifetimes(plan)


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
        for other, taken in live.items():
            if not place.overlaps(taken) or (last_read[other] <= step and _may_overwrite(node, value, other)):
                continue
            where = node.where() if node is not None else "the inputs"
            raise InternalError(f"%{value.name} overwrites %{other.name}, which is still needed", where=where)
    live[value] = place


def _may_overwrite(node: Node | None, value: Value, other: Value) -> bool:
    """Whether the op writes `value` over its operand `other` safely."""
    if node is None:
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
