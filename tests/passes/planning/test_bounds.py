from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from textwrap import dedent
from typing import NamedTuple

import numpy as np
import pytest
from capgraph.ir.constant import Array
from capgraph.ir.dims import evaluate
from capgraph.ir.evaluate import as_results, evaluate_graph
from capgraph.ir.graph import Graph, Node
from capgraph.ir.ops.bounded import PREFIX
from capgraph.ir.plan import Measured
from capgraph.ir.target import HOST, Target
from capgraph.ir.text.parser import parse
from capgraph.ir.verify import verify
from capgraph.passes.framework.rewriter import Rewriter
from capgraph.passes.planning import bounds
from capgraph.passes.planning.bounds import bound_sizes
from capgraph.passes.planning.padding import attempts, checker
from capgraph.passes.planning.padding.claims import Certificate, ClaimedPart
from capgraph.passes.planning.padding.rules.facts import Fact
from capgraph.passes.planning.padding.samples import Pair, Trial, refutation
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.passes.planning.planned import UNBOUNDED, planned


class Bounded(NamedTuple):
    """A graph with bounds, and what its executor has to know of them."""

    graph: Graph
    measured: Measured


def bounded(text: str, target: Target = HOST, captures: Callable[[Node], bool] | None = None) -> Bounded:
    """A text with its unknown sizes bounded, which must be a valid graph."""
    graph = parse(dedent(text))
    found = Bounded(graph, bound_sizes(graph, Rewriter(graph), target, (), captures))
    verify(graph)
    return found


def results(found: Bounded, *inputs: Array) -> list[Array]:
    """The outputs of a bounded graph, cut to what was found."""
    outputs = [np.asarray(each) for each in evaluate_graph(found.graph, list(inputs))]
    measured = found.measured
    if measured.output is None:
        return outputs
    sizes = dict(zip(measured.symbols, outputs.pop(measured.output).tolist(), strict=True))
    for index, dims in measured.shapes.items():
        shape = [evaluate(dim, sizes) for dim in dims]
        outputs[index] = outputs[index][tuple(slice(size) for size in shape)]
    return outputs


def ops(found: Bounded) -> list[str]:
    return [node.op.name for node in found.graph.nodes]


CHAIN = """
    graph @main(%x: f32[4, 3]) {
      %a: f32[4, 3] = relu(%x)
      %n: i64[2, u0] = non_zero(%a)
      %r: i64[1, u0] = slice(%n) {axes = [0], starts = [0], ends = [1], steps = [1]}
      %i: i64[u0] = squeeze(%r) {axes = [0]}
      %y: f32[u0, 3] = gather(%x, %i) {axis = 0}
      %m: f32[3] = reduce_mean(%y) {axes = [0], keep_dims = false}
      %c: bool[u0, 3] = greater(%y, %m)
      %q: i64[2, u1] = non_zero(%c)
      return %y, %m, %q
    }"""


@given(hnp.arrays(np.float32, (4, 3), elements=st.integers(-2, 2)))
def test_nodes_one_behind_the_other_find_what_they_found(x: Array) -> None:
    found = bounded(CHAIN)
    assert not found.measured.refusals
    assert found.measured.symbols == ("u0", "u1")
    with np.errstate(all="ignore"):
        expected, given = evaluate_graph(parse(dedent(CHAIN)), [x]), results(found, x)
    for old, new in zip(expected, given, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-6)


EDGES = """
    graph @main(%from: i64[6], %to: i64[6], %x: f32[4, 3]) {
      %kept: bool[6] = not_equal(%from, %to)
      %n: i64[1, u0] = non_zero(%kept)
      %k: i64[u0] = reshape(%n) {shape = [u0]}
      %f: i64[u0] = gather(%from, %k)
      %t: i64[u0] = gather(%to, %k)
      %own: i64[4] = arange() {limit = 4}
      %sources: i64[u0 + 4] = concat(%f, %own) {axis = 0}
      %targets: i64[u0 + 4] = concat(%own, %t) {axis = 0}
      %sent: f32[u0 + 4, 3] = gather(%x, %sources) {axis = 0}
      %wide: i64[u0 + 4, 1] = reshape(%targets) {shape = [u0 + 4, 1]}
      %index: i64[u0 + 4, 3] = expand(%wide) {shape = [u0 + 4, 3]}
      %zero: f32[4, 3] = full() {shape = [4, 3], value = dense<f32[]: 0.0>}
      %sum: f32[4, 3] = scatter_elements(%zero, %index, %sent) {reduction = "add"}
      %most: f32[4, 3] = scatter_elements(%zero, %index, %sent) {reduction = "max"}
      %count: i64[2] = shape(%sent)
      return %sum, %most, %count, %sent
    }"""


@given(hnp.arrays(np.int64, (2, 6), elements=st.integers(0, 3)))
def test_what_is_put_behind_what_was_found_follows_it(edges: Array) -> None:
    found = bounded(EDGES)
    assert "non_zero" not in ops(found)
    scatters = [node for node in found.graph.nodes if node.op.name == "scatter_elements"]
    assert [node.operands[1].producer.op.name for node in scatters] == ["expand", "expand"], "one index for each row"
    x = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
    for given_one, expected in zip(
        results(found, *edges, x), evaluate_graph(parse(dedent(EDGES)), [*edges, x]), strict=True
    ):
        np.testing.assert_array_equal(given_one, expected)


def test_counts_are_returned_only_where_an_output_is_cut() -> None:
    found = bounded("""
        graph @main(%x: f32[5]) {
          %n: i64[1, u0] = non_zero(%x)
          %s: i64[1] = reduce_sum(%n) {axes = [1], keep_dims = false}
          return %s
        }""")
    assert (found.measured.symbols, found.measured.output, found.measured.shapes) == ((), None, {})
    assert len(found.measured.notes) == 1
    assert results(found, np.array([0, 1, 0, 2, 3], np.float32))[0].tolist() == [8]


def test_results_with_sizes_of_their_own_share_one_count() -> None:
    found = bounded("""
        graph @main(%x: i64[6]) {
          %d: i64[u0], %f: i64[u1], %w: i64[6], %c: i64[u2] = unique(%x)
          return %d, %f, %w, %c
        }""")
    assert found.measured.symbols == ("u0", "u1", "u2")
    x = np.array([3, 1, 3, 2, 1, 1], np.int64)
    assert [each.tolist() for each in results(found, x)] == [[1, 2, 3], [1, 3, 0], [2, 0, 2, 1, 0, 0], [3, 1, 2]]


def test_compress_takes_no_more_than_there_are_conditions() -> None:
    found = bounded("""
        graph @main(%x: f32[3, 8], %c: bool[5]) {
          %y: f32[3, u0] = compress(%x, %c) {axis = 1}
          return %y
        }""")
    assert found.graph.value("y").shape == (3, 5)


DETECTIONS = """
    graph @main(%b: f32[1, 6, 4], %s: f32[1, 2, 6], %m: i64[], %o: f32[], %t: f32[]) {{
      {limit}
      %n: i64[u0, 3] = non_max_suppression(%b, %s, %{name}, %o, %t)
      return %n
    }}"""


@pytest.mark.parametrize(
    ("limit", "name", "most"),
    [
        ("%k: i64[] = constant() {value = dense<i64[]: 2>}", "k", 4),
        ("%k: i64[] = constant() {value = dense<i64[]: 9>}", "k", 12),
        ("", "m", 12),
    ],
)
def test_boxes_are_bounded_by_a_constant_limit_or_by_their_number(limit: str, name: str, most: int) -> None:
    found = bounded(DETECTIONS.format(limit=limit, name=name))
    assert found.graph.value("n").shape == (most, 3)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("%y: i64[1, u0] = reverse(%n) {axes = [1]}", "it mixes the elements along axis 1"),
        ("%y: i64[1] = argmax(%n) {axis = 1, keep_dims = false}", "over 0 real elements"),
        ("%y: i64[1, u0] = onnx.Foo(%n)", "no rule"),
    ],
)
def test_where_the_proof_fails_a_node_stays_and_the_reason_is_kept(line: str, reason: str) -> None:
    found = bounded(f"""
        graph @main(%x: f32[5]) {{
          %n: i64[1, u0] = non_zero(%x)
          {line}
          return %y
        }}""")
    assert "non_zero" in ops(found)
    assert reason in found.measured.refusals["n"]
    assert found.measured.output is None


def test_one_that_stays_does_not_keep_another_from_its_bound() -> None:
    found = bounded("""
        graph @main(%x: f32[5]) {
          %n: i64[1, u0] = non_zero(%x)
          %y: i64[1, u0] = reverse(%n) {axes = [1]}
          %a: f32[5] = neg(%x)
          %m: i64[1, u1] = non_zero(%a)
          %k: i64[2, u2] = non_zero(%y)
          return %y, %m, %k
        }""")
    assert found.measured.symbols == ("u1",)
    assert "of which the number is not known" in found.measured.refusals["k"]


AROUND = """
    graph @main(%x: f32[4, 3], %z: f32[3]) {
      %n: i64[2, u0] = non_zero(%x)
      %s: i64[2] = reduce_sum(%n) {axes = [1], keep_dims = false}
      %t: i64[2] = neg(%s)
      %w: f32[3] = exp(%z)
      %g: f32[] = reduce_sum(%w) {axes = [0], keep_dims = false}
      %f: f32[2, u0] = cast(%n) {to = f32}
      %m: f32[2, u0] = mul(%f, %g)
      %a: f32[2] = reduce_max(%m) {axes = [1], keep_dims = false}
      return %t, %m, %g
    }"""


def test_what_stands_between_the_nodes_that_a_size_reaches_stays() -> None:
    x, z = np.eye(4, 3, dtype=np.float32), np.arange(3, dtype=np.float32)
    found = bounded(AROUND)
    assert not found.measured.refusals
    for old, new in zip(evaluate_graph(parse(dedent(AROUND)), [x, z]), results(found, x, z), strict=True):
        np.testing.assert_array_equal(new, old)


def test_a_proof_looks_at_what_a_size_reaches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_VISITS", 300)
    lines = [
        f"%n{i}: i64[1, u{i}] = non_zero(%x)\n%s{i}: i64[1] = reduce_sum(%n{i}) {{axes = [1], keep_dims = false}}"
        for i in range(100)
    ]
    text = "\n".join(["graph @main(%x: f32[5]) {", *lines, "return %s99", "}"])
    assert not bounded(text).measured.refusals


def test_a_proof_tries_no_call_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor runs a twin more than once each at what it found and with all its room."""
    runs, calls = [0], list[tuple[bytes, ...]]()

    def run(node: Node, found: object) -> list[Array]:
        runs[0] += node.op.name.startswith(PREFIX)
        return as_results(node, found)

    def judged(fact: Fact, result: Pair, trial: Trial, others: Mapping[str, Pair]) -> str:
        if "b" in others:  # the boxes
            calls.append(tuple(pair.padded.tobytes() for pair in others.values()))
        return refutation(fact, result, trial, others)

    monkeypatch.setattr(checker, "_verdicts", {})
    monkeypatch.setattr(attempts, "as_results", run)
    monkeypatch.setattr(attempts, "refutation", judged)
    assert not bounded(DETECTIONS.format(limit="", name="m")).measured.refusals
    assert len(calls) == len(set(calls)) > 3
    assert runs[0] == 2 * len(calls)


def test_at_other_sizes_constants_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def tried(certificate: Certificate, part: ClaimedPart) -> str:
        seen.append(part.node.op.name)
        return attempts.tried(certificate, part)

    monkeypatch.setattr(checker, "_verdicts", {})
    monkeypatch.setattr(checker, "tried", tried)
    text = DETECTIONS.format(limit="%k: i64[] = constant() {value = dense<i64[]: 2>}", name="k")
    for boxes in (6, 5, 4):
        assert not bounded(text.replace(" 6", f" {boxes}")).measured.refusals
    assert Counter(seen) == {"constant": 1, "bounded_non_max_suppression": 3}


def test_room_and_work_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        graph @main(%x: f32[64], %t: f32[64, 32], %w: f32[32, 32]) {
          %n: i64[1, u0] = non_zero(%x)
          %i: i64[u0] = squeeze(%n) {axes = [0]}
          %y: f32[u0, 32] = gather(%t, %i) {axis = 0}
          %z: f32[u0, 32] = matmul(%y, %w)
          return %z
        }"""
    assert not bounded(text).measured.refusals
    assert "operations, of at most" in bounded(text, replace(HOST, padded_flops=64 * 32 * 32)).measured.refusals["n"]
    with monkeypatch.context() as patch:
        patch.setattr(bounds, "made_safe", None)  # what is too large is not proven first
        found = bounded(text, replace(HOST, padded_bytes=64 * 32 * 4))
    assert "bytes in all, of at most" in found.measured.refusals["n"]
    monkeypatch.setattr(bounds, "MOST_VISITS", 3)
    assert "proofs on more than 3 nodes take too long" in bounded(text).measured.refusals["n"]


def test_a_target_says_which_it_can_run() -> None:
    assert ops(bounded(CHAIN, UNBOUNDED)) == [node.op.name for node in parse(dedent(CHAIN)).nodes]
    refusals = bounded(CHAIN, captures=lambda _node: False).measured.refusals
    assert refusals["n"] == "the target has no kernel for it with a bound"


def test_what_is_kept_outside_stays() -> None:
    graph = parse(dedent(CHAIN))
    rewriter = Rewriter(graph)
    bound_sizes(graph, rewriter, HOST, {"non_zero"})
    assert not rewriter.changed


def test_what_bounds_make_constant_is_folded() -> None:
    plan = planned(EDGES)
    assert not {"dim", "non_zero"} & {step.node.op.name for step in plan.steps}
