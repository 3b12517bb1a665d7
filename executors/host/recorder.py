"""The host recorder: prebound NumPy calls, recorded and replayed under the rules that a CUDA graph holds."""

from collections.abc import Sequence

import numpy as np

from ...ir.constant import Array
from ...ir.errors import CaptureError
from ...ir.graph import Node
from ...ir.op import Trait
from ...ir.plan import Place, Segment, Step, StepKind
from ..replay.recorder import Pointer
from .bound_plan import HostPlan
from .calls import ArrayCall, CallList
from .memory import address_of

CALL_BYTES = 1024
"""What one prebound call takes, with its array headers: an estimate."""

_BROKEN_RULES = (
    (Trait.FOREIGN, "it is a call into another framework"),
    (Trait.CONTROL_FLOW, "it decides on the host how often its regions run"),
    (Trait.READS_HOST, "it reads values on the host"),
    (Trait.DATA_DEPENDENT, "it allocates results whose size depends on values"),
)


class HostRecorder:
    """Records segments of a plan that is bound to host memory: a `Recorder`."""

    def __init__(self, bound: HostPlan) -> None:
        self._bound = bound
        self._segment: Segment | None = None
        self._steps: list[Step] = []
        self._pointers: tuple[Pointer, ...] = ()

    def begin(self, segment: Segment) -> None:
        """See `Recorder.begin`."""
        if self._bound.is_recording:
            raise CaptureError("a recording is under way already", remedy="end or abort it first")
        self._segment, self._steps = segment, []
        self._pointers = pointers_of(self._bound)
        self._bound.is_recording = True

    def record(self, step: Step) -> None:
        """See `Recorder.record`."""
        segment = self._segment
        if segment is None:
            raise CaptureError("nothing is being recorded", remedy="begin a segment first")
        if step.index != segment.start + len(self._steps) or step.index >= segment.stop:
            raise CaptureError(f"step {step.index} is not the next one of its segment", where=step.node.where())
        _check_rules(step.node)
        self._check_addresses(step)
        for call in self._bound.calls_of(step):
            self._check_results(step, call.results)
        self._steps.append(step)

    def end(self) -> "HostRecording":
        """See `Recorder.end`."""
        segment = self._segment
        if segment is None or len(self._steps) != len(segment):
            raise CaptureError(f"the recording ends after {len(self._steps)} steps, before its segment does")
        if pointers_of(self._bound) != self._pointers:
            raise CaptureError("memory moved while steps were recorded", remedy="record again")
        recording = HostRecording(self._bound, self._steps, self._pointers)
        self.abort()
        return recording

    def abort(self) -> None:
        """See `Recorder.abort`."""
        if self._segment is not None:
            self._bound.is_recording = False
        self._segment, self._steps = None, []

    def _check_addresses(self, step: Step) -> None:
        now = pointers_of(self._bound)
        for before, after in zip(self._pointers, now, strict=True):
            if before != after:
                raise CaptureError(f"{before.name} moved while steps were recorded", where=step.node.where())

    def _check_results(self, step: Step, results: Sequence[Array]) -> None:
        """Results are written at their planned places: a kernel may not bring memory of its own."""
        planned = [self._bound.placement.array(value) for value in step.node.outputs]
        for result in results:
            if not any(np.may_share_memory(result, place) or not result.size for place in planned):
                raise CaptureError(f"{step.node.op.name} writes to memory that is not planned", where=step.node.where())
        for value, place in zip(step.node.outputs, planned, strict=True):
            if place.shape != value.shape:
                raise CaptureError(f"%{value.name} changed its shape to {list(place.shape)}", where=step.node.where())


class HostRecording:
    """Recorded calls: a `Recording`. Its table has the arena and the inputs that lie with the caller.

    Constants and placed inputs are held, so they cannot go away.
    """

    def __init__(self, bound: HostPlan, steps: Sequence[Step], pointers: tuple[Pointer, ...]) -> None:
        self._bound = bound
        self._calls = CallList(steps, lambda step: [bound.placement.moving.bound(call) for call in _calls(bound, step)])
        self._address = bound.arena.address
        self._is_closed = False
        self._pointers: tuple[Pointer, ...] | None = pointers
        self._placed = {i for i in range(len(bound.plan.graph.inputs)) if bound.placed_address(i) is not None}

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """See `Recording.pointers`."""
        if self._pointers is None:
            self._pointers = pointers_of(self._bound)
        return self._pointers

    @property
    def nbytes(self) -> int:
        return CALL_BYTES * len(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def replay(self) -> None:
        """See `Recording.replay`."""
        if self._bound.arena.address != self._address or self._is_closed:
            raise CaptureError(
                "the recording refers to memory that is gone", remedy="a program cannot run after close()"
            )
        self._calls()

    def repoint(self, index: int) -> bool:
        """See `Recording.repoint`: calls that read the input are made anew unless they look up where it lies."""
        is_placed = self._bound.placed_address(index) is not None
        if is_placed is not (index in self._placed):
            self._calls.remake(self._bound.readers_of(index))
            self._placed ^= {index}
        self._pointers = None
        return True

    def close(self) -> None:
        """See `Recording.close`."""
        self._is_closed = True
        self._calls.clear()


def pointers_of(bound: HostPlan) -> tuple[Pointer, ...]:
    """The memory that calls of a bound plan refer to."""
    plan = bound.plan
    states = [
        Pointer(buffer.label, address_of(bound.placement.states[buffer.id]))
        for buffer in plan.buffers
        if buffer.place is Place.STATE and buffer.id in bound.placement.states
    ]
    placed = [Pointer(value.name, address) for value, address in bound.placement.placed.items()]
    return (Pointer("arena", bound.arena.address), *states, *placed)


def _calls(bound: HostPlan, step: Step) -> tuple[ArrayCall, ...]:
    return () if step.kind is StepKind.ALIAS else bound.calls_of(step)


def _check_rules(node: Node) -> None:
    for trait, why in _BROKEN_RULES:
        if node.op.has(trait):
            raise CaptureError(f"{node.op.name} cannot be captured: {why}", where=node.where())
