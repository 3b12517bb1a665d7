"""The graph: reading, editing, and that an edit is either whole or refused."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from capgraph.ir.analysis import all_nodes
from capgraph.ir.attrs import Attrs
from capgraph.ir.constant import Constant
from capgraph.ir.dims import symbol
from capgraph.ir.equality import first_difference
from capgraph.ir.errors import CapgraphError, InvalidGraphError, ShapeError, TypeRuleError
from capgraph.ir.graph import Graph, Node, Origin, State, SymbolTable, Use, Value
from capgraph.ir.op import FRESH, foreign
from capgraph.ir.ops import native
from capgraph.ir.text.parser import parse, parse_type
from capgraph.ir.text.printer import constants_of, print_graph, print_node
from capgraph.ir.types import DType, TensorType
from capgraph.ir.verify import verify
from hypothesis import given
from hypothesis import strategies as st

from tests.counted_work import lines_in
from tests.ir.drawn_graphs import TYPES, graphs, names

TEXT = """graph @main(%x: f32[B, 4], %y: f32[4]) {
  %a: f32[B, 4] = add(%x, %y)
  %b: f32[B, 4] = mul(%a, %a)
  %c: f32[B, 4] = exp(%b)
  return %c, %a -> %x
}
"""


@pytest.fixture
def graph() -> Graph:
    return parse(TEXT)


def producer(graph: Graph, name: str) -> Node:
    node = graph.value(name).producer
    assert node is not None
    return node


def refused(graph: Graph, edit: Callable[[], object], error: type[CapgraphError], problem: str) -> None:
    """The edit raises, and the graph is what it was."""
    before = print_graph(graph, origins=True)
    with pytest.raises(error) as caught:
        edit()
    assert problem in str(caught.value)
    assert print_graph(graph, origins=True) == before
    verify(graph)


# ---- reading


def test_values_know_their_producer_and_uses(graph: Graph) -> None:
    a, b = graph.value("a"), graph.value("b")
    assert a.producer is graph.first
    assert a.uses == (Use(producer(graph, "b"), 0), Use(producer(graph, "b"), 1), Use(graph, 1))
    assert a.users == (producer(graph, "b"),)
    assert a.is_graph_output
    assert a.has_uses
    assert not b.is_graph_output
    assert a.shape == (symbol("B"), 4)
    assert repr(a) == "%a: f32[B, 4]"
    assert [value.name for value in graph.values] == ["x", "y", "a", "b", "c"]
    assert (graph.first, graph.last) == (producer(graph, "a"), producer(graph, "c"))
    assert repr(graph) == "Graph(main, 2 inputs, 3 nodes, 2 outputs)"
    assert graph.states == (State(0, 1),)
    assert bool(Graph())
    with pytest.raises(InvalidGraphError, match="no value %z"):
        graph.value("z")


def test_a_node_says_where_it_is() -> None:
    graph = Graph()
    x = graph.add_input("x", TYPES[1])
    node = graph.append(foreign("onnx.Foo"), [x, None], types=[TYPES[0]], origin=Origin("conv1", "model.py:3"))
    assert node.where() == "%0 = onnx.Foo(%x, _) from conv1 (model.py:3)"
    assert node.operands == (x,)
    assert node.output.origin is node.origin
    assert x.origin is None
    assert (str(Origin("n")), str(Origin(source="s")), str(Origin())) == ("n", "s", "")


def test_node_order(graph: Graph) -> None:
    first, second, third = graph.nodes
    assert first.precedes(third)
    assert not third.precedes(second)
    assert list(graph.reversed_nodes) == [third, second, first]
    assert [n.has_uses for n in graph.nodes] == [True, True, True]


def test_backward_iteration_survives_erasing_the_nodes_before() -> None:
    graph = parse(TEXT.replace("return %c, %a -> %x", "return"))
    seen = []
    for node in graph.reversed_nodes:
        seen.append(node.op.name)
        before = node.operands[0].producer
        graph.erase(node)
        if before is not None:
            graph.erase(before)
    assert seen == ["exp", "add"]
    assert len(graph) == 0


def test_iteration_survives_erasing_and_inserting() -> None:
    graph = parse(TEXT.replace("return %c, %a -> %x", "return"))
    seen = []
    for node in graph.reversed_nodes:
        seen.append(node.op.name)
        graph.erase(node)
    assert seen == ["exp", "mul", "add"]
    assert len(graph) == 0
    graph = parse(TEXT)
    for node in graph.nodes:
        if node.op.name == "mul":
            new = graph.insert_before(node, native("add"), [node.inputs[0], node.inputs[0]])
            graph.replace_uses(node.output, new.output)
            graph.erase(node)
    assert [node.op.name for node in graph.nodes] == ["add", "add", "exp"]


# ---- names


def test_wished_names_are_made_unique_and_inputs_keep_theirs(graph: Graph) -> None:
    node = graph.append(native("exp"), [graph.value("a")], names=["x"])
    again = graph.append(native("exp"), [graph.value("a")], names=["x"])
    plain = graph.append(native("exp"), [graph.value("a")])
    assert (node.output.name, again.output.name, plain.output.name) == ("x_1", "x_2", "0")
    graph.rename(plain.output, "a")
    assert graph.value("a_1") is plain.output
    refused(graph, lambda: graph.add_input("a", TYPES[0]), InvalidGraphError, "already has a value %a")
    refused(graph, lambda: graph.rename(graph.value("x"), "q"), InvalidGraphError, "keeps its name")


def test_many_equal_wishes_cost_no_search() -> None:
    graph = Graph()
    x = graph.add_input("x", TYPES[1])
    few = lines_in(lambda: [graph.append(native("exp"), [x], names=["x"]) for _ in range(10)])
    many = lines_in(lambda: [graph.append(native("exp"), [x], names=["x"]) for _ in range(1_000)])
    assert many <= 110 * few


# ---- adding


def test_foreign_ops_need_types_and_fresh_sizes_become_symbols() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(DType.F32, (FRESH,)))
    assert str(x.type) == "f32[u0]"
    node = graph.append(foreign("onnx.Foo"), [x], types=[parse_type("seq(f32[B])"), TensorType(DType.F32, (FRESH, 2))])
    assert [str(value.type) for value in node.outputs] == ["seq(f32[B])", "f32[u1, 2]"]
    assert {"u0", "u1", "B"} <= graph.symbols.names
    refused(graph, lambda: graph.append(foreign("onnx.Foo"), [x]), TypeRuleError, "result types must be given")
    with pytest.raises(InvalidGraphError, match="has 2 results"):
        _ = node.output


def test_declared_types_may_say_more_but_not_otherwise(graph: Graph) -> None:
    a = graph.value("a")
    node = graph.append(native("exp"), [a], types=[TensorType(DType.F32, (8, 4))])
    assert node.output.type == TensorType(DType.F32, (8, 4))

    def declare(*shape: int) -> Node:
        return graph.append(native("exp"), [a], types=[TensorType(DType.F32, shape)])

    refused(graph, lambda: declare(8, 5), TypeRuleError, "is f32[B, 4], not f32[8, 5]")
    refused(graph, lambda: declare(8), TypeRuleError, "not f32[8]")
    refused(graph, lambda: graph.append(native("exp"), [a], types=[]), TypeRuleError, "has 1 results, not 0")


def test_operands_must_belong_here_and_stand_before(graph: Graph) -> None:
    other = parse(TEXT).value("x")
    first = producer(graph, "a")
    refused(graph, lambda: graph.append(native("exp"), [other]), InvalidGraphError, "%x does not belong")
    late = graph.value("b")
    refused(graph, lambda: graph.insert_before(first, native("exp"), [late]), InvalidGraphError, "not known before")
    own = graph.value("a")
    refused(graph, lambda: graph.insert_before(first, native("exp"), [own]), InvalidGraphError, "not known before")
    refused(graph, lambda: graph.append(native("exp"), [own], {"k": 1}), TypeRuleError, "no attribute k")


def test_an_error_of_a_rule_names_the_node(graph: Graph) -> None:
    with pytest.raises(ShapeError) as caught:
        graph.append(native("add"), [graph.value("a"), graph.add_input("z", TensorType(DType.F32, (5,)))])
    assert "add(%a, %z)" in str(caught.value)


# ---- erasing and moving


def test_a_used_node_is_not_erased(graph: Graph) -> None:
    refused(graph, lambda: graph.erase(producer(graph, "b")), InvalidGraphError, "%b is still used by %c = exp(%b)")
    refused(graph, lambda: graph.erase(producer(graph, "c")), InvalidGraphError, "still used by the graph's outputs")
    graph.set_outputs([graph.value("b")])
    node = producer(graph, "c")
    graph.erase(node)
    assert node.graph is None
    with pytest.raises(InvalidGraphError, match="does not belong"):
        graph.erase(node)
    assert not graph.value("b").users
    with pytest.raises(InvalidGraphError, match="no value %c"):
        graph.value("c")


def test_values_of_erased_nodes_are_refused() -> None:
    graph = Graph()
    x = graph.add_input("x", TYPES[1])
    node = graph.append(native("exp"), [x])
    gone = node.output
    graph.erase(node)
    refused(graph, lambda: graph.append(native("exp"), [gone]), InvalidGraphError, "does not belong")
    refused(graph, lambda: graph.set_outputs([gone]), InvalidGraphError, "does not belong")


def test_moving_keeps_the_order_topological(graph: Graph) -> None:
    first, second, third = graph.nodes
    refused(graph, lambda: graph.move_before(second, first), InvalidGraphError, "comes later")
    refused(graph, lambda: graph.move_before(first, third), InvalidGraphError, "stands earlier")
    extra = graph.append(native("exp"), [graph.value("x")])
    graph.move_before(extra, first)
    assert list(graph.nodes) == [extra, first, second, third]
    graph.move_before(extra, third)
    graph.move_before(extra, extra)
    assert list(graph.nodes) == [first, second, extra, third]
    verify(graph)


def test_inserting_at_one_place_many_times_renumbers() -> None:
    graph = Graph()
    x = graph.add_input("x", TYPES[1])
    last = graph.append(native("exp"), [x])
    expected = []
    for _ in range(100):
        expected.append(graph.insert_before(last, native("exp"), [x]))
    assert list(graph.nodes) == [*expected, last]
    assert all(a.precedes(b) for a, b in zip(expected, [*expected[1:], last], strict=True))
    verify(graph)


# ---- rewiring


def test_replace_uses_is_checked_as_a_whole(graph: Graph) -> None:
    a, b, c, x = (graph.value(name) for name in "abcx")
    refused(graph, lambda: graph.replace_uses(a, c), InvalidGraphError, "not known before")
    refused(graph, lambda: graph.replace_uses(a, graph.value("y")), TypeRuleError, "cannot stand for")
    graph.replace_uses(a, x)
    assert producer(graph, "b").inputs == (x, x)
    assert graph.outputs == (c, x)
    assert graph.output_names == ("c", "a")
    assert not a.has_uses
    graph.replace_uses(b, b)
    verify(graph)


def test_replace_input_and_set_output(graph: Graph) -> None:
    a, b, x = (graph.value(name) for name in "abx")
    node = producer(graph, "b")
    graph.replace_input(node, 1, x)
    assert node.inputs == (a, x)
    refused(graph, lambda: graph.replace_input(node, 0, b), InvalidGraphError, "not known before")
    refused(graph, lambda: graph.replace_input(node, 0, graph.value("y")), TypeRuleError, "cannot stand for")
    refused(graph, lambda: graph.replace_input(node, 0, None), TypeRuleError, "operand a is required")
    graph.set_output(0, b)
    graph.set_output(0, b)
    assert graph.outputs == (b, a)
    assert graph.output_names == ("c", "a")
    verify(graph)


def test_a_replacement_of_another_type_must_suit_the_rule_of_every_user() -> None:
    graph = parse(
        """graph @main(%x: f32[B], %y: f32[T], %c: f32[4], %d: f32[5]) {
  %a = add(%x, %y)
  %b: f32[B + 1] = onnx.Foo(%a)
  return %b -> %x
}""".replace("f32[B + 1]", "f32[T]")
    )
    x, y, c, d = graph.inputs
    graph.replace_uses(x, c)
    refused(graph, lambda: graph.replace_uses(y, d), ShapeError, "4 and 5 differ")
    refused(graph, lambda: graph.replace_input(producer(graph, "a"), 1, d), ShapeError, "4 and 5 differ")
    wrong = graph.append(foreign("onnx.Foo"), [], types=[parse_type("f32[B + 1]")]).output
    refused(graph, lambda: graph.set_output(0, wrong), InvalidGraphError, "state %x is f32[B]")
    refused(graph, lambda: graph.replace_uses(graph.value("b"), wrong), InvalidGraphError, "state %x is f32[B]")


def test_attributes_may_change_as_long_as_the_types_stay() -> None:
    graph = parse("graph @main(%x: f32[4, 5]) {\n  %y = reduce_sum(%x) {axes = [0], keep_dims = false}\n  return %y\n}")
    node = producer(graph, "y")
    graph.set_attrs(node, axes=(-2,))
    assert node.attrs["axes"] == (-2,)
    refused(graph, lambda: graph.set_attrs(node, axes=(1,)), TypeRuleError, "is f32[4], not f32[5]")
    refused(graph, lambda: graph.set_attrs(node, nope=1), TypeRuleError, "no attribute nope")


def test_refined_types_may_not_contradict(graph: Graph) -> None:
    c = graph.value("c")
    graph.refine_type(c, TensorType(DType.F32, (3, 4)))
    assert c.type == TensorType(DType.F32, (3, 4))
    refused(graph, lambda: graph.refine_type(c, TensorType(DType.F32, (2, 4))), TypeRuleError, "cannot be refined")


# ---- inputs, outputs, states, defaults


def test_inputs_are_removed_only_when_nothing_needs_them(graph: Graph) -> None:
    refused(graph, lambda: graph.remove_input(graph.value("y")), InvalidGraphError, "not an unused input")
    graph = parse("graph @main(%y: f32[4], %z: f32[4]) {\n  return %z -> %z\n}")
    graph.set_default(graph.value("y"), Constant(np.zeros(4, np.float32)))
    graph.remove_input(graph.value("y"))
    assert not graph.defaults
    refused(graph, lambda: graph.remove_input(graph.value("z")), InvalidGraphError, "not an unused input")


def test_removing_an_input_moves_the_states() -> None:
    graph = parse("graph @main(%x: f32[2], %y: f32[4], %z: f32[4]) {\n  return %y, %z -> %z\n}")
    graph.remove_input(graph.value("x"))
    assert graph.states == (State(1, 1),)
    assert [value.index for value in graph.inputs] == [0, 1]
    verify(graph)


def test_outputs_have_distinct_names(graph: Graph) -> None:
    a, b = graph.value("a"), graph.value("b")
    graph.set_outputs([a, b, a, a])
    assert graph.output_names == ("a", "b", "a_1", "a_2")
    assert graph.states == ()
    refused(graph, lambda: graph.set_outputs([a, b], ["n", "n"]), InvalidGraphError, "must differ")
    refused(graph, lambda: graph.set_outputs([a, b], ["n"]), InvalidGraphError, "2 outputs, but 1 output names")
    graph.set_outputs([])
    assert not a.is_graph_output


def test_states_pair_each_input_and_output_once(graph: Graph) -> None:
    def states(*pairs: tuple[int, int]) -> Callable[[], None]:
        return lambda: graph.set_states(pairs)

    refused(graph, states((0, 2)), InvalidGraphError, "out of range")
    refused(graph, states((-1, 0)), InvalidGraphError, "out of range")
    refused(graph, states((1, 0)), InvalidGraphError, "next content is f32[B, 4]")
    refused(graph, states((0, 0), (0, 1)), InvalidGraphError, "two states")


def test_defaults_belong_to_inputs(graph: Graph) -> None:
    content = Constant(np.zeros(4, np.float32))
    graph.set_default(graph.value("y"), content)
    assert dict(graph.defaults) == {"y": content}
    assert dict(graph.clone().defaults) == {"y": content}
    refused(graph, lambda: graph.set_default(graph.value("a"), content), InvalidGraphError, "not an input")
    refused(graph, lambda: graph.set_default(graph.value("x"), content), TypeRuleError, "its default is f32[4]")
    graph.set_default(graph.value("y"), None)
    assert not graph.defaults


# ---- clone, adopt


def test_a_clone_shares_constants_and_nothing_else() -> None:
    text = """graph @main(%x: f32[B]) {
  %w: f32[1] = constant() {value = dense<f32[1]: [1.0]>}
  %a: f32[u0] = onnx.If(%w) {body = @body}
  return %x, %a -> %x
}

graph @body() {
  return
}
"""
    graph = parse(text)
    graph.metadata["k"] = "v"
    copy, where = graph.clone_with_map()
    assert first_difference(graph, copy) is None
    assert print_graph(copy, origins=True) == print_graph(graph, origins=True)
    assert where[graph.value("a")] is copy.value("a")
    mine, theirs = (list(all_nodes(g)) for g in (graph, copy))
    assert mine[0].attrs["value"] is theirs[0].attrs["value"]
    assert mine[1].attrs["body"] is not theirs[1].attrs["body"]
    assert theirs[1].attrs["body"].symbols is copy.symbols
    assert str(copy.symbols.fresh()) == str(graph.symbols.fresh()) == "u1"
    copy.append(native("exp"), [copy.value("x")])
    copy.metadata["k"] = "w"
    assert print_graph(graph) == text
    assert graph.metadata == {"k": "v"}


def test_a_clone_with_sizes_is_bound_throughout() -> None:
    graph = parse("""graph @main(%x: f32[B, T]) {
  %a: f32[B*T] = reshape(%x) {shape = [B*T]}
  %b: f32[u0] = onnx.Foo(%a) {body = @body, sizes = [dim(B + 1), type(f32[T])], shadow = @shadow}
  return %b
}
graph @body(%x: f32[2*T]) {
  %y: f32[T] = onnx.Bar(%x) {k = dim(B)}
  return %y
}
graph @shadow(%x: f32[T]) {
  %y: f32[T] = exp(%x)
  return %y
}""")
    bound, _ = graph.clone_with_map(sizes={"B": 3, "u0": 7})
    assert (
        print_graph(bound)
        == """graph @main(%x: f32[3, T]) {
  %a: f32[3*T] = reshape(%x) {shape = [3*T]}
  %b: f32[7] = onnx.Foo(%a) {body = @body, sizes = [dim(4), type(f32[T])], shadow = @shadow}
  return %b
}
""".replace("dim(4)", "4")
        + """
graph @body(%x: f32[2*T]) {
  %y: f32[T] = onnx.Bar(%x) {k = 3}
  return %y
}

graph @shadow(%x: f32[T]) {
  %y: f32[T] = exp(%x)
  return %y
}
"""
    )
    verify(bound)


def test_adopt_takes_everything_over(graph: Graph) -> None:
    copy = graph.clone()
    extra = copy.append(native("exp"), [copy.value("c")])
    copy.set_outputs([extra.output], ["result"])
    text = print_graph(copy)
    graph.adopt(copy)
    assert print_graph(graph) == text
    verify(graph)
    assert graph.outputs[0].graph is graph
    assert extra.graph is graph
    verify(copy)
    assert print_graph(copy) == "graph @main() {\n  return\n}\n"
    graph.append(native("exp"), [graph.value("x")])


# ---- inline


def test_inline_copies_the_body_and_gives_its_outputs(graph: Graph) -> None:
    body = parse("graph @body(%x: f32[B, 4]) {\n  %a = exp(%x)\n  return %x, %a\n}")
    before = producer(graph, "c")
    first, second = graph.inline(body, [graph.value("b")], before)
    assert first is graph.value("b")
    assert second.name == "a_1"
    assert [node.op.name for node in graph.nodes] == ["add", "mul", "exp", "exp"]
    assert second.producer is not None
    assert second.producer.precedes(before)
    verify(graph)


def test_a_bodys_own_symbols_get_their_sizes_from_the_arguments() -> None:
    graph = parse("graph @main(%x: f32[6, T]) {\n  return\n}")
    body = parse("""graph @body(%x: f32[S, N]) {
  %a: f32[S*N] = reshape(%x) {shape = [S*N]}
  %b: f32[S, 2] = onnx.Foo(%a) {k = dim(N + S), body = @inner}
  return %b
}
graph @inner(%x: f32[N]) {
  %y: f32[N, S] = onnx.Foo() {k = dim(S)}
  return %y
}""")
    graph.set_outputs(graph.inline(body, graph.inputs))
    assert (
        print_graph(graph)
        == """graph @main(%x: f32[6, T]) {
  %a: f32[6*T] = reshape(%x) {shape = [6*T]}
  %b: f32[6, 2] = onnx.Foo(%a) {k = dim(T + 6), body = @inner}
  return %b
}

graph @inner(%x: f32[T]) {
  %y: f32[T, 6] = onnx.Foo() {k = 6}
  return %y
}
"""
    )
    verify(graph)


def test_sizes_that_a_body_makes_are_new_each_time() -> None:
    graph = parse("graph @main(%x: f32[B], %u0: f32[u0]) {\n  return\n}")
    body = parse("""graph @body(%x: f32[B]) {
  %a: f32[u0] = onnx.Compress(%x)
  %b: f32[2*u0] = concat(%a, %a) {axis = 0}
  %d: i64[u0, u1] = onnx.NonZero(%b)
  %e: i64[u1, 1] = onnx.Foo(%d) {k = dim(u1 + u0)}
  return %e
}""")
    verify(body)
    for _ in range(2):
        graph.inline(body, [graph.value("x")])
    verify(graph)
    assert [str(value.type) for value in graph.values][2:] == [
        *("f32[u1]", "f32[2*u1]", "i64[u1, u2]", "i64[u2, 1]"),
        *("f32[u3]", "f32[2*u3]", "i64[u3, u4]", "i64[u4, 1]"),
    ]
    assert graph.last is not None
    assert str(graph.last.attrs["k"]) == "u3 + u4"


def test_only_regions_share_symbols_with_the_graph_around() -> None:
    text = """graph @main(%x: f32[M], %y: f32[N], %z: f32[T]) {
  onnx.If(%x) {body = @body}
  return
}
graph @body(%x: f32[N], %y: f32[M]) {
  %a: f32[N] = onnx.Foo(%x, %y) {n = dim(N), m = dim(M), t = dim(T)}
  return %a
}"""
    graph = parse(text)
    assert graph.last is not None
    body = graph.last.regions["body"]
    x, y, _ = graph.inputs
    graph.inline(body, [y, x])
    verify(graph)
    assert print_node(producer(graph, "a")) == "%a: f32[N] = onnx.Foo(%y, %x) {n = dim(N), m = dim(M), t = dim(T)}"
    alone = parse(text.split("\n", 4)[4].replace(", t = dim(T)", ""))
    graph.inline(alone, [x, y])
    verify(graph)
    assert print_node(producer(graph, "a_1")) == "%a_1: f32[M] = onnx.Foo(%x, %y) {n = dim(M), m = dim(N)}"


def test_a_native_rule_that_makes_sizes_makes_new_ones() -> None:
    graph = parse("graph @main(%x: f32[4]) {\n  return\n}")
    body = parse("""graph @body(%x: f32[N]) {
  %i: i64[1, u0] = non_zero(%x)
  %s = reshape(%i) {shape = [u0]}
  return %s
}""")
    verify(body)
    graph.inline(body, graph.inputs)
    (result,) = graph.inline(body, graph.inputs)
    verify(graph)
    assert str(result.type) == "i64[u1]"


def test_sizes_that_a_body_knew_beside_those_that_running_it_makes_are_kept() -> None:
    graph = parse("graph @main(%x: f32[6, T], %s: i64[2]) {\n  return\n}")
    body = parse("""graph @body(%x: f32[S, N], %s: i64[2]) {
  %a: f32[u0, N + 4] = dynamic_reshape(%x, %s)
  %b: f32[u0, 2*u0] = dynamic_reshape(%a, %s)
  return %a, %b
}""")
    first, second = graph.inline(body, graph.inputs)
    assert str(first.type) == "f32[u0, T + 4]"
    assert str(second.type) == "f32[u0, 2*u0]"
    verify(graph)


def test_a_refused_inline_leaves_nothing_behind() -> None:
    graph = parse("graph @main(%x: f32[4], %y: f32[5]) {\n  %z = exp(%x)\n  return %z\n}")
    x, y = graph.inputs
    body = parse("graph @body(%a: f32[S], %b: f32[S2]) {\n  %c = exp(%a)\n  %d = add(%c, %b)\n  return %d\n}")
    refused(graph, lambda: graph.inline(body, [x, y]), ShapeError, "4 and 5 differ")
    refused(graph, lambda: graph.inline(body, [x]), InvalidGraphError, "takes 2 inputs, not 1")
    scalar = graph.add_input("s", TYPES[0])
    refused(graph, lambda: graph.inline(body, [x, scalar]), TypeRuleError, "f32[] cannot be an input of type f32[S2]")
    other = parse(TEXT)
    refused(graph, lambda: graph.inline(body, [x, other.value("x")]), InvalidGraphError, "does not belong")
    refused(graph, lambda: graph.inline(body, [x, x], other.first), InvalidGraphError, "does not belong")


# ---- symbol table


def test_fresh_symbols_avoid_all_names() -> None:
    table = SymbolTable(["u0", "u2"])
    assert [str(table.fresh()) for _ in range(3)] == ["u1", "u3", "u4"]
    table.add(parse_type("f32[u5, B]"))
    assert str(table.fresh()) == "u6"
    assert "B" in table.names


# ---- any edits


class Edits:
    """Random edits of a graph; each is tried with whatever arguments are drawn."""

    def __init__(self, graph: Graph, data: st.DataObject) -> None:
        self.graph = graph
        self.data = data

    def value(self) -> Value:
        return self.data.draw(st.sampled_from(list(self.graph.values) or [Graph().add_input("x", TYPES[0])]))

    def node(self) -> Node:
        nodes = list(self.graph.nodes)
        return self.data.draw(st.sampled_from(nodes)) if nodes else Node(Graph(), native("exp"), (), Attrs({}), None)

    def operands(self) -> list[Value | None]:
        return [self.value(), self.data.draw(st.sampled_from([self.value(), None]))][
            : self.data.draw(st.integers(0, 2))
        ]

    def append(self) -> None:
        op = self.data.draw(st.sampled_from([native("add"), native("exp"), foreign("onnx.Foo")]))
        types = [self.data.draw(st.sampled_from(TYPES[:2]))] if op.is_foreign else None
        self.graph.append(op, self.operands(), types=types, names=[self.data.draw(names)])

    def insert_before(self) -> None:
        op = self.data.draw(st.sampled_from([native("mul"), native("exp")]))
        self.graph.insert_before(self.node(), op, self.operands())

    def erase(self) -> None:
        self.graph.erase(self.node())

    def move_before(self) -> None:
        self.graph.move_before(self.node(), self.node())

    def replace_uses(self) -> None:
        self.graph.replace_uses(self.value(), self.value())

    def replace_input(self) -> None:
        node = self.node()
        if node.inputs:
            index = self.data.draw(st.integers(0, len(node.inputs) - 1))
            self.graph.replace_input(node, index, self.data.draw(st.sampled_from([self.value(), None])))

    def set_output(self) -> None:
        if self.graph.outputs:
            self.graph.set_output(self.data.draw(st.integers(0, len(self.graph.outputs) - 1)), self.value())

    def set_outputs(self) -> None:
        values = [self.value() for _ in range(self.data.draw(st.integers(0, 3)))]
        chosen = self.data.draw(st.none() | st.lists(names, min_size=len(values), max_size=len(values)))
        self.graph.set_outputs(values, chosen)

    def set_states(self) -> None:
        index = st.integers(0, 3)
        self.graph.set_states(self.data.draw(st.lists(st.tuples(index, index), max_size=2)))

    def rename(self) -> None:
        self.graph.rename(self.value(), self.data.draw(names))

    def add_input(self) -> None:
        self.graph.add_input(self.data.draw(names), self.data.draw(st.sampled_from(TYPES)))

    def remove_input(self) -> None:
        self.graph.remove_input(self.value())

    def inline(self) -> None:
        body = self.data.draw(graphs(max_nodes=3))
        self.graph.inline(
            body, [self.value() for _ in body.inputs], self.data.draw(st.sampled_from([None, self.node()]))
        )

    def adopt_clone(self) -> None:
        self.graph.adopt(self.graph.clone())

    ALL = (
        append, insert_before, erase, move_before, replace_uses, replace_input, set_output, set_outputs, set_states,
        rename, add_input, remove_input, inline, adopt_clone,
    )  # fmt: skip


@given(graphs(max_nodes=5), st.lists(st.sampled_from(Edits.ALL), max_size=8), st.data())
def test_any_edit_is_whole_or_refused(graph: Graph, edits: list[Callable[[Edits], None]], data: st.DataObject) -> None:
    for edit in edits:
        before = print_graph(graph)
        try:
            edit(Edits(graph, data))
        except CapgraphError:
            assert print_graph(graph) == before
        if not is_valid_but_for_symbols(graph):
            return


def is_valid_but_for_symbols(graph: Graph) -> bool:
    """Whether the graph is valid; a symbol that an edit took out of scope is the editing pass's to rename."""
    try:
        verify(graph)
    except InvalidGraphError as error:
        assert "binds here" in error.message or "no operand descends from it" in error.message  # noqa: PT017
        return False
    return True


@given(graphs())
def test_a_drawn_graph_survives_its_text_and_its_clone(graph: Graph) -> None:
    text = print_graph(graph, origins=True)
    again = parse(text, constants=constants_of(graph))
    verify(again)
    assert first_difference(graph, again) is None
    assert print_graph(again, origins=True) == text
    assert [value.name for value in again.values] == [value.name for value in graph.values]
    copy = graph.clone()
    verify(copy)
    assert print_graph(copy, origins=True) == text


REMEDIES = {
    "attrs": "Graph.set_attrs",
    "inputs": "Graph.replace_input",
    "name": "Graph.rename",
    "op": "Rewriter.replace",
    "type": "Graph.refine_type",
}


@pytest.mark.parametrize("kind", [Node, Value])
def test_nodes_and_values_are_read_only(kind: type[Node] | type[Value]) -> None:
    graph = parse("graph @f(%x: f32[N]) { %y: f32[N] = neg(%x) return %y }")
    changed = {Node: graph.first, Value: graph.value("y")}[kind]
    before = print_graph(graph)
    assert kind.__dataclass_params__.frozen  # type: ignore[union-attr]  # so type checkers refuse an assignment too
    for each in fields(kind):
        with pytest.raises(InvalidGraphError, match=f"{each.name} of .* is read-only") as caught:
            setattr(changed, each.name, getattr(changed, each.name))
        assert REMEDIES.get(each.name, "Graph.") in (caught.value.remedy or "")
        with pytest.raises(InvalidGraphError, match="read-only"):
            delattr(changed, each.name)
    with pytest.raises(InvalidGraphError, match="read-only"):
        setattr(changed, "another", 1)  # noqa: B010
    assert print_graph(graph) == before
