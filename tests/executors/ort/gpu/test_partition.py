"""Which nodes are recorded, and the subgraphs that they are joined to."""

from typing import Any

import numpy as np
import pytest
from capgraph.executors.ort.gpu import partition as module
from capgraph.executors.ort.gpu.partition import Inquiry, interface_problem, joined
from capgraph.ir.constant import Constant
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph, State
from capgraph.ir.text.parser import parse, parse_type
from capgraph.ir.verify import verify

from tests.executors.ort.gpu.on_host import HOST, inputs
from tests.executors.ort.gpu.texts import LACKING, LOOPED, SPARSE, UNKNOWN, WHOLE


def problems(text: str) -> dict[str, str]:
    """The nodes outside, by the op, with the reason."""
    return {node.op.name: why for node, why in Inquiry(parse(text), HOST, {}).capturable().problems.items()}


def test_a_graph_that_is_taken_whole_has_no_problems():
    found = Inquiry(parse(WHOLE), HOST, {}).capturable()
    assert not found.problems
    assert found.opset is None


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        (LOOPED, {"loop": "records no control flow"}),
        (SPARSE, {"non_zero": "depend on values", "reduce_sum": "only running tells"}),
        (UNKNOWN, {"com.example.Twist": "refuses the model"}),
    ],
)
def test_each_node_that_cannot_be_recorded_is_named_with_a_reason(text: str, outside: dict[str, str]):
    found = problems(text)
    assert found.keys() == outside.keys()
    assert all(outside[name] in why for name, why in found.items())


def test_random_numbers_are_not_recorded():
    text = """
graph @g(%x: f32[4]) {
  %r: f32[4] = random_normal() {shape = [4], dtype = f32}
  %y: f32[4] = add(%r, %x)
  return %y
}
"""
    assert problems(text) == {"random_normal": "each run gives other results"}


class Kernels:
    """Sessions on a provider that lacks kernels: `lacking` by opset."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lacking: dict[int | None, set[str]]) -> None:
        self.asked = 0
        self._lacking = lacking
        monkeypatch.setattr(module, "opened_on", self._opened)
        monkeypatch.setattr(module, "off_device", self._off_device)

    def _opened(self, _provider: object, graph: Graph, written: Any) -> Any:
        self.asked += 1
        return graph, written.opset

    def _off_device(self, session: Any, _provider: object) -> list[tuple[str, str]]:
        graph, opset = session
        return [("", node.op.name) for node in graph.nodes if node.op.name in self._lacking[opset]]


def test_what_leaves_the_provider_is_named_with_its_operator(monkeypatch: pytest.MonkeyPatch):
    Kernels(monkeypatch, {None: {"tan"}, 20: {"tan"}})
    assert problems(LACKING) == {"tan": "CPUExecutionProvider has no kernel for tan"}


def test_the_opset_is_the_one_with_most_kernels(monkeypatch: pytest.MonkeyPatch):
    Kernels(monkeypatch, {None: {"tan", "relu"}, 20: {"tan"}})
    found = Inquiry(parse(LACKING), HOST, {}).capturable()
    assert found.opset == 20
    assert [node.op.name for node in found.problems] == ["tan"]


def test_each_kind_of_node_is_asked_once(monkeypatch: pytest.MonkeyPatch):
    kernels = Kernels(monkeypatch, {None: set(), 20: set()})
    graph = parse(
        "graph @g(%x: f32[4]) { %a: f32[4] = relu(%x) %b: f32[4] = relu(%a) %c: f32[4] = tanh(%b) return %c }"
    )
    refused: dict[Any, str] = {}
    inquiry = Inquiry(graph, HOST, refused)
    assert not inquiry.capturable().problems
    assert not inquiry.capturable().problems
    assert kernels.asked == 2
    refused[list(graph.nodes)[1]] = "for some reason"
    assert list(inquiry.capturable().problems.values()) == ["for some reason"]


@pytest.mark.parametrize(
    ("text", "is_bound"), [("f32[B]", True), ("bf16[2]", True), ("string[2]", False), ("c64[2]", False)]
)
def test_types_that_memory_is_bound_for(text: str, is_bound: bool):
    assert (interface_problem(parse_type(text)) == "") is is_bound


# ---- subgraphs


@pytest.mark.parametrize(("text", "subgraphs"), [(WHOLE, 1), (LOOPED, 2), (SPARSE, 2), (LACKING, 1)])
def test_subgraphs_mean_what_the_graph_means(text: str, subgraphs: int):
    graph = parse(text)
    found = joined(graph, Inquiry(graph, HOST, {}).capturable().problems)
    verify(found.graph)
    assert len(found.bodies) == subgraphs
    given = list(inputs(graph, 5, 0).values())
    for old, new in zip(evaluate_graph(graph, given), evaluate_graph(found.graph, given), strict=True):
        np.testing.assert_array_equal(old, new)


def test_bodies_are_known_by_names_that_no_other_program_has():
    graph = parse(WHOLE)
    first, second = (joined(graph, {}) for _ in range(2))
    assert first.bodies.keys().isdisjoint(second.bodies)
    assert [node.attrs["body"].name for node in first.graph.nodes] == list(first.bodies)


def test_constants_are_part_of_the_subgraphs_that_read_them():
    text = """
graph @g(%x: f32[4]) {
  %c: f32[4] = constant() {value = dense<f32[4]: [1.0, 2.0, 3.0, 4.0]>}
  %a: f32[4] = add(%x, %c)
  %t: f32[4] = tan(%a)
  %y: f32[4] = mul(%t, %c)
  return %y, %c
}
"""
    graph = parse(text)
    tan = next(node for node in graph.nodes if node.op.name == "tan")
    found = joined(graph, {tan: "no kernel"})
    verify(found.graph)
    assert [len(body.inputs) for body in found.bodies.values()] == [1, 1]
    given = [np.arange(4, dtype=np.float32)]
    for old, new in zip(evaluate_graph(graph, given), evaluate_graph(found.graph, given), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_subgraph_takes_an_input_for_a_size_that_it_mentions():
    text = """
graph @g(%x: f32[B, 4], %z: f32[4]) {
  %t: f32[4] = tan(%z)
  %e: f32[B, 4] = expand(%t) {shape = [B, 4]}
  %y: f32[B, 4] = neg(%e)
  return %y
}
"""
    graph = parse(text)
    tan = next(node for node in graph.nodes if node.op.name == "tan")
    found = joined(graph, {tan: "no kernel"})
    (body,) = found.bodies.values()
    assert [value.name for value in body.inputs] == ["t", "x"]
    given = list(inputs(graph, 3, 0).values())
    np.testing.assert_array_equal(evaluate_graph(graph, given)[0], evaluate_graph(found.graph, given)[0])


def test_states_and_defaults_stay():
    text = "graph @g(%old: f32[4], %x: f32[4]) { %new: f32[4] = add(%old, %x) return %new }"
    graph = parse(text)
    graph.set_default(graph.inputs[1], Constant(np.ones(4, np.float32)))
    graph.set_states([State(0, 0)])
    found = joined(graph, {})
    assert found.graph.defaults.keys() == {"x"}
    assert found.graph.states == graph.states == (State(0, 0),)
