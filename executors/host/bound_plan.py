"""A plan with memory on the host: every step is either prebound calls, or, where sizes depend on data, run by meaning."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import length_hint
from typing import Any

import numpy as np

from ...ir.constant import Array
from ...ir.errors import CaptureError
from ...ir.evaluate import FAILURES, Region, Sizes, bound_attrs, checked, failure, run_meaning
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.plan import Plan, Segment, Step, StepKind
from ..steps import CompiledRegion, Steps
from .calls import Call, store
from .kernels import call_of
from .memory import HostArena
from .placement import Placement


class HostPlan:
    """`plan` over `arena`, which other plans may use in turn.

    Inputs are written with `load`, segments run in order, and results read with `result`. While a recorder records,
    values can be neither loaded nor read.
    """

    def __init__(self, plan: Plan, arena: HostArena) -> None:
        self.plan = plan
        self.arena = arena
        self.placement = Placement(plan, arena)
        self.sizes: Sizes = {}
        self.is_recording = False
        self._dynamic: dict[Value, Any] = {}
        self._frees = _frees(plan)
        self._bodies = _compiled_bodies(plan.graph)
        self._prepared: dict[Segment, tuple[list[Callable[[], Any]], list[Step]]] = {}

    # ---- inputs and outputs

    def load(self, index: int, given: Any) -> None:
        """Copies input `index` to the front of its buffer. Raises `CaptureError` while recording."""
        self._refuse_while_recording("an input is written")
        value = self.plan.graph.inputs[index]
        if value in self.plan.dynamic:
            self._dynamic[value] = given
            return
        array = self.placement.array(value)
        if array.shape == given.shape:
            np.copyto(array, given)
        else:
            array[tuple([slice(size) for size in given.shape])] = given

    def result(self, index: int, shape: tuple[int, ...] | None = None) -> Any:
        """Output `index` in its buffer, cut to `shape`. Raises `CaptureError` while recording: the host would wait."""
        self._refuse_while_recording("a value is read on the host")
        value = self.plan.graph.outputs[index]
        if value in self.plan.dynamic:
            return self._dynamic[value]
        array = self.placement.array(value)
        if shape is None or shape == array.shape:
            return array
        return array[tuple([slice(size) for size in shape])]

    def read(self, value: Value) -> Array:
        """The content of a planned value, as it lies in its buffer."""
        self._refuse_while_recording("a value is read on the host")
        return self.placement.array(value)

    def place(self, index: int, array: Array) -> None:
        """Reads input `index` from the caller's `array` instead of the arena, from now on."""
        self._refuse_while_recording("an input is moved")
        value = self.plan.graph.inputs[index]
        self.placement.place(value, array)
        self._prepared.clear()

    def unplace(self, index: int) -> None:
        """Reads input `index` from the arena again."""
        self._refuse_while_recording("an input is moved")
        self.placement.unplace(self.plan.graph.inputs[index])
        self._prepared.clear()

    # ---- running

    def start(self) -> None:
        """Begins a run: forgets the sizes that the last one found."""
        self.sizes = dict(self.plan.sizes)

    def run(self, segment: Segment) -> None:
        """Runs a segment step by step. Raises `ExecutionError` and `ResourceError` naming the node."""
        prepared = self._prepared.get(segment)
        if prepared is None:
            prepared = self._prepared[segment] = self._prepare(segment)
        run_calls(*prepared)

    def finish(self) -> None:
        """Ends a run: copies the new content of states that were not updated in place."""
        graph = self.plan.graph
        for output, source in self.plan.copies.items():
            np.copyto(self.placement.array(graph.inputs[source]), self.placement.array(graph.outputs[output]))

    def forget(self) -> None:
        """Lets go of what a run allocated outside of the arena."""
        self._dynamic.clear()

    def calls_of(self, step: Step) -> tuple[Call, ...]:
        """The prebound calls of a step whose operands and results are planned. Raises `CaptureError` for another."""
        node = step.node
        if step.kind is StepKind.ALIAS:
            return ()
        if not self._is_static(node):
            raise CaptureError(f"{node.op.name} has no fixed place for all its values", where=node.where())
        operands = [None if value is None else self.placement.array(value) for value in node.inputs]
        return (call_of(node, operands, tuple(self.placement.array(value) for value in node.outputs)),)

    def _prepare(self, segment: Segment) -> tuple[list[Callable[[], Any]], list[Step]]:
        calls: list[Callable[[], Any]] = []
        steps: list[Step] = []
        for step in self.plan.steps_of(segment):
            made = self._prepared_step(step)
            calls += made
            steps += [step] * len(made)
        return calls, steps

    def _prepared_step(self, step: Step) -> list[Callable[[], Any]]:
        frees = self._frees.get(step.index)
        after = [] if frees is None else [partial(self._free, frees)]
        if step.kind is StepKind.ALIAS or self._is_static(step.node):
            return [*(call.bound() for call in self.calls_of(step)), *after]
        return [partial(self._run_dynamic, step.node), *after]

    def _is_static(self, node: Node) -> bool:
        planned = self.plan.views
        blocked = node.regions or node.op.is_foreign or node.op.has(Trait.DATA_DEPENDENT | Trait.READS_HOST)
        return not blocked and all(value in planned for value in (*node.operands, *node.outputs))

    def _run_dynamic(self, node: Node) -> None:
        operands = [None if value is None else self._value(value) for value in node.inputs]
        if node.regions:
            given = node.op.meaning(*operands, **bound_attrs(node, self.sizes, self._region))
            results = given if isinstance(given, tuple) else (given,)
        else:
            results = run_meaning(node, operands, self.sizes)
        for value, result in zip(node.outputs, results, strict=True):
            self._keep(value, checked(value, result, self.sizes))

    def _keep(self, value: Value, result: Any) -> None:
        if value in self.plan.dynamic:
            # What a meaning gives may be a view of the arena, whose bytes are used again.
            self._dynamic[value] = result.copy() if isinstance(result, np.ndarray) and not _owns(result) else result
        else:
            store((result,), (self.placement.array(value),))

    def _value(self, value: Value) -> Any:
        return self._dynamic[value] if value in self.plan.dynamic else self.placement.array(value)

    def _free(self, values: Sequence[Value]) -> None:
        for value in values:
            self._dynamic.pop(value, None)

    def _region(self, body: Graph, sizes: Sizes) -> Region:
        return CompiledRegion(body, sizes, self._bodies[body])

    def _refuse_while_recording(self, what: str) -> None:
        if self.is_recording:
            raise CaptureError(f"{what} while steps are recorded", remedy="end the recording first")


def run_calls(calls: Sequence[Callable[[], Any]], steps: Sequence[Step]) -> None:
    """Makes prebound calls in order; `steps` says for each of which step it is. Failures name the node."""
    remaining = iter(calls)
    try:
        for call in remaining:
            call()
    except FAILURES as error:
        failed = steps[len(calls) - length_hint(remaining) - 1]
        raise failure(failed.node, error) from error


def _owns(array: Array) -> bool:
    return array.base is None


def _frees(plan: Plan) -> Mapping[int, tuple[Value, ...]]:
    """The dynamic values that end with each step."""
    found: dict[int, tuple[Value, ...]] = {}
    for value, index in plan.dynamic.items():
        last = plan.buffers[index].last
        found[last] = (*found.get(last, ()), value)
    return found


def _compiled_bodies(graph: Graph) -> dict[Graph, Steps]:
    return {body: Steps(body) for node in graph.nodes for body in node.regions.values()}
