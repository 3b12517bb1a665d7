"""Eager execution on a GPU: the plan of a call's sizes, launched step by step."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from ....ir.constant import Array
from ....ir.errors import ExecutionError, ShapeError, UnsupportedError
from ....ir.graph import Graph
from ....ir.plan import Plan
from ....ir.random_state import RandomState, keyed
from ...base import Coverage
from ...signature import Signature
from ...steps import EagerExecutable
from .bound_plan import CudaPlan
from .device import CudaDevice

KEPT_PLANS = 16
"""For how many sets of sizes the bound plan is kept."""

SizedPlanner = Callable[[Mapping[str, int]], Plan]
"""Plans a graph at given sizes, with nothing captured."""


class CudaEagerExecutable:
    """A graph as launches, one after another. Graphs of which no plan can be made run on the host, counted.

    It shares the arena of the device with whatever else runs there, and so must not run at the same time.
    """

    def __init__(self, graph: Graph, plan: Callable[[Graph], SizedPlanner], device: CudaDevice) -> None:
        drawn = keyed(graph)
        self.draws = drawn.draws
        self._state = drawn.state
        self._random = RandomState()
        self._graph = drawn.graph
        self._planner = plan(self._graph)
        self._device = device
        self._signature = Signature(self._graph)
        self._bound: OrderedDict[tuple[tuple[str, int], ...], CudaPlan] = OrderedDict()
        self._host: EagerExecutable | None = None
        self._is_closed = False

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See `Executable.run`."""
        if self._is_closed:
            raise ExecutionError("the program is closed", remedy="call capgraph.optimize again")
        inputs = self._complete(inputs)
        results = self._results(inputs)
        if self.draws:
            results.popitem()  # the state as it is after the call
        return results

    def _complete(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of a call and the state that it draws from."""
        if not self.draws or not isinstance(inputs, Mapping):
            return inputs
        return {**inputs, self._state: self._random.take(self.draws)}

    def _results(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        values, sizes = self._signature.bind(inputs)
        try:
            bound = self.bound(sizes)
        except (ShapeError, UnsupportedError) as error:
            return self._on_host(inputs, error.message)
        bound.start()
        for index, given in enumerate(values):
            bound.load(index, given)
        for segment in bound.plan.segments:
            bound.run(segment)
        results = [bound.copy_of_result(index) for index in range(len(self._graph.outputs))]
        bound.finish()
        bound.forget()
        return dict(zip(self._graph.output_names, results, strict=True))

    def set_random_state(self, state: Array) -> None:
        """See `Drawing.set_random_state`."""
        self._random.set(state)

    def bound_for(self, inputs: Mapping[str, Any]) -> CudaPlan:
        """The plan for a call with these inputs, with memory. Raises as `run` does, also where no plan can be made."""
        return self.bound(self._signature.bind(self._complete(inputs))[1])

    def load(self, bound: CudaPlan, inputs: Mapping[str, Any]) -> None:
        """Brings the inputs of a call to the memory of its plan."""
        for index, given in enumerate(self._signature.bind(self._complete(inputs))[0]):
            bound.load(index, given)

    def bound(self, sizes: Mapping[str, int]) -> CudaPlan:
        """The plan for calls of these sizes, with memory."""
        key = tuple(sorted(sizes.items()))
        found = self._bound.get(key)
        if found is None:
            found = self._made(sizes)
            self._bound[key] = found
            while len(self._bound) > KEPT_PLANS:
                self._bound.popitem(last=False)[1].arena.close()
        self._bound.move_to_end(key)
        arenas = self._device.arenas
        if arenas.nbytes > found.arena.nbytes and not arenas.holds(found.arena):
            found.arena.close()
            found.move(arenas.reserve(found.plan.arena_bytes))
        return found

    def _made(self, sizes: Mapping[str, int]) -> CudaPlan:
        plan = self._planner(sizes)
        return self._device.bind(plan, self._device.reserve(plan.arena_bytes, plan.alignment))

    def _on_host(self, inputs: Mapping[str, Any], why: str) -> dict[str, Any]:
        self._device.fallbacks.host_steps["the whole graph"] = why
        if self._host is None:
            self._host = EagerExecutable(self._graph)
        return self._host.run(inputs)

    def coverage(self) -> Coverage:
        """See `Covered.coverage`: nothing is recorded, but steps may run on the host."""
        whole = sum(bool(node.inputs) for node in self._graph.nodes) if self._host is not None else 0
        return Coverage(0, whole or self._device.fallbacks.host_counts.total())

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines for `explain()`."""
        return ()

    def close(self) -> None:
        """See `Executable.close`."""
        self._is_closed = True
        for bound in self._bound.values():
            bound.arena.close()
        self._bound.clear()
