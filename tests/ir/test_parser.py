"""Reading the text form: what a person may write, and what each mistake is answered with."""

import contextlib

import numpy as np
import pytest
from capgraph.ir.constant import Constant
from capgraph.ir.errors import ParseError
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import print_graph
from hypothesis import given
from hypothesis import strategies as st

from tests.counted_work import lines_in
from tests.ir.drawn_graphs import graphs


def test_types_of_native_ops_may_be_left_out_and_lines_broken() -> None:
    text = """
    // a comment first
    graph @main(%x: f32[B // 2,
                        4]) {   // and here: "graph @x("
      // between nodes
      %y = add(
        %x, %x)
      %z: f32[B//2, 4] = exp(%y)   // at the end
      return %z,
             %z
    }
    """
    assert (
        print_graph(parse(text))
        == """graph @main(%x: f32[B//2, 4]) {
  %y: f32[B//2, 4] = add(%x, %x)
  %z: f32[B//2, 4] = exp(%y)
  return %z, %z as z_1
}
"""
    )


def test_inferred_fresh_sizes_avoid_the_names_that_the_text_uses() -> None:
    graph = parse("graph @main(%x: f32[u0, u7]) {\n  return %x\n}")
    assert str(graph.symbols.fresh()) == "u1"


ONE = "graph @main(%x: f32[2], %y: f32[3]) {{\n  {}\n  return %x\n}}\n"

MISTAKES = {
    "": ("expected graph @name", 1),
    "grap @main() {": ("expected graph @name", 1),
    "graph main() {\n return\n}": ("expected graph @name", 1),
    "// only a comment": ("expected graph @name", 1),
    "graph @main(%x: f33[2]) {": ("no element type f33", 1),
    "graph @main(%x: f32[2*]) {": ("cannot read the dim", 1),
    "graph @main(%x: f32[2], %x: f32[2]) {": ("%x is defined twice", 1),
    "graph @main(%x f32[2]) {": ("expected : and the input's type", 1),
    "graph @main(%x: 3) {": ("expected a type", 1),
    "graph @main(%x: f32[2] = 3) {": ("expected a constant", 1),
    "graph @main(%x: f32[2] = dense<i64[2]: [1, 2]>) {": ("%x is f32[2], but its default is i64[2]", 1),
    "graph @main() {\n  return\n": ("expected }", 3),
    "graph @main() {\n  return\n} x": ("expected the end of the text", 3),
    "graph @main() {\n}": ("expected a node or return", 2),
    "graph @main() {\n  return %x\n}": ("there is no %x", 2),
    "graph @main(%x: f32[2]) {\n  return %x as a, %x as a\n}": ("output names must differ", 2),
    "graph @main(%x: f32[2], %y: f32[3]) {\n  return %x -> %y\n}": ("next content is f32[2]", 2),
    "graph @main(%x: f32[2]) {\n  %y = exp(%x)\n  return %x -> %y\n}": ("%y is no input", 3),
    "graph @main() {\n  return\n}\ngraph @main() {\n  return\n}": ("another graph @main", 4),
    "graph @main() {\n  return\n}\ngraph @b() {\n  return\n}": ("no node uses graph @b", 4),
    ONE.format("%a = ad(%x, %x)"): ("no native op ad", 2),
    ONE.format("%a = add(%x, %z)"): ("there is no %z", 2),
    ONE.format("%a = add(%a, %x)"): ("there is no %a", 2),
    ONE.format("%a = add(%x %x)"): ("expected , or )", 2),
    ONE.format("%a = add(%x, 3)"): ("expected an operand", 2),
    ONE.format("%a = add(%x)"): ("add takes 2 operands", 2),
    ONE.format("%a = add(%x, _)"): ("operand b is required", 2),
    ONE.format("%a = add(%x, %y)"): ("broadcast sizes", 2),
    ONE.format("%a: f32[3] = add(%x, %x)"): ("result 0 of add is f32[2], not f32[3]", 2),
    ONE.format("%a: f16[2] = add(%x, %x)"): ("result 0 of add is f32[2], not f16[2]", 2),
    ONE.format("%a, %b = add(%x, %x)"): ("add has 1 results, not 2", 2),
    ONE.format("add(%x, %x)"): ("add has 1 results, not 0", 2),
    ONE.format("%a: f32[2], %b = add(%x, %x)"): ("some results have a type", 2),
    ONE.format("%a = onnx.Foo(%x)"): ("onnx.Foo has 0 results, not 1", 2),
    ONE.format("%x = add(%x, %x)"): ("%x is defined twice", 2),
    ONE.format("%a: f32[2], %a: f32[2] = onnx.Foo(%x)"): ("%a is defined twice", 2),
    ONE.format("%a = add(%x, %x) {axis = 1}"): ("add has no attribute axis", 2),
    ONE.format("onnx.Foo() {a = 1, a = 2}"): ("attribute a is given twice", 2),
    ONE.format("onnx.Foo() {a = 1 b = 2}"): ("expected , or }", 2),
    ONE.format("onnx.Foo() {a = f31}"): ("f31 is no value", 2),
    ONE.format("onnx.Foo() {a = }"): ("expected an attribute's value", 2),
    ONE.format('onnx.Foo() {a = "b}'): ("expected an attribute's value", 2),
    ONE.format('onnx.Foo() {a = "\\x"}'): ("no JSON string", 2),
    ONE.format("onnx.Foo() {a = " + "[" * 60 + "}"): ("nested too deeply", 2),
    ONE.format("onnx.Foo() {a = " + "9" * 5000 + "}"): ("too many digits", 2),
    ONE.format("onnx.Foo() {a = type(" + "seq(" * 60 + ")}"): ("nested too deeply", 2),
    ONE.format("onnx.Foo() {a = type(opaque('\\N{no}'))}"): ("is no string", 2),
    ONE.format("onnx.Foo() {a = @body}"): ("no graph @body below", 2),
    ONE.format("onnx.Foo() {a = dense<f32[B]: [1.0]>}"): ("a constant cannot be f32[B]", 2),
    ONE.format("onnx.Foo() {a = dense<f32[2]: [1.0]>}"): ("has 2 elements, but 1 are given", 2),
    ONE.format("onnx.Foo() {a = dense<u8[1]: [256]>}"): ("256 does not fit u8", 2),
    ONE.format("onnx.Foo() {a = dense<f32[99]>}"): ("expected : and the elements", 2),
    ONE.format("onnx.Foo() {a = dense<f32[99], #abc>}"): ("only names constant #abc", 2),
    ONE.format("onnx.Foo() loc(3)"): ("expected a string", 2),
    ONE.format("onnx.Foo(%x") + "}": ("expected , or )", 2),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_named_with_its_place(text: str) -> None:
    problem, line = MISTAKES[text]
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert problem in str(caught.value)
    assert f"line {line}, column " in str(caught.value)


def test_the_caret_stands_below_the_column() -> None:
    with pytest.raises(ParseError) as caught:
        parse(ONE.format("%a = add(%x, %nowhere)"))
    message = caught.value.message.splitlines()
    assert message[1].index("%nowhere") == message[2].index("^")
    assert caught.value.where == "line 2, column 16"


def test_a_region_belongs_to_one_node() -> None:
    text = "graph @main() {\n  onnx.A() {a = @b}\n  onnx.A() {a = @b}\n  return\n}\ngraph @b() {\n  return\n}"
    with pytest.raises(ParseError, match="is used by another node"):
        parse(text)


def test_a_constant_of_another_type_than_its_digest_says_is_refused() -> None:
    constant = Constant(np.zeros(99, np.float32))
    text = ONE.format(f"onnx.Foo() {{a = dense<f32[98], #{constant.digest}>}}")
    with pytest.raises(ParseError, match=r"is f32\[99\], not f32\[98\]"):
        parse(text, constants={constant.digest: constant})


@given(graphs(max_nodes=4), st.data())
def test_any_damage_is_read_or_answered_by_a_parse_error(graph: Graph, data: st.DataObject) -> None:
    text = print_graph(graph, origins=True)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 10, len(text))))
    pieces = ["", *'%@"`{}[]()<>,:=#-0.\n\\', "graph @x(", "seq(", "9" * 50, text[:start][-10:]]
    with contextlib.suppress(ParseError):
        parse(text[:start] + data.draw(st.sampled_from(pieces)) + text[end:])


def test_reading_is_linear() -> None:
    def text_of(count: int) -> str:
        lines = [f"  %{i + 1}: f32[B, 4] = add(%{i}, %{i // 2})\n" for i in range(count)]
        return "graph @main(%0: f32[B, 4]) {\n" + "".join(lines) + f"  return %{count}\n}}\n"

    few, many = text_of(100), text_of(1_000)
    assert lines_in(lambda: parse(many)) <= 11 * lines_in(lambda: parse(few))
    text = text_of(10_000)
    assert print_graph(parse(text)) == text
