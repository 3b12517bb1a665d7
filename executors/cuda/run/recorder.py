"""Recording through a captured stream: what the steps of a segment enqueue becomes one graph."""

from contextlib import suppress

from ....ir.errors import CaptureError
from ....ir.plan import Place as Home
from ....ir.plan import Segment, Step
from ...replay.recorder import Pointer
from ..driver.failures import kept_outside
from ..driver.protocol import DeviceGraph
from .bound_plan import CudaPlan

GRAPH_NODE_BYTES = 1024
"""What a node of a recorded graph takes on the device at least: an estimate, for graphs too small to be seen."""


class CudaRecorder:
    """Records segments of a plan that is bound to a GPU: a `Recorder`."""

    def __init__(self, bound: CudaPlan) -> None:
        self._bound = bound
        self._segment: Segment | None = None
        self._steps = 0
        self._launches = 0
        self._pointers: tuple[Pointer, ...] = ()

    def begin(self, segment: Segment) -> None:
        """See `Recorder.begin`. What has to be loaded or prepared for the segment is, before the capture begins."""
        bound, device = self._bound, self._bound.device
        if bound.is_recording:
            raise CaptureError("a recording is under way already", remedy="end or abort it first")
        for step in bound.plan.steps_of(segment):
            bound.calls_of(step)
        device.driver.synchronize(device.stream)
        self._segment, self._steps, self._launches = segment, 0, 0
        self._pointers = pointers_of(bound)
        bound.is_recording = True
        device.driver.begin_capture(device.capture_stream)

    def record(self, step: Step) -> None:
        """See `Recorder.record`."""
        segment, device = self._segment, self._bound.device
        if segment is None:
            raise CaptureError("nothing is being recorded", remedy="begin a segment first")
        if step.index != segment.start + self._steps or step.index >= segment.stop:
            raise CaptureError(f"step {step.index} is not the next one of its segment", where=step.node.where())
        try:
            for call in self._bound.calls_of(step):
                call(device.capture_stream)
                self._launches += 1
        except device.failures as error:
            raise CaptureError(
                f"{step.node.op.name} cannot be recorded: {device.driver.explained(error)}",
                where=step.node.where(),
                remedy=kept_outside(step.node.op.name),
            ) from error
        self._steps += 1

    def end(self) -> "CudaRecording":
        """See `Recorder.end`."""
        segment, bound = self._segment, self._bound
        if segment is None or self._steps != len(segment):
            raise CaptureError(f"the recording ends after {self._steps} steps, before its segment does")
        if pointers_of(bound) != self._pointers:
            raise CaptureError("memory moved while steps were recorded", remedy="record again")
        driver = bound.device.driver
        try:
            graph = driver.end_capture(bound.device.capture_stream)
        except bound.device.failures as error:
            raise CaptureError(
                f"the recording is broken: {driver.explained(error)}", remedy='record nothing: mode="none"'
            ) from error
        self.abort()
        return CudaRecording(bound, graph, self._launches, self._pointers)

    def abort(self) -> None:
        """See `Recorder.abort`."""
        if self._segment is not None:
            self._bound.device.driver.abort_capture(self._bound.device.capture_stream)
            self._bound.is_recording = False
        self._segment = None


class CudaRecording:
    """A recorded graph: a `Recording`. The bound plan keeps the memory that it refers to."""

    def __init__(self, bound: CudaPlan, graph: DeviceGraph, launches: int, pointers: tuple[Pointer, ...]) -> None:
        self.pointers = pointers
        self._bound = bound
        self._graph: DeviceGraph | None = graph
        self.launch = graph.launch
        """Enqueues the graph on a stream, for callers who know that the memory is still there."""
        self._launches = launches
        self._address = bound.arena.address
        self._device = bound.device
        self._nbytes = max(graph.nbytes, GRAPH_NODE_BYTES * launches)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def __len__(self) -> int:
        return self._launches

    def replay(self) -> None:
        """See `Recording.replay`. It enqueues the graph; what goes wrong on the device shows when it is waited for."""
        device = self._device
        if self._graph is None or self._bound.arena.address != self._address:
            raise CaptureError(
                "the recording refers to memory that is gone", remedy="a program cannot run after close()"
            )
        try:
            self.launch(device.stream)
        except device.failures as error:
            raise device.driver.explained(error) from error

    def repoint(self, _index: int) -> bool:
        """See `Recording.repoint`: a captured graph has to be recorded again."""
        return False

    def close(self) -> None:
        """See `Recording.close`: waits until it has run."""
        if self._graph is None:
            return
        device = self._device
        with suppress(*device.failures):  # a failure is told to the next call that waits
            device.driver.synchronize(device.stream)
        self._graph.close()
        self._graph = None


def pointers_of(bound: CudaPlan) -> tuple[Pointer, ...]:
    """The memory that launches of a bound plan refer to."""
    states = [
        Pointer(buffer.label, bound.placement.base(buffer.id))
        for buffer in bound.plan.buffers
        if buffer.place is Home.STATE
    ]
    placed = [Pointer(value.name, array.address) for value, array in bound.placement.placed.items()]
    return (Pointer("arena", bound.arena.address), *states, *placed)
