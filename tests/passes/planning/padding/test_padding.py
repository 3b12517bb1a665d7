"""Garbage behind the real elements never changes one of them where the analysis says so."""

from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from capgraph.ir.constant import Array
from capgraph.ir.equality import first_difference
from capgraph.ir.text.parser import parse
from capgraph.passes.cleanup.redundancy import EliminateDeadCode
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.planning.padding import mask_padding, padding_safety, real_size_input
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.passes.planning.padding.poison import leak, leaks
from tests.strategies.graphs import graphs, inputs_for, random_graph, random_inputs

_CLEAN_UP = Pipeline(((EliminateDeadCode(),),))


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_garbage_never_reaches_a_real_element(data: Any) -> None:
    graph = data.draw(graphs(max_nodes=6))
    _CLEAN_UP.run(graph)
    sizes, arrays = data.draw(inputs_for(graph))
    assert leaks(graph, sizes, arrays, data.draw(st.integers(0, 1000))) == ""


@pytest.mark.parametrize("part", range(2))
def test_garbage_never_reaches_a_real_element_of_seeded_graphs(part: int) -> None:
    for seed in range(250 * part, 250 * (part + 1)):
        graph = random_graph(seed, max_nodes=6)
        _CLEAN_UP.run(graph)
        sizes, arrays = random_inputs(graph, seed)
        assert leaks(graph, sizes, arrays, seed) == "", f"graph {seed}"


# ---- whole models


BERT = """
graph @main(%ids: i64[B, S], %mask: i64[B, S], %table: f32[9, 4], %places: f32[1, 8, 4], %w: f32[4, 4], %g: f32[4]) {
  %e: f32[B, S, 4] = gather(%table, %ids)
  %cut: f32[1, min(8, S), 4] = slice(%places) {axes = [1], starts = [0], ends = [S], steps = [1]}
  %x: f32[B, S, 4] = add(%e, %cut)
  %n: f32[B, S, 4] = layer_norm(%x, %g, %g)
  %flat: f32[B*S, 4] = reshape(%n) {shape = [B*S, 4]}
  %q: f32[B*S, 4] = gemm(%flat, %w, %g)
  %q3: f32[B, S, 4] = reshape(%q) {shape = [B, S, 4]}
  %kt: f32[B, 4, S] = transpose(%q3) {perm = [0, 2, 1]}
  %scores: f32[B, S, S] = matmul(%q3, %kt)
  %f: f32[B, S] = cast(%mask) {to = f32}
  %one: f32[] = constant() {value = dense<f32[]: 1.0>}
  %not: f32[B, S] = sub(%one, %f)
  %low: f32[] = constant() {value = dense<f32[]: -10000.0>}
  %bias: f32[B, S] = mul(%not, %low)
  %bias3: f32[B, 1, S] = unsqueeze(%bias) {axes = [1]}
  %biased: f32[B, S, S] = add(%scores, %bias3)
  %p: f32[B, S, S] = softmax(%biased)
  %o: f32[B, S, 4] = matmul(%p, %q3)
  %first: f32[B, min(1, S), 4] = slice(%o) {axes = [1], starts = [0], ends = [1], steps = [1]}
  %pooled: f32[B, 4] = reduce_mean(%o) {axes = [1], keep_dims = false}
  return %o, %first, %pooled
}
"""

GPT = """
graph @main(%ids: i64[B, S], %table: f32[9, 4], %places: f32[8, 4], %w: f32[4, 9]) {
  %e: f32[B, S, 4] = gather(%table, %ids)
  %n: i64[S] = arange() {limit = S}
  %at: f32[S, 4] = gather(%places, %n)
  %x: f32[B, S, 4] = add(%e, %at)
  %row: i64[S, 1] = reshape(%n) {shape = [S, 1]}
  %seen: bool[S, S] = less_equal(%n, %row)
  %kt: f32[B, 4, S] = transpose(%x) {perm = [0, 2, 1]}
  %scores: f32[B, S, S] = matmul(%x, %kt)
  %low: f32[] = constant() {value = dense<f32[]: -inf>}
  %hidden: f32[B, S, S] = where(%seen, %scores, %low)
  %p: f32[B, S, S] = softmax(%hidden)
  %o: f32[B, S, 4] = matmul(%p, %x)
  %logits: f32[B, S, 9] = matmul(%o, %w)
  return %logits
}
"""

MLP = """
graph @main(%x: f32[B, S], %w: f32[4, 4], %v: f32[3, S]) {
  %a: f32[3, B] = gemm(%v, %x, _) {trans_b = true}
  %r: f32[3, B] = relu(%a)
  return %r
}
"""

CNN = """
graph @main(%x: f32[B, 2, 6, 6], %w: f32[3, 2, 3, 3], %g: f32[3], %head: f32[3, 5]) {
  %c: f32[B, 3, 6, 6] = conv(%x, %w, %g) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]}
  %n: f32[B, 3, 6, 6] = batch_norm(%c, %g, %g, %g, %g)
  %r: f32[B, 3, 6, 6] = relu(%n)
  %p: f32[B, 3, 3, 3] = max_pool(%r) {kernel = [2, 2], strides = [2, 2], pads = [0, 0, 0, 0], dilations = [1, 1]}
  %m: f32[B, 3] = reduce_mean(%p) {axes = [2, 3], keep_dims = false}
  %o: f32[B, 5] = matmul(%m, %head)
  return %o
}
"""


@pytest.mark.parametrize(
    ("text", "symbol", "is_safe"),
    [(BERT, "B", True), (BERT, "S", False), (GPT, "B", True), (GPT, "S", False), (MLP, "B", True), (MLP, "S", False),
     (CNN, "B", True)],
)  # fmt: skip
def test_models(text: str, symbol: str, is_safe: bool) -> None:
    graph = parse(dedent(text))
    assert padding_safety(graph, symbol, 8).is_safe is is_safe
    safe = mask_padding(graph, symbol, 8)
    assert safe is not None
    generator = np.random.default_rng(1)
    for real, padded in ((1, 2), (3, 8), (5, 6)):
        sizes = {"B": 2, "S": 4, symbol: real}
        arrays = [_drawn(generator, value.tensor.dtype.numpy, value.shape, sizes) for value in graph.inputs]
        assert leak(graph, safe, symbol, sizes, padded, arrays, real) == ""


def _drawn(generator: np.random.Generator, dtype: np.dtype[Any], dims: tuple[Any, ...], sizes: dict[str, int]) -> Array:
    shape = tuple(sizes.get(str(dim), dim) for dim in dims)
    drawn = generator.integers(0, 2, shape) if dtype.kind == "i" else generator.normal(0, 1, shape)
    return np.asarray(drawn).astype(dtype)


def test_two_dims_are_padded_one_after_the_other() -> None:
    graph = parse(dedent(BERT))
    safe = mask_padding(graph, "S", 8)
    assert safe is not None
    assert padding_safety(safe, "B", 8).is_safe


# ---- states


STATE = """
graph @main(%cache: f32[B, 3], %x: f32[B, 3]) {
  %new: f32[B, 3] = add(%cache, %x)
  return %new -> %cache
}
"""


def test_padded_rows_are_not_written_into_states() -> None:
    graph = parse(dedent(STATE))
    report = padding_safety(graph, "B", 8)
    assert not report.is_safe
    assert "would be written into state %cache" in report.failure
    safe = mask_padding(graph, "B", 8)
    assert safe is not None
    arrays: list[Array] = [np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)]
    assert leak(graph, safe, "B", {"B": 2}, 5, arrays, 0) == ""
    assert leak(graph, graph, "B", {"B": 2}, 5, arrays, 0) != ""


# ---- what the report and the copy are


def test_a_graph_that_is_safe_gets_no_input() -> None:
    graph = parse(dedent(CNN))
    copy = mask_padding(graph, "B")
    assert copy is not None
    assert copy is not graph
    assert first_difference(graph, copy) is None
    assert real_size_input(copy, "B") is None


def test_masking_leaves_the_graph_alone() -> None:
    graph = parse(dedent(BERT))
    before = graph.clone()
    assert mask_padding(graph, "S", 8) is not None
    assert first_difference(graph, before) is None


def test_an_input_of_an_odd_size_is_unsafe() -> None:
    graph = parse(
        dedent("""
        graph @main(%x: f32[S//2, 4], %y: f32[S]) {
          %a: f32[S//2, 4] = neg(%x)
          return %a
        }""")
    )
    report = padding_safety(graph, "S")
    assert not report.is_safe
    assert "input %x has an axis of size S//2" in report.failure


def test_the_proof_names_each_node_and_its_rule() -> None:
    graph = parse(dedent(MLP))
    proof = padding_safety(graph, "B").proof
    assert proof[0].startswith("%a = gemm(%v, %x, _): ")
    assert all(line.split(": ", 1)[1] for line in proof)


def test_bounds_may_speak_of_sizes_that_no_shape_has() -> None:
    graph = parse("""graph @main(%x: f32[N, 3], %c: bool[N], %z: f32[B]) {
      %s: f32[u0, 3] = compress(%x, %c) {axis = 0}
      %d: f32[u1], %i: i64[u2], %v: i64[3*u0], %n: i64[u3] = unique(%s)
      %p: i64[2], %q: i64[0] = split(%i) {axis = 0, sizes = [2, 0]}
      return %p, %z
    }""")
    assert padding_safety(graph, "B", largest=8).is_safe
