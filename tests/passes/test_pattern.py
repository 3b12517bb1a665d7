"""What patterns match, and what they bind."""

from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from capgraph.ir.analysis.contents import constant_of
from capgraph.ir.constant import Constant
from capgraph.ir.errors import CapgraphError, InternalError
from capgraph.ir.graph import Graph, Node
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from capgraph.passes.framework.pattern import Capture, Found, Literal, Match, Maybe, OneOf, find, is_filled_with

GRAPH = """
    graph @main(%x: f32[4], %y: f32[4]) {
      %one = constant() {value = dense<f32[]: 1.0>}
      %ones = constant() {value = dense<f32[4]: [1.0, 1.0, 1.0, 1.0]>}
      %mixed = constant() {value = dense<f32[2]: [1.0, 2.0]>}
      %sum = add(%one, %x)
      %difference = sub(%x, %y)
      %again = sub(%y, %y)
      %cast = cast(%sum) {to = f64}
      %back = cast(%cast) {to = f32}
      %twice = add(%back, %back)
      %clipped = clip(%x, _, %one)
      %bounded = clip(%x, %one, _)
      %values, %indices = top_k(%x) {k = 2, axis = 0}
      %negated = neg(%values)
      %product = mul(%difference, %again)
      return %twice, %clipped, %bounded, %indices, %negated, %product
    }
"""
X, Y = Capture("x"), Capture("y")


@pytest.fixture
def graph() -> Graph:
    return parse(dedent(GRAPH))


def node(graph: Graph, name: str) -> Node:
    found = graph.value(name).producer
    assert found is not None
    return found


def match(graph: Graph, name: str, pattern: Match) -> Found | None:
    return find(pattern, node(graph, name))


def bound(graph: Graph, name: str, pattern: Match) -> dict[str, Any]:
    found = match(graph, name, pattern)
    assert found is not None
    return {key: value.name if value is not None else None for key, value in found.values.items()}


# ---- operands


def test_operands_of_commutative_ops_match_in_both_orders(graph: Graph) -> None:
    assert bound(graph, "sum", Match("add", X, Literal(value=1.0))) == {"x": "x"}
    assert bound(graph, "sum", Match("add", Literal(value=1.0), X)) == {"x": "x"}


def test_others_match_as_they_stand(graph: Graph) -> None:
    inverted = Match("sub", Y, X)
    assert bound(graph, "difference", inverted) == {"y": "x", "x": "y"}
    assert match(graph, "difference", Match("sub", Match("add", X, Y), X)) is None


def test_the_same_name_is_the_same_value(graph: Graph) -> None:
    assert match(graph, "difference", Match("sub", X, X)) is None
    assert bound(graph, "again", Match("sub", X, X)) == {"x": "y"}
    assert bound(graph, "twice", Match("add", X, X)) == {"x": "back"}


def test_orders_are_tried_until_all_operands_agree(graph: Graph) -> None:
    """The first order binds x to the wrong side of the sum; the second one is right."""
    made = parse(
        dedent("""
    graph @main(%a: f32[4], %b: f32[4]) {
      %s = add(%a, %b)
      %p = mul(%s, %b)
      return %p
    }""")
    )
    found = match(made, "p", Match("mul", Match("add", X, Y), X))
    assert found is not None
    assert (found["x"].name, found["y"].name) == ("b", "a")


def test_absent_operands(graph: Graph) -> None:
    optional = Match("clip", X, Capture("low", is_optional=True), Capture("high", is_optional=True))
    assert bound(graph, "clipped", optional) == {"x": "x", "low": None, "high": "one"}
    assert match(graph, "clipped", Match("clip", X, Capture("low"), Capture("high"))) is None
    assert match(graph, "clipped", Match("clip", X, Literal(), Literal())) is None


def test_operands_beyond_the_pattern_must_be_absent(graph: Graph) -> None:
    assert match(graph, "clipped", Match("clip", X)) is None
    assert match(graph, "clipped", Match("clip", X, more=True)) is not None
    assert match(graph, "bounded", Match("clip", X, Literal("low"))) is not None


# ---- conditions


def test_attributes_by_value_and_by_predicate(graph: Graph) -> None:
    assert match(graph, "cast", Match("cast", X, attrs={"to": DType.F64})) is not None
    assert match(graph, "cast", Match("cast", X, attrs={"to": DType.F32})) is None
    assert match(graph, "cast", Match("cast", X, attrs={"to": lambda to: to.is_float})) is not None
    assert match(graph, "cast", Match("cast", X, attrs={"to": lambda to: to.is_integer})) is None


def test_conditions_on_values_and_nodes(graph: Graph) -> None:
    narrow = Capture("x", where=lambda value: value.tensor.dtype is DType.F32)
    assert match(graph, "cast", Match("cast", narrow)) is not None
    assert match(graph, "back", Match("cast", narrow)) is None
    assert match(graph, "cast", Match("cast", X, where=lambda each: each.output.name == "cast")) is not None
    assert match(graph, "cast", Match("cast", X, where=lambda each: False)) is None


def test_only_user(graph: Graph) -> None:
    inner = Match("sub", X, Y, only_user=True)
    assert match(graph, "product", Match("mul", inner, Capture("z"))) is not None
    graph.set_outputs([*graph.outputs, graph.value("difference")])
    found = match(graph, "product", Match("mul", inner, Capture("z")))
    assert found is not None
    assert found["z"].name == "difference"  # the other factor still has one reader
    graph.set_outputs([*graph.outputs, graph.value("again")])
    assert match(graph, "product", Match("mul", inner, Capture("z"))) is None


def test_a_value_read_twice_by_one_node_has_two_uses(graph: Graph) -> None:
    inner = Match("cast", X, only_user=True)
    assert match(graph, "twice", Match("add", inner, Y)) is None


def test_results(graph: Graph) -> None:
    assert match(graph, "negated", Match("neg", Match("top_k", X))) is not None
    assert match(graph, "negated", Match("neg", Match("top_k", X, result=1))) is None
    assert match(graph, "negated", Match("neg", Match("top_k", X, result=None))) is not None


# ---- choices


def test_a_node_that_may_be_left_out(graph: Graph) -> None:
    pattern = Match("cast", Maybe(Match("cast", X, name="inner")), attrs={"to": DType.F32})
    found = match(graph, "back", pattern)
    assert found is not None
    assert found.has("inner")
    assert found["x"].name == "sum"
    alone = match(graph, "cast", Match("cast", Maybe(Match("neg", X, name="inner"))))
    assert alone is not None
    assert not alone.has("inner")
    assert alone["x"].name == "sum"


def test_alternatives_in_order(graph: Graph) -> None:
    either = OneOf(Match("neg", X, name="first"), Match("cast", X, name="second"), Capture("x"))
    found = match(graph, "back", Match("cast", either))
    assert found is not None
    assert found.has("second")
    assert not found.has("first")
    fallback = match(graph, "cast", Match("cast", either))
    assert fallback is not None
    assert fallback["x"].name == "sum"


def test_several_ops(graph: Graph) -> None:
    assert match(graph, "sum", Match(("sub", "add"), X, Y)) is not None
    assert match(graph, "sum", Match(("sub", "mul"), X, Y)) is None


def test_named_nodes(graph: Graph) -> None:
    found = match(graph, "back", Match("cast", Match("cast", X, name="inner"), name="outer"))
    assert found is not None
    assert found.root is found.node("outer") is node(graph, "back")
    assert found.node("inner") is node(graph, "cast")
    same = Match("mul", Match("sub", X, Y, name="n"), Match("sub", Capture("a"), Capture("b"), name="n"))
    assert match(graph, "product", same) is None  # one name, two nodes


# ---- constants


def test_literals(graph: Graph) -> None:
    for name in ("one", "ones"):
        content = constant_of(graph.value(name))
        assert content is not None
        assert is_filled_with(content, 1.0)
    mixed = constant_of(graph.value("mixed"))
    assert mixed is not None
    assert not is_filled_with(mixed, 1.0)
    assert constant_of(graph.value("x")) is None
    assert constant_of(graph.value("sum")) is None


def test_literals_by_content(graph: Graph) -> None:
    scalar = Literal("c", where=lambda content: content.size == 1)
    found = match(graph, "sum", Match("add", X, scalar))
    assert found is not None
    assert found.constant("c").array == 1
    assert match(graph, "sum", Match("add", X, Literal(where=lambda content: content.size == 2))) is None
    assert match(graph, "sum", Match("add", X, Literal(value=1.1))) is None
    assert match(graph, "sum", Match("add", X, Literal(value=1.1, tolerance=0.1))) is not None


@pytest.mark.parametrize(
    ("content", "number", "expected"),
    [
        (np.array([1.0, np.nan], np.float32), 1.0, False),
        (np.array([np.inf], np.float32), np.inf, True),
        (np.zeros(0, np.float32), 0.0, False),
        (np.array([-0.0], np.float32), 0.0, True),
        (np.array([True, True]), 1.0, True),
        (np.array([1 + 0j], np.complex64), 1.0, True),
        (np.array([1 + 1j], np.complex64), 1.0, False),
        (np.array(["1"], object), 1.0, False),
        (np.ones(5000, np.float32), 1.0, False),  # data
    ],
)
def test_what_counts_as_one_number(content: Any, number: float, expected: bool) -> None:
    assert is_filled_with(Constant(content), number) is expected


def test_asking_for_what_is_not_there(graph: Graph) -> None:
    found = match(graph, "clipped", Match("clip", X, Capture("low", is_optional=True), Y))
    assert found is not None
    assert found.get("low") is None
    assert found.get("never") is None
    with pytest.raises(InternalError, match="operand low is absent"):
        found["low"]
    with pytest.raises(InternalError, match="x is not a constant"):
        found.constant("x")


def test_a_misspelt_op_is_an_error_when_the_table_is_made() -> None:
    with pytest.raises(CapgraphError):
        Match("ad", X, Y)
