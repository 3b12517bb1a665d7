"""The order that nodes are given when a model is read."""

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.files.node_order import names_read, sorted_nodes
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.errors import ModelError
from capgraph.ir.evaluate import evaluate_graph
from hypothesis import given
from hypothesis import strategies as st
from onnx import NodeProto, helper


def node(output: str, *inputs: str) -> NodeProto:
    return helper.make_node("Sum", list(inputs), [output], name=f"make_{output}")


def outputs(nodes: list[NodeProto]) -> list[str]:
    return [name for each in sorted_nodes(nodes) for name in each.output]


def test_sorted_nodes_are_left_as_they_are():
    nodes = [node("a", "x"), node("b", "a"), node("c", "a", "b")]
    assert sorted_nodes(nodes) is nodes


def test_nodes_move_behind_what_they_read_and_no_further():
    assert outputs([node("d", "a", "c"), node("a", "x"), node("b", "x"), node("c", "b")]) == ["a", "b", "c", "d"]


def branch(*nodes: NodeProto, result: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(result, 1, [2])])


def test_a_node_moves_behind_what_its_subgraphs_read():
    inner = branch(node("b", "a"), result="b")  # its own b, not the one outside
    choice = helper.make_node("If", ["cond"], ["y"], then_branch=inner, else_branch=branch(result="a"))
    assert names_read(choice) == {"cond", "a"}
    assert outputs([choice, node("a", "x"), node("b", "y")]) == ["a", "y", "b"]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("a", "a")], "the node reads its own result\n  at node make_a"),
        ([node("y", "a"), node("a", "x", "b"), node("b", "a")], "the nodes make_a, make_b form a cycle"),
        ([node(str(i), str((i + 1) % 6)) for i in range(6)], "make_0, make_1, make_2, make_3 and 2 more form a cycle"),
    ],
)
def test_nodes_that_wait_for_each_other_are_one_error(nodes: list[NodeProto], message: str):
    with pytest.raises(ModelError, match=message):
        sorted_nodes(nodes)


@given(st.data())
def test_any_order_of_nodes_is_sorted(data: st.DataObject):
    count = data.draw(st.integers(1, 8))
    names = ["x"]
    nodes = []
    for index in range(count):
        read = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        names.append(f"v{index}")
        nodes.append(node(names[-1], *read))
    shuffled = data.draw(st.permutations(nodes))
    known = {"x"}
    for each in sorted_nodes(shuffled):
        assert set(each.input) <= known
        known.update(each.output)


TEXT = """<ir_version: 10, opset_import: ["": 20, "own": 1]>
net (float[2] x, bool cond) => (float[2] y) {
    y = own.twice(c)
    c = If (cond) <then_branch = then () => (float[2] t) { t = Neg(s) s = Add(b, b) },
                   else_branch = otherwise () => (float[2] e) { e = Identity(b) }>
    b = Exp(x)
}
<domain: "own", opset_import: ["": 20]>
twice (v) => (w) {
    w = Sqrt(u)
    u = Mul(v, v)
}"""


def test_models_subgraphs_and_functions_are_read_in_any_order():
    x = np.array([1.0, 2.0], np.float32)
    graph = import_model(onnx.parser.parse_model(TEXT)).graph
    for cond, expected in ((True, 2 * np.exp(x)), (False, np.exp(x))):
        np.testing.assert_allclose(evaluate_graph(graph, [x, np.array(cond)])[0], expected, rtol=1e-6)
