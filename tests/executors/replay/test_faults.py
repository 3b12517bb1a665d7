"""What goes wrong, and that it is counted, explained, and harms neither this call nor the next."""

import gc
from typing import Any

import numpy as np
import pytest
from capgraph.executors.host import kernels
from capgraph.executors.host.calls import ArrayCall
from capgraph.executors.host.recorder import HostRecorder
from capgraph.executors.replay.dispatcher import Dispatcher
from capgraph.executors.replay.executable import ReplayExecutable
from capgraph.ir.errors import CaptureError
from capgraph.ir.notices import CapgraphWarning

from tests.executors.replay.programs import block, compiled, rows
from tests.executors.replay.test_executable import RANGE, check

GRAPH = block()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """A softmax kernel that raises while `now` is set."""
    state = {"now": False}
    original = kernels.KERNELS["softmax"]

    def broken(node: Any, operands: Any, results: Any) -> ArrayCall:
        call = original(node, operands, results)
        assert call is not None

        def function(*arguments: Any) -> None:
            if state["now"]:
                raise ValueError("the kernel broke")
            call.function(*arguments)

        return ArrayCall(function, call.operands, call.results)

    monkeypatch.setattr(kernels, "KERNELS", {**kernels.KERNELS, "softmax": broken})
    return state


def test_a_kernel_that_fails_in_a_replay_leaves_the_call_right(failing: dict[str, bool]) -> None:
    program = compiled(GRAPH, dynamic=RANGE)
    for call in range(2):
        check(program, GRAPH, 3, call)
    failing["now"] = True
    check(program, GRAPH, 3)
    failing["now"] = False
    check(program, GRAPH, 3)
    stats = program.stats()
    assert stats.counters.refused_buckets == 1
    assert "the kernel broke" in stats.refused[0]
    check(program, GRAPH, 8)  # other buckets are served as before
    check(program, GRAPH, 8)
    assert program.stats().counters.replayed_calls == 2


def test_a_strict_program_raises_where_it_would_fall_back(failing: dict[str, bool]) -> None:
    program = compiled(GRAPH, dynamic=RANGE, strict=True)
    failing["now"] = True
    for _ in range(3):
        with pytest.raises(CaptureError, match=r"bucket B = 4 is refused: .*the kernel broke"):
            program.run({"x": rows(3)})


def test_a_strict_program_is_not_made_where_a_later_bucket_was_refused_beforehand() -> None:
    options: dict[str, Any] = {"mode": "full", "keep_outside": {"softmax": lambda sizes: sizes["B"] == 4}}
    with pytest.raises(CaptureError, match="bucket B = 4 is refused: the graph cannot be captured whole"):
        compiled(GRAPH, dynamic=RANGE, buckets={"B": [4, 8]}, strict=True, up_front=True, **options)


def test_a_refused_bucket_is_told_of_once(failing: dict[str, bool]) -> None:
    program = compiled(GRAPH, dynamic=RANGE)
    check(program, GRAPH, 3)
    failing["now"] = True
    with pytest.warns(
        CapgraphWarning, match=r"bucket B = 4 is not recorded and its calls run eagerly: .*broke"
    ) as told:
        check(program, GRAPH, 3)
    assert len(told) == 1
    check(program, GRAPH, 3)


def test_a_call_that_no_bucket_serves_is_told_of_once_or_raises_in_a_strict_program() -> None:
    beyond = RANGE["B"][1] + 1
    program = compiled(GRAPH, dynamic=RANGE)
    with pytest.warns(CapgraphWarning, match="no recording serves this call") as told:
        check(program, GRAPH, beyond)
    assert len(told) == 1
    check(program, GRAPH, beyond)
    with pytest.raises(CaptureError, match="no recording serves this call"):
        compiled(GRAPH, dynamic=RANGE, strict=True).run({"x": rows(beyond)})


class TestVerification:
    def test_a_segment_that_replays_wrong_numbers_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _skip_last_call(monkeypatch)
        program = compiled(GRAPH, dynamic=RANGE)
        for call in range(3):
            check(program, GRAPH, 3, call)
        stats = program.stats()
        assert stats.counters.refused_segments == 1
        assert stats.counters.replayed_calls == 0
        assert "differ from eager when replayed over poison" in stats.buckets[0].refusals[0]
        assert any("refused segment" in line for line in program.remarks)

    def test_strict_raises_for_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _skip_last_call(monkeypatch)
        with pytest.raises(CaptureError, match="a segment was refused"):
            compiled(GRAPH, dynamic=RANGE, strict=True).run({"x": rows(3)})

    def test_a_plan_that_computes_something_else_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernels, "KERNELS", {**kernels.KERNELS, "relu": kernels.KERNELS["exp"]})
        program = compiled(GRAPH, dynamic=RANGE)
        for call in range(3):
            check(program, GRAPH, 3, call)
        stats = program.stats()
        assert "verification failed: output y differs by" in stats.refused[0]
        assert stats.counters.replayed_calls == 0


def _skip_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings that lack their last kernel."""
    from capgraph.executors.host import recorder

    original = recorder.HostRecording.__init__

    def shortened(self: Any, bound: Any, steps: Any, pointers: Any) -> None:
        original(self, bound, steps[:-1], pointers)

    monkeypatch.setattr(recorder.HostRecording, "__init__", shortened)


def test_a_capture_that_fails_half_way_gives_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    original = HostRecorder.record

    def fails_at_the_third(self: HostRecorder, step: Any) -> None:
        if step.index == 3:
            raise CaptureError("no more nodes")
        original(self, step)

    monkeypatch.setattr(HostRecorder, "record", fails_at_the_third)
    program = compiled(GRAPH, dynamic=RANGE)
    check(program, GRAPH, 3)
    assert gc.isenabled()
    check(program, GRAPH, 3)
    stats = program.stats()
    assert stats.counters.refused_buckets == 1
    assert stats.recording_bytes == 0
    monkeypatch.undo()
    for call in range(2):
        check(program, GRAPH, 8, call)
    assert program.stats().counters.replayed_calls == 1


class TestBudget:
    def size_of_a_bucket(self) -> tuple[int, int]:
        program = compiled(GRAPH, dynamic=RANGE)
        program.run({"x": rows(16)})
        stats = program.stats()
        return stats.arena_bytes, stats.recording_bytes

    def test_the_least_recently_used_bucket_is_evicted(self) -> None:
        arena, recording = self.size_of_a_bucket()
        program = compiled(GRAPH, dynamic=RANGE, budget=arena + 2 * recording)
        for count in (16, 8, 16, 4, 16, 8):
            check(program, GRAPH, count)
        stats = program.stats()
        assert stats.counters.evictions == 2
        assert {dict(bucket.sizes)["B"] for bucket in stats.buckets} == {16, 8}
        assert stats.arena_bytes + stats.recording_bytes <= arena + 2 * recording

    def test_eviction_under_way_keeps_results_right(self) -> None:
        arena, recording = self.size_of_a_bucket()
        program = compiled(GRAPH, dynamic=RANGE, budget=arena + recording)
        random = np.random.default_rng(3)
        for call in range(100):
            check(program, GRAPH, int(random.integers(1, 17)), call)
        assert program.stats().counters.evictions > 20
        assert len(program.stats().buckets) == 1

    def test_a_bucket_that_does_not_fit_is_refused_and_explained(self) -> None:
        program = compiled(GRAPH, dynamic=RANGE, budget=600)
        for call in range(2):
            check(program, GRAPH, 16, call)
            check(program, GRAPH, 2, call)
        stats = program.stats()
        assert any("do not fit into the budget" in line for line in stats.refused)
        assert stats.recording_bytes + stats.arena_bytes <= 600


def test_a_recording_whose_memory_is_gone_is_not_replayed() -> None:
    program = compiled(GRAPH, dynamic=RANGE)
    for call in range(2):
        check(program, GRAPH, 3, call)
    _dispatcher(program)._arena.close()  # type: ignore[union-attr]
    check(program, GRAPH, 3)
    assert "memory that is gone" in program.stats().refused[0] or "given back" in program.stats().refused[0]


def _dispatcher(program: ReplayExecutable) -> Dispatcher:
    return program._dispatcher


def test_a_planner_that_breaks_harms_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_arguments: object, **_options: object) -> None:
        raise KeyError("a value without a place")

    monkeypatch.setattr("capgraph.executors.replay.planning.make_plan", breaks)
    program = compiled(GRAPH, dynamic=RANGE)
    for call in range(2):
        check(program, GRAPH, 3, call)
    assert "a value without a place" in program.stats().refused[0]


def test_exact_sizes_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgraph.executors.replay.dispatcher.MOST_BUCKETS", 4)
    program = compiled(GRAPH, dynamic=RANGE, beyond="exact")
    for count in range(20, 40):
        check(program, GRAPH, count)
    stats = program.stats()
    assert len(stats.buckets) == 4
    assert stats.counters.evictions == 16
    dispatcher = _dispatcher(program)
    assert len(dispatcher._plans) == 5 + 4  # the ladder's, and those captured
    assert len(dispatcher._own_arenas) == 4
