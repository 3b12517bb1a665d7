"""Batch norm becomes arithmetic in f32 for each channel, and so stays as exact as it is."""

import numpy as np
import pytest
from capgraph.ir.constant import Array, Constant
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from capgraph.passes.catalog import launch_pipeline
from capgraph.passes.fold.batch_norm import SpreadBatchNorm
from capgraph.passes.framework.pipeline import Pipeline

from tests.passes.checking import check_pass

CONV = "{strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1}"


def parameters(dtype: str) -> str:
    return f"""
  %scale = constant() {{value = dense<{dtype}[2]: [2.0, 3.0]>}}
  %bias = constant() {{value = dense<{dtype}[2]: [1.0, -1.0]>}}
  %mean = constant() {{value = dense<{dtype}[2]: [0.5, 6.0]>}}
  %var = constant() {{value = dense<{dtype}[2]: [4.0, 4.0]>}}
"""


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_smaller_floats_are_normed_in_f32_behind_a_convolution_without_its_bias(dtype: str) -> None:
    check_pass(
        SpreadBatchNorm(),
        f"""
        graph @main(%x: {dtype}[N, 2, H, W]) {{
          {parameters(dtype)}
          %w = constant() {{value = dense<{dtype}[2, 2, 1, 1]: [1.0, 2.0, 3.0, 4.0]>}}
          %b = constant() {{value = dense<{dtype}[2]: [0.5, 1.0]>}}
          %y = conv(%x, %w, %b) {CONV}
          %z = batch_norm(%y, %scale, %bias, %mean, %var) {{epsilon = 0.0}}
          return %z
        }}""",
        f"""
        graph @main(%x: {dtype}[N, 2, H, W]) {{
          %w = constant() {{value = dense<{dtype}[2, 2, 1, 1]: [1.0, 2.0, 3.0, 4.0]>}}
          %y = conv(%x, %w, _) {CONV}
          %wide = cast(%y) {{to = f32}}
          %s = constant() {{value = dense<f32[2, 1, 1]: [1.0, 1.5]>}}
          %m = mul(%wide, %s)
          %t = constant() {{value = dense<f32[2, 1, 1]: [1.0, -8.5]>}}
          %a = add(%m, %t)
          %z = cast(%a) {{to = {dtype}}}
          return %z
        }}""",
    )


def test_others_as_they_are() -> None:
    check_pass(
        SpreadBatchNorm(),
        f"""
        graph @main(%x: f32[N, 2]) {{
          {parameters("f32")}
          %z = batch_norm(%x, %scale, %bias, %mean, %var) {{epsilon = 0.0}}
          return %z
        }}""",
        """
        graph @main(%x: f32[N, 2]) {
          %s = constant() {value = dense<f32[2]: [1.0, 1.5]>}
          %m = mul(%x, %s)
          %t = constant() {value = dense<f32[2]: [0.5, -10.0]>}
          %z = add(%m, %t)
          return %z
        }""",
    )


@pytest.mark.parametrize("where", ["(%x, %scale, %given, %mean, %var)", "(%x, %scale, %bias, %mean, %none)"])
def test_stays_where_numbers_are_not_known_or_not_finite(where: str) -> None:
    check_pass(
        SpreadBatchNorm(),
        f"""
        graph @main(%x: f32[N, 2, H], %given: f32[2]) {{
          {parameters("f32")}
          %none = constant() {{value = dense<f32[2]: [0.0, 0.0]>}}
          %z = batch_norm{where} {{epsilon = 0.0}}
          return %z
        }}""",
        None,
        numeric="%none" not in where,
    )


def _network(dtype: DType, layers: int) -> Graph:
    """Convolutions with norms of positive images, and the mean over places: what errs alike everywhere shows there."""
    draw, channels, graph = np.random.default_rng(7), 16, Graph()

    def constant(content: Array) -> Value:
        return graph.append(native("constant"), [], {"value": Constant(content.astype(dtype.numpy))}).output

    value = graph.add_input("x", TensorType(dtype, (1, channels, 12, 12)))
    for _ in range(layers):
        weight = constant(draw.standard_normal((channels, channels, 3, 3)) / 12)
        attrs = {"strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "groups": 1}
        value = graph.append(native("conv"), [value, weight, None], attrs).output
        numbers = [1 + 0.1 * draw.standard_normal(channels), *(0.5 * draw.standard_normal((2, channels)))]
        norm = [value, *map(constant, numbers), constant(0.5 + draw.random(channels))]
        value = graph.append(native("batch_norm"), norm, {"epsilon": 1e-5}).output
        value = graph.append(native("relu"), [value]).output
    graph.set_outputs([graph.append(native("reduce_mean"), [value], {"axes": (2, 3)}).output])
    return graph


def _error(found: Array, exact: Array) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_many_layers_err_as_little_as_the_model_itself(dtype: DType) -> None:
    graph = _network(dtype, layers=12)
    x = np.abs(np.random.default_rng(8).standard_normal((1, 16, 12, 12))).astype(dtype.numpy)
    exact = evaluate_graph(_in_f64(graph), [x.astype(np.float64)])[0]
    own = _error(evaluate_graph(graph, [x])[0], exact)
    Pipeline((*launch_pipeline(2).stages, (SpreadBatchNorm(),))).run(graph)
    assert not [node for node in graph.nodes if node.op.name == "batch_norm"]
    assert _error(evaluate_graph(graph, [x])[0], exact) <= 1.5 * own


def _in_f64(graph: Graph) -> Graph:
    """The same network with the same numbers in f64."""
    wide = Graph()
    known = {graph.inputs[0]: wide.add_input("x", TensorType(DType.F64, graph.inputs[0].shape))}
    for node in graph.nodes:
        attrs = dict(node.attrs)
        if node.op.name == "constant":
            attrs["value"] = Constant(attrs["value"].array.astype(np.float64))
        operands = [known[value] if value is not None else None for value in node.inputs]
        known[node.output] = wide.append(node.op, operands, attrs).output
    wide.set_outputs([known[value] for value in graph.outputs])
    return wide
