from capgraph.frontends.onnx.contrib import OPERATORS, find_groups
from capgraph.frontends.onnx.contrib.group import Operator, is_inside, is_vector, scalar_of, sole_producer
from capgraph.ir.types import DType

from tests.frontends.onnx.contrib.written import graph_of

TEXT = """
graph @g(%x: f32[B, 8]) {
  %two: f32[1] = constant() {value = dense<f32[1]: [2.0]>}
  %a: f32[B, 8] = neg(%x)
  %b: f32[B, 8] = mul(%a, %two)
  %c: f32[B, 8] = add(%b, %a)
  return %c, %b
}
"""


def test_who_makes_and_reads_a_value():
    graph = graph_of(TEXT)
    a, b, c, two = (graph.value(name) for name in ("a", "b", "c", "two"))
    assert sole_producer(two, "constant") is two.producer
    assert sole_producer(two, "neg") is None
    assert sole_producer(a, "neg") is None  # two nodes read it
    assert sole_producer(b, "mul") is None  # it is returned
    assert not is_inside((a,), {c.producer})
    assert is_inside((a,), {b.producer, c.producer})
    assert not is_inside((c,), ())


def test_what_a_value_is():
    graph = graph_of(TEXT)
    assert scalar_of(graph.value("two")) == 2.0
    assert scalar_of(graph.value("a")) is None
    assert is_vector(graph.value("two"), 1)
    assert not is_vector(graph.value("a"), 8)
    assert not is_vector(None, 8)


def test_a_node_is_in_one_group_at_most():
    text = """
graph @g(%x: f32[2, 4, 8], %w: f32[8, 8], %b: f32[8], %scale: f32[8]) {
  %m: f32[2, 4, 8] = matmul(%x, %w)
  %s: f32[2, 4, 8] = add(%m, %b)
  %r: f32[2, 4, 8] = add(%s, %x)
  %y: f32[2, 4, 8] = layer_norm(%r, %scale, _)
  %g: f32[2, 4, 8] = gelu(%y) {approximate = "tanh"}
  return %g
}
"""
    graph = graph_of(text)
    found = find_groups(graph, OPERATORS)
    assert {node.op.name: group is not None for node, group in found.items()} == {
        "gelu": True, "layer_norm": True, "add": False
    }  # fmt: skip
    assert not find_groups(graph, {Operator("BiasGelu", DType.F16)})
