"""What graphs are made of and cost, and how their nodes depend on each other."""

import numpy as np
import pytest
from capgraph.ir.analysis import (
    all_nodes,
    ancestors,
    constants_in,
    constraints,
    depth,
    flops,
    input_symbols,
    last_uses,
    levels,
    nested_graphs,
    node_bytes,
    node_flops,
    op_counts,
    parameter_bytes,
    parameter_count,
    reaches,
    statistics,
    type_bytes,
)
from capgraph.ir.constant import Constant
from capgraph.ir.dims import Dim, symbol
from capgraph.ir.graph import Graph, Node
from capgraph.ir.ops import native
from capgraph.ir.text.parser import parse, parse_type
from capgraph.ir.types import DType, TensorType

B = symbol("B")
DIAMOND = """graph @main(%x: f32[B, 4], %y: f32[4]) {
  %w: f32[4] = constant() {value = dense<f32[4]: [1.0, 2.0, 3.0, 4.0]>}
  %a: f32[B, 4] = add(%x, %y)
  %b: f32[B, 4] = mul(%a, %w)
  %c: f32[B, 4] = mul(%a, %a)
  %d: f32[4, B] = transpose(%b) {perm = [1, 0]}
  %e: f32[B, 4] = add(%c, %b)
  onnx.Foo(%e) {body = @body}
  return %d, %e
}
graph @body(%x: f32[2]) {
  onnx.Bar() {body = @inner, k = [dense<i8[3]: [1, 2, 3]>]}
  return %x
}
graph @inner(%x: f32[2]) {
  %y: f32[2] = add(%x, %x)
  return %y
}
"""


@pytest.fixture
def graph() -> Graph:
    return parse(DIAMOND)


def producer(graph: Graph, name: str) -> Node:
    node = graph.value(name).producer
    assert node is not None
    return node


def names(nodes: set[Node]) -> set[str]:
    return {node.outputs[0].name for node in nodes}


def test_regions_are_visited_outside_in(graph: Graph) -> None:
    assert [body.name for body in nested_graphs(graph)] == ["main", "body", "inner"]
    assert [node.op.name for node in all_nodes(graph)][-3:] == ["onnx.Foo", "onnx.Bar", "add"]
    expected = {"add": 3, "mul": 2, "transpose": 1, "constant": 1, "onnx.Foo": 1, "onnx.Bar": 1}
    assert op_counts(graph) == expected


def test_parameters_are_counted_once_each_and_not_loaded(graph: Graph) -> None:
    assert parameter_count(graph) == 7
    assert parameter_bytes(graph) == 4 * 4 + 3

    def fail() -> np.ndarray:
        raise AssertionError("loaded")

    with_default = parse("graph @main(%x: f32[2] = dense<f32[2]: [1, 2]>) {\n  return\n}")
    assert parameter_count(with_default) == 2

    lazy = Constant.lazy(TensorType(DType.I4, (3,)), fail)
    tied = Graph()
    tied.append(native("constant"), [], {"value": lazy})
    tied.append(native("constant"), [], {"value": lazy})
    assert constants_in(tied) == (lazy,)
    assert parameter_bytes(tied) == 2
    assert statistics(tied).parameters == 3


def test_operations_and_bytes(graph: Graph) -> None:
    assert node_flops(producer(graph, "a")) == 4 * B
    assert flops(graph) == 16 * B
    assert node_bytes(producer(graph, "a")) == 2 * 16 * B + 16
    assert node_bytes(producer(graph, "c")) == 2 * 16 * B  # the operand is read once
    assert node_bytes(producer(graph, "d")) == 0  # a view
    assert node_bytes(producer(graph, "w")) == 0  # there before the run


@pytest.mark.parametrize(
    ("text", "expected"),
    [("f32[2, 3]", 24), ("i4[3]", 2), ("bool[B]", B), ("f16[B, 4]", 8 * B), ("f32[*]", 0), ("seq(f32[2])", 0)],
)
def test_bytes_of_a_type(text: str, expected: Dim) -> None:
    assert type_bytes(parse_type(text)) == expected


def test_packed_types_of_unknown_size_are_rounded_up() -> None:
    assert type_bytes(parse_type("u4[B]")) == (B * 4 + 7) // 8


def test_last_uses(graph: Graph) -> None:
    last = {value.name: node for value, node in last_uses(graph).items()}
    assert {name: last[name].outputs[0].name for name in ("x", "y", "w", "a", "b", "c")} == {
        "x": "a",
        "y": "a",
        "w": "b",
        "a": "c",
        "b": "e",
        "c": "e",
    }
    assert set(last) == {"x", "y", "w", "a", "b", "c"}  # d and e are returned


def test_ancestors_and_reach(graph: Graph) -> None:
    assert names(ancestors([graph.value("e")])) == {"a", "b", "c", "e", "w"}
    assert names(ancestors([graph.value("x")])) == set()
    nodes = [producer(graph, name) for name in "wabcde"]
    expected = {(a, b) for a in nodes for b in nodes if a in ancestors(b.outputs)}
    assert {(a, b) for a in nodes for b in nodes if reaches(a, b)} == expected


def test_levels_and_depth(graph: Graph) -> None:
    assert {n.outputs[0].name: level for n, level in levels(graph).items() if n.outputs} == {
        "w": 0,
        "a": 0,
        "b": 1,
        "c": 1,
        "d": 2,
        "e": 2,
    }
    assert depth(graph) == 4
    assert depth(Graph()) == 0


def test_constraints_tell_what_rules_and_declared_types_assume() -> None:
    graph = parse("""graph @main(%x: f32[B], %y: f32[T], %z: f32[3*S, B]) {
  %a: f32[B] = add(%x, %y)
  %b: f32[B] = add(%a, %y)
  %c: f32[7] = exp(%a)
  %d: f32[u0] = onnx.Foo(%c)
  return %b
}""")
    assert [(item.left, item.right) for item in constraints(graph)] == [(B, symbol("T")), (7, B)]
    assert "%c is declared as f32[7]" in str(constraints(graph)[1])
    assert input_symbols(graph) == ("B", "T", "S")


def test_statistics(graph: Graph) -> None:
    found = statistics(graph)
    assert (found.nodes, found.regions, found.depth, found.parameters, found.parameter_bytes) == (9, 2, 4, 7, 19)
    assert found.symbols == ("B",)
    assert found.flops == flops(graph)
    assert found.bytes == sum((node_bytes(node) for node in graph.nodes), start=0)
    assert [(row.op, row.nodes, row.is_foreign) for row in found.ops[:2]] == [("add", 3, False), ("mul", 2, False)]
    assert {row.op for row in found.ops if row.is_foreign} == {"onnx.Foo", "onnx.Bar"}
    assert found.ops[0].flops == 8 * B


def test_statistics_of_too_many_symbols_say_so() -> None:
    inputs = ", ".join(f"%x{index}: f32[S{index}]" for index in range(250))
    lines = "".join(f"  %y{index} = exp(%x{index})\n" for index in range(250))
    found = statistics(parse(f"graph @main({inputs}) {{\n{lines}  return\n}}"))
    assert found.flops is None
    assert found.ops[0].flops is None
    assert found.ops[0].nodes == 250


def test_long_chains_need_no_recursion() -> None:
    graph = Graph()
    value = graph.add_input("x", TensorType(DType.F32, (2,)))
    for _ in range(5_000):
        value = graph.append(native("exp"), [value]).output
    assert graph.first is not None
    assert graph.last is not None
    assert depth(graph) == 5_000
    assert len(ancestors([value])) == 5_000
    assert reaches(graph.first, graph.last)
    assert not reaches(graph.last, graph.first)
