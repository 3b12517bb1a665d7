"""Random tensors and Dropout in and out of ONNX: what is drawn is ours, types, seeds and moments are ONNX's."""

import numpy as np
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.ops.random import EXPORTS
from capgraph.frontends.onnx.tensors import element_number
from capgraph.ir.ops.random import OPS
from capgraph.ir.types import DType

from tests.frontends.onnx.ops.there_and_back import (
    check,
    evaluated,
    feeds_of,
    imported,
    op_names,
    runtime_of,
    with_symbols,
)
from tests.ir.ops.onnx_oracle import one_node, random

X = np.full((2, 3), 0.5, np.float32)
SHAPED = {"shape": (2, 3), "dtype": element_number(DType.F64)}
CASES = {
    "RandomNormal": ([], SHAPED | {"mean": 2.0, "scale": 3.0}),
    "RandomUniform": ([], SHAPED | {"low": -1.0, "high": 1.0}),
    "RandomNormalLike": ([X], {"mean": 2.0}),
    "RandomUniformLike": ([X], {"dtype": element_number(DType.F64)}),
    "Bernoulli": ([X], {"dtype": element_number(DType.I64)}),
    "Multinomial": ([X], {"sample_size": 5, "dtype": element_number(DType.I64)}),
}


def test_every_op_goes_out():
    assert EXPORTS.keys() == {op.name for op in OPS}


@pytest.mark.parametrize("seed", [None, 3.0, 0.25])
@pytest.mark.parametrize("has_symbols", [False, True])
@pytest.mark.parametrize("operator", CASES)
def test_there_and_back(operator, has_symbols, seed):
    inputs, attrs = CASES[operator]
    model = one_node(operator, inputs, 1, 22, attrs if seed is None else attrs | {"seed": seed})
    graph = imported(with_symbols(model) if has_symbols else model)
    again = imported(export_model(graph))
    older = export_model(graph, opset=21)  # ONNX Runtime 1.31 has no kernels for opset 22
    feeds = feeds_of(*inputs)
    (found,), (repeated,) = evaluated(graph, feeds), evaluated(again, feeds)
    (foreign,) = runtime_of(older, feeds)
    assert (found.shape, found.dtype) == (repeated.shape, repeated.dtype) == (foreign.shape, foreign.dtype)
    if seed == 3.0:
        assert np.array_equal(found, repeated)


def test_like_a_tensor_that_has_the_sizes_takes_that_tensor():
    exported = export_model(imported(with_symbols(one_node("RandomNormalLike", [X], 1, 22, {}))))
    assert [(node.op_type, list(node.input)) for node in exported.graph.node] == [("RandomNormalLike", ["x0"])]


def test_attributes_left_out_have_the_defaults_of_the_operator():
    (normal,) = evaluated(imported(one_node("RandomNormal", [], 1, 22, {"shape": (2000,), "seed": 1.0})), {})
    assert normal.dtype == np.float32
    assert abs(normal.mean()) < 0.2
    assert 0.9 < normal.std() < 1.1
    (uniform,) = evaluated(imported(one_node("RandomUniform", [], 1, 22, {"shape": (2000,), "seed": 1.0})), {})
    assert 0 <= uniform.min() < 0.1
    assert 0.9 < uniform.max() < 1
    (drawn,) = evaluated(imported(one_node("Bernoulli", [X], 1, 22, {})), feeds_of(X))
    assert drawn.dtype == np.float32
    (classes,) = evaluated(imported(one_node("Multinomial", [X], 1, 22, {})), feeds_of(X))
    assert (classes.dtype, classes.shape) == (np.int32, (2, 1))


@pytest.mark.parametrize("opset", [7, 10, 12, 13, 22])
def test_dropout_outside_training_is_its_operand(opset):
    x = random(1, 2, 3)
    graph = check(with_symbols(one_node("Dropout", [x], 1, opset, {})), feeds_of(x), [x])
    assert op_names(graph) == []


@pytest.mark.parametrize("opset", [10, 12, 13, 22])
def test_the_mask_of_dropout_keeps_everything(opset):
    x = random(1, 2, 3)
    graph = check(with_symbols(one_node("Dropout", [x], 2, opset, {})), feeds_of(x), [x, np.ones((2, 3), bool)])
    assert op_names(graph) == ["full"]


def test_dropout_that_may_train_is_not_native():
    inputs = [random(1, 2, 3), np.array(0.5, np.float32), np.array(False)]
    graph = imported(one_node("Dropout", inputs, 1, 13, {}), native=False)
    assert op_names(graph) == ["onnx.Dropout"]
