"""The worklist of local rewrites: it ends, names rules that do not, and its work grows with the graph alone."""

import numpy as np
import pytest
from capgraph.ir.constant import Constant
from capgraph.ir.errors import InternalError
from capgraph.ir.graph import Graph, Node, Value
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from capgraph.passes.framework.driver import apply_rules
from capgraph.passes.framework.pattern import Capture, Found, Match, Rule
from capgraph.passes.framework.rewriter import Rewriter


def chain_on_one_constant(length: int) -> Graph:
    """`relu(relu(x) * c) ...` in which every product reads the same constant."""
    graph = Graph()
    value = graph.add_input("x", TensorType(DType.F32, (4,)))
    shared = graph.append(native("constant"), (), {"value": Constant(np.full(4, 0.5, np.float32))}).output
    for _ in range(length):
        value = graph.append(native("mul"), (value, shared)).output
        value = graph.append(native("abs"), (value,)).output
    graph.set_outputs([value])
    return graph


def looks(length: int) -> int:
    """How often a rule looks at a node while every `abs` of a chain becomes a `relu`."""
    seen = 0

    def look(_node: Node) -> bool:
        nonlocal seen
        seen += 1
        return False

    def as_relu(rewriter: Rewriter, found: Found) -> Value:
        return rewriter.op("relu", found["x"])

    rules = [
        Rule("look", Match("mul", more=True, where=look), lambda _rewriter, _found: None),
        Rule("as-relu", Match("abs", Capture("x")), as_relu),
    ]
    graph = chain_on_one_constant(length)
    apply_rules(graph, Rewriter(graph), rules)
    assert all(node.op.name != "abs" for node in graph.nodes)
    return seen


def test_a_constant_with_many_users_does_not_make_them_all_worth_a_look_each_time() -> None:
    assert looks(400) <= 4.5 * looks(100)


def test_rules_that_undo_each_other_are_named() -> None:
    rules = [
        Rule("there", Match("abs", Capture("x")), lambda rewriter, found: rewriter.op("relu", found["x"])),
        Rule("back", Match("relu", Capture("x")), lambda rewriter, found: rewriter.op("abs", found["x"])),
    ]
    graph = chain_on_one_constant(3)
    with pytest.raises(InternalError, match=r"do not come to an end; last applied: (there|back)"):
        apply_rules(graph, Rewriter(graph), rules)
