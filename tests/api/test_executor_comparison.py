from pathlib import Path
from types import SimpleNamespace
from typing import Any

import capgraph
import numpy as np
import pytest
from capgraph.capture_options import replay_options
from capgraph.comparing import executor_comparison as module
from capgraph.comparing.executor_comparison import INFINITE, accuracy
from capgraph.executors.backends import targets
from capgraph.executors.base import Request
from capgraph.executors.cuda.programs import eager_on, graphs_on
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from ml_dtypes import bfloat16

from tests.api.models import affine, model, save, with_default, with_foreign_node
from tests.executors.cuda.fake import fake_device, meanings
from tests.executors.replay.programs import block

F32 = np.float32
LOOPED = """
graph @looped(%x: f32[B, 8]) {
  %a: f32[B, 8] = tanh(%x)
  %b: f32[B, 8] = mul(%a, %a)
  %m: f32[] = reduce_max(%x) {axes = [0, 1], keep_dims = false}
  %n: i64[] = cast(%m) {to = i64}
  %l: f32[B, 8] = loop(%n, _, %b) {body = @step, carried = 1}
  %d: f32[B, 8] = sub(%l, %x)
  %y: f32[B, 8] = sigmoid(%d)
  return %y
}
graph @step(%i: i64[], %c: bool[], %v: f32[B, 8]) {
  %t: f32[B, 8] = add(%v, %v)
  return %c, %t
}
"""
"""Data says how often the body runs, so that no input made a constant lets it be recorded."""


def test_every_executor_is_held_to_the_reference() -> None:
    found = capgraph.compare(affine(), runs=3)
    here = [target for target in targets() if target.is_available]
    assert [result.executor.partition("@")[0] for result in found.results] == [target.executor for target in here]
    assert (found.inputs, found.runs, found.sizes) == (2, 3, {"batch": 3})
    for result in found.results:
        assert result.is_close, result
        assert result.latency_seconds > 0
        assert result.setup_seconds > 0
        assert result.nodes == 4
        assert [output.name for output in result.outputs] == ["y"]
        assert result.outputs[0].ulps <= 1


def test_recorded_programs_know_their_sizes() -> None:
    (result,) = capgraph.compare(affine(), ["graph"], runs=3, sizes={"batch": 5}).results
    assert any("replayed" in remark and "0 replayed" not in remark for remark in result.remarks)


def test_executors_are_named_with_their_device() -> None:
    host, gpu = capgraph.compare(affine(), ["eager@host", "ort@cuda:99"], runs=1).results
    assert (host.executor, host.device, host.is_close) == ("eager@host", "host", True)
    assert "cuda:99" in gpu.problem


def test_an_executor_that_cannot_run_is_a_result() -> None:
    found = capgraph.compare(affine(), ["moon", "eager"], runs=1)
    moon, eager = found.results
    assert "no executor 'moon'" in moon.problem
    assert moon.remedy
    assert not moon.is_close
    assert eager.is_close


def test_executors_that_nobody_asked_for_and_that_cannot_run_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgraph.executors.ort.executor.problem_here", lambda: ("both are installed", "choose one"))
    found = capgraph.compare(affine(), runs=1)
    assert [result.executor for result in found.results][:2] == ["eager", "graph"]
    first = found.skipped[0]
    assert (first.executor, first.problem, first.remedy) == ("ort", "both are installed", "choose one")
    assert capgraph.compare(affine(), ["eager"], runs=1).skipped == ()


def test_an_executor_that_fails_while_running_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: Any, _inputs: Any) -> dict[str, Any]:
        raise capgraph.ExecutionError("it broke", where="%y", remedy="mend it")

    monkeypatch.setattr("capgraph.executors.steps.EagerExecutable.run", fail)
    (result,) = capgraph.compare(affine(), ["eager"], runs=1).results
    assert (result.problem, result.remedy) == ("it broke at %y of model main", "mend it")


def test_a_wrong_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = capgraph.Program.run

    def off(self: Any, inputs: Any) -> dict[str, Any]:
        outputs = run(self, inputs)
        outputs["y"][1, 2] += 1
        return outputs

    monkeypatch.setattr(capgraph.Program, "run", off)
    (result,) = capgraph.compare(affine(), ["eager"], inputs=[{"x": np.ones((2, 3), F32)}], runs=1).results
    (output,) = result.outputs
    assert not result.is_close
    assert output.position == (1, 2)
    assert output.ulps == 1 / 2**-22  # of 3.0
    assert output.relative == pytest.approx(1 / (3 * 6**0.5))


def rounded_inside(layers: int) -> Graph:
    """Matmuls in f16 between ends of f32."""
    rows = ["%h0: f16[B, 64] = cast(%x) {to = f16}"]
    for layer in range(layers):
        rows += [f"%m{layer}: f16[B, 64] = matmul(%h{layer}, %w)", f"%h{layer + 1}: f16[B, 64] = tanh(%m{layer})"]
    rows += [f"%y: f32[B, 64] = cast(%h{layers}) {{to = f32}}", "return %y"]
    return parse("graph @main(%x: f32[B, 64], %w: f16[64, 64]) {\n  " + "\n  ".join(rows) + "\n}\n")


def test_the_narrowest_float_inside_says_what_is_close() -> None:
    found = capgraph.compare(rounded_inside(6), runs=1)
    assert max(result.error for result in found.results) > 1e-4  # what an output of f32 may be off by elsewhere
    assert all(result.is_close for result in found.results)
    strict = capgraph.compare(rounded_inside(6), runs=1, rtol=1e-7)
    assert not all(result.is_close for result in strict.results)
    assert all(result.is_close for result in capgraph.compare(rounded_inside(6), runs=1, rtol=1e-7, atol=1).results)


def test_what_cancels_is_held_to_the_model_in_f64(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy = model("main (float[64] x) => (float[64] y) <float k = {9999.7}> { a = Add(x, k)  y = Sub(a, k) }")
    for factor in (1, -1):
        monkeypatch.setattr(capgraph.Program, "run", lambda _, given, by=factor: {"y": by * given["x"]})
        (result,) = capgraph.compare(lossy, ["eager"], runs=1).results
        assert result.error > 1e-4
        assert result.is_close == (factor == 1)


def test_sizes_that_the_model_runs_on_are_found() -> None:
    folded = model("main (float[n, m] x) => (float[a, 12] y) <int64[2] s = {-1, 12}> { y = Reshape(x, s) }")
    found = capgraph.compare(folded, ["eager"], runs=1)
    assert (found.sizes["n"] * found.sizes["m"]) % 12 == 0


def test_inputs_may_be_given_and_defaults_left_out() -> None:
    found = capgraph.compare(with_default(), ["eager", "ort"], inputs=[{"x": np.ones(3, F32)}], runs=1)
    assert all(result.is_close for result in found.results)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": []}, "no set of inputs"),
        ({"inputs": {"x": np.ones((2, 3), F32)}}, "a list of sets"),
        ({"executors": "eager,ort"}, "no list of names"),
        ({"inputs": [{}]}, "input 'x' is missing"),
        ({"inputs": [None]}, "a list of sets, not"),
        ({"inputs": 3}, "a list of sets, not 3"),
        ({"executors": [3]}, "no list of names"),
        ({"executors": 3}, "no list of names"),
        ({"runs": 0}, "runs=0 is no whole number"),
        ({"runs": "a"}, "runs='a' is no"),
        ({"runs": 1.5}, "runs=1.5 is no"),
        ({"draws": 0}, "draws=0 is no whole number"),
        ({"draws": None}, "draws=None is no"),
        ({"rtol": -1}, "rtol=-1 is no number from 0 on"),
        ({"atol": "a"}, "atol='a' is no number"),
        ({"sizes": {"depth": 3}}, "no dim 'depth'"),
        ({"sizes": {"batch": "a"}}, "the size of 'batch' is 'a'"),
        ({"sizes": {"batch": -1}}, "the size of 'batch' is -1"),
        ({"sizes": 3}, "sizes=3 is no mapping"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(capgraph.InputError, match=message):
        capgraph.compare(affine(), **options)


def test_numbers_of_numpy_are_numbers() -> None:
    found = capgraph.compare(affine(), ["eager"], runs=np.int64(2), draws=np.int64(1), sizes={"batch": np.int64(4)})
    assert (type(found.runs), found.runs, found.inputs, found.sizes) == (int, 2, 1, {"batch": 4})


def test_segments_and_fallbacks_are_counted() -> None:
    executors = ["eager", "ort", "graph"]
    inputs = [{"x": np.full((2, 8), 3, F32)}]
    eager, ort, graph = capgraph.compare(parse(LOOPED), executors, inputs=inputs, runs=2).results
    assert (eager.segments, eager.fallbacks) == (None, None)
    assert (ort.segments, ort.fallbacks) == (1, 0)
    assert graph.segments == 2
    assert graph.fallbacks == 1
    assert all(result.is_close for result in (eager, ort, graph))
    assert ort.error == max(output.relative for output in ort.outputs)


def test_set_up_ends_with_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    run, times, now = capgraph.Program.run, [8.0], [0.0]

    def slow_at_first(self: Any, inputs: Any) -> dict[str, Any]:
        now[0] += times.pop() if times else 1.0
        return run(self, inputs)

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(capgraph.Program, "run", slow_at_first)
    (result,) = capgraph.compare(affine(), ["eager"], runs=1).results
    assert (result.setup_seconds, result.latency_seconds) == (8, 1)


def test_what_lies_on_a_gpu_counts_as_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with meanings():
        options = replay_options(mode="full", dynamic={"B": (1, 4)}, buckets=None, strict=False, capture=None)
        gpu = fake_device(tmp_path)
        executor = graphs_on(gpu, Request(device="cuda", replay=options))
        with capgraph.Program(block(), executor) as program:
            program.run({"x": np.ones((4, 4), F32)})
            stats = program.stats()
            assert module.device_bytes(program) == stats.arena_bytes + stats.recording_bytes > 0
        with capgraph.Program(block(), eager_on(fake_device(tmp_path), Request(device="cuda"))) as program:
            assert module.device_bytes(program) == 0
    with capgraph.Program(block(), EagerExecutor()) as program:
        assert module.device_bytes(program) == 0
    monkeypatch.setattr(module, "device_bytes", lambda _program: 2**40)
    (result,) = capgraph.compare(affine(), ["eager"], runs=1).results
    assert result.memory_bytes is None or result.memory_bytes >= 2**40


def test_models_that_cannot_be_held_to_anything_are_refused(tmp_path: Path) -> None:
    random = model("main (float[4] x) => (float[4] y) { r = RandomNormalLike(x)  y = Add(x, r) }")
    with pytest.raises(capgraph.UnsupportedError, match="other outputs on each run"):
        capgraph.compare(save(random, tmp_path))
    with pytest.raises(capgraph.UnsupportedError, match="nothing here knows how to run"):
        capgraph.compare(with_foreign_node())


# ---- how far apart


@pytest.mark.parametrize(
    ("old", "new", "ulps", "position"),
    [
        (np.array([1, 2], F32), np.array([1, 2], F32), 0, None),
        (np.array([1, 2], F32), np.nextafter(np.array([1, 2], F32), F32(9)), 1, (0,)),
        (np.array([[1, 4]], F32), np.array([[1, 4 + 2**-20]], F32), 2, (0, 1)),
        (np.array([0], F32), np.array([1e-45], F32), 1, (0,)),
        (np.array([5, 7]), np.array([5, 4]), 3, (1,)),
        (np.array([1], bfloat16), np.array([1 + 2**-7], bfloat16), 1, (0,)),
        (np.array([1], np.complex64), np.array([1 + 2**-23], np.complex64), 1, (0,)),
        (np.array([np.nan, np.inf], F32), np.array([np.nan, np.inf], F32), 0, None),
        (np.zeros((0, 2), F32), np.zeros((0, 2), F32), 0, None),
        (np.array(1, F32), np.array(1 + 2**-23, F32), 1, ()),
        (np.array(["a"], object), np.array(["a"], object), 0, None),
        (np.array([1], F32), np.array([np.nan], F32), INFINITE, None),
        (np.array([1], F32), np.array([1], np.float64), INFINITE, None),
        (np.array(["a"], object), np.array(["b"], object), INFINITE, None),
        ([np.ones(2, F32), np.array([1, 2], F32)], [np.ones(2, F32), np.array([1, 2 + 2**-22], F32)], 1, (1,)),
        ([], [], 0, None),
        ([np.ones(2, F32)], [], INFINITE, None),
        ([{"a": 0.5, "b": 1.0}], [{"b": 1 + 2**-23, "a": 0.5}], 1, (1,)),
        ([{"a": 0.5}], [{"b": 0.5}], INFINITE, None),
    ],
)
def test_distances(old: Any, new: Any, ulps: float, position: tuple[int, ...] | None) -> None:
    found = accuracy("y", old, new)
    assert found.ulps == pytest.approx(ulps)
    assert found.position == position


def test_relative_errors_are_those_of_norms() -> None:
    assert accuracy("y", np.array([3, 4], F32), np.array([3, 4.5], F32)).relative == pytest.approx(0.1)
    assert accuracy("y", np.zeros(2, F32), np.array([0, 1e-30], F32)).relative == INFINITE


def test_the_worst_set_of_inputs_is_kept() -> None:
    fine = accuracy("y", np.ones(1, F32), np.ones(1, F32), 0)
    wrong = accuracy("y", np.ones(1, F32), np.zeros(1, F32), 1)
    assert max(fine, wrong, key=module._badness) is wrong
