"""A GPU as a device of recorded programs: everything that the plans of one program share there."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from weakref import finalize

import numpy as np

from ....ir.constant import Array, Constant
from ....ir.errors import UnsupportedError
from ....ir.foreign import tensor_meaning_of
from ....ir.graph import Node
from ....ir.plan import Plan, Step, contiguous_strides
from ...progress import step_name
from ...replay.recorder import Arena
from ..arrays.frameworks import HOST_ARRAYS, open_framework
from ..arrays.protocol import DeviceArray, Framework, Shape
from ..driver.compiler import Compiled, Compiler, Failed
from ..driver.memory import Arenas, Constants, DeviceArena, Staging
from ..driver.protocol import Driver, Enqueue, KernelCall, Memory
from ..kernel_ir.launch import Argument, Candidate, HostCall, KernelLaunch, LibraryCall, ScalarArgument
from ..libraries.base import Library
from ..lower.early_trigger import with_safe_triggers
from ..lower.lowering import Backend, LoweredStep
from ..lower.old_rows import with_old_rows
from .bound_plan import CudaPlan
from .selection import Selector
from .tensor_steps import has_arrays_for

FIRST_COPIES = 16

DEFAULT_STREAM = 0
"""The one that is always there."""


@dataclass
class Fallbacks:
    """What did not go as it should, for reports: kernels that do not compile, calls that libraries refuse."""

    kernels: Counter[str] = field(default_factory=Counter[str])
    libraries: Counter[str] = field(default_factory=Counter[str])
    host_steps: dict[str, str] = field(default_factory=dict[str, str])
    framework_steps: dict[str, str] = field(default_factory=dict[str, str])
    """Steps that a framework does on its own arrays on the device, between recordings, and which."""
    host_counts: Counter[str] = field(default_factory=Counter[str])
    """How many steps of the same name, of either kind, a plan has at most."""
    between_recordings: set[str] | None = None
    """The host's steps in plans that are recorded; None while there is no such plan."""
    missed: Counter[str] = field(default_factory=Counter[str])
    """Why steps are not done by a better candidate that there is for their op, and how many."""


class CudaDevice:
    """One GPU, for one program: a `Device`. Calls take turns; `enter` says how the next one brings its arrays."""

    keeps_states = True

    def __init__(
        self,
        driver: Driver,
        compiler: Compiler,
        backend: Backend,
        constants: Constants,
        libraries: Mapping[str, Library],
    ) -> None:
        self.driver = driver
        self.backend = backend
        self.constants = constants
        self.arenas = Arenas(driver)
        self.staging = Staging(driver)
        self.fallbacks = Fallbacks()
        self.compiler = compiler
        self.own_stream = driver.make_stream()
        self.capture_stream = driver.make_stream()
        self.stream = self.own_stream
        self.release_streams = finalize(self, _release, driver, (self.own_stream, self.capture_stream))
        """Gives back the device's own streams: called by `close`, or when nobody holds the device any more."""
        self.release_streams.atexit = False
        self.framework: Framework | None = None
        """Whose arrays on the device the call gives; None for arrays in main memory."""
        self.followed: set[Framework] = set()
        """Other frameworks whose arrays the call reads."""
        self.selector: Selector | None = None
        """Measures which candidate is the fastest; None takes the first that fits."""
        self.calls_before_copies = FIRST_COPIES
        """How many calls in a row are alike before their copies become part of a graph."""
        self.repoints = False
        """Whether recordings are to follow inputs that move."""
        self._frameworks: dict[str, Framework] = {}
        self._libraries = libraries
        self.missing_libraries: Mapping[str, str] = {}
        """Why libraries that could be there are not, by name."""
        self.failures = (*driver.failures, *chain.from_iterable(each.failures for each in libraries.values()))
        """What the driver, libraries and opened frameworks raise; `Driver.explained` puts it into words."""
        self._shared: dict[str, Memory] = {}
        self._templates: dict[str, Memory] = {}

    # ---- the Device protocol

    def reserve(self, nbytes: int, _alignment: int) -> DeviceArena:
        """See `Device.reserve`."""
        return self.arenas.reserve(nbytes)

    def bind(self, plan: Plan, arena: Arena, states: Mapping[str, Any] | None = None) -> CudaPlan:
        """See `Device.bind`. The arena is one that this device reserved.

        Raises `UnsupportedError` for states that lie on the host.
        """
        held = {} if states is None else states
        for name, array in held.items():
            if not isinstance(array, DeviceArray):
                raise UnsupportedError(f"state {name!r} lies on the host", remedy="pass states as inputs on a GPU")
        assert isinstance(arena, DeviceArena)  # the dispatcher hands back what it got
        return CudaPlan(plan, arena, self, held)

    def state(self, content: Array) -> "OwnState":
        """See `Device.state`."""
        made = OwnState(self, content.shape, content.dtype)
        made[...] = content
        return made

    # ---- a call

    def enter(self, name: str) -> Framework | None:
        """Begins a call with arrays of that framework, which is given: None for "numpy".

        It runs on the framework's stream, behind the call before; on its own where the arrays lie in main memory.
        """
        self.followed.clear()
        speaker = None if name == HOST_ARRAYS else self.framework_named(name)
        self.framework = speaker if speaker is not None and speaker.has_device else None
        self.use_stream(self.own_stream if self.framework is None else self.framework.stream())
        return speaker

    def follow(self, framework: Framework) -> None:
        """Lets the call wait for what another framework has enqueued by now, whose array it is to read."""
        self.followed.add(framework)
        stream = framework.stream()
        if stream != self.stream:
            self.driver.order(stream, self.stream)

    def leave(self) -> None:
        """Ends a call: frameworks that it followed write to and free what it read behind it only."""
        for framework in self.followed:
            stream = framework.stream()
            if stream != self.stream:
                self.driver.order(self.stream, stream)

    def use_stream(self, stream: int) -> None:
        """Goes on working on that stream, behind what is under way."""
        if stream != self.stream:
            self.driver.order(self.stream, stream)
            self.stream = stream

    def framework_named(self, name: str) -> Framework:
        """The framework of that name, opened."""
        found = self._frameworks.get(name)
        if found is None:
            found = self._frameworks[name] = open_framework(name, self.driver.index, self.downloaded)
            self.failures = (*self.failures, *found.failures)
        return found

    def framework_of(self, node: Node) -> Framework | None:
        """The framework that runs a foreign node on arrays of this device; None where none does."""
        meaning = tensor_meaning_of(node)
        if meaning is None:
            return None
        found = self.framework_named(meaning.framework)
        return found if has_arrays_for(found, node) else None

    def downloaded(self, array: DeviceArray) -> Array:
        """An array on the device as one of NumPy's own."""
        whole = array
        if not array.is_contiguous:
            memory = self.driver.allocate(array.nbytes)
            whole = DeviceArray(memory.address, array.dtype, array.shape, (), memory, self.downloaded)
            into = (memory.address, contiguous_strides(array.shape, array.dtype.itemsize))
            source = (array.address, array.strides)
            self.driver.copy_strided(into, source, array.shape, array.dtype.itemsize, self.stream)
        content = self.staging.download(whole.address, array.nbytes, self.stream)
        return np.array(np.ndarray(array.shape, array.dtype, content))

    def apart(self, array: DeviceArray, framework: Framework) -> DeviceArray:
        """An array that plans do not write to: itself, or a copy of one in the arena, such as the last result.

        Steps and other inputs of the next call may be written where it lies before it is read.
        """
        return self.copied(array, framework) if self.arenas.covers(array.address) else array

    def copied(self, array: DeviceArray, framework: Framework) -> DeviceArray:
        """The elements of an array as a new contiguous one of a framework."""
        made, item = framework.empty(array.shape, array.dtype), array.dtype.itemsize
        into, source = (made.address, made.strides), (array.address, array.strides)
        self.driver.copy_strided(into, source, array.shape, item, self.stream)
        return made

    # ---- memory that plans share

    def shared_memory(self, name: str, nbytes: int) -> Memory:
        """Memory for the input or state of that name: the same for all plans, as far as it is large enough."""
        found = self._shared.get(name)
        if found is None or found.nbytes < nbytes:
            found = self._shared[name] = self.driver.allocate(nbytes)
        return found

    def shared_constant(self, content: Constant) -> Memory:
        """A constant that no plan holds, such as what padding is filled with; kept as long as the program."""
        found = self.constants.plain(content)
        self._templates[content.digest] = found
        return found

    @property
    def shared_bytes(self) -> int:
        """What inputs and states outside of the arena take."""
        return sum(memory.nbytes for memory in self._shared.values())

    # ---- how steps are done

    def library(self, name: str) -> Library:
        """An opened library: one of those that the backend has."""
        return self._libraries[name]

    def choose(
        self, lowered: Sequence[LoweredStep], plan: Plan | None = None, *, is_recorded: bool = False
    ) -> tuple[Candidate | None, ...]:
        """For each step the first candidate whose kernels compile and libraries agree; None where nothing is to do.

        `is_recorded` says that they are steps of a plan of which some is recorded. Attention in `plan` may read old
        rows of its caches early.
        """
        if self.selector is not None:
            self.compiler.begin(self.selector.kernels_wanted(lowered))
            lowered = [self.selector.ordered(each) for each in lowered]
        chosen = [iter(each.candidates) for each in lowered]
        picked = [next(each, None) for each in chosen]
        pending = [index for index, candidate in enumerate(picked) if candidate is not None]
        while pending:
            self.compiler.compile(kernel for index in pending for kernel in _kernels(picked[index]))
            pending = [index for index in pending if self._fails(lowered[index].step, picked[index])]
            for index in pending:
                picked[index] = next(chosen[index], None)
        for each, candidate in zip(lowered, picked, strict=True):
            self._note(each, candidate)
        self._note_host_steps(lowered, picked, is_recorded)
        final = with_safe_triggers(picked if plan is None else with_old_rows(plan, lowered, picked))
        self.compiler.compile(kernel for candidate in final for kernel in _kernels(candidate))
        return final

    def bound(self, launch: KernelLaunch | LibraryCall, address: Callable[[Argument], int]) -> Enqueue:
        """A launch with its arguments at the addresses that `address` tells."""
        if isinstance(launch, KernelLaunch):
            return self.driver.bind(self.kernel_call(launch, address))
        addresses = {role: address(argument) for role, argument in launch.arguments.items()}
        workspace = 0 if launch.workspace is None else address(launch.workspace)
        enqueue = self.library(launch.library).prepare(launch)
        return lambda stream: enqueue(stream, addresses, workspace)

    def kernel_call(self, launch: KernelLaunch, address: Callable[[Argument], int]) -> KernelCall:
        """A kernel's launch, likewise; numbers are passed as they are."""
        values = [each if isinstance(each, ScalarArgument) else address(each) for each in launch.arguments]
        return KernelCall(launch, self.compiled(launch), values)

    def compiled(self, launch: KernelLaunch) -> Compiled:
        """The machine code of a launch that was chosen."""
        found = self.compiler.compile([launch.kernel])[launch.kernel.text]
        assert isinstance(found, Compiled)  # else it had not been chosen
        return found

    def fails_to_compile(self, step: Step, candidate: Candidate) -> bool:
        """Whether a kernel of a candidate does not compile, which is counted."""
        for result in self.compiler.compile(_kernels(candidate)).values():
            if isinstance(result, Failed):
                kept = f"; the source is kept in {result.source}" if result.source is not None else ""
                self.fallbacks.kernels[f"{step.node.op.name}, {candidate.name}: {_first_line(result.log)}{kept}"] += 1
                return True
        return False

    def _fails(self, step: Step, candidate: Candidate | None) -> bool:
        if candidate is None:
            return False
        if self.fails_to_compile(step, candidate):
            return True
        return any(self._is_refused(step, call) for call in candidate.launches if isinstance(call, LibraryCall))

    def _is_refused(self, step: Step, call: LibraryCall) -> bool:
        try:
            self.library(call.library).prepare(call)
        except UnsupportedError as error:
            self.fallbacks.libraries[f"{step.node.op.name}, {call.library}: {error.message}"] += 1
            return True
        return False

    def _note(self, lowered: LoweredStep, candidate: Candidate | None) -> None:
        for name in sorted(lowered.missing_libraries):
            self.fallbacks.missed[f"without {name}: {self.missing_libraries.get(name, 'it is not there')}"] += 1
        if candidate is not None and candidate.remark:
            self.fallbacks.missed[candidate.remark] += 1

    def _note_host_steps(
        self, lowered: Sequence[LoweredStep], picked: Sequence[Candidate | None], is_recorded: bool
    ) -> None:
        """The steps of one plan that the host does, by name and origin; plans of a program are alike."""
        counts = Counter[str]()
        for each, candidate in zip(lowered, picked, strict=True):
            for launch in () if candidate is None else candidate.launches:
                if isinstance(launch, HostCall):
                    name = step_name(each.step.node)
                    framework = tensor_meaning_of(each.step.node)
                    if framework is not None and self.framework_of(each.step.node) is not None:
                        self.fallbacks.framework_steps[name] = framework.framework
                    else:
                        self.fallbacks.host_steps[name] = launch.reason
                    counts[name] += 1
        self.fallbacks.host_counts |= counts
        if is_recorded:
            self.fallbacks.between_recordings = (self.fallbacks.between_recordings or set()) | counts.keys()

    def close(self) -> None:
        """Waits for what is under way, and gives back what only this program uses."""
        try:
            self.driver.synchronize(self.stream)
        except self.failures as error:
            self.driver.explained(error)  # remembers a lost device; closing still succeeds
        self.release_streams()
        self.stream = self.own_stream = self.capture_stream = DEFAULT_STREAM
        self._shared.clear()
        self._templates.clear()

    # ---- reports

    def remarks(self) -> Iterator[str]:
        """Lines for `explain()`."""
        driver, counters = self.driver, self.compiler.counters
        yield f"device cuda:{driver.index}, compute capability {driver.chip.arch / 10}"
        yield f"kernels: {counters.compiled} compiled, {counters.found} found on disk, {counters.failed} failed"
        if self.selector is not None:
            yield f"tuning: {self.selector.measured} problems measured"
        for name, reason in self.fallbacks.host_steps.items():
            count, recorded = self.fallbacks.host_counts[name], self.fallbacks.between_recordings
            when = "" if recorded is None or name in recorded else " in calls that are not recorded"
            yield f"runs on the host{when}: {name}{f', {count} steps' if count > 1 else ''}: {reason}"
        for name, framework in self.fallbacks.framework_steps.items():
            count = self.fallbacks.host_counts[name]
            yield f"runs in {framework}, between recordings: {name}{f', {count} steps' if count > 1 else ''}"
        for what, count in chain(self.fallbacks.kernels.items(), self.fallbacks.libraries.items()):
            yield f"fell back {count} times: {what}"
        for why, count in self.fallbacks.missed.items():
            yield f"{count} steps: {why}"


class OwnState(DeviceArray):
    """A state in memory of the device's own. What is done to it goes to the stream of the call at hand."""

    __slots__ = ("_device",)

    def __init__(self, device: CudaDevice, shape: Shape, dtype: np.dtype[Any]) -> None:
        strides = contiguous_strides(shape, dtype.itemsize)
        memory = device.driver.allocate(math.prod(shape) * dtype.itemsize)
        super().__init__(memory.address, dtype, shape, strides, memory, device.downloaded)
        self._device = device

    def copy(self) -> "OwnState":
        """The same content in memory of its own."""
        made = OwnState(self._device, self.shape, self.dtype)
        made[...] = self
        return made

    def __setitem__(self, _everything: Any, content: Any) -> None:
        device = self._device
        if isinstance(content, DeviceArray):
            device.driver.copy(self.address, content.address, self.nbytes, device.stream)
        else:
            device.staging.upload(self.address, np.asarray(content, dtype=self.dtype), device.stream)


def _release(driver: Driver, streams: Sequence[int]) -> None:
    for stream in streams:
        with suppress(*driver.failures):
            driver.release_stream(stream)


def _kernels(candidate: Candidate | None) -> list[Any]:
    if candidate is None:
        return []
    return [launch.kernel for launch in candidate.launches if isinstance(launch, KernelLaunch)]


def _first_line(log: str) -> str:
    lines = [line for line in log.splitlines() if "error" in line]
    return lines[0] if lines else log.strip().partition("\n")[0]
