from collections import Counter

import numpy as np
import onnxruntime
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.contrib import ON_CUDA, OPERATORS
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.passes.catalog import level_pipeline

from tests.frontends.onnx.contrib.decoding import HIDDEN, KV_HEADS, MOST, SIZE, Form, decoder
from tests.frontends.onnx.contrib.written import graph_of, operators, without, written

F32 = np.float32
STEP = """
graph @g(%q: f32[B, 1, 32], %k: f32[B, 1, 16], %v: f32[B, 1, 16], %pk: f32[B, 2, T, 8], %pv: f32[B, 2, T, 8]) {
  %q4: f32[B, 4, 1, 8] = reshape(%q) {shape = [B, 4, 1, 8]}
  %k4: f32[B, 2, 1, 8] = reshape(%k) {shape = [B, 2, 1, 8]}
  %v4: f32[B, 2, 1, 8] = reshape(%v) {shape = [B, 2, 1, 8]}
  %ck: f32[B, 2, T + 1, 8] = concat(%pk, %k4) {axis = 2}
  %cv: f32[B, 2, T + 1, 8] = concat(%pv, %v4) {axis = 2}
  %a: f32[B, 4, 1, 8] = attention(%q4, %ck, %cv, _, _)
  %y: f32[B, 1, 32] = reshape(%a) {shape = [B, 1, 32]}
  return %y, %ck, %cv
}
"""


def optimized(form: Form, *, has_states: bool = True, batch: int | str = "B") -> Graph:
    graph = import_model(decoder(form, batch=batch)).graph
    if has_states:
        names = [value.name for value in graph.inputs]
        graph.set_states(
            (names.index(f"past_{name}{index}"), list(graph.output_names).index(f"present_{name}{index}"))
            for index in range(2)
            for name in "kv"
        )
    level_pipeline(2).run(graph, check="none")
    return graph


def session_of(graph: Graph) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = export_model(graph, dialect=Dialect.ORT, operators=OPERATORS).SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


# ---- a decoder, step by step


@pytest.mark.parametrize("batch", ["B", 1, 2])
def test_a_cache_that_grows(batch: int | str) -> None:
    graph = optimized("growing", has_states=False, batch=batch)
    session, random = session_of(graph), np.random.default_rng(1)
    written_all = export_model(graph, dialect=Dialect.ORT, operators=OPERATORS)
    assert Counter(operators(written_all))[".GroupQueryAttention"] == 2
    count = batch if isinstance(batch, int) else 3
    caches = [np.zeros((count, KV_HEADS, 0, SIZE), F32)] * 4
    for step in range(4):
        x = random.standard_normal((count, 1, HIDDEN)).astype(F32)
        given = [x, np.full(count, step), *caches]
        expected = evaluate_graph(graph, given)
        found = session.run(None, {value.name: each for value, each in zip(graph.inputs, given, strict=True)})
        for ours, theirs in zip(expected, found, strict=True):
            np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)
        caches = list(expected[1:])


def test_a_cache_that_grows_stays_as_it_is_where_that_is_quicker() -> None:
    names = operators(export_model(optimized("growing", has_states=False), dialect=Dialect.ORT))
    assert Counter(names)["Attention"] == 2
    assert ".GroupQueryAttention" in operators(export_model(graph_of(STEP.replace("f32", "f16")), dialect=Dialect.ORT))
    assert ".GroupQueryAttention" not in operators(export_model(graph_of(STEP), dialect=Dialect.ORT))


def test_a_cache_of_fixed_size_is_written_in_place() -> None:
    """Samples stand at positions of their own, and what lies behind them is kept."""
    graph = optimized("fixed")
    session, random = session_of(graph), np.random.default_rng(1)
    caches = [random.standard_normal((3, KV_HEADS, MOST, SIZE)).astype(F32) for _ in range(4)]
    shared = [onnxruntime.OrtValue.ortvalue_from_numpy(cache) for cache in caches]
    position = np.array([0, 4, 2])
    for _ in range(3):
        x = random.standard_normal((3, 1, HIDDEN)).astype(F32)
        expected = evaluate_graph(graph, [x, position, *caches])
        found = _step(session, graph, x, position, shared)
        np.testing.assert_allclose(found, expected[0], rtol=1e-4, atol=1e-5)
        caches = list(expected[1:])
        for ours, theirs in zip(caches, shared, strict=True):
            np.testing.assert_allclose(theirs.numpy(), ours, rtol=1e-4, atol=1e-5)
        position = position + 1


@pytest.mark.parametrize("position", [[MOST, MOST], [MOST, 3], [MOST + 5, 3], [100, 100]])
def test_a_step_behind_the_end_of_a_cache_is_an_error(position: list[int]) -> None:
    graph = optimized("fixed")
    shared = [onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((2, KV_HEADS, MOST, SIZE), F32)) for _ in range(4)]
    with pytest.raises(RuntimeError, match=r"static cache|pre-allocated shapes"):
        _step(session_of(graph), graph, np.zeros((2, 1, HIDDEN), F32), np.array(position), shared)


def _step(session, graph, x, position, shared):
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("position", position)
    for value, name, cache in zip(graph.inputs[2:], graph.output_names[1:], shared, strict=True):
        binding.bind_ortvalue_input(value.name, cache)
        binding.bind_ortvalue_output(name, cache)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return binding.get_outputs()[-1].numpy()


def test_lengths_are_written_once_for_all_layers() -> None:
    names = operators(export_model(optimized("fixed"), dialect=Dialect.ORT))
    assert Counter(names)[".GroupQueryAttention"] == 2
    assert Counter(names)["Cast"] == 2
    assert not {"TensorScatter", "Attention", "Transpose"} & set(names)
    assert Counter(names)["Reshape"] <= 1  # of the positions


def test_rotary_embedding_by_tables() -> None:
    names = operators(export_model(optimized("fixed"), dialect=Dialect.ORT))
    assert Counter(names)[".RotaryEmbedding"] == 4


def test_a_cache_of_fixed_size_that_is_no_state_stays() -> None:
    """The operator would not give back what lies behind the last entry, unless past and present are one buffer."""
    names = operators(export_model(optimized("fixed", has_states=False), dialect=Dialect.ORT))
    assert Counter(names)["TensorScatter"] == 4
    assert ".GroupQueryAttention" not in names


def test_our_own_sessions_on_cuda_do_not_get_it() -> None:
    names = operators(export_model(optimized("fixed"), dialect=Dialect.ORT, operators=ON_CUDA))
    assert not {".GroupQueryAttention", ".RotaryEmbedding"} & set(names)


# ---- what the operator does, and what it does not


@pytest.mark.parametrize("attributes", ["", " {scale = 0.3}", " {softcap = 2.0}"])
def test_a_step_is_one_operator(attributes: str) -> None:
    text = STEP.replace("_, _)", f"_, _){attributes}")
    assert [name for name in written(text) if name.startswith(".")] == [".GroupQueryAttention"]
    assert ".GroupQueryAttention" not in written(text, without("GroupQueryAttention"))


def test_what_it_does_not_do_stays() -> None:
    only_the_first_key = STEP.replace("_, _)", "_, _) {causal = true}")
    two_queries = STEP.replace("f32[B, 1, 32]", "f32[B, 2, 32]").replace("[B, 1, 32]}", "[B, 2, 32]}")
    two_queries = two_queries.replace("4, 1, 8]", "4, 2, 8]")
    odd_head = STEP.replace(", 8]", ", 4]").replace("1, 32]", "1, 16]").replace("%k: f32[B, 1, 16]", "%k: f32[B, 1, 8]")
    odd_head = odd_head.replace("%v: f32[B, 1, 16]", "%v: f32[B, 1, 8]")
    masked = STEP.replace("_, _)", "%m, _)").replace("%pv: f32[B, 2, T, 8]", "%pv: f32[B, 2, T, 8], %m: bool[1, T + 1]")
    no_scores = STEP.replace("_, _)", "_, _) {scale = 0.0}")
    before = STEP.replace("  %a:", "  %n: f32[B, 2, T + 1, 8] = neg(%ck)\n  %a:").replace("%y, %ck", "%y, %n, %ck")
    for text in (only_the_first_key, two_queries, odd_head, masked, no_scores, before):
        model = export_model(graph_of(text), dialect=Dialect.ORT, operators=OPERATORS)
        assert ".GroupQueryAttention" not in operators(model)
