"""Parts of graphs that unknown sizes reach, put back whole or not at all."""

from textwrap import dedent

import pytest
from capgraph.ir.errors import CapgraphError
from capgraph.ir.graph import Graph
from capgraph.ir.target import HOST
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import print_graph
from capgraph.ir.verify import verify
from capgraph.passes.framework.rewriter import Rewriter
from capgraph.passes.planning.bounds import bound_sizes
from capgraph.passes.planning.reached import Mentions, put_back, reached

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
      return %t, %a, %g
    }"""
"""%t stands between what the size reaches and depends on it, %w and %g do not."""


def around() -> tuple[Graph, Mentions]:
    graph = parse(dedent(AROUND))
    return graph, Mentions(graph)


def test_a_part_that_is_put_back_as_it_was_gives_the_same_results() -> None:
    graph, mentions = around()
    was = reached(graph, mentions, ["u0"])
    assert not was.passes_draws
    put_back(graph, was, was.part, mentions)
    verify(graph)
    assert [value.name for value in graph.outputs] == ["t", "a", "g"]
    assert {repr(node) for node in graph.nodes} == {repr(node) for node in parse(dedent(AROUND)).nodes}
    assert {node.outputs[0].name for node in mentions.of(["u0"])} == {"n", "s", "f", "m", "a"}


@pytest.mark.parametrize("wrong", [0, 1])
def test_one_that_cannot_be_put_back_changes_nothing(wrong: int) -> None:
    graph, mentions = around()
    before, named = print_graph(graph), mentions.of(["u0"])
    was = reached(graph, mentions, ["u0"])
    outputs = list(was.part.outputs)
    outputs[wrong] = was.part.value("m")  # of another type
    was.part.set_outputs(outputs)
    with pytest.raises(CapgraphError):
        put_back(graph, was, was.part, mentions)
    verify(graph)
    assert print_graph(graph) == before
    assert mentions.of(["u0"]) == named


@pytest.mark.parametrize(
    ("late", "early", "passes"),
    [
        ("%t: i64[2] = neg(%s)", "%w: f32[3] = random_uniform() {shape = [3], dtype = f32}", False),
        ("%t: i64[2] = onnx.Foo(%s)", "%w: f32[3] = exp(%z)", False),
        ("%t: i64[2] = onnx.Foo(%s)", "%w: f32[3] = random_uniform() {shape = [3], dtype = f32}", True),
    ],
)
def test_whether_random_numbers_would_be_drawn_in_another_order(late: str, early: str, passes: bool) -> None:
    lines = {"%t: i64[2] = neg(%s)": late, "%w: f32[3] = exp(%z)": early}
    text = AROUND
    for old, new in lines.items():
        text = text.replace(old, new)
    graph = parse(dedent(text))
    assert reached(graph, Mentions(graph), ["u0"]).passes_draws == passes
    refusals = bound_sizes(graph, Rewriter(graph), HOST).refusals
    assert refusals == ({"n": "random numbers would be drawn in another order"} if passes else {})
