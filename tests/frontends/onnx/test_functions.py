import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.frontends.onnx.importing.model_reader import schema_function
from capgraph.ir.evaluate import evaluate_graph
from onnx.reference import ReferenceEvaluator

from tests.frontends.onnx.sample_models import parsed


class Node:
    """As much of an import context as `schema_function` reads."""

    def __init__(self, op_type: str, version: int, **attributes: object) -> None:
        self.op_type, self.version, self.inputs = op_type, version, ()
        self.node = onnx.helper.make_node(op_type, ["x"], ["y"], **attributes)
        self.attributes = {attribute.name: attribute for attribute in self.node.attribute}


def test_a_fixed_body_has_the_schema_s_defaults():
    body = schema_function(Node("MeanVarianceNormalization", 13), "")  # type: ignore[arg-type]
    assert body is not None
    assert [list(proto.ints) for proto in body.attribute_proto if proto.name == "axes"] == [[0, 2, 3]]


@pytest.mark.parametrize(("operator", "version"), [("Add", 14), ("NoSuch", 1), ("MeanVarianceNormalization", 1)])
def test_an_operator_without_a_body(operator, version):
    assert schema_function(Node(operator, version), "") is None  # type: ignore[arg-type]


def test_the_body_of_celu_would_make_a_vector_of_a_scalar():
    model = parsed(
        "net (float[2] x, int64[N] axes) => (float y) { s = ReduceSum <keepdims = 0> (x, axes) y = Celu (s) }"
    )
    graph = import_model(model).graph
    (found,) = evaluate_graph(graph, [np.ones(2, np.float32), np.array([0])])
    assert found.shape == ()


@pytest.mark.parametrize(
    "text",
    [
        "net (float[N, 2, 3, 3] x) => (float[N, 2, 3, 3] y) { y = MeanVarianceNormalization(x) }",
        "net (float[N, 4] x) => (float[N, 4] y) { y = HannWindow(n) }",
        "net (float[3, 5] x, int64[3] t) => (float loss) { loss = SoftmaxCrossEntropyLoss(x, t) }",
    ],
)
def test_a_body_means_what_the_reference_says(text):
    if "HannWindow" in text:
        text = "net (int64 n) => (float[K] y) { y = HannWindow <periodic = 0> (n) }"
    model = parsed(text)
    drawn = np.random.default_rng(0)
    feeds = {}
    for info in model.graph.input:
        shape = [dim.dim_value or 2 for dim in info.type.tensor_type.shape.dim]
        is_float = info.type.tensor_type.elem_type == 1
        feeds[info.name] = drawn.random(shape).astype(np.float32) if is_float else drawn.integers(2, 5, shape)
    feeds = {name: np.asarray(array) for name, array in feeds.items()}
    graph = import_model(model).graph
    found = evaluate_graph(graph, [feeds[value.name] for value in graph.inputs])
    for one, other in zip(found, ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_an_operator_with_a_rule_stays_one_node_where_nothing_tells_how_many_axes_there_are():
    model = parsed(
        """net (float[N, 3] x, int64[R] shape) => (float[] y) <float low = {0.25}, float high = {0.75}> {
            open = Reshape (x, shape)
            y = Clip (open, low, high)
        }"""
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    graph = import_model(model).graph
    assert [node.op.name for node in graph.nodes if node.op.is_foreign][-1:] == ["onnx.Clip"]
    assert not any(node.op.name == "onnx.Where" for node in graph.nodes)
    x = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    (found,) = evaluate_graph(graph, [x, np.array([3, 2])])
    np.testing.assert_array_equal(found, x.reshape(3, 2).clip(0.25, 0.75))
