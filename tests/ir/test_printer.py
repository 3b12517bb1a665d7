"""The text form: what is printed, what is left out, and that it reads back as the same text."""

import numpy as np
import pytest
from capgraph.ir.attrs import Attribute, AttrKind
from capgraph.ir.constant import Constant
from capgraph.ir.dims import symbol
from capgraph.ir.errors import InvalidGraphError
from capgraph.ir.graph import Graph, Origin
from capgraph.ir.op import FLOATS, foreign, op
from capgraph.ir.ops import native
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import constants_of, print_graph, print_node
from capgraph.ir.types import DType, OpaqueType, SequenceType, TensorType

F32 = TensorType(DType.F32, (2,))

# Canonical texts: each prints as it was read.
TEXTS = {
    "empty": "graph @main() {\n  return\n}\n",
    "native op": """graph @main(%x: f32[B, 4], %y: f32[4]) {
  %0: f32[B, 4] = add(%x, %y)
  return %0
}
""",
    "names": """graph @"a model"(%"/in 1": f32[2], %"100%\\n": f32[2]) {
  %a.b_0: f32[2] = add(%"/in 1", %"100%\\n")
  return %a.b_0 as "the result"
}
""",
    "outputs and states": """graph @main(%x: f32[2], %cache: f32[2]) {
  %y: f32[2] = exp(%x)
  return %y, %y as again, %y as scores -> %cache, %x
}
""",
    "defaults": """graph @main(%x: f32[2] = dense<f32[2]: [1.0, 2.0]>, %y: i64[], %z: bool[B] = dense<bool[0]: []>) {
  return
}
""",
    "foreign op": """graph @main(%x: f32[*]) {
  %a: seq(f32[B]), %b: optional(seq(i64[])) = onnx.Foo(%x, _, %x)
  %c: opaque('map(string, f32)') = com.microsoft.Bar(%a)
  "aten::odd.name"(%c)
  %d: f32[`batch size`//2, min(2, 2*B + 1)] = aten.rand.default()
  return %d
}
""",
    "attribute values": """graph @main(%x: f32[2]) {
  onnx.A(%x) {i = -3, f = 1.0, g = 1e-05, h = -inf, n = nan, t = true, u = false, "odd key" = none, l = [1, [2.0, []]]}
  onnx.B(%x) {s = "a \\"b\\"\\n", b = b"00ff", d = bf16, s2 = dim(2*B + 1), ty = type(f32[B]), huge = 10000000000000}
  return
}
""",
    "constants": """graph @main(%x: f32[2]) {
  onnx.A(%x) {a = dense<f32[2]: [1.0, -0.0]>, b = dense<i64[]: -7>, c = dense<bf16[0, 3]: []>, d = dense<bool[]: true>}
  onnx.B(%x) {a = dense<c64[1]: [(1.0, nan)]>, b = dense<string[2]: ["a\\n", b"ff"]>, c = dense<u4[2]: [0, 15]>}
  return
}
""",
    "regions": """graph @main(%x: f32[2]) {
  onnx.If(%x) {yes = @body, no = @body_1}
  return
}

graph @body(%x: f32[2]) {
  onnx.Loop(%x) {body = @inner}
  return %x
}

graph @body_1(%x: f32[2]) {
  return %x
}

graph @inner(%x: f32[2]) {
  return %x
}
""",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_canonical_text_comes_back(text: str) -> None:
    assert print_graph(parse(text)) == text


def test_attributes_that_have_their_default_are_left_out() -> None:
    scaled = op(
        "scaled",
        "x: T",
        T=FLOATS,
        infer=lambda x, **_: x,
        meaning=lambda x, **_: x,
        attrs=(
            Attribute("axis", AttrKind.INT),
            Attribute("bias", AttrKind.FLOAT, 0.0),
            Attribute("k", AttrKind.DIM, None),
        ),
    )
    graph = Graph()
    x = graph.add_input("x", F32)
    plain = graph.append(scaled, [x], {"axis": 0})
    signed = graph.append(scaled, [x], {"axis": 0, "bias": -0.0, "k": symbol("none") * 2})
    assert print_node(plain) == "%0: f32[2] = scaled(%x) {axis = 0}"
    assert print_node(signed) == "%1: f32[2] = scaled(%x) {axis = 0, bias = -0.0, k = 2*none}"


def test_a_size_called_none_is_no_absent_attribute() -> None:
    text = "graph @main(%x: f32[none]) {\n  %y: i64[] = dim() {value = `none`}\n  return %y\n}\n"
    assert print_graph(parse(text)) == text


def test_large_constants_are_named_by_digest_and_not_read_for_messages() -> None:
    def fail() -> np.ndarray:
        raise FileNotFoundError("weights.bin")

    lazy = Constant.lazy(TensorType(DType.F32, (64, 3)), fail)
    graph = Graph()
    node = graph.append(foreign("onnx.A"), [], {"w": lazy}, types=[F32])
    assert print_node(node) == "%0: f32[2] = onnx.A() {w = dense<f32[64, 3]>}"
    assert "dense<f32[64, 3]>" in print_graph(graph, constants="type")
    with pytest.raises(FileNotFoundError):
        print_graph(graph)


def test_constants_of_collects_the_large_ones_of_all_regions() -> None:
    large, small = Constant(np.arange(17)), Constant(np.arange(3))
    body = Graph("body")
    body.append(foreign("onnx.A"), [], {"items": (large, small)}, types=[])
    graph = Graph()
    graph.append(foreign("onnx.B"), [], {"body": body}, types=[])
    assert constants_of(graph) == {large.digest: large}
    assert print_graph(parse(print_graph(graph), constants=constants_of(graph))) == print_graph(graph)


def test_regions_get_unique_names_in_the_order_of_first_use() -> None:
    graph = Graph("main")
    for name in ("main", "a", "a", "a_1"):
        graph.append(foreign("onnx.A"), [], {"body": Graph(name)}, types=[])
    text = print_graph(graph)
    assert [line.split("(")[0] for line in text.splitlines() if line.startswith("graph")] == [
        "graph @main",
        "graph @main_1",
        "graph @a",
        "graph @a_1",
        "graph @a_1_1",
    ]
    assert print_graph(parse(text)) == text


def test_origins_and_metadata_are_printed_on_request_and_read_back() -> None:
    graph = Graph()
    graph.metadata = {"producer": "pytorch", "odd key": 'a "b"'}
    x = graph.add_input("x", F32)
    origins = [
        None,
        Origin(),
        Origin("add_1"),
        Origin("add_2", "model.py:3"),
        Origin("", "", "says\nmuch"),
        Origin("n", metadata=(("key", "value"), ("k2", ""))),
    ]
    for origin in origins:
        graph.append(native("add"), [x, x], origin=origin)
    text = print_graph(graph, origins=True)
    assert 'metadata {"producer" = "pytorch", "odd key" = "a \\"b\\""} {' in text
    assert '%3: f32[2] = add(%x, %x) loc("add_2", "model.py:3")\n' in text
    again = parse(text)
    assert print_graph(again, origins=True) == text
    assert [node.origin for node in again.nodes] == origins
    assert again.metadata == graph.metadata
    assert "loc" not in print_graph(graph)
    assert "pytorch" not in print_graph(graph)


def test_what_has_no_text_form_is_refused() -> None:
    graph = Graph()
    graph.append(foreign("onnx.A"), [], {"a": object()}, types=[SequenceType(OpaqueType("x"))])
    with pytest.raises(InvalidGraphError, match="no text form"):
        print_graph(graph)
