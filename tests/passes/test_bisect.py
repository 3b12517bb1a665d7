"""Wrong rewrites are planted among right ones: numeric checking names the pass, `bisect` the rewrite."""

from dataclasses import dataclass
from textwrap import dedent
from typing import ClassVar

import pytest
from capgraph.ir.errors import InternalError
from capgraph.ir.graph import Graph
from capgraph.ir.node import write
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import print_graph
from capgraph.ir.verify import verify
from capgraph.passes.cleanup.canonicalize import Canonicalize
from capgraph.passes.cleanup.redundancy import Cse, EliminateDeadCode, FoldConstants
from capgraph.passes.framework.base import Pass
from capgraph.passes.framework.bisect import bisect
from capgraph.passes.framework.numeric import Samples
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.framework.rewriter import Rewriter

from tests.passes.planted import DroppedOperand, WrongAlgebra, WrongAxis, WrongOperandOrder

BEFORE = (EliminateDeadCode(), FoldConstants(), Cse())
AFTER = (Canonicalize(), Cse(), EliminateDeadCode())

ALGEBRA = """
    graph @main(%x: f32[B, 4]) {
      %one = constant() {value = dense<f32[1]: [-1.0]>}
      %four = constant() {value = dense<f32[1]: [4.0]>}
      %a = div(%x, %one)
      %b = relu(%a)
      %b2 = relu(%b)
      %c = div(%b2, %one)
      %d = exp(%c)
      %wrong = div(%d, %four)
      %e = neg(%wrong)
      %f = div(%e, %one)
      %g = tanh(%f)
      return %g
    }
"""

AXIS = """
    graph @main(%x: f32[3, 3, 3]) {
      %a = transpose(%x) {perm = [1, 0, 2]}
      %b = transpose(%a) {perm = [1, 0, 2]}
      %c = exp(%b)
      %d = transpose(%c) {perm = [1, 0, 2]}
      %wrong = transpose(%d) {perm = [0, 2, 1]}
      %e = tanh(%wrong)
      %f = transpose(%e) {perm = [2, 0, 1]}
      %g = transpose(%f) {perm = [2, 0, 1]}
      %h = add(%g, %c)
      return %h
    }
"""

ORDER = """
    graph @main(%x: f32[B], %y: f32[B]) {
      %a = sub(%x, %x)
      %b = neg(%a)
      %c = exp(%b)
      %d = sub(%c, %y)
      %wrong = neg(%d)
      %e = mul(%wrong, %c)
      %f = add(%e, %y)
      return %f
    }
"""

DROPPED = """
    graph @main(%x: f32[B, 8]) {
      %zero = constant() {value = dense<f32[]: 0.0>}
      %far = constant() {value = dense<f32[]: 1000.0>}
      %near = constant() {value = dense<f32[]: 0.5>}
      %a = clip(%x, %zero, %far)
      %b = neg(%a)
      %c = sigmoid(%b)
      %wrong = clip(%x, %zero, %near)
      %d = mul(%c, %wrong)
      %e = softmax(%d) {axis = -1}
      return %e
    }
"""

REGION = """
    graph @main(%c: bool[], %x: f32[4]) {
      %k = exp(%x)
      %y = if(%c, %k) {then_body = @then, else_body = @else}
      %z = neg(%y)
      return %z
    }

    graph @then(%a: f32[4]) {
      %four = constant() {value = dense<f32[]: 4.0>}
      %d = div(%a, %four)
      return %d
    }

    graph @else(%a: f32[4]) {
      %one = constant() {value = dense<f32[]: 1.0>}
      %d = div(%a, %one)
      return %d
    }
"""

PLANTED = [
    (WrongAlgebra(), ALGEBRA, "divide-as-multiply", 2),
    (WrongAxis(), AXIS, "transpose-chain-reversed", 2),
    (WrongOperandOrder(), ORDER, "negated-difference", 2),
    (DroppedOperand(), DROPPED, "clip-as-relu", 3),
]


@pytest.mark.parametrize(("planted", "text", "rule", "nodes"), PLANTED)
def test_numeric_checking_names_the_pass(planted: Pass, text: str, rule: str, nodes: int) -> None:
    graph = parse(dedent(text))
    before = print_graph(graph)
    pipeline = Pipeline((BEFORE, (planted,), AFTER))
    pipeline.run(graph.clone(), check="structure")  # nothing but the numbers is wrong
    with pytest.raises(
        InternalError, match=rf"pass {planted.name} changed what the graph means: output \w+ at \["
    ) as e:
        pipeline.run(graph, check="numeric")
    assert "instead of" in e.value.message
    assert print_graph(graph) == before


@pytest.mark.parametrize(("planted", "text", "rule", "nodes"), PLANTED)
def test_bisect_finds_the_single_rewrite(planted: Pass, text: str, rule: str, nodes: int) -> None:
    graph = parse(dedent(text))
    before = print_graph(graph)
    found = bisect(graph, Pipeline((BEFORE, (planted,), AFTER)), Samples.drawn(graph))
    assert found is not None
    assert found.guilty is planted
    assert found.rewrite.rule == rule
    assert found.rewrite.results == ("wrong",)
    assert len(found.before) <= nodes, print_graph(found.before)
    assert found.after is not None
    verify(found.before)
    verify(found.after)
    local = Samples.drawn(found.before)
    assert local.first_difference(found.before, planted.exactness) == ""
    assert "instead of" in found.problem
    assert print_graph(graph) == before


def test_the_number_counts_all_rewrites_before() -> None:
    graph = parse(dedent(ALGEBRA))
    found = bisect(graph, Pipeline(((WrongAlgebra(),),)), Samples.drawn(graph))
    assert found is not None
    assert found.number == 3
    assert len(found.before) == 2
    later = bisect(graph, Pipeline(((Canonicalize(),), (WrongAlgebra(),))), Samples.drawn(graph))
    assert later is not None
    assert later.number == 4


def test_right_pipelines_have_no_culprit() -> None:
    graph = parse(dedent(ALGEBRA))
    assert bisect(graph, Pipeline((BEFORE, AFTER)), Samples.drawn(graph)) is None


def test_a_fault_inside_a_region_is_shown_with_its_node() -> None:
    graph = parse(dedent(REGION))
    found = bisect(graph, Pipeline(((WrongAlgebra(),),)), Samples.drawn(graph))
    assert found is not None
    assert found.rewrite.rule == "divide-as-multiply"
    assert found.rewrite.results == ("y",)
    assert [node.op.name for node in found.before.nodes] == ["if"]


@dataclass(frozen=True)
class RaisesOnTanh(Pass):
    """Removes double negations, and fails at a tanh."""

    name: ClassVar[str] = "raises-on-tanh"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in graph.nodes:
            if node.op.name == "relu" and rewriter.may_rewrite("relu-as-clip", node):
                zero = rewriter.constant(0.0, node.operands[0].tensor.dtype)
                rewriter.replace(node, rewriter.op("clip", node.operands[0], zero, None))
            if node.op.name == "tanh" and rewriter.may_rewrite("fail", node):
                raise KeyError("no such thing")


def test_a_pass_that_raises_is_found_too() -> None:
    graph = parse(dedent(ALGEBRA))
    found = bisect(graph, Pipeline((BEFORE, (RaisesOnTanh(),))), Samples.drawn(graph))
    assert found is not None
    assert (found.guilty.name, found.rewrite.rule) == ("raises-on-tanh", "fail")
    assert "KeyError" in found.problem
    assert found.after is None
    assert [node.op.name for node in found.before.nodes] == ["tanh"]


@dataclass(frozen=True)
class BreaksTheGraph(Pass):
    """Claims another type for every exp."""

    name: ClassVar[str] = "breaks-the-graph"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in graph.nodes:
            if node.op.name == "exp" and not node.output.name.startswith("e_") and rewriter.may_rewrite("b", node):
                made = rewriter.op("exp", node.operands[0])
                graph.rename(made, "e_")
                rewriter.replace(node, made)
                write(made, "index", 7)


def test_a_graph_that_does_not_verify_is_found_too() -> None:
    graph = parse(dedent(ALGEBRA))
    found = bisect(graph, Pipeline(((BreaksTheGraph(),),)), Samples.drawn(graph))
    assert found is not None
    assert "the graph is broken" in found.problem
    assert [node.op.name for node in found.before.nodes] == ["exp"]
