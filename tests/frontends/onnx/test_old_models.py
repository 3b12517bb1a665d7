import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.files.loading import brought_up
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.evaluate import evaluate_graph

from tests.frontends.onnx.sample_models import parsed

F32 = np.float32


def old(text: str, version: int = 6) -> onnx.ModelProto:
    return parsed(f'<ir_version: 3, opset_import: ["": {version}]>' + text)


def test_broadcasting_along_an_axis():
    model = old("net (float[2, 3, 4] x, float[3] b) => (float[2, 3, 4] y) { y = Add <broadcast = 1, axis = 1> (x, b) }")
    graph = import_model(model).graph
    b = np.arange(3, dtype=F32)
    (y,) = evaluate_graph(graph, [np.zeros((2, 3, 4), F32), b])
    np.testing.assert_array_equal(y, np.broadcast_to(b[:, None], (2, 3, 4)))


def test_one_slope_for_each_channel():
    # As many channels as columns: read as today's PRelu, the slopes would go along the columns.
    model = old("net (float[1, 2, 2, 2] x, float[2] slope) => (float[1, 2, 2, 2] y) { y = PRelu(x, slope) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0.5, 2], F32), "slope"))
    (y,) = evaluate_graph(import_model(model).graph, [-np.ones((1, 2, 2, 2), F32)])
    assert y.reshape(-1).tolist() == [-0.5] * 4 + [-2] * 4


def test_a_model_without_an_opset():
    model = old("net (float[N] x) => (float[N] y) { y = Neg(x) }")
    del model.opset_import[:]
    assert brought_up(model, 6, "it").opset_import[0].version == 7
    assert not model.opset_import  # the caller's model is left alone


def test_what_cannot_be_converted_is_refused():
    model = old("net (float[N] x) => (float[N] y) { y = NoSuchOperator(x) }")
    with pytest.raises(UnsupportedError, match=r"it uses opset 6 and cannot be converted to 7"):
        brought_up(model, 6, "it")
