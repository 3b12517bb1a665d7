"""A plan on a CUDA device through CuPy: one arena, constants beside it, launches made eagerly or recorded."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import cupy
from capgraph.executors.host.memory import POISON
from capgraph.ir.constant import Array
from capgraph.ir.graph import Node, Value
from capgraph.ir.plan import Place, Plan, Segment

from .lowering import Launch, Lowered, lower, source
from .prelude import PRELUDE

Constants = dict[str, Any]
"""Constants on the device by their digest, so that plans of one model share them."""


class DevicePlan:
    """`plan` over the first bytes of `arena`, a CuPy array of bytes.

    `stream` is where everything runs. Raises `UnsupportedError` naming a node without a kernel.
    """

    def __init__(self, plan: Plan, arena: Any, constants: Constants) -> None:
        if arena.nbytes < plan.arena_bytes or arena.data.ptr % plan.alignment:
            raise ValueError(f"the arena of {arena.nbytes} bytes at {arena.data.ptr:#x} does not fit the plan")
        self.plan = plan
        self.arena = arena
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._constants = _uploaded(plan, constants)
        self.launches: Lowered = lower(plan)
        self._functions = self._compiled()
        self._placed: dict[int, Any] = {}
        self._graphs: dict[Segment, Any] = {}
        self._calls = self._bound()
        cupy.cuda.Device().synchronize()  # constants were copied on another stream

    @property
    def kernels(self) -> list[Launch]:
        """Every launch in order."""
        return [launch for each in self.launches.values() for launch in each]

    # ---- memory

    def array(self, value: Value) -> Any:
        """A planned value as a CuPy array where it lies."""
        view = self.plan.views[value]
        return cupy.ndarray(view.shape, view.dtype.numpy, self._base(view.buffer) + view.offset, view.strides)

    def poison(self) -> None:
        """Overwrites the whole arena with what is NaN in every float, inputs and results included."""
        with self.stream:
            self.arena[...] = POISON

    def load(self, inputs: Sequence[Array]) -> None:
        """Copies inputs from the host into their places in the arena."""
        for value, given in zip(self.plan.graph.inputs, inputs, strict=True):
            self.array(value).set(given, stream=self.stream)
        self.stream.synchronize()

    def place(self, inputs: Sequence[Array]) -> None:
        """Gives every input memory of its own outside the arena, with this content; recordings are dropped.

        In the arena an input's bytes serve others once it was read for the last time, so it has to be loaded for every
        call. Outside it stays: a call can be repeated.
        """
        for value, given in zip(self.plan.graph.inputs, inputs, strict=True):
            self._placed[self.plan.views[value].buffer] = cupy.asarray(given)
        cupy.cuda.Device().synchronize()
        self._graphs.clear()
        self._calls = self._bound()

    def results(self) -> list[Array]:
        """The outputs, copied to the host."""
        with self.stream:
            found = [self.array(value).get() for value in self.plan.graph.outputs]
        self.stream.synchronize()
        return found

    def _base(self, buffer: int) -> Any:
        if buffer in self._placed:
            return self._placed[buffer].data
        if self.plan.buffers[buffer].place is Place.CONSTANT:
            return self._constants[buffer].data
        return self.arena.data + self.plan.buffers[buffer].offset

    # ---- launches

    def _compiled(self) -> dict[str, Any]:
        """The kernels by name, in one module."""
        module = cupy.RawModule(code=PRELUDE + source(self.kernels))
        return {launch.name: module.get_function(launch.name) for launch in self.kernels}

    def _bound(self) -> dict[int, list[tuple[Any, ...]]]:
        """The calls of each step: a kernel, and its grid, block and arguments."""
        return {step: [self._call(launch) for launch in each] for step, each in self.launches.items()}

    def _call(self, launch: Launch) -> tuple[Any, ...]:
        return self._functions[launch.name], launch.grid, (launch.threads,), self._arguments(launch)

    def _arguments(self, launch: Launch) -> tuple[int, ...]:
        return tuple(self._base(place.buffer).ptr + place.offset for place in launch.places)

    def enqueue(self, segment: Segment) -> None:
        """Launches the kernels of a segment on the current stream, one by one."""
        for step in range(segment.start, segment.stop):
            for function, grid, block, arguments in self._calls[step]:
                function(grid, block, arguments)

    def launch_alone(self, launch: Launch, times: int) -> Any:
        """A recorded graph of one kernel `times` times in a row."""
        function, grid, block, arguments = self._call(launch)
        with recording(self.stream) as made:
            for _ in range(times):
                function(grid, block, arguments)
        return made[0]

    # ---- a call

    def eager(self) -> None:
        """Launches every kernel, one by one; does not wait."""
        with self.stream:
            self.enqueue(Segment(0, len(self.plan.steps), False))

    def capture(self) -> int:
        """Records the captured segments of the plan, anew if they were; gives their number."""
        self._graphs.clear()
        for segment in self.plan.segments:
            if segment.is_captured and any(self._calls[step] for step in range(segment.start, segment.stop)):
                with recording(self.stream) as made:
                    self.enqueue(segment)
                self._graphs[segment] = made[0]
                made[0].upload(self.stream)
        self.stream.synchronize()
        return len(self._graphs)

    def replay(self) -> None:
        """Launches the recorded graphs, and the kernels between them one by one; does not wait."""
        with self.stream:
            for segment in self.plan.segments:
                graph = self._graphs.get(segment)
                if graph is not None:
                    graph.launch(self.stream)
                else:
                    self.enqueue(segment)

    def wait(self) -> None:
        """Waits for the stream; raises what a kernel did wrong."""
        self.stream.synchronize()


@contextmanager
def recording(stream: Any) -> Iterator[list[Any]]:
    """Captures what is launched inside into a graph, the only element of the list that it gives, filled at the end.

    The collector is off meanwhile: a finalizer that frees device memory would end the capture.
    """
    made: list[Any] = []
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with stream:
            stream.begin_capture()  # relaxed, which is CuPy's default
            try:
                yield made
            finally:
                made.append(stream.end_capture())
    finally:
        if was_enabled:
            gc.enable()


def arena_for(plans: Sequence[Plan]) -> Any:
    """One arena that any of the plans fits in, aligned for all: CuPy's allocations start at multiples of 512 bytes."""
    return cupy.empty(max(1, *(plan.arena_bytes for plan in plans)), cupy.uint8)


def _uploaded(plan: Plan, constants: Constants) -> Mapping[int, Any]:
    """The constants of the plan by buffer."""
    found: dict[int, Any] = {}
    for step in plan.steps:
        view = plan.views.get(step.node.outputs[0]) if step.node.op.name == "constant" else None
        if view is not None:
            found[view.buffer] = _on_device(step.node, constants)
    return found


def _on_device(node: Node, constants: Constants) -> Any:
    content = node.attrs["value"]
    if content.digest not in constants:
        constants[content.digest] = cupy.asarray(content.array)
    return constants[content.digest]
