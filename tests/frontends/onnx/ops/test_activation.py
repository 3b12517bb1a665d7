"""Activations in and out of ONNX, every version of every operator, with and without its attributes."""

import numpy as np
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.ops.activation import EXPORTS, IMPORTS
from capgraph.ir.equality import assert_equal
from capgraph.ir.ops.nn.activation import OPS

from tests.frontends.onnx.ops.every_version import every_version, of_onnx_runtime
from tests.frontends.onnx.ops.there_and_back import (
    check,
    compare,
    evaluated,
    feeds_of,
    imported,
    reference,
    runtime_of,
    with_symbols,
)
from tests.ir.ops.onnx_oracle import assert_close, one_node, random, runtime

ATTRS = {
    "LeakyRelu": {"alpha": 0.25},
    "Elu": {"alpha": 2.0},
    "Selu": {"alpha": 2.0, "gamma": 3.0},
    "Celu": {"alpha": 2.0},
    "ThresholdedRelu": {"alpha": 0.5},
    "HardSigmoid": {"alpha": 0.5, "beta": 0.25},
    "Gelu": {"approximate": "tanh"},
    "Shrink": {"lambd": 0.25, "bias": 0.125},
    "Swish": {"alpha": 2.0},
}


def operands(operator):
    return [random(1, 2, 3), random(2, 3)][: 2 if operator == "PRelu" else 1]


def test_every_op_goes_out():
    assert {op.name for op in OPS if op.scalar is None} <= EXPORTS.keys() <= {op.name for op in OPS}


@pytest.mark.parametrize("has_attributes", [True, False])
@every_version(operator for operator in IMPORTS if "." not in operator)
def test_every_version(operator, opset, has_attributes):
    inputs, attrs = operands(operator), ATTRS.get(operator, {}) if has_attributes else {}
    model = one_node(operator, inputs, 1, opset, attrs)
    # ONNX Runtime has no kernel for Swish.
    expected = (
        reference(model, feeds_of(*inputs)) if operator == "Swish" else runtime(operator, *inputs, opset=opset, **attrs)
    )
    check(with_symbols(model, ["x0"]), feeds_of(*inputs), expected)


@pytest.mark.parametrize(
    ("operator", "count", "attrs"),
    [
        ("Gelu", 1, {}),
        ("BiasGelu", 2, {}),
        ("FastGelu", 1, {}),
        ("FastGelu", 2, {}),
        ("QuickGelu", 1, {}),
        ("QuickGelu", 1, {"alpha": 2.0}),
    ],
)
def test_variants_of_onnx_runtime(operator, count, attrs):
    inputs = [random(1, 2, 3), random(2, 3)][:count]
    model = of_onnx_runtime(one_node(operator, inputs, 1, 20, attrs))
    check(model, feeds_of(*inputs), runtime_of(model, feeds_of(*inputs)))


def swish(x, alpha):
    """A graph of one silu."""
    return imported(one_node("Swish", [x], 1, 24, {"alpha": alpha}))


def operators_of(model):
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("alpha", [1.0, 2.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (np.float32, 1e-6), (np.float64, 1e-12)])
def test_swish_goes_out_as_the_operator_that_onnx_runtime_writes_out_early(alpha, dtype, tolerance):
    x = random(1, 2, 3).astype(dtype)
    graph = swish(x, alpha)
    model = export_model(graph, dialect=Dialect.STANDARD)
    assert operators_of(model) == ["Swish"]
    assert [entry.name for entry in model.functions] == ["InlineBeforeOptimizing"]
    found, wanted = runtime_of(model, feeds_of(x)), evaluated(graph, feeds_of(x))
    assert_close(found[0], wanted[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("opset", [23, 25, 26])
@pytest.mark.parametrize(("alpha", "operators"), [(1.0, ["Sigmoid", "Mul"]), (2.0, ["Mul", "Sigmoid", "Mul"])])
def test_swish_goes_out_as_a_product_where_onnx_runtime_refuses_the_operator(alpha, operators, opset):
    x = random(1, 2, 3)
    graph = swish(x, alpha)
    model = export_model(graph, dialect=Dialect.STANDARD, opset=opset)
    assert operators_of(model) == operators
    assert not model.functions
    compare(runtime_of(model, feeds_of(x)), evaluated(graph, feeds_of(x)))


def test_swish_of_doubles_keeps_an_alpha_that_the_attribute_would_round():
    x = random(1, 2, 3).astype(np.float64)
    graph = swish(x, 0.1)
    model = export_model(graph, dialect=Dialect.STANDARD)
    assert operators_of(model) == ["Mul", "Sigmoid", "Mul"]
    assert_close(runtime_of(model, feeds_of(x))[0], evaluated(graph, feeds_of(x))[0], rtol=1e-12, atol=1e-12)


def test_swish_that_comes_back_is_the_same_graph():
    graph = swish(random(1, 2, 3), 1.0)
    for dialect in (Dialect.FAITHFUL, Dialect.STANDARD):
        assert_equal(imported(export_model(graph, dialect=dialect)), graph)
    assert not export_model(graph).functions


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_prelu_runs_in_every_type(dtype):
    x, slope = (random(2, 3) * 5).astype(dtype), np.array([2], dtype)
    graph = imported(one_node("PRelu", [x, slope], 1, 16, {}))
    model = export_model(graph, dialect=Dialect.STANDARD)
    assert operators_of(model) == (["PRelu"] if dtype is np.float32 else ["Less", "Mul", "Where"])
    assert_close(runtime_of(model, feeds_of(x, slope))[0], evaluated(graph, feeds_of(x, slope))[0], rtol=1e-6, atol=0)
