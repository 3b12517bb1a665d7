"""Each invariant of `ir.verify`, broken on purpose: by the text where text can, else behind the graph's back."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from capgraph.ir.attrs import Attrs
from capgraph.ir.constant import Constant
from capgraph.ir.dims import symbol
from capgraph.ir.errors import InvalidGraphError
from capgraph.ir.graph import Graph, State, Use, Value
from capgraph.ir.node import write
from capgraph.ir.op import FRESH, foreign
from capgraph.ir.ops import native
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType, TensorType
from capgraph.ir.verify import verify

from tests.counted_work import lines_in

TEXT = """graph @main(%x: f32[B, 4], %y: f32[4]) {
  %a: f32[B, 4] = add(%x, %y)
  %b: f32[B, 4] = mul(%a, %a)
  %c: f32[B, 4] = onnx.Foo(%b, _) {k = 1}
  %d: f32[B, 4] = exp(%c)
  %e: i64[] = dim() {value = 3*B}
  return %d, %a -> %x
}
"""
VALID = {
    "plain": TEXT,
    "empty": "graph @main() {\n  return\n}",
    "data-dependent size": """graph @main(%x: f32[B]) {
  %i: i64[u0, 1] = onnx.NonZero(%x)
  %j: i64[u0, 1] = add(%i, %i)
  %k: i64[u1] = onnx.NonZero(%j) {n = dim(u0*B)}
  return %j, %k
}""",
    "a region's own symbol, whatever it is called": """graph @main(%x: f32[B]) {
  %a: f32[u0] = onnx.A(%x)
  onnx.If(%x) {b = @b}
  return
}
graph @b(%x: f32[u0]) {
  return
}""",
    "nested regions": """graph @main(%x: f32[B], %y: f32[T]) {
  %z: f32[u0] = onnx.NonZero(%y)
  onnx.If(%z) {a = @a, b = @b}
  return
}
graph @a(%x: f32[S]) {
  %0: f32[S, u0, T, u1] = onnx.Foo(%x) {s = dim(B*T*u0)}
  onnx.If(%x) {c = @c}
  return %0
}
graph @b() {
  %0: f32[B, u1] = onnx.Foo()
  return %0
}
graph @c() {
  %0: f32[S, T] = onnx.Foo() {s = [dim(u0), type(f32[B])]}
  return %0
}""",
}


@pytest.mark.parametrize("text", VALID.values(), ids=VALID.keys())
def test_valid_graphs_pass(text: str) -> None:
    verify(parse(text))


# ---- structure, corrupted behind the graph's back


def ring(graph: Graph) -> None:
    write(graph.last, "_next", graph.first)


def broken_back_link(graph: Graph) -> None:
    write(graph.last, "_previous", graph.first)


def wrong_count(graph: Graph) -> None:
    graph._order.count += 1


def equal_labels(graph: Graph) -> None:
    write(graph.last, "_label", 0)


def node_of_another_graph(graph: Graph) -> None:
    write(graph.last, "graph", Graph())


def value_of_another_graph(graph: Graph) -> None:
    write(graph.value("a"), "graph", Graph())


def input_with_producer(graph: Graph) -> None:
    write(graph.value("x"), "producer", graph.first)


def wrong_producer(graph: Graph) -> None:
    write(graph.value("a"), "producer", graph.last)


def wrong_index(graph: Graph) -> None:
    write(graph.value("d"), "index", 1)


def changed_name(graph: Graph) -> None:
    write(graph.value("d"), "name", "e")


def taken_name(graph: Graph) -> None:
    write(graph.value("d"), "name", "a")


def empty_name(graph: Graph) -> None:
    value = graph.value("d")
    write(value, "name", "")
    graph._values[""] = value


def no_type(graph: Graph) -> None:
    write(graph.value("d"), "type", None)


def operand_from_elsewhere(graph: Graph) -> None:
    node = graph.value("d").producer
    assert node is not None
    write(node, "inputs", (parse(TEXT).value("c"),))


def operand_from_later(graph: Graph) -> None:
    first, late = graph.value("b").producer, graph.value("d")
    assert first is not None
    write(first, "inputs", (late, late))


def forgotten_use(graph: Graph) -> None:
    del graph.value("a")._uses[Use(graph.value("b").producer, 1)]  # type: ignore[arg-type]


def stale_use(graph: Graph) -> None:
    graph.value("y")._uses[Use(graph.last, 0)] = None  # type: ignore[arg-type]


def swapped_operands(graph: Graph) -> None:
    node = graph.first
    assert node is not None
    write(node, "inputs", node.inputs[::-1])


def forgotten_output_use(graph: Graph) -> None:
    graph.value("d")._uses.clear()


def output_from_elsewhere(graph: Graph) -> None:
    graph._outputs, graph._outputs_as_read = [Value(graph, "d", TensorType(DType.F32, ()), None, 0)], None
    graph._output_names = ("d",)
    graph._states = ()


def missing_output_name(graph: Graph) -> None:
    graph._output_names = ("d",)


def repeated_output_name(graph: Graph) -> None:
    graph._output_names = ("d", "d")


def state_out_of_range(graph: Graph) -> None:
    graph._states = (State(0, 2),)


def repeated_state(graph: Graph) -> None:
    graph._states = (State(0, 0), State(0, 1))


def state_of_another_type(graph: Graph) -> None:
    graph._states = (State(1, 0),)


def default_of_no_input(graph: Graph) -> None:
    graph._defaults["a"] = Constant(np.zeros(4))


def default_of_another_type(graph: Graph) -> None:
    graph._defaults["y"] = Constant(np.zeros(4))


def repeated_value(graph: Graph) -> None:
    node = graph.value("d").producer
    assert node is not None
    write(node, "outputs", node.outputs * 2)


def missing_attribute(graph: Graph) -> None:
    node = graph.first
    assert node is not None
    write(node, "attrs", Attrs({"axis": 1}))


def odd_attribute(graph: Graph) -> None:
    node = graph.value("c").producer
    assert node is not None
    write(node, "attrs", Attrs({"k": object()}))


def attribute_not_normal(graph: Graph) -> None:
    node = graph.value("c").producer
    assert node is not None
    write(node, "attrs", Attrs({"k": np.float64(1)}))


def attribute_of_another_kind(graph: Graph) -> None:
    node = graph.value("e").producer
    assert node is not None
    write(node, "attrs", Attrs({"value": 3.0}))


def attribute_without_hash(graph: Graph) -> None:
    node = graph.value("e").producer
    assert node is not None
    write(node, "attrs", Attrs({"value": [3]}))  # type: ignore[dict-item]


def region_in_a_list(graph: Graph) -> None:
    node = graph.value("c").producer
    assert node is not None
    write(node, "attrs", Attrs({"k": (Graph("body", symbols=graph.symbols),)}))


def shared_region(graph: Graph) -> None:
    node, body = graph.value("c").producer, Graph("body", symbols=graph.symbols)
    assert node is not None
    write(node, "attrs", Attrs({"k": body, "l": body}))


def region_that_is_the_graph(graph: Graph) -> None:
    node = graph.value("c").producer
    assert node is not None
    write(node, "attrs", Attrs({"k": graph}))


def region_with_its_own_symbols(graph: Graph) -> None:
    node = graph.value("c").producer
    assert node is not None
    write(node, "attrs", Attrs({"k": Graph("body")}))


def region_reading_outside(graph: Graph) -> None:
    body = parse("graph @body(%x: f32[4]) {\n  %y: f32[4] = exp(%x)\n  return\n}")
    body.symbols = graph.symbols
    node, inner = graph.value("c").producer, body.first
    assert node is not None
    assert inner is not None
    write(inner, "inputs", (graph.value("y"),))
    write(node, "attrs", Attrs({"k": body}))


def wrong_type(graph: Graph) -> None:
    write(graph.value("d"), "type", TensorType(DType.F32, (symbol("B"), 5)))


def operand_of_wrong_type(graph: Graph) -> None:
    write(graph.value("y"), "type", TensorType(DType.F16, (4,)))


def missing_operand(graph: Graph) -> None:
    node = graph.first
    assert node is not None
    del graph.value("y")._uses[Use(node, 1)]
    write(node, "inputs", (node.inputs[0],))


def fresh_size(graph: Graph) -> None:
    write(graph.value("c"), "type", TensorType(DType.F32, (FRESH, 4)))


def foreign_without_domain(graph: Graph) -> None:
    node = graph.value("c").producer
    assert node is not None
    write(node, "op", foreign("Foo"))


def unknown_symbol(graph: Graph) -> None:
    graph.symbols.names.clear()


def symbol_of_no_input(graph: Graph) -> None:
    graph.symbols.names.add("S")
    write(graph.value("d"), "type", TensorType(DType.F32, (symbol("S"), 4)))


CORRUPTIONS: dict[Callable[[Graph], None], str] = {
    ring: "ring",
    broken_back_link: "backwards",
    wrong_count: "lists 5 nodes, but counts 6",
    equal_labels: "precedes",
    node_of_another_graph: "points to another graph",
    value_of_another_graph: "points to another graph",
    input_with_producer: "has a producer",
    wrong_producer: "another producer",
    wrong_index: "has index 1 instead of 0",
    changed_name: "stands for another value",
    taken_name: "stands for another value",
    empty_name: "is empty",
    no_type: "the type of %d is None",
    operand_from_elsewhere: "%c is not known before",
    operand_from_later: "%d is not known before",
    forgotten_use: "%a does not know of its use as operand",
    stale_use: "%y claims to be used as operand",
    swapped_operands: "use as operand",
    forgotten_output_use: "%d does not know of its use as output of main",
    output_from_elsewhere: "output %d is no value",
    missing_output_name: "2 outputs, but 1 names",
    repeated_output_name: "output names repeat",
    state_out_of_range: "states name the outputs",
    repeated_state: "states name the inputs",
    state_of_another_type: "next content is f32",
    default_of_no_input: "a default for a, which is no input",
    default_of_another_type: "its default is f64[4]",
    repeated_value: "stands in the graph twice",
    missing_attribute: "the attributes are",
    odd_attribute: "attribute k is <object",
    attribute_not_normal: "attribute k is np.float64(1.0)",
    attribute_of_another_kind: "attribute value takes dim",
    attribute_without_hash: "attribute value is [3]",
    region_in_a_list: "attribute k is",
    shared_region: "belongs to another node",
    region_that_is_the_graph: "belongs to another node",
    region_with_its_own_symbols: "does not share the symbol table",
    region_reading_outside: "graph body: operand %y is not known",
    wrong_type: "%d is f32[B, 5], but the rule of exp infers f32[B, 4]",
    operand_of_wrong_type: "operand b is f16",
    missing_operand: "takes 2 operands",
    fresh_size: "never made a symbol",
    foreign_without_domain: "has no domain",
    unknown_symbol: "symbol table does not know B",
    symbol_of_no_input: "%d mentions S",
}


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__)
def test_corruption_is_found(corrupt: Callable[[Graph], None]) -> None:
    graph, judged = parse(TEXT), dict[Any, Any]()
    verify(graph, judged)
    corrupt(graph)
    for known in (None, judged):
        with pytest.raises(InvalidGraphError) as caught:
            verify(graph, known)
        assert CORRUPTIONS[corrupt] in str(caught.value)


def test_equal_nodes_are_judged_once() -> None:
    def chain(second: str) -> Graph:
        return parse(
            f"graph @main(%x: f32[B]) {{\n  %a: f32[B] = exp(%x)\n  %b: f32[B] = {second}(%a)\n  return %b\n}}"
        )

    judged = dict[Any, Any]()
    for second, count in (("exp", 1), ("exp", 1), ("neg", 2)):
        verify(chain(second), judged)
        assert len(judged) == count


# ---- symbols, broken by text

MISPLACED = {
    "an attribute's symbol": (
        "graph @main(%x: f32[4]) {\n  onnx.Foo(%x) {k = dim(S)}\n  return\n}",
        "an attribute mentions S",
    ),
    "an attribute's data-dependent symbol": (
        "graph @main(%x: f32[B]) {\n  %a: f32[u0] = onnx.A(%x)\n  onnx.Foo(%x) {k = [dim(u0)]}\n  return\n}",
        "an attribute mentions u0",
    ),
    "a result that does not descend": (
        "graph @main(%x: f32[B]) {\n  %a: f32[u0] = onnx.A(%x)\n  %b: f32[u0] = onnx.B(%x)\n  return\n}",
        "u0 is a size that %a = onnx.A(%x) makes",
    ),
    "a rule that makes nothing": (
        "graph @main(%x: f32[B]) {\n  %a: f32[S] = exp(%x)\n  return\n}",
        "%a mentions S",
    ),
    "a region's hidden result": (
        "graph @main(%x: f32[B]) {\n  %a: f32[u0] = onnx.A(%x)\n  onnx.If(%x) {b = @b}\n  return\n}\n"
        "graph @b() {\n  onnx.If() {c = @c}\n  return\n}\n"
        "graph @c() {\n  %b: f32[u0] = onnx.A()\n  return\n}",
        "graph c: u0 is a size that %a = onnx.A(%x) makes",
    ),
    "a region's symbol outside": (
        "graph @main(%x: f32[B]) {\n  onnx.If(%x) {b = @b}\n  onnx.A(%x) {k = dim(S)}\n  return\n}\n"
        "graph @b(%x: f32[S]) {\n  return\n}",
        "graph main: an attribute mentions S",
    ),
}


@pytest.mark.parametrize(("text", "problem"), MISPLACED.values(), ids=MISPLACED.keys())
def test_symbols_keep_to_their_scope(text: str, problem: str) -> None:
    graph = parse(text)
    with pytest.raises(InvalidGraphError) as caught:
        verify(graph)
    assert problem in str(caught.value)


# ---- messages and cost


def test_the_message_underlines_the_node_among_its_neighbors() -> None:
    graph = parse(TEXT)
    wrong_type(graph)
    with pytest.raises(InvalidGraphError) as caught:
        verify(graph)
    assert caught.value.message.splitlines()[1:] == [
        "    %b: f32[B, 4] = mul(%a, %a)",
        "    %c: f32[B, 4] = onnx.Foo(%b, _) {k = 1}",
        "    %d: f32[B, 5] = exp(%c)",
        "    ^^^^^^^^^^^^^^^^^^^^^^^",
        "    %e: i64[] = dim() {value = 3*B}",
    ]
    assert caught.value.where == "%d = exp(%c)"


def test_the_cost_is_linear() -> None:
    def work(count: int) -> int:
        graph = Graph()
        value = graph.add_input("x", TensorType(DType.F32, (symbol("B"), 4)))
        for _ in range(count):
            value = graph.append(native("add"), [value, value]).output
        graph.set_outputs([value])
        return lines_in(lambda: verify(graph))

    assert work(1_000) <= 11 * work(100)
