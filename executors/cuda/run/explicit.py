"""Recording as an explicit graph: kernels one behind another, whose arguments can be exchanged in place.

A captured graph refers to fixed addresses: an input that moves means recording again. Here each kernel that reads the
input gets its new address, a microsecond for each. In return such graphs hold kernels only, without clusters, and no
kernel starts before the one before it ends.
"""

from ....ir.errors import CaptureError
from ....ir.plan import Segment, Step
from ...replay.recorder import Recorder, Recording
from ..driver.protocol import UpdatableGraph
from ..kernel_ir.launch import KernelLaunch
from .bound_plan import CudaPlan
from .placement import buffers_in
from .recorder import CudaRecorder, CudaRecording, pointers_of


class ExplicitRecorder:
    """Records segments that are kernels throughout as explicit graphs, others through a stream: a `Recorder`."""

    def __init__(self, bound: CudaPlan) -> None:
        self._bound = bound
        self._through_stream: Recorder | None = None
        self._segment: Segment | None = None
        self._steps = 0
        self._launches: list[KernelLaunch] = []

    def begin(self, segment: Segment) -> None:
        """See `Recorder.begin`."""
        launches = [each for step in self._bound.plan.steps_of(segment) for each in self._bound.launches_of(step)]
        if not launches or not all(map(_fits, launches)):
            self._through_stream = CudaRecorder(self._bound)
            self._through_stream.begin(segment)
            return
        if self._bound.is_recording:
            raise CaptureError("a recording is under way already", remedy="end or abort it first")
        self._segment, self._steps, self._launches = segment, 0, []
        self._bound.is_recording = True

    def record(self, step: Step) -> None:
        """See `Recorder.record`."""
        if self._through_stream is not None:
            self._through_stream.record(step)
            return
        segment = self._segment
        if segment is None:
            raise CaptureError("nothing is being recorded", remedy="begin a segment first")
        if step.index != segment.start + self._steps or step.index >= segment.stop:
            raise CaptureError(f"step {step.index} is not the next one of its segment", where=step.node.where())
        self._launches += [each for each in self._bound.launches_of(step) if isinstance(each, KernelLaunch)]
        self._steps += 1

    def end(self) -> Recording:
        """See `Recorder.end`."""
        if self._through_stream is not None:
            return self._through_stream.end()
        bound, segment = self._bound, self._segment
        if segment is None or self._steps != len(segment):
            raise CaptureError(f"the recording ends after {self._steps} steps, before its segment does")
        driver = bound.device.driver
        try:
            graph = driver.chain([bound.kernel_call(launch) for launch in self._launches])
        except bound.device.failures as error:
            raise CaptureError(
                f"the graph cannot be built: {driver.explained(error)}",
                remedy='copy inputs instead: capture={"inputs": {"": "copy"}}',
            ) from error
        made = ExplicitRecording(bound, graph, self._launches)
        self.abort()
        return made

    def abort(self) -> None:
        """See `Recorder.abort`."""
        if self._through_stream is not None:
            self._through_stream.abort()
            self._through_stream = None
        if self._segment is not None:
            self._bound.is_recording = False
        self._segment = None


class ExplicitRecording(CudaRecording):
    """An explicit graph: a `Recording` that follows inputs which move."""

    def __init__(self, bound: CudaPlan, graph: UpdatableGraph, launches: list[KernelLaunch]) -> None:
        super().__init__(bound, graph, len(launches), pointers_of(bound))
        self._updatable = graph
        self._kernels = launches

    def repoint(self, index: int) -> bool:
        """See `Recording.repoint`: only the kernels that read the input are touched."""
        bound = self._bound
        buffer = bound.plan.views[bound.plan.graph.inputs[index]].buffer
        for position, launch in enumerate(self._kernels):
            if buffer in buffers_in(launch):
                self._updatable.update(position, bound.kernel_call(launch).values)
        self.pointers = pointers_of(bound)
        return True


def _fits(launch: object) -> bool:
    return isinstance(launch, KernelLaunch) and launch.kernel.cluster == (1, 1, 1)
