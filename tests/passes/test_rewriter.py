"""The rewriter: every edit is counted, names and sizes go over, unused producers go."""

from textwrap import dedent

import numpy as np
import pytest
from capgraph.ir.equality import equal
from capgraph.ir.errors import InvalidGraphError
from capgraph.ir.graph import Graph, Node, Value
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from capgraph.ir.verify import verify
from capgraph.passes.framework.rewriter import Rewriter

GRAPH = """
    graph @main(%x: f32[4], %y: f32[4]) {
      %a = exp(%x) loc("layer/exp")
      %b = neg(%a)
      %c = add(%b, %y)
      %v, %i = top_k(%c) {k = 2, axis = 0}
      return %c, %v
    }
"""


@pytest.fixture
def graph() -> Graph:
    return parse(dedent(GRAPH))


def node(graph: Graph, name: str) -> Node:
    found = graph.value(name).producer
    assert found is not None
    return found


def ops(graph: Graph) -> list[str]:
    return [each.op.name for each in graph.nodes]


def test_nothing_done_is_nothing_changed(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    assert rewriter.may_rewrite("try", node(graph, "b"))
    rewriter.take_back("try")
    assert not rewriter.changed
    assert not rewriter.rewrites
    assert rewriter.last is None


def test_taking_back_leaves_the_rewrite_before_as_the_last(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    rewriter.may_rewrite("first", node(graph, "b"))
    rewriter.may_rewrite("second", node(graph, "c"))
    rewriter.take_back("second")
    assert rewriter.last is not None
    assert rewriter.last.rule == "first"
    assert rewriter.rewrites == {"first": 1}


def test_the_budget_bounds_rewrites(graph: Graph) -> None:
    rewriter = Rewriter(graph, budget=1)
    assert rewriter.may_rewrite("a", node(graph, "a"))
    assert not rewriter.may_rewrite("a", node(graph, "b"))
    rewriter.take_back("a")
    assert rewriter.may_rewrite("b", node(graph, "b"))


def test_a_rewrite_says_where_it_was(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    rewriter.may_rewrite("r", node(graph, "a"))
    assert str(rewriter.last) == "r at %a = exp(%x) from layer/exp"
    assert rewriter.last is not None
    assert rewriter.last.results == ("a",)


def test_new_nodes_stand_before_the_anchor_with_its_origin(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    rewriter.may_rewrite("r", node(graph, "a"))
    made = rewriter.op("relu", graph.value("x"))
    assert ops(graph)[:2] == ["relu", "exp"]
    assert str(made.origin) == "layer/exp"
    rewriter.at(None)
    assert rewriter.op("relu", graph.value("x")).origin is None
    assert ops(graph)[-1] == "relu"
    assert rewriter.edits == 2


def test_replacing_takes_the_name_and_drops_what_is_unused(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    rewriter.at(node(graph, "b"))
    rewriter.replace(node(graph, "b"), rewriter.op("abs", graph.value("x")))
    assert ops(graph) == ["abs", "add", "top_k"]
    assert graph.value("b").producer is node(graph, "b")
    verify(graph)


def test_replacing_by_an_input_keeps_the_inputs_name(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    rewriter.replace(node(graph, "c"), graph.value("y"))
    assert graph.output_names == ("c", "v")
    assert graph.outputs[0] is graph.value("y")
    assert ops(graph) == ["top_k"]


def test_replacing_asks_for_a_value_for_each_result(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    with pytest.raises(InvalidGraphError, match="1 values for 2 results"):
        rewriter.replace(node(graph, "v"), graph.value("c"))
    assert not rewriter.changed


def test_no_value_is_needed_for_an_unused_result(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    rewriter.at(node(graph, "v"))
    first, second = rewriter.ops("split", graph.value("c"), axis=0, sizes=(2, 2))
    rewriter.replace(node(graph, "v"), first, None)
    assert not second.has_uses
    assert ops(graph)[-1] == "split"
    verify(graph)


def test_a_symbol_that_others_mention_is_not_lost() -> None:
    graph = parse(
        dedent("""
    graph @main(%x: f32[B], %c: bool[B]) {
      %a = compress(%x, %c) {axis = 0}
      %n = neg(%a)
      %b = reshape(%a) {shape = [4]}
      return %b, %n
    }""")
    )
    rewriter = Rewriter(graph)
    rewriter.replace(node(graph, "b"), graph.value("a"))
    assert str(graph.outputs[0].type) == str(graph.outputs[1].type) == "f32[u0]"
    verify(graph)


def test_what_the_old_type_knew_goes_over() -> None:
    graph = parse(
        dedent("""
    graph @main(%x: f32[B], %c: bool[B]) {
      %a = compress(%x, %c) {axis = 0}
      %b = reshape(%a) {shape = [4]}
      return %b
    }""")
    )
    rewriter = Rewriter(graph)
    rewriter.replace(node(graph, "b"), graph.value("a"))
    assert str(graph.outputs[0].type) == "f32[4]"
    verify(graph)


def test_operands_and_outputs(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    rewriter.replace_input(node(graph, "c"), 0, graph.value("x"))
    assert ops(graph) == ["add", "top_k"]
    edits = rewriter.edits
    rewriter.replace_input(node(graph, "c"), 0, graph.value("x"))
    rewriter.set_output(0, graph.value("c"))
    rewriter.set_attrs(node(graph, "v"), axis=0)
    assert rewriter.edits == edits  # nothing was otherwise than before
    rewriter.set_output(0, graph.value("x"))
    rewriter.set_attrs(node(graph, "v"), largest=False)
    assert rewriter.edits == edits + 2


def test_erasing_goes_up_as_far_as_nothing_reads(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    graph.set_outputs([graph.value("a")])
    rewriter.erase(node(graph, "v"))
    assert ops(graph) == ["exp"]
    assert rewriter.edits == 3


def test_constants_of_numbers_arrays_and_dtypes(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    assert str(rewriter.constant(np.zeros((2, 3), np.float16)).type) == "f16[2, 3]"
    assert str(rewriter.constant(1.5, DType.BF16).type) == "bf16[]"


def test_moving(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    rewriter.at(node(graph, "a"))
    made = rewriter.op("relu", graph.value("y"))
    assert made.producer is not None
    rewriter.move_before(made.producer, node(graph, "c"))
    assert ops(graph) == ["exp", "neg", "relu", "add", "top_k"]
    with pytest.raises(InvalidGraphError):
        rewriter.move_before(node(graph, "c"), node(graph, "a"))


BODY = """
    graph @body(%p: f32[N], %q: f32[M]) {
      %r = tanh(%p)
      %s = concat(%r, %q) {axis = 0}
      return %s, %p
    }
"""


def test_inlined_nodes_are_edits(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    rewriter.at(node(graph, "v"))
    joined, handed_on = rewriter.inline(parse(dedent(BODY)), graph.inputs)
    assert [each.op.name for each in graph.nodes] == ["exp", "neg", "add", "tanh", "concat", "top_k"]
    assert joined.shape == (8,)
    assert handed_on is graph.inputs[0]
    assert rewriter.edits == 2
    assert set(rewriter.touched) == set(rewriter.made_since(node(graph, "c")))


def test_an_attempt_that_fails_leaves_nothing(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    rewriter.at(node(graph, "c"))

    def build() -> list[Value]:
        longer = rewriter.op("concat", *graph.inputs, axis=0)
        return [rewriter.op("exp", longer), rewriter.op("add", longer, graph.inputs[0])]

    before = graph.clone()
    assert rewriter.attempt(build) is None
    assert not rewriter.changed
    assert not rewriter.touched
    assert equal(before, graph)


def test_an_attempt_that_succeeds_gives_its_values(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    made = rewriter.attempt(lambda: [rewriter.op("exp", graph.inputs[0]), None])
    assert made is not None
    assert made == (graph.last.output if graph.last is not None else None, None)
    assert rewriter.edits == 1


def test_a_producer_with_one_reader_less_is_touched_but_not_edited(graph: Graph) -> None:
    graph.append(node(graph, "b").op, [graph.value("a")], names=["unused"])
    rewriter = Rewriter(graph)
    rewriter.erase(node(graph, "unused"))
    assert set(rewriter.touched) == {node(graph, "a"), node(graph, "b")}
    assert rewriter.freed == {node(graph, "a")}
    rewriter.replace_input(node(graph, "a"), 0, graph.value("y"))
    assert set(rewriter.touched) == {node(graph, "a"), node(graph, "b")}
    assert not rewriter.freed
    rewriter.forget_touched()
    assert not rewriter.touched
