"""What makes two graphs the same, and how a difference is told."""

import pytest
from capgraph.ir.equality import assert_equal, equal, equal_bodies, first_difference
from capgraph.ir.errors import InvalidGraphError
from capgraph.ir.text.parser import parse
from capgraph.ir.verify import verify

TEXT = """graph @main(%x: f32[B, 4], %s: f32[4]) {
  %a: f32[B, 4] = add(%x, %s)
  %b: f32[u0, B*u0], %c: seq(i64[u1]) = onnx.Foo(%a, _, %s) {k = 1.0, n = nan, w = dense<f32[2]: [1.0, -0.0]>}
  onnx.Bar(%b) {t = type(f32[u0]), d = [dim(u0 + 1)], body = @body}
  %d: f32[u0, B*u0] = exp(%b)
  return %d, %a as scores -> %x
}
graph @body(%x: f32[S]) {
  %y: f32[S, u2] = onnx.Foo(%x)
  return %y
}
"""


def test_the_text_is_a_valid_graph() -> None:
    verify(parse(TEXT))


def test_names_origins_metadata_and_made_symbols_do_not_count() -> None:
    other = """graph @other(%x: f32[B, 4], %s: f32[4]) metadata {"k" = "v"} {
  %1: f32[B, 4] = add(%x, %s) loc("here")
  %2: f32[u1, B*u1], %3: seq(i64[u0]) = onnx.Foo(%1, _, %s) {w = dense<f32[2]: [1.0, -0.0]>, k = 1.0, n = nan}
  onnx.Bar(%2) {t = type(f32[u1]), d = [dim(u1 + 1)], body = @region}
  %4: f32[u1, B*u1] = exp(%2)
  return %4 as d, %1 as scores -> %x
}
graph @region(%0: f32[N]) {
  %1: f32[N, u9] = onnx.Foo(%0)
  return %1 as result
}
"""
    assert_equal(parse(TEXT), parse(other))
    assert_equal(parse(other), parse(TEXT))


DIFFERENCES = {
    "input name": ("%s", "%t", "the inputs are called"),
    "input type": ("%s: f32[4]", "%s: f32[1]", "input %s: f32[4] is %s: f32[1]"),
    "input symbol": ("B", "C", "input %x: f32[B, 4] is %x: f32[C, 4]"),
    "output name": ("as scores", "as s", "the outputs are called"),
    "default": ("%s: f32[4]", "%s: f32[4] = dense<f32[4]: [1, 2, 3, 4]>", "the defaults of input %s differ"),
    "state": (" -> %x", "", "the states are [(0, 1)] and []"),
    "op": ("exp(", "neg(", "one node is exp, the other neg"),
    "operand": ("(%a, _", "(%x, _", "operand 0 differs"),
    "absent operand": ("(%a, _", "(%a, %a", "operand 1 differs"),
    "operand count": ("(%a, _, %s)", "(%a, _)", "one node has 3 operands, the other 2"),
    "attribute": ("k = 1.0", "k = 2.0", "attribute k differs"),
    "attribute type": ("k = 1.0", "k = 1", "attribute k differs"),
    "attribute bool": ("k = 1.0", "k = true", "attribute k differs"),
    "attribute name": ("k = 1.0", "l = 1.0", "the attributes are"),
    "constant": ("-0.0", "0.0", "attribute w differs"),
    "list": ("[dim(u0 + 1)]", "[dim(u0 + 1), 1]", "attribute d differs"),
    "dim": ("dim(u0 + 1)", "dim(u0 + 2)", "attribute d differs"),
    "type": ("type(f32[u0])", "type(f32[u1])", "attribute t differs"),
    "result type": ("%c: seq(i64[u1])", "%c: seq(i32[u1])", "result 1 is seq(i64[u1]) and seq(i32[u1])"),
    "merged symbols": ("%c: seq(i64[u1])", "%c: seq(i64[u0])", "result 1 is seq(i64[u1]) and seq(i64[u0])"),
    "number of results": ("%b: f32[u0, B*u0], %c: seq(i64[u1]) =", "%b: f32[u0, B*u0] =", "one node has 2 results"),
    "output": ("return %d", "return %b as d", "output 0 is %d"),
    "region": ("onnx.Foo(%x)\n", "onnx.Bar(%x)\n", "in region body, one node is onnx.Foo"),
    "region's end": ("onnx.Foo(%x)\n", "onnx.Foo(%x)\n  onnx.Foo(%x)\n", "in region body, body goes on with"),
    "region's inputs": ("@body(%x: f32[S])", "@body(%x: f32[S], %z: f32[])", "in region body, body has 1 inputs"),
    "region's outputs": ("return %y", "return %y, %y", "in region body, body has 1 outputs"),
}


@pytest.mark.parametrize(("old", "new", "problem"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_a_difference_is_told(old: str, new: str, problem: str) -> None:
    a, b = parse(TEXT), parse(TEXT.replace(old, new))
    assert problem in str(first_difference(a, b))
    assert not equal(a, b)
    assert not equal(b, a)
    with pytest.raises(InvalidGraphError, match="the graphs differ"):
        assert_equal(a, b)


def test_both_nodes_are_shown() -> None:
    problem = first_difference(parse(TEXT), parse(TEXT.replace("exp(%b)", "neg(%b)")))
    assert str(problem).splitlines()[1:] == ["    %d: f32[u0, B*u0] = exp(%b)", "    %d: f32[u0, B*u0] = neg(%b)"]


def test_order_counts() -> None:
    text = "graph @main(%x: f32[2]) {{\n  {}\n  {}\n  return\n}}"
    lines = ("onnx.A(%x)", "onnx.B(%x)")
    assert first_difference(parse(text.format(*lines)), parse(text.format(*lines[::-1])))


def test_a_graph_is_the_same_as_itself_whatever_its_first_mention_of_symbols() -> None:
    graph = parse("graph @main() {\n  %a: f32[u0*u1] = onnx.Foo()\n  return %a\n}")
    assert equal(graph, graph.clone())


def test_bodies_are_compared_without_the_names_of_what_goes_in_and_out() -> None:
    a = parse("graph @a(%x: f32[N]) {\n  %y = neg(%x)\n  return %y\n}")
    b = parse("graph @b(%p: f32[N]) {\n  %q = neg(%p)\n  return %q\n}")
    assert not equal(a, b)
    assert equal_bodies(a, b)
    assert not equal_bodies(a, parse("graph @b(%p: f32[N]) {\n  %q = neg(%p)\n  return %p\n}"))
    assert not equal_bodies(a, parse("graph @b(%p: f32[M]) {\n  %q = neg(%p)\n  return %q\n}"))
