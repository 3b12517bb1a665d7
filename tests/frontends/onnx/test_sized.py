"""Operators on tensors of unknown rank: foreign as they come in, and by their import rules when they run."""

from typing import Any

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.errors import ExecutionError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph

F32 = np.float32


def graph_of(node: str, inputs: str = "float[N] x", constants: str = "", opset: int = 11) -> Graph:
    """A graph where `h` is x in the shape of an operand, and `node` what is computed of it."""
    text = f"net ({inputs}, int64[K] shape) => (float y) <{constants}> {{ h = Reshape(x, shape) y = {node} }}"
    return import_model(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')).graph


def result(graph: Graph, x: Any, *others: Any) -> Any:
    (y,) = evaluate_graph(graph, [np.ravel(x), *others, np.array(np.shape(x))])
    return y


X = np.array([[[1, -2], [3, -4], [5, -6]]], F32)
SUMS = np.array([[[10, 20], [35, 56], [34, 52]]], F32)
"""Of squares, over a channel and those beside it."""


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("LpNormalization <p = 1> (h)", X / np.array([[[3], [7], [11]]])),  # onnx adds what is negative
        ("GlobalMaxPool (h)", X.max(2, keepdims=True)),  # onnx drops axes
        ("Softmax <axis = 1> (h)", np.exp(X) / np.exp(X).sum()),  # as one row up to opset 12
        ("LRN <size = 3, alpha = 3.0, beta = 1.0, bias = 0.0> (h)", X / SUMS),  # onnx leaves out the last channels
    ],
)
def test_the_rule_says_what_it_means(node: str, expected: Any) -> None:
    graph = graph_of(node)
    assert f"onnx.{node.split(' ', 1)[0]}" in {each.op.name for each in graph.nodes}
    np.testing.assert_allclose(result(graph, X), expected, rtol=1e-6)


def test_other_sizes_are_read_anew() -> None:
    graph = graph_of("LpNormalization <p = 1> (h)")
    for x in (X, X[0], X[0, 0], X[0, :1]):
        np.testing.assert_allclose(result(graph, x), x / np.abs(x).sum(-1, keepdims=True), rtol=1e-6)


def test_a_constant_operand_is_shown_to_the_rule() -> None:
    graph = graph_of("Resize (h, none, none, sizes)", constants="float[0] none = {}, int64[3] sizes = {1, 6, 2}")
    np.testing.assert_array_equal(result(graph, X), X.repeat(2, 1))


def test_sizes_that_the_rule_refuses_are_an_error_of_the_call() -> None:
    graph = graph_of("ConvTranspose (h, w)", "float[N] x, float[3, 1, 1] w")
    assert result(graph, X, np.ones((3, 1, 1), F32)).shape == (1, 1, 2)
    with pytest.raises(ExecutionError, match="ConvTranspose"):
        result(graph, X[:, :2], np.ones((3, 1, 1), F32))


def test_what_draws_random_numbers_draws_others_in_each_call() -> None:
    graph = graph_of("RandomNormalLike (h)")
    assert not np.array_equal(result(graph, X), result(graph, X))


@pytest.mark.parametrize("parts", [1, 2])
def test_a_length_that_a_call_tells_is_shown_to_the_rule(parts: int) -> None:
    """onnx refuses a one-sided spectrum of complex numbers where it is told that they are complex."""
    text = """d (float[N, P] x, int64 length) => (float[K, 2] y) <int64 axis = {0}> {
      y = DFT <onesided = 1> (x, length, axis)
    }"""
    graph = import_model(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')).graph
    assert "onnx.DFT" in {each.op.name for each in graph.nodes}
    x = np.array([[1, -2], [3, -4], [5, -6]], F32)[:, :parts]
    numbers = x[:, 0] if parts == 1 else x[:, 0] + 1j * x[:, 1]
    length = np.array(3)
    for count in (3, 2, 5):
        length[...] = count
        expected = np.fft.fft(numbers, count)[: count // 2 + 1]
        (y,) = evaluate_graph(graph, [x, length])
        np.testing.assert_allclose(y, np.stack([expected.real, expected.imag], 1), rtol=1e-5, atol=1e-5)
