"""Choices between the candidates of a step: measured once, kept, exported, and robust to damaged files."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Candidate, Kernel, KernelLaunch, Task
from capgraph.executors.cuda.lower import lowering
from capgraph.executors.cuda.lower.lowering import LoweredStep
from capgraph.executors.cuda.run import selection
from capgraph.executors.cuda.run.selection import Choice, Selector, TuningCache, problem_key
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.errors import InputError, ResourceError
from capgraph.ir.graph import Graph
from capgraph.ir.node import write
from capgraph.ir.ops import native
from capgraph.ir.plan import View
from capgraph.ir.types import DType, TensorType

from tests.executors.cuda.fake import FakeDriver, FakeFailure, fake_device, meanings, through_meaning
from tests.executors.cuda.solving import setting
from tests.executors.cuda.test_executable import recorded
from tests.executors.replay.programs import block, rows


def two_candidates(task: Task) -> Iterator[Candidate]:
    (made,) = through_meaning(task)
    yield Candidate("slow", made.launches)
    yield Candidate("quick", made.launches)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was measured, in order: the candidate called quick is the quicker one."""
    seen: list[str] = []

    class Measured:
        def __init__(self, _device: object, _task: object, candidate: Candidate, _memory: object) -> None:
            self.name = candidate.name

        def seconds(self, _limit: float) -> float:
            seen.append(self.name)
            return 1e-6 if self.name == "quick" else 2e-6

    monkeypatch.setattr(selection, "Measurement", Measured)
    return seen


def test_the_quickest_candidate_is_taken_and_kept(tmp_path: Path, timed: list[str]) -> None:
    for process in range(2):
        gpu = fake_device(tmp_path)
        gpu.selector = Selector(gpu, TuningCache(tmp_path / "tuning"))
        with patch.object(lowering, "families_of", lambda _op: (two_candidates,)):
            program = recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]})
            for _ in range(2):
                program.run({"x": rows(4)})
        bound = next(iter(program._eager._bound.values())) if program._eager._bound else None
        assert bound is None or all(each is None or each.name == "quick" for each in bound.chosen)
        assert gpu.selector.measured == (1 if process == 0 else 0)
    assert timed == ["slow", "quick"]


def test_only_heavy_steps_are_measured_unless_told_otherwise(tmp_path: Path, timed: list[str]) -> None:
    with patch.object(lowering, "families_of", lambda _op: (two_candidates,)):
        for tunes, expected in ((None, ["slow", "quick"]), (False, [])):
            gpu = fake_device(tmp_path)
            gpu.selector = Selector(gpu, TuningCache(tmp_path / str(tunes)), tunes)
            timed.clear()
            recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]}).run({"x": rows(4)})
            assert timed == expected


def test_transforms_are_measured(tmp_path: Path, timed: list[str]) -> None:
    b = Builder()
    graph = b.finish({"y": b.op("dft", b.input("x", "f32[2, 6, 1]"), onesided=True)})
    gpu = fake_device(tmp_path)
    gpu.selector = Selector(gpu, TuningCache(tmp_path / "tuning"))
    with patch.object(lowering, "families_of", lambda _op: (two_candidates,)):
        recorded(graph, gpu).run({"x": np.ones((2, 6, 1), np.float32)})
    assert timed == ["slow", "quick"]


@pytest.mark.parametrize(("queries", "has_lengths", "is_measured"), [(32, 0, 1), (15, 0, 0), (32, 1, 0)])
def test_attention_of_many_queries_is_measured(
    queries: int, has_lengths: int, is_measured: int, tmp_path: Path, timed: list[str]
) -> None:
    b = Builder()
    q, k = b.input("q", f"f32[1, 2, {queries}, 8]"), b.input("k", "f32[1, 2, 64, 8]")
    graph = b.finish({"y": b.op("attention", q, k, k, None, b.input("n", "i64[1]") if has_lengths else None)})
    gpu = fake_device(tmp_path)
    gpu.selector = Selector(gpu, TuningCache(tmp_path / "tuning"))
    given = {"q": np.ones((1, 2, queries, 8), np.float32), "k": np.ones((1, 2, 64, 8), np.float32)}
    with patch.object(lowering, "families_of", lambda _op: (two_candidates,)):
        recorded(graph, gpu).run(given | ({"n": np.array([64])} if has_lengths else {}))
    assert timed == ["slow", "quick"] * is_measured


def test_what_is_needed_first_is_compiled_together(tmp_path: Path, timed: list[str]) -> None:
    """One call for a plan, before anything is measured: all candidates of problems, and the first of other steps."""
    gpu = fake_device(tmp_path)
    gpu.selector = selector = Selector(gpu, TuningCache(tmp_path / "tuning"))
    events: list[tuple[str, set[str], list[LoweredStep]]] = []
    announce, order = selector.kernels_wanted, selector.ordered

    def announced(steps: Sequence[LoweredStep]) -> list[Kernel]:
        found = announce(steps)
        events.append(("compile", {kernel.text for kernel in found}, list(steps)))
        return found

    def ordered(step: LoweredStep) -> LoweredStep:
        launches = [launch for each in step.candidates for launch in each.launches]
        texts = {launch.kernel.text for launch in launches if isinstance(launch, KernelLaunch)}
        events.append(("order", texts, [step]))
        return order(step)

    with (
        patch.object(lowering, "families_of", lambda _op: (two_candidates,)),
        patch.object(selector, "kernels_wanted", announced),
        patch.object(selector, "ordered", ordered),
    ):
        recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]}).run({"x": rows(4)})
    assert timed == ["slow", "quick"]
    what, texts, steps = events[0]
    assert what == "compile"
    firsts = {
        launch.kernel.text
        for step in steps
        for each in step.candidates[:1]
        for launch in each.launches
        if isinstance(launch, KernelLaunch)
    }
    assert firsts
    assert firsts <= texts
    assert {kernel.text for kernel in announce(steps)} == firsts, (
        "what has been measured comes down to the chosen candidate"
    )


def test_a_measurement_runs_on_memory_of_its_own(tmp_path: Path) -> None:
    with patch.object(lowering, "families_of", lambda _op: (two_candidates,)):
        gpu = fake_device(tmp_path)
        gpu.selector = Selector(gpu, TuningCache(tmp_path / "tuning"))
        program = recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]})
        with meanings():
            plain = recorded(block(), fake_device(tmp_path), dynamic={"B": (1, 8)}, buckets={"B": [4]})
        x = rows(4)
        assert (program.run({"x": x})["y"] == plain.run({"x": x})["y"]).all()
        assert gpu.selector.measured == 1


def test_candidates_of_a_problem_take_turns_in_one_memory(tmp_path: Path) -> None:
    gpu = fake_device(tmp_path)
    gpu.selector = Selector(gpu, TuningCache(tmp_path / "tuning"))
    made: list[int] = []
    measured: list[int] = []
    allocate, seconds = FakeDriver.allocate, selection.Measurement.seconds

    def noted(driver: FakeDriver, nbytes: int) -> Any:
        made.append(nbytes)
        return allocate(driver, nbytes)

    def counted(measurement: selection.Measurement, limit: float) -> float:
        measured.append(len(made))
        return seconds(measurement, limit)

    with (
        patch.object(lowering, "families_of", lambda _op: (two_candidates,)),
        patch.object(FakeDriver, "allocate", noted),
        patch.object(selection.Measurement, "seconds", counted),
    ):
        recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]}).run({"x": rows(4)})
    first, second = measured
    assert first == second
    assert gpu.selector._memory._free == {}, "it is given back"


def test_memory_that_is_free_gives_way_to_what_lacks_it() -> None:
    class Small(FakeDriver):
        left = 100

        def allocate(self, nbytes: int) -> Any:
            if nbytes > self.left:
                self.left = 100  # as what nobody holds any more is there again
                raise ResourceError("no memory")
            self.left -= nbytes
            return super().allocate(nbytes)

    memory = selection._Reused(Small())
    held = memory.take(60)
    memory.give_back(held, 60)
    assert memory.take(60) is held
    memory.give_back(held, 60)
    assert memory.take(80).nbytes == 80
    assert memory._free == {}
    with pytest.raises(ResourceError):
        memory.take(90)


def test_a_candidate_that_is_far_slower_is_not_measured_further(tmp_path: Path) -> None:
    """By itself the first one takes a microsecond, which all take in a graph, and the second a second."""
    tries = iter([1e-6, 1.0])
    gpu = fake_device(tmp_path)
    gpu.selector = Selector(gpu, TuningCache(tmp_path / "tuning"))
    measured: list[str] = []
    graphs = selection.graph_seconds

    def counted(*args: object) -> float:
        measured.append("in a graph")
        return graphs(*args)  # type: ignore[arg-type]

    def alone(*_args: object) -> float:
        measured.append("alone")
        return next(tries)

    with (
        patch.object(lowering, "families_of", lambda _op: (two_candidates,)),
        patch.object(selection, "_TRIES", 1),
        patch.object(selection, "graph_seconds", counted),
        patch.object(selection, "seconds_alone", alone),
    ):
        recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]}).run({"x": rows(4)})
    assert measured == ["alone", "in a graph", "alone"]
    (choice,) = gpu.selector.cache._known.values()
    assert (choice.name, choice.seconds["quick"]) == ("slow", 1.0)


def test_choices_travel(tmp_path: Path) -> None:
    here, there = TuningCache(tmp_path / "here"), TuningCache(tmp_path / "there")
    here.keep("a" * 40, Choice("quick", None, {"quick": 1e-6, "slow": 2e-6}))
    assert there.take_over(here.export()) == 1
    assert TuningCache(tmp_path / "there").find("a" * 40) == Choice("quick", None, {"quick": 1e-6, "slow": 2e-6})
    assert there.export() == here.export()


def test_a_text_that_is_no_export_is_refused_as_a_whole(tmp_path: Path) -> None:
    here, there = TuningCache(tmp_path / "here"), TuningCache(tmp_path / "there")
    here.keep("a" * 40, Choice("quick", None, {"quick": 1e-6}))
    whole = json.loads(here.export())
    others = ({"a": 1}, {**whole, "../../a": whole["a" * 40]}, {**whole, "b" * 40: {"name": "quick"}})
    for broken in ("no json", "[1]", '"text"', "[" * 100_000, *map(json.dumps, others)):
        with pytest.raises(InputError, match="no exported tuning cache"):
            there.take_over(broken)
    assert there.read_all() == 0
    assert there.take_over("{}") == 0


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"name": "x"}', b"[]", b'{"name": "x", "algorithm": null, "seconds": {"x": "long"}}']
)
def test_a_damaged_choice_counts_as_missing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ("b" * 40 + ".json")).write_bytes(content)
    assert TuningCache(tmp_path).find("b" * 40) is None


def test_equal_problems_share_a_choice_whatever_their_values_are_called() -> None:
    tasks: list[Task] = []

    def note(task: Task) -> Iterator[Candidate]:
        tasks.append(task)
        yield from through_meaning(task)

    from tests.executors.cuda.test_lowering import chain, planned

    with patch.object(lowering, "families_of", lambda _op: (note,)):
        for _ in range(2):
            graph = chain()
            write(graph.inputs[0], "name", f"x{len(tasks)}")
            backend = lowering.Backend()
            backend.lower(planned(graph, backend))
    keys = [problem_key("gpu", task, []) for task in tasks if task.node.op.name == "matmul"]
    assert len(set(keys)) == 1
    assert problem_key("other", tasks[-1], []) != problem_key("gpu", tasks[-1], [])


def test_other_rounding_or_places_are_other_problems() -> None:
    case = matmul_case()
    tasks = [
        case,
        replace(case, tf32=True),
        *(replace(case, operands=(moved(case.operands[0], by), *case.operands[1:])) for by in (4, 8)),
    ]
    assert len({problem_key("gpu", task, []) for task in tasks}) == len(tasks)
    far = replace(case, operands=(moved(case.operands[0], 48), *case.operands[1:]))
    assert problem_key("gpu", far, []) == problem_key("gpu", case, [])


def matmul_case() -> Task:
    graph = Graph()
    values = [graph.add_input(name, TensorType(DType.F32, (8, 8))) for name in "ab"]
    graph.set_outputs([graph.append(native("matmul"), values).output])
    return setting(graph, {name: np.ones((8, 8), np.float32) for name in "ab"}).task


def moved(view: View | None, nbytes: int) -> View:
    assert view is not None
    return replace(view, offset=view.offset + nbytes)


def test_where_memory_was_short_the_choice_is_of_this_process_alone(tmp_path: Path) -> None:
    class Measured:
        def __init__(self, _device: object, _task: object, candidate: Candidate, _memory: object) -> None:
            if candidate.name == "quick":
                raise ResourceError("no memory")

        def seconds(self, _limit: float) -> float:
            return 2e-6

    gpu = fake_device(tmp_path)
    gpu.selector = Selector(gpu, TuningCache(tmp_path / "tuning"))
    with (
        patch.object(lowering, "families_of", lambda _op: (two_candidates,)),
        patch.object(selection, "Measurement", Measured),
    ):
        for _ in range(2):
            recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]}).run({"x": rows(4)})
    assert gpu.selector.measured == 1
    assert [choice.name for choice in gpu.selector.cache._known.values()] == ["slow"]
    assert TuningCache(tmp_path / "tuning").read_all() == 0


def broken_and_whole(task: Task) -> Iterator[Candidate]:
    yield Candidate("broken", (KernelLaunch(Kernel("broken", (1, 1, 1), (1, 1, 1)), (), 0),))
    yield from two_candidates(task)


def test_a_candidate_that_does_not_compile_is_not_measured_but_counted(tmp_path: Path) -> None:
    with patch.object(lowering, "families_of", lambda _op: (broken_and_whole,)):
        gpu = fake_device(tmp_path)
        gpu.selector = Selector(gpu, TuningCache(tmp_path / "tuning"))
        program = recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]})
        expected = EagerExecutor().compile(block()).run({"x": rows(4)})["y"]
        np.testing.assert_allclose(program.run({"x": rows(4)})["y"], expected, rtol=1e-5)
    assert gpu.fallbacks.kernels["fused, broken: error: broken"] == 1, gpu.fallbacks
    (choice,) = gpu.selector.cache._known.values()
    assert choice.seconds.keys() == {"slow", "quick"}


@pytest.mark.parametrize("error", [InputError("no such launch"), FakeFailure("invalid argument")])
def test_candidates_that_the_device_refuses_leave_the_step_to_the_host(error: Exception, tmp_path: Path) -> None:
    class Refused:
        def __init__(self, _device: object, _task: object, _candidate: Candidate, _memory: object) -> None:
            raise error

    gpu = fake_device(tmp_path)
    gpu.selector = Selector(gpu, TuningCache(tmp_path / "tuning"))
    with (
        patch.object(lowering, "families_of", lambda _op: (two_candidates,)),
        patch.object(selection, "Measurement", Refused),
    ):
        program = recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]})
        expected = EagerExecutor().compile(block()).run({"x": rows(4)})["y"]
        np.testing.assert_allclose(program.run({"x": rows(4)})["y"], expected, rtol=1e-5)
    fallbacks = [name for name in gpu.fallbacks.kernels if str(error) in name]
    assert [name.partition(":")[0] for name in fallbacks] == ["fused, slow", "fused, quick"]
    assert "none of its kernels runs here" in gpu.fallbacks.host_steps.values()
    assert TuningCache(tmp_path / "tuning").read_all() == 0


def test_candidates_that_nobody_had_memory_to_measure_stay_as_they_are(tmp_path: Path) -> None:
    class Short:
        def __init__(self, _device: object, _task: object, _candidate: Candidate, _memory: object) -> None:
            raise ResourceError("no memory")

    gpu = fake_device(tmp_path)
    gpu.selector = Selector(gpu, TuningCache(tmp_path / "tuning"))
    with (
        patch.object(lowering, "families_of", lambda _op: (two_candidates,)),
        patch.object(selection, "Measurement", Short),
    ):
        recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]}).run({"x": rows(4)})
    assert not gpu.fallbacks.kernels
    assert not gpu.fallbacks.host_steps
