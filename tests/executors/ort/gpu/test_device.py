"""Programs in subgraphs: recorded, padded, replayed, with host steps between, all equal to the host."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.ort.gpu.device import OrtDevice
from capgraph.executors.ort.gpu.session import EAGER, Binding, SubgraphSession
from capgraph.executors.replay.routing import input_symbols
from capgraph.executors.steps import EagerExecutor
from capgraph.ir import foreign
from capgraph.ir.analysis import all_nodes
from capgraph.ir.errors import CapgraphError, CaptureError, ExecutionError
from capgraph.ir.graph import Graph
from capgraph.ir.op import Trait
from capgraph.ir.ops import OPS
from capgraph.ir.text.parser import parse
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import difference

from tests.executors.cuda.fake import GpuArray, fake_device
from tests.executors.ort.gpu.on_host import inputs, played, program
from tests.executors.ort.gpu.texts import ATTENTION, LOOPED, SPARSE, UNKNOWN, WHOLE
from tests.strategies.graphs import random_graph, random_inputs


def check(graph: Graph, folder: Path, sizes: list[int], **options: object):
    """Holds a program to the host on calls of these sizes; gives it."""
    oracle = EagerExecutor().compile(graph)
    with played():
        made = program(graph, folder, **options)
        for call, rows in enumerate(sizes):
            given = inputs(graph, rows, call)
            expected = oracle.run(given)
            found = made.run(given)
            for name, value in expected.items():
                np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)
    return made


def test_a_graph_that_the_provider_takes_whole_is_one_recording(tmp_path: Path):
    made = check(parse(WHOLE), tmp_path, [4, 4, 3, 8, 5, 1], dynamic={"B": (1, 8)}, buckets={"B": [4, 8]})
    stats = made.stats()
    assert stats.refused == ()
    assert stats.counters.replayed_calls == 4
    assert [bucket.segments for bucket in stats.buckets] == [1, 1]
    assert "1 subgraph in sessions of ONNX Runtime; 0 nodes outside" in made.remarks


@pytest.fixture(autouse=True)
def _twist() -> Iterator[None]:
    """What com.example.Twist means."""
    foreign.register_meaning("com.example", lambda _node, values: (np.sin(values[0]),))
    yield
    foreign._meanings.pop("com.example")


@pytest.mark.parametrize("text", [LOOPED, SPARSE, UNKNOWN])
def test_what_it_does_not_record_runs_between_subgraphs(text: str, tmp_path: Path):
    made = check(parse(text), tmp_path, [4, 4, 4], dynamic={"B": (1, 8)}, buckets={"B": [4]})
    bucket = made.stats().buckets[0]
    assert bucket.segments >= 1
    assert bucket.eager_segments >= 1
    assert bucket.refusals == ()
    assert made.stats().counters.replayed_calls == 2
    assert made.coverage() == (bucket.segments, bucket.eager_steps)
    assert bucket.eager_steps >= 1


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_graphs_are_served_right(first: int, tmp_path: Path):
    replayed = 0
    for seed in range(first, first + 20):
        graph = random_graph(seed, ops=[name for name in OPS if not name.startswith("keyed_")])
        if any(node.op.has(Trait.IMPURE) for node in all_nodes(graph)):
            continue
        dynamic = dict.fromkeys(input_symbols(graph), (0, 8))
        oracle = EagerExecutor().compile(graph)
        with played():
            made = program(graph, tmp_path, dynamic=dynamic, buckets=dict.fromkeys(dynamic, (4, 8)))
            for call in range(3):
                _sizes, arrays = random_inputs(graph, 1000 * call + seed)
                given = {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}
                try:
                    expected = oracle.run(given)
                except CapgraphError:
                    continue
                found = made.run(given)
                for name, value in expected.items():
                    problem = difference(value, found[name], Exactness.ROUNDING, 512)
                    assert problem == "", f"seed {seed}, call {call}, output {name} {problem}\n{graph}"
        replayed += made.stats().counters.replayed_calls
    assert replayed


def test_many_buckets_at_random_are_recorded_once_each(tmp_path: Path):
    graph = parse(WHOLE)
    sizes = [int(size) for size in np.random.default_rng(0).integers(1, 33, 300)]
    made = check(graph, tmp_path, [*range(32, 0, -1), *sizes], dynamic={"B": (1, 32)}, buckets={"B": range(4, 33, 4)})
    stats = made.stats()
    assert stats.counters.captures == 8
    assert stats.counters.replayed_calls == 332 - 8
    (session,) = made._inner._device.sessions.values()  # type: ignore[attr-defined]
    assert session.recorded == 8


def test_arrays_on_the_device_are_read_there_and_results_lie_there(tmp_path: Path):
    graph = parse(WHOLE)
    oracle = EagerExecutor().compile(graph)
    with played():
        made = program(graph, tmp_path, dynamic={"B": (4, 4)}, copy_outputs=False)
        for call in range(4):
            given = inputs(graph, 4, call)
            found = made.run({name: GpuArray(array) for name, array in given.items()})["y"]
            np.testing.assert_allclose(found.content, oracle.run(given)["y"], rtol=1e-5, atol=1e-5)
    assert made.stats().counters.replayed_calls == 3


@pytest.mark.parametrize("mode", ["none", "full", "piecewise"])
def test_modes(mode: str, tmp_path: Path):
    made = check(parse(WHOLE), tmp_path, [4, 4, 2], mode=mode, dynamic={"B": (1, 4)}, buckets={"B": [4]})
    assert made.stats().counters.replayed_calls == (0 if mode == "none" else 2)


def test_a_graph_that_is_not_taken_whole_is_refused_in_mode_full(tmp_path: Path):
    made = check(parse(LOOPED), tmp_path, [4, 4], mode="full", dynamic={"B": (4, 4)})
    assert "captured whole" in made.stats().refused[0]


def test_recordings_of_buckets_that_are_given_up_are_given_back(tmp_path: Path):
    graph = parse(WHOLE)
    made = check(graph, tmp_path, [4, 8, 4, 8], dynamic={"B": (4, 8)}, buckets={"B": [4, 8]}, budget=80_000)
    assert made.stats().counters.evictions >= 2
    assert len(made.stats().buckets) == 1


def test_every_bucket_can_be_recorded_before_the_first_call(tmp_path: Path):
    graph = parse(WHOLE)
    with played():
        made = program(graph, tmp_path, dynamic={"B": (1, 8)}, buckets={"B": [4, 8]}, up_front=True, progress=None)
        assert made.stats().counters.captures == 2
        made.run(inputs(graph, 3, 0))
    assert made.stats().counters.replayed_calls == 1


def test_ops_that_the_user_keeps_outside_cut_a_graph(tmp_path: Path):
    made = check(parse(WHOLE), tmp_path, [4, 4], dynamic={"B": (4, 4)}, keep_outside=["gelu"])
    assert made.stats().buckets[0].segments == 2
    assert any("gelu" in line and "policy" in line for line in made.remarks)


def test_ops_are_kept_outside_at_the_sizes_for_which_their_condition_holds(tmp_path: Path):
    keep = {"gelu": lambda sizes: sizes["B"] > 4, "layer_norm": lambda sizes: sizes["B"] > 100}
    options = {"dynamic": {"B": (1, 8)}, "buckets": {"B": [2, 4, 8]}, "keep_outside": keep}
    made = check(parse(WHOLE), tmp_path, [8, 8, 4, 4, 2, 2], **options)
    assert {bucket.sizes[0][1]: bucket.segments for bucket in made.stats().buckets} == {2: 1, 4: 1, 8: 2}
    assert made.stats().counters.replayed_calls == 3
    assert "1 subgraph in sessions of ONNX Runtime; 0 nodes outside" in made.remarks
    assert "with gelu kept outside: 2 subgraphs in sessions of ONNX Runtime; 1 nodes outside" in made.remarks
    assert len(made._inner._device.sessions) == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("mode", "subgraphs", "outside"), [("full", 1, 0), ("full_and_piecewise", 1, 0), ("piecewise", 2, 1)]
)
def test_attention_stays_outside_in_mode_piecewise_alone(mode: str, subgraphs: int, outside: int, tmp_path: Path):
    made = check(parse(ATTENTION), tmp_path, [4, 4], mode=mode, dynamic={"B": (4, 4)})
    assert made.stats().buckets[0].segments == subgraphs
    assert sum("attention" in line and "policy" in line for line in made.remarks) == outside


def test_a_session_that_fails_where_numpy_does_not_is_not_used_again(tmp_path: Path):
    text = """
graph @cells(%x: f64[T, B, 3], %w: f64[1, 12, 3], %r: f64[1, 12, 4]) {
  %y: f64[T, 1, B, 4], %h: f64[1, B, 4] = gru(%x, %w, %r, _, _, _)
  %z: f64[1, B, 4] = tanh(%h)
  return %z
}
"""
    made = check(parse(text), tmp_path, [2, 2, 2], dynamic={"T": (2, 2), "B": (2, 2)})
    assert made.stats().counters.replayed_calls == 0
    assert made.coverage() == (0, 1)
    assert any("double" in line for line in made.remarks)


def _fail(_session: SubgraphSession, _binding: object, _number: int) -> None:
    raise ExecutionError("ONNX Runtime failed: it never works")


def test_a_session_that_always_fails_is_named_by_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SubgraphSession, "_run", _fail)
    graph = parse(WHOLE.replace("gelu(%s)", 'gelu(%s) loc("act", "net.py:7")'))
    made = check(graph, tmp_path, [4, 4], dynamic={"B": (4, 4)})
    lines = [line for line in made.remarks if "runs on the host" in line]
    nodes = "matmul, add, gelu (act (net.py:7)), add, layer_norm"
    assert lines == [f"runs on the host: {nodes}: ONNX Runtime failed: it never works"]
    assert made.stats().buckets[0].cuts == (f"{nodes}: the target cannot capture its kernel",)


def test_a_session_that_always_fails_raises_in_each_call_of_a_strict_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(SubgraphSession, "_run", _fail)
    graph = parse(WHOLE)
    with played():
        made = program(graph, tmp_path, dynamic={"B": (4, 4)}, strict=True)
        for call in range(3):
            with pytest.raises(ExecutionError, match="it never works") as caught:
                made.run(inputs(graph, 4, call))
            assert caught.value.where == "matmul, add, gelu, add, layer_norm"


def test_a_session_that_fails_while_it_records_raises_in_each_call_of_a_strict_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = SubgraphSession._run

    def fail(session: SubgraphSession, binding: Binding, number: int) -> None:
        (run if number == EAGER else _fail)(session, binding, number)

    monkeypatch.setattr(SubgraphSession, "_run", fail)
    graph = parse(WHOLE)
    with played():
        made = program(graph, tmp_path, dynamic={"B": (4, 4)}, strict=True)
        for call in range(3):
            with pytest.raises(CaptureError, match="it never works"):
                made.run(inputs(graph, 4, call))


def test_a_program_that_was_closed_says_so(tmp_path: Path):
    graph = parse(WHOLE)
    with played():
        made = program(graph, tmp_path, dynamic={"B": (4, 4)})
        made.run(inputs(graph, 4, 0))
        made.close()
        made.close()
        with pytest.raises(CapgraphError, match="closed"):
            made.run(inputs(graph, 4, 0))


def test_the_streams_of_sessions_stay(tmp_path: Path):
    gpu = OrtDevice(fake_device(tmp_path))
    streams = {gpu.own_stream, gpu.capture_stream}
    gpu.close()
    assert streams.isdisjoint(gpu.driver.released)


def test_recordings_cannot_follow_inputs(tmp_path: Path):
    with played(), pytest.raises(CapgraphError, match="addresses"):
        program(parse(WHOLE), tmp_path, inputs={"x": "repoint"})
