"""A plan with memory on a GPU: each step is calls that enqueue work on a stream, or runs on the host."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....ir.constant import Array
from ....ir.errors import CaptureError
from ....ir.graph import Node, Value
from ....ir.plan import Place as Home
from ....ir.plan import Plan, Segment, Step, View, contiguous_strides
from ...host.memory import POISON
from ...replay.recorder import Cut, Recorder
from ..arrays.protocol import DeviceArray, Framework
from ..driver.memory import DeviceArena
from ..driver.protocol import Enqueue, KernelCall, Memory
from ..kernel_ir.launch import Argument, BufferPlace, HostCall, KernelLaunch, Launch
from .host_steps import HostSteps
from .inputs import load_padded
from .placement import NO_STATES, Placement

if TYPE_CHECKING:
    from .device import CudaDevice


class Saved(NamedTuple):
    """Copies of the arena and of the states, by buffer."""

    arena: Memory
    states: dict[int, Memory]


class CudaPlan:
    """`plan` over `arena`, which other plans may use in turn: a `BoundPlan`.

    Work goes to the stream of the call at hand (`CudaDevice.stream`). `chosen` says how each step is done.
    """

    def __init__(
        self, plan: Plan, arena: DeviceArena, device: "CudaDevice", states: Mapping[str, DeviceArray] = NO_STATES
    ) -> None:
        self.plan = plan
        self.arena = arena
        self.device = device
        self.placement = Placement(plan, arena, device, states)
        is_recorded = any(segment.is_captured for segment in plan.segments)
        self.chosen = device.choose(device.backend.lower(plan), plan, is_recorded=is_recorded)
        self.is_recording = False
        self._host = HostSteps(self)
        self._calls: dict[int, tuple[Enqueue, ...]] = {}
        self._results: dict[tuple[Framework, int, tuple[int, ...]], DeviceArray] = {}

    # ---- inputs

    def start(self) -> None:
        """See `BoundPlan.start`. Raises `ExecutionError` once the device is lost."""
        self.device.driver.check()
        self.device.staging.rewind()
        self._host.start()

    def load(self, index: int, given: Any, fill: Any = None) -> None:
        """See `BoundPlan.load`; `given` is NumPy's or a `DeviceArray`."""
        self._refuse_while_recording("an input is written")
        value = self.plan.graph.inputs[index]
        if value in self.plan.dynamic:
            self._host.values[value] = np.asarray(given) if isinstance(given, DeviceArray) else given
            return
        view = self.plan.views[value]
        address = self.placement.base(view.buffer) + view.offset
        if given.shape != view.shape:
            load_padded(self.device, address, view, given, fill)
        elif isinstance(given, DeviceArray):
            self._load_from_device(address, view, given)
        else:
            self.device.staging.upload(address, given, self.device.stream)

    def _load_from_device(self, address: int, view: View, given: DeviceArray) -> None:
        device = self.device
        if given.is_contiguous:
            device.driver.copy(address, given.address, given.nbytes, device.stream)
            return
        item = given.dtype.itemsize
        into = (address, contiguous_strides(view.shape, item))
        device.driver.copy_strided(into, (given.address, given.strides), view.shape, item, device.stream)

    def place(self, index: int, given: Any) -> bool:
        """See `BoundPlan.place`: an array on the device, contiguous, of the planned shape, at an aligned address."""
        self._refuse_while_recording("an input is moved")
        value = self.plan.graph.inputs[index]
        view = self.plan.views.get(value)
        if view is None or self.plan.buffers[view.buffer].place not in (Home.ARENA, Home.INPUT):
            return False
        if not isinstance(given, DeviceArray) or given.shape != view.shape or not given.is_contiguous:
            return False
        if given.address % self.plan.alignment:
            return False
        self.placement.place(value, given)
        self._moved(view.buffer)
        return True

    def unplace(self, index: int) -> None:
        """See `BoundPlan.unplace`."""
        self._refuse_while_recording("an input is moved")
        value = self.plan.graph.inputs[index]
        self.placement.unplace(value)
        self._moved(self.plan.views[value].buffer)

    def placed_address(self, index: int) -> int | None:
        """See `BoundPlan.placed_address`."""
        placed = self.placement.placed.get(self.plan.graph.inputs[index])
        return None if placed is None else placed.address

    def address_of(self, given: Any) -> int:
        """See `BoundPlan.address_of`."""
        return given.address if isinstance(given, DeviceArray) else 0

    def move_states(self, states: Mapping[str, Any]) -> None:
        """See `BoundPlan.move_states`."""
        self._refuse_while_recording("a state is moved")
        self._moved(*self.placement.hold(states))

    def _moved(self, *buffers: int) -> None:
        for step in self.steps_reading(buffers):
            self._calls.pop(step, None)

    def steps_reading(self, buffers: Iterable[int]) -> list[int]:
        """The steps with a launch that has an argument in one of these buffers."""
        wanted, placement = set(buffers), self.placement
        return [i for i in range(len(self.plan.steps)) if not wanted.isdisjoint(placement.buffers_of(self, i))]

    # ---- steps as calls

    def calls_of(self, step: Step) -> tuple[Enqueue, ...]:
        """What a step enqueues, bound to the present addresses."""
        found = self._calls.get(step.index)
        if found is None:
            launches, address = self.launches_of(step), self.placement.address
            found = self._calls[step.index] = tuple([self._bound(step, each, address) for each in launches])
        return found

    def calls_at(self, step: Step, moved: Mapping[int, int]) -> tuple[Enqueue, ...]:
        """As `calls_of`, with the buffers `moved` at other addresses."""
        if moved.keys().isdisjoint(self.placement.buffers_of(self, step.index)):
            return self.calls_of(step)

        def address(argument: Argument) -> int:
            if isinstance(argument, BufferPlace) and argument.buffer in moved:
                return moved[argument.buffer] + argument.offset
            return self.placement.address(argument)

        return tuple([self._bound(step, launch, address) for launch in self.launches_of(step)])

    def _bound(self, step: Step, launch: Launch, address: Callable[[Argument], int]) -> Enqueue:
        if isinstance(launch, HostCall):
            return partial(self._host.run, step)
        return self.device.bound(launch, address)

    def kernel_call(self, launch: KernelLaunch) -> KernelCall:
        """A launch with its arguments at their present addresses."""
        return self.device.kernel_call(launch, self.placement.address)

    def launches_of(self, step: Step) -> tuple[Launch, ...]:
        """The launches of a step, as it was chosen to be done."""
        candidate = self.chosen[step.index]
        return () if candidate is None else candidate.launches

    def run(self, segment: Segment) -> None:
        """See `BoundPlan.run`. Raises `ExecutionError` and `ResourceError` naming the node."""
        device = self.device
        stream = device.stream
        for step in self.plan.steps_of(segment):
            try:
                for call in self.calls_of(step):
                    call(stream)
            except device.failures as error:
                explained = device.driver.explained(error)
                raise _located(explained, step.node) from error
            self._host.end(step)

    def finish(self) -> None:
        """See `BoundPlan.finish`."""
        graph, device = self.plan.graph, self.device
        for output, source in self.plan.copies.items():
            old, new = self.plan.views[graph.inputs[source]], self.plan.views[graph.outputs[output]]
            into, given = self.placement.start_of(old), self.placement.start_of(new)
            if old.is_contiguous and new.is_contiguous:
                device.driver.copy(into, given, new.extent, device.stream)
            else:
                item = new.dtype.numpy.itemsize
                device.driver.copy_strided((into, old.strides), (given, new.strides), new.shape, item, device.stream)

    # ---- results

    def result(self, index: int, shape: Cut | None = None) -> Any:
        """See `BoundPlan.result`; a copy where callers use NumPy, and of what nobody may write to."""
        self._refuse_while_recording("a value is read on the host")
        framework = self.device.framework
        value = self.plan.graph.outputs[index]
        view = self.plan.views.get(value)
        if view is None or framework is None or self.plan.buffers[view.buffer].place in (Home.CONSTANT, Home.INPUT):
            return self.copy_of_result(index, shape)
        cut = _cut(view, shape)
        if any(stride < 0 for stride in cut.strides):
            return self.copy_of_result(index, shape)
        key = (framework, self.placement.start_of(cut), cut.shape)
        found = self._results.get(key)
        if found is None:
            dtype = view.dtype.numpy
            native = framework.over(key[1], cut.shape, cut.strides, dtype)
            found = DeviceArray(key[1], dtype, cut.shape, cut.strides, native, self.device.downloaded)
            self._results[key] = found
        return found

    def copy_of_result(self, index: int, shape: Cut | None = None) -> Any:
        """See `BoundPlan.copy_of_result`."""
        self._refuse_while_recording("a value is read on the host")
        value = self.plan.graph.outputs[index]
        view = self.plan.views.get(value)
        if view is None:
            return _cut_array(self._held(value), shape)
        cut = _cut(view, shape)
        framework = self.device.framework
        return self.downloaded(cut) if framework is None else self._copied(cut)

    def _held(self, value: Value) -> Any:
        """A value without a place in the plan: the host's, or an array of the caller's framework."""
        held, framework = self._host.values[value], self.device.framework
        if isinstance(held, DeviceArray) and (framework is None or not framework.wraps(held.native)):
            return np.asarray(held)
        return held

    def _copied(self, view: View) -> DeviceArray:
        device = self.device
        assert device.framework is not None  # asked before
        made = device.framework.empty(view.shape, view.dtype.numpy)
        start = self.placement.start_of(view)
        if view.is_contiguous:
            device.driver.copy(made.address, start, made.nbytes, device.stream)
        elif made.size:
            into, item = (made.address, made.strides), made.dtype.itemsize
            device.driver.copy_strided(into, (start, view.strides), view.shape, item, device.stream)
        return made

    def downloaded(self, view: View) -> Array:
        """A planned value as NumPy's own array, after waiting for it."""
        low, high = view.reach
        device = self.device
        content = device.staging.download(self.placement.start_of(view) + low, high - low, device.stream)
        return np.array(np.ndarray(view.shape, view.dtype.numpy, content, -low, view.strides))

    def upload(self, view: View, content: Array) -> None:
        """Writes a planned value from the host."""
        device = self.device
        if view.is_contiguous:
            device.staging.upload(self.placement.start_of(view), content, device.stream)
            return
        item = content.dtype.itemsize
        memory = device.driver.allocate(content.nbytes)
        device.staging.upload(memory.address, content, device.stream)
        packed = (memory.address, contiguous_strides(view.shape, item))
        device.driver.copy_strided(
            (self.placement.start_of(view), view.strides), packed, view.shape, item, device.stream
        )
        device.driver.synchronize(device.stream)

    def forget(self) -> None:
        """See `BoundPlan.forget`."""
        self._host.values.clear()

    # ---- recording and verification

    def recorder(self) -> Recorder:
        """See `BoundPlan.recorder`: of explicit graphs where inputs will move and all is kernels, else of streams."""
        from .explicit import ExplicitRecorder
        from .recorder import CudaRecorder

        return ExplicitRecorder(self) if self.device.repoints else CudaRecorder(self)

    def live_results(self, segment: Segment) -> list[Array]:
        """See `BoundPlan.live_results`."""
        self._refuse_while_recording("a value is read on the host")
        steps = self.plan.steps_of(segment)
        inside = {step.node for step in steps}
        seen = [value for step in steps for value in step.node.outputs if value.is_read_outside(inside)]
        return [self.downloaded(self.plan.views[value]) for value in seen]

    @property
    def has_states(self) -> bool:
        """Whether a run leaves anything to the next one."""
        return any(buffer.place is Home.STATE for buffer in self.plan.buffers)

    def save(self) -> Saved:
        """See `BoundPlan.save`."""
        nbytes = self.plan.arena_bytes
        states = {buffer.id: buffer.nbytes for buffer in self.plan.buffers if buffer.place is Home.STATE}
        return Saved(
            self._saved(self.arena.address, nbytes),
            {index: self._saved(self.placement.base(index), size) for index, size in states.items()},
        )

    def _saved(self, address: int, nbytes: int) -> Memory:
        device = self.device
        memory = device.driver.allocate(nbytes)
        device.driver.copy(memory.address, address, nbytes, device.stream)
        return memory

    def restore(self, saved: Saved) -> None:
        """See `BoundPlan.restore`."""
        device = self.device
        device.driver.copy(self.arena.address, saved.arena.address, self.plan.arena_bytes, device.stream)
        for index, memory in saved.states.items():
            nbytes = self.plan.buffers[index].nbytes
            device.driver.copy(self.placement.base(index), memory.address, nbytes, device.stream)
        device.driver.synchronize(device.stream)  # the copy may be given back right away

    def poison(self, step: int | None = None) -> None:
        """See `BoundPlan.poison`."""
        self._refuse_while_recording("memory is written")
        needed = [
            b for b in self.plan.buffers if step is not None and b.place is Home.ARENA and b.first < step <= b.last
        ]
        free = 0
        for buffer in sorted(needed, key=lambda buffer: buffer.offset):
            self._poison_range(free, buffer.offset)
            free = max(free, buffer.end)
        self._poison_range(free, self.plan.arena_bytes)

    def _poison_range(self, start: int, stop: int) -> None:
        if stop > start:
            self.device.driver.fill(self.arena.address + start, POISON, stop - start, self.device.stream)

    def _refuse_while_recording(self, what: str) -> None:
        if self.is_recording:
            raise CaptureError(f"{what} while steps are recorded", remedy="end the recording first")

    def move(self, arena: DeviceArena) -> None:
        """Goes over to another arena; what was recorded refers to the old one."""
        self.arena = self.placement.arena = arena
        self._calls.clear()
        self._results.clear()


def _cut(view: View, shape: Cut | None) -> View:
    if shape is None:
        return view
    sizes = tuple([old if new is None else new for old, new in zip(view.shape, shape, strict=True)])
    return View(view.buffer, view.offset, view.dtype, sizes, view.strides)


def _cut_array(array: Any, shape: Cut | None) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    return np.array(array if shape is None else array[(*(slice(size) for size in shape), ...)])  # of rank 0, too


def _located(error: Exception, node: Node) -> Exception:
    located = getattr(error, "located", None)
    return error if located is None else located(node.where())
