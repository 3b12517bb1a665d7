"""The GPU for programs whose subgraphs are sessions: plans bound as for our own kernels, recorded by ONNX Runtime."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ....ir.errors import CaptureError, ExecutionError, UnsupportedError
from ....ir.plan import Plan, Segment, Step
from ...cuda.driver.memory import DeviceArena
from ...cuda.driver.protocol import Enqueue
from ...cuda.kernel_ir.launch import Argument, Launch, LibraryCall
from ...cuda.run.bound_plan import CudaPlan
from ...cuda.run.device import CudaDevice
from ...cuda.run.recorder import pointers_of
from ...progress import step_name
from ...replay.recorder import Arena, Pointer
from .library import LIBRARY, SubgraphBackend, SubgraphLibrary
from .session import Binding, SubgraphSession

RECORDING_BYTES = 64 << 10
"""What one recording of ONNX Runtime takes: an estimate, 128 small ones were seen to take 6 MiB."""


class OrtDevice(CudaDevice):
    """One GPU, for one program: a `Device`. `sessions` are those of its subgraphs; more may be added.

    Where `is_strict`, a session that fails raises in each call, also where the host could take its subgraph over.
    """

    is_strict = False
    keeps_states = False

    def __init__(self, opened: CudaDevice) -> None:
        sessions: dict[str, SubgraphSession] = {}
        libraries = {name: opened.library(name) for name in opened.backend.libraries}
        backend = SubgraphBackend(
            chip=opened.backend.chip,
            libraries=opened.backend.libraries | {LIBRARY},
            tf32=opened.backend.tf32,
            sessions=sessions,
        )
        super().__init__(opened.driver, opened.compiler, backend, opened.constants, libraries)
        self.release_streams.detach()  # sessions work on one, and may be held for longer than the device
        self.subgraphs = SubgraphLibrary(sessions, self.driver.order, self.own_stream)
        self.sessions = sessions
        libraries[LIBRARY] = self.subgraphs

    def bind(self, plan: Plan, arena: Arena, states: Mapping[str, Any] | None = None) -> "OrtPlan":
        """See `Device.bind`."""
        if states:
            raise UnsupportedError(
                f"state {next(iter(states))!r} lives in a store on the host", remedy="pass states as inputs on a GPU"
            )
        assert isinstance(arena, DeviceArena)  # the dispatcher hands back what it got
        return OrtPlan(plan, arena, self)

    def close(self) -> None:
        """See `CudaDevice.close`: the sessions go too."""
        super().close()
        self.sessions.clear()


class OrtPlan(CudaPlan):
    """A plan with memory on a GPU, recorded by ONNX Runtime."""

    device: OrtDevice

    def _bound(self, step: Step, launch: Launch, address: Callable[[Argument], int]) -> Enqueue:
        if not isinstance(launch, LibraryCall) or launch.library != LIBRARY:
            return super()._bound(step, launch, address)
        session = self.device.subgraphs.session_of(launch)
        return partial(self._run_subgraph, step, session, super()._bound(step, launch, address))

    def _run_subgraph(self, step: Step, session: SubgraphSession, enqueue: Enqueue, stream: int) -> None:
        """Runs a subgraph, on the host where its session fails and NumPy does not: then the inputs are not at fault."""
        if session.failure:
            self._host.run(step, stream)
            return
        try:
            enqueue(stream)
            return
        except ExecutionError as error:
            failure = error
        self._host.run(step, stream)
        name = step_name(step.node)
        if self.device.is_strict:
            raise ExecutionError(failure.message, where=name, remedy="strict=False runs it on the host") from failure
        session.failure = failure.message
        self.device.fallbacks.host_steps[name] = failure.message

    def recorder(self) -> "OrtRecorder":
        """See `BoundPlan.recorder`."""
        return OrtRecorder(self)


class OrtRecorder:
    """Records segments of subgraphs: a `Recorder`. The sessions record themselves, when they are first replayed."""

    def __init__(self, bound: OrtPlan) -> None:
        self._bound = bound
        self._segment: Segment | None = None
        self._steps = 0
        self._calls: list[LibraryCall] = []

    def begin(self, segment: Segment) -> None:
        """See `Recorder.begin`."""
        if self._bound.is_recording:
            raise CaptureError("a recording is under way already", remedy="end or abort it first")
        self._segment, self._steps, self._calls = segment, 0, []
        self._bound.is_recording = True

    def record(self, step: Step) -> None:
        """See `Recorder.record`. Raises `CaptureError` for what is not done by a session."""
        segment = self._segment
        if segment is None or step.index != segment.start + self._steps or step.index >= segment.stop:
            raise CaptureError(f"step {step.index} is not the next one of its segment", where=step.node.where())
        for launch in self._bound.launches_of(step):
            if not isinstance(launch, LibraryCall) or launch.library != LIBRARY:
                raise CaptureError(f"{step.node.op.name} is not done by ONNX Runtime", where=step.node.where())
            self._calls.append(launch)
        self._steps += 1

    def end(self) -> "OrtRecording":
        """See `Recorder.end`."""
        segment = self._segment
        if segment is None or self._steps != len(segment):
            raise CaptureError(f"the recording ends after {self._steps} steps, before its segment does")
        self.abort()
        return OrtRecording(self._bound, self._calls)

    def abort(self) -> None:
        """See `Recorder.abort`."""
        if self._segment is not None:
            self._bound.is_recording = False
        self._segment = None


class OrtRecording:
    """Recordings of sessions, each under a number of its own: a `Recording`.

    ONNX Runtime may take other kernels while it records, so that results are those of eager runs within rounding.
    """

    keeps_bits = False

    def __init__(self, bound: OrtPlan, calls: list[LibraryCall]) -> None:
        self.pointers: tuple[Pointer, ...] = pointers_of(bound)
        self._bound = bound
        self._subgraphs = bound.device.subgraphs
        self._address = bound.arena.address
        self._graphs = [self._taken(call) for call in calls]

    def _taken(self, call: LibraryCall) -> tuple[SubgraphSession, Binding, int]:
        addresses = {role: self._bound.placement.address(place) for role, place in call.arguments.items()}
        session, binding = self._subgraphs.session_of(call), self._subgraphs.bound(call, addresses)
        return session, binding, session.take(binding)

    @property
    def nbytes(self) -> int:
        return RECORDING_BYTES * len(self._graphs)

    def __len__(self) -> int:
        return len(self._graphs)

    def replay(self) -> None:
        """See `Recording.replay`. It enqueues the graphs; what goes wrong on the device shows when it is waited for."""
        if self._bound.arena.address != self._address:
            raise CaptureError(
                "the recording refers to memory that is gone", remedy="a program cannot run after close()"
            )
        stream = self._bound.device.stream
        self._subgraphs.enter(stream)
        for session, binding, number in self._graphs:
            session.replay(binding, number)
        self._subgraphs.leave(stream)

    def repoint(self, _index: int) -> bool:
        """See `Recording.repoint`: what was recorded has to be recorded again."""
        return False

    def close(self) -> None:
        """See `Recording.close`."""
        for session, _, number in self._graphs:
            session.release(number)
        self._graphs = []
