"""The rules of capture on the host, as CUDA holds them."""

from collections.abc import Iterator

import numpy as np
import pytest
from capgraph.executors.host import kernels
from capgraph.executors.host.bound_plan import HostPlan
from capgraph.executors.host.calls import ArrayCall
from capgraph.executors.host.recorder import HostRecorder
from capgraph.executors.replay.capture import record
from capgraph.ir.builder import Builder
from capgraph.ir.errors import CaptureError
from capgraph.ir.graph import Graph
from capgraph.ir.plan import Segment

from tests.executors.host.running import UNBOUNDED, host_plan

F32 = np.float32


def chain() -> Graph:
    b = Builder()
    x = b.input("x", "f32[4]")
    return b.finish({"y": b.op("neg", b.op("exp", b.op("add", x, x)))})


@pytest.fixture
def bound() -> HostPlan:
    return host_plan(chain())


@pytest.fixture
def recorder(bound: HostPlan) -> Iterator[HostRecorder]:
    made = bound.recorder()
    made.begin(bound.plan.segments[0])
    yield made
    made.abort()


def replayed(bound: HostPlan, x: np.ndarray) -> np.ndarray:
    recording = record(bound, bound.plan.segments[0])
    bound.start()
    bound.load(0, x)
    recording.replay()
    return bound.copy_of_result(0)


def test_a_recording_replays_on_new_contents(bound: HostPlan) -> None:
    for value in (0.0, 1.0):
        assert np.array_equal(replayed(bound, np.full(4, value, F32)), -np.exp(np.full(4, 2 * value, F32)))


def test_recording_runs_nothing(bound: HostPlan) -> None:
    bound.poison()
    before = bound.arena.bytes.copy()
    recording = record(bound, bound.plan.segments[0])
    assert np.array_equal(bound.arena.bytes, before)
    assert len(recording) == 3
    assert recording.nbytes > 0


def test_values_are_neither_read_nor_written(bound: HostPlan, recorder: HostRecorder) -> None:
    for forbidden in (
        lambda: bound.result(0),
        lambda: bound.load(0, np.zeros(4, F32)),
        lambda: bound.place(0, np.zeros(4, F32)),
        bound.poison,
        lambda: bound.live_results(bound.plan.segments[0]),
    ):
        with pytest.raises(CaptureError, match="while steps are recorded"):
            forbidden()
    recorder.abort()
    bound.load(0, np.zeros(4, F32))


def test_one_recording_at_a_time(bound: HostPlan, recorder: HostRecorder) -> None:
    with pytest.raises(CaptureError, match="under way already"):
        bound.recorder().begin(bound.plan.segments[0])
    assert recorder is not None


def test_steps_come_in_order_and_all_of_them(bound: HostPlan, recorder: HostRecorder) -> None:
    with pytest.raises(CaptureError, match="not the next one"):
        recorder.record(bound.plan.steps[1])
    recorder.record(bound.plan.steps[0])
    with pytest.raises(CaptureError, match="before its segment does"):
        recorder.end()


def test_nothing_is_recorded_before_it_begins(bound: HostPlan) -> None:
    with pytest.raises(CaptureError, match="begin a segment"):
        bound.recorder().record(bound.plan.steps[0])


def test_moved_memory_is_refused(bound: HostPlan, recorder: HostRecorder) -> None:
    recorder.record(bound.plan.steps[0])
    bound.arena.address += 64
    with pytest.raises(CaptureError, match="arena moved while"):
        recorder.record(bound.plan.steps[1])


def test_memory_that_is_not_planned_is_refused(monkeypatch: pytest.MonkeyPatch, recorder: HostRecorder) -> None:
    def elsewhere(_node: object, operands: tuple[np.ndarray], _results: object) -> ArrayCall:
        return ArrayCall(np.add, (operands[0], operands[0]), (np.empty(4, F32),))

    monkeypatch.setattr(kernels, "KERNELS", {"add": elsewhere})
    with pytest.raises(CaptureError, match="writes to memory that is not planned"):
        recorder.record(recorder._bound.plan.steps[0])


@pytest.mark.parametrize(
    ("name", "reason"),
    [("non_zero", "allocates results"), ("dynamic_reshape", "reads values on the host")],
)
def test_ops_that_cuda_cannot_capture_are_refused(name: str, reason: str) -> None:
    b = Builder()
    x, shape = b.input("x", "f32[4]"), b.input("shape", "i64[2]")
    made = b.op("non_zero", x) if name == "non_zero" else b.op(name, x, shape, allow_zero=False)
    bound = host_plan(b.finish({"y": made}), target=UNBOUNDED)
    with pytest.raises(CaptureError, match=reason):
        record(bound, Segment(0, len(bound.plan.steps), True))
    bound.load(0, np.zeros(4, F32))  # the rules were lifted


def test_a_recording_is_not_replayed_without_its_memory(bound: HostPlan) -> None:
    recording = record(bound, bound.plan.segments[0])
    assert [pointer.name for pointer in recording.pointers] == ["arena"]
    recording.close()
    with pytest.raises(CaptureError, match="memory that is gone"):
        recording.replay()
    other = record(bound, bound.plan.segments[0])
    bound.arena.close()
    with pytest.raises(CaptureError, match="memory that is gone"):
        other.replay()


def test_a_recording_takes_over_where_an_input_lies(bound: HostPlan) -> None:
    recording = record(bound, bound.plan.segments[0])
    x = np.ones(4, F32)
    assert bound.place(0, x)
    assert recording.repoint(0)
    assert [pointer.name for pointer in recording.pointers] == ["arena", "x"]
    recording.replay()
    assert np.array_equal(bound.copy_of_result(0), -np.exp(2 * x))
    x[...] = 0
    recording.replay()
    assert bound.copy_of_result(0).tolist() == [-1] * 4
