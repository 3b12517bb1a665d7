"""The rules of capture on a GPU that is played, for streams and for explicit graphs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.run.bound_plan import CudaPlan
from capgraph.executors.cuda.run.explicit import ExplicitRecorder, ExplicitRecording
from capgraph.executors.cuda.run.recorder import CudaRecording
from capgraph.executors.replay.capture import record
from capgraph.executors.replay.recorder import Recorder
from capgraph.ir.builder import Builder
from capgraph.ir.errors import CaptureError
from capgraph.ir.graph import Graph
from capgraph.ir.target import CUDA
from capgraph.passes.planning.lowering import Lowering
from capgraph.passes.planning.planner import PlanPolicy, make_plan

from tests.executors.cuda.fake import FakeChain, FakeDriver, FakeFailure, GpuArray, fake_device, gpu_arrays, meanings

F32 = np.float32


def chain(*, with_library: bool = False) -> Graph:
    """A kernel for each node; softmax is a call of a library."""
    b = Builder()
    x = b.input("x", "f32[4]")
    h = b.op("exp", b.op("add", x, x))
    return b.finish({"y": b.op("softmax", h, axis=0) if with_library else b.op("neg", h)})


def bound_on(driver: FakeDriver, folder: Path, graph: Graph, *, moving: bool) -> CudaPlan:
    gpu = fake_device(folder, driver)
    gpu.repoints = moving
    gpu.enter("cupy")
    resident = ["x"] if moving else []
    lowering = Lowering(captures=gpu.backend.captures, scratch=gpu.backend.scratch_bytes)
    plan = make_plan(graph, {}, CUDA, PlanPolicy(lowering=lowering, resident=resident))
    return gpu.bind(plan, gpu.reserve(plan.arena_bytes, plan.alignment))


@pytest.fixture(params=[False, True], ids=["stream", "explicit"])
def bound(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CudaPlan]:
    with meanings(), gpu_arrays():
        yield bound_on(FakeDriver(), tmp_path, chain(), moving=request.param)


@pytest.fixture
def recorder(bound: CudaPlan) -> Iterator[Recorder]:
    made = bound.recorder()
    made.begin(bound.plan.segments[0])
    yield made
    made.abort()


def test_a_recording_replays_on_new_contents(bound: CudaPlan) -> None:
    recording = record(bound, bound.plan.segments[0])
    assert len(recording) == 3
    assert recording.nbytes > 0
    for value in (0.0, 1.0):
        bound.start()
        bound.load(0, np.full(4, value, F32))
        recording.replay()
        given = bound.copy_of_result(0).native.content
        np.testing.assert_array_equal(given, -np.exp(np.full(4, 2 * value, F32)))


def test_recording_runs_nothing(bound: CudaPlan) -> None:
    bound.poison()
    before = bound.copy_of_result(0).native.content.tobytes()
    record(bound, bound.plan.segments[0])
    assert bound.copy_of_result(0).native.content.tobytes() == before


@pytest.mark.usefixtures("recorder")
def test_values_are_neither_read_nor_written_meanwhile(bound: CudaPlan) -> None:
    for forbidden in (
        lambda: bound.result(0),
        lambda: bound.copy_of_result(0),
        lambda: bound.load(0, np.zeros(4, F32)),
        lambda: bound.place(0, GpuArray(np.zeros(4, F32))),
        lambda: bound.unplace(0),
        bound.poison,
        lambda: bound.live_results(bound.plan.segments[0]),
    ):
        with pytest.raises(CaptureError, match="while steps are recorded"):
            forbidden()


@pytest.mark.usefixtures("recorder")
def test_one_recording_at_a_time(bound: CudaPlan) -> None:
    with pytest.raises(CaptureError, match="under way already"):
        bound.recorder().begin(bound.plan.segments[0])


def test_steps_come_in_order_and_all_of_them(bound: CudaPlan, recorder: Recorder) -> None:
    with pytest.raises(CaptureError, match="not the next one"):
        recorder.record(bound.plan.steps[1])
    recorder.record(bound.plan.steps[0])
    with pytest.raises(CaptureError, match="before its segment does"):
        recorder.end()


def test_nothing_is_recorded_before_it_begins(bound: CudaPlan) -> None:
    with pytest.raises(CaptureError, match="begin a segment"):
        bound.recorder().record(bound.plan.steps[0])


def test_a_recording_is_not_replayed_without_its_memory(bound: CudaPlan) -> None:
    recording = record(bound, bound.plan.segments[0])
    bound.arena.close()
    with pytest.raises(CaptureError, match="memory that is gone"):
        recording.replay()


def test_a_recording_that_was_given_back_is_not_replayed(bound: CudaPlan) -> None:
    recording = record(bound, bound.plan.segments[0])
    recording.close()
    recording.close()
    with pytest.raises(CaptureError, match="memory that is gone"):
        recording.replay()


def test_what_fails_leaves_a_plan_that_can_be_recorded(tmp_path: Path) -> None:
    with meanings(), gpu_arrays():
        bound = bound_on(FakeDriver(), tmp_path, chain(), moving=False)
        (first, *_others) = bound.plan.steps

        def refuse(_stream: int) -> None:
            raise FakeFailure("not while a stream is captured")

        bound._calls[first.index] = (refuse,)
        with pytest.raises(CaptureError, match="add cannot be recorded: the fake GPU refused: not while") as raised:
            record(bound, bound.plan.segments[0])
        assert raised.value.remedy == 'keep it outside of recordings: capture={"keep_outside": ["add"]}'
        assert not bound.is_recording
        bound._calls.clear()
        assert len(record(bound, bound.plan.segments[0])) == 3


# ---- explicit graphs


def test_an_explicit_graph_follows_an_input_and_touches_its_readers_alone(tmp_path: Path) -> None:
    with meanings(), gpu_arrays():
        driver = FakeDriver()
        bound = bound_on(driver, tmp_path, chain(), moving=True)
        recording = record(bound, bound.plan.segments[0])
        assert isinstance(recording, ExplicitRecording)
        (graph,) = driver.graphs
        assert isinstance(graph, FakeChain)
        for call in range(3):
            content = np.full(4, call, F32)
            place = GpuArray(content)
            framework = bound.device.framework
            assert framework is not None
            assert bound.place(0, framework.wrap(place))
            assert recording.repoint(0)
            assert graph.updates == call + 1, "one kernel reads it"
            recording.replay()
            given = bound.copy_of_result(0).native.content
            np.testing.assert_array_equal(given, -np.exp(2 * content))
            assert [pointer.address for pointer in recording.pointers if pointer.name == "x"] == [place.address]
        assert driver.graphs == [graph], "nothing was recorded again"


def test_a_captured_graph_has_to_be_recorded_again(tmp_path: Path) -> None:
    with meanings(), gpu_arrays():
        bound = bound_on(FakeDriver(), tmp_path, chain(), moving=False)
        recording = record(bound, bound.plan.segments[0])
        assert type(recording) is CudaRecording
        assert not recording.repoint(0)


def test_library_calls_are_captured_also_where_inputs_move(tmp_path: Path) -> None:
    with meanings(), gpu_arrays():
        bound = bound_on(FakeDriver(), tmp_path, chain(with_library=True), moving=True)
        recorder = bound.recorder()
        assert isinstance(recorder, ExplicitRecorder)
        recording = record(bound, bound.plan.segments[0])
        assert type(recording) is CudaRecording
        bound.start()
        bound.load(0, np.zeros(4, F32))
        recording.replay()
        np.testing.assert_allclose(bound.copy_of_result(0).native.content, np.full(4, 0.25))
