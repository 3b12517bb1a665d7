"""The form in which an import leaves a graph."""

import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.canonical import order_of_use, reorder_inputs, settle
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.equality import assert_equal, equal_bodies
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.ir.verify import verify


def graph(inputs: str, body: str) -> Graph:
    return parse(f"graph @main({inputs}) {{ {body} }}")


SETTLED = [
    pytest.param(
        "%x: f32[T]",
        "%0 = neg(%x) %1 = neg(%0) %y = exp(%x) return %y",
        "%y = exp(%x) return %y",
        id="chains that nothing reads",
    ),
    pytest.param(
        "%x: f32[1, 1, 4, 4]",
        """%y, %i = max_pool_with_indices(%x) {kernel = [2, 2], strides = [1, 1], pads = [0, 0, 0, 0],
           dilations = [1, 1], ceil_mode = true, column_major = true} return %y""",
        """%y = max_pool(%x) {kernel = [2, 2], strides = [1, 1], pads = [0, 0, 0, 0],
           dilations = [1, 1], ceil_mode = true} return %y""",
        id="indices that nothing reads",
    ),
    pytest.param(
        "%x: i64[T]",
        """%a = dims() {values = [T, 2]} %b = dims() {values = [T, 2]} %c = dims() {values = [2, T]}
           %d = dim() {value = T} %e = dim() {value = T} return %a, %b, %c, %d, %e""",
        """%a = dims() {values = [T, 2]} %c = dims() {values = [2, T]} %d = dim() {value = T}
           return %a, %a as b, %c, %d, %d as e""",
        id="sizes that are stated twice",
    ),
    pytest.param(
        "%x: f32[2]",
        """%c = constant() {value = dense<f32[]: 1.0>} %d = constant() {value = dense<f32[]: 2.0>}
           %y = neg(%x) %z = add(%y, %d) return %c, %z""",
        """%y = neg(%x) %d = constant() {value = dense<f32[]: 2.0>} %z = add(%y, %d)
           %c = constant() {value = dense<f32[]: 1.0>} return %c, %z""",
        id="constants far from their readers",
    ),
]


@pytest.mark.parametrize(("inputs", "body", "expected"), SETTLED)
def test_settling(inputs: str, body: str, expected: str) -> None:
    found = graph(inputs, body)
    settle(found)
    verify(found)
    assert_equal(found, graph(inputs, expected))


@pytest.mark.parametrize(("inputs", "body", "expected"), SETTLED)
def test_what_is_settled_comes_back_from_onnx_the_same(inputs: str, body: str, expected: str) -> None:
    assert_equal(import_model(export_model(graph(inputs, body))).graph, graph(inputs, expected))


def test_inputs_are_ordered_by_their_first_reader_and_unread_ones_are_last() -> None:
    body = graph("%a: f32[], %b: f32[], %c: f32[], %d: f32[]", "%x = add(%d, %b) %y = add(%x, %d) return %y, %a")
    order = order_of_use(body, body.inputs)
    assert order == [3, 1, 0, 2]
    reorder_inputs(body, order)
    verify(body)
    expected = graph("%d: f32[], %b: f32[], %a: f32[], %c: f32[]", "%x = add(%d, %b) %y = add(%x, %d) return %y, %a")
    assert equal_bodies(body, expected)
