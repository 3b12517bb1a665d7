"""Operators of ONNX Runtime's own: their types without help from the model, and that every executor runs them."""

import capgraph
import numpy as np
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.foreign import runtime
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.dims import symbol
from capgraph.ir.errors import ExecutionError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.types import DType, TensorType
from onnx import helper, numpy_helper
from onnx.parser import parse_model

from tests.frontends.onnx.ops.there_and_back import runtime_of

HEAD = '<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>'

PRODUCT = f"""{HEAD}
net (float[batch, rows, 4] x, float[4, 5] w) => (float[batch] y) {{
    a = com.microsoft.FusedMatMul <alpha = 2.0> (x, w)
    y = Relu(a)
}}"""


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.maximum(2 * (x @ w), 0)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_types_come_from_onnx_runtime():
    graph = import_model(parse_model(PRODUCT)).graph
    (fused,) = (node for node in graph.nodes if node.op.is_foreign)
    assert fused.output.type == TensorType(DType.F32, (symbol("batch"), symbol("rows"), 5))


def test_they_win_over_what_the_model_says():
    model = parse_model(PRODUCT)
    model.graph.value_info.append(helper.make_tensor_value_info("a", 1, [7, 7, 7]))
    graph = import_model(model).graph
    assert graph.outputs[0].type == TensorType(DType.F32, (symbol("batch"), symbol("rows"), 5))


def test_without_onnx_runtime_they_are_what_the_model_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runtime, "is_here", lambda: False)
    model = parse_model(PRODUCT)
    with pytest.raises(UnsupportedError, match=r"nothing is known of the operator FusedMatMul(.|\n)*install onnxrun"):
        import_model(model)
    model.graph.value_info.append(helper.make_tensor_value_info("a", 1, ["batch", "rows", 5]))
    graph = import_model(model).graph
    with pytest.raises(
        UnsupportedError, match=r"no implementation of com.microsoft.FusedMatMul(.|\n)*install onnxrunt"
    ):
        evaluate_graph(graph, [drawn(2, 3, 4), drawn(4, 5)])


@pytest.mark.parametrize("executor", ["eager", "graph", "ort"])
def test_every_executor_runs_them(executor: str):
    x, w = drawn(2, 3, 4), drawn(4, 5)
    options = {"dynamic": {"batch": 4, "rows": 4}} if executor == "graph" else {}
    with capgraph.optimize(parse_model(PRODUCT), executor=executor, **options) as program:
        for _ in range(2):
            np.testing.assert_allclose(program.run({"x": x, "w": w})["y"], product(x, w), rtol=1e-5)


def test_they_are_written_again():
    graph = import_model(export_model(import_model(parse_model(PRODUCT)).graph)).graph
    x, w = drawn(2, 3, 4), drawn(4, 5)
    np.testing.assert_allclose(evaluate_graph(graph, [x, w])[0], product(x, w), rtol=1e-5)


def test_several_results_some_left_out():
    graph = import_model(
        parse_model(
            f"""{HEAD}
            net (float[n, s, 4] x, float[n, s, 4] skip, float[4] g) => (float[n, s, 4] y, float[n, s, 4] total) {{
                y, , , total = com.microsoft.SkipLayerNormalization(x, skip, g)
            }}"""
        )
    ).graph
    shape = (symbol("n"), symbol("s"), 4)
    assert [value.type for value in graph.outputs] == [TensorType(DType.F32, shape)] * 2
    x, skip = drawn(1, 2, 4), drawn(1, 2, 4)
    _, total = evaluate_graph(graph, [x, skip, np.ones(4, np.float32)])
    np.testing.assert_allclose(total, x + skip)


def test_what_onnx_runtime_refuses_is_said():
    model = parse_model(
        f"{HEAD} net (float[2] x) => (float[2] y) {{ y = com.microsoft.NoSuchOperator(x) }}",
    )
    graph = import_model(model).graph
    with pytest.raises(UnsupportedError, match=r"no implementation of com.microsoft.NoSuchOperator"):
        evaluate_graph(graph, [drawn(2)])


def test_what_fails_in_onnx_runtime_is_an_error_of_the_run():
    graph = import_model(
        parse_model(
            f"""{HEAD}
            net (float[n] x, float[m] w) => (float[k] y) {{ y = com.microsoft.FusedMatMul(x, w) }}"""
        )
    ).graph
    with pytest.raises(ExecutionError, match="ONNX Runtime failed"):
        evaluate_graph(graph, [drawn(2), drawn(3)])


SEARCH = """<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
net (int32[batch, length] input_ids, int32[1] limit, int32[1] beams) => (int32[batch, n, m] sequences) {
    unit = Constant<value_ints = [1]>()
    few = Cast<to = 6>(unit)
    penalty = Constant<value_floats = [1.0]>()
    sequences = com.microsoft.BeamSearch <model_type = 0, eos_token_id = 0, pad_token_id = 0, decoder = gpt (
        int32[b, s] input_ids, int32[b, s] position_ids, int32[b, t] attention_mask, float[2, b, 1, p, 2] past_0
    ) => (float[b, s, 3] logits, float[2, b, 1, q, 2] present_0) {
        logits = Gather(table, input_ids)
        one = Shape<start = 1, end = 2>(input_ids)
        two = Constant<value_ints = [2]>()
        single = Constant<value_ints = [1]>()
        rows = Shape<start = 0, end = 1>(input_ids)
        shape = Concat<axis = 0>(two, rows, single, one, two)
        grown = ConstantOfShape(shape)
        present_0 = Concat<axis = 3>(past_0, grown)
    }> (input_ids, limit, few, beams, few, penalty)
}"""


def test_subgraphs_that_are_known_by_their_names_keep_them():
    model = parse_model(SEARCH)
    table = np.array([[0, 1, 2], [0, 3, 1], [2, 0, 1]], np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    graph = import_model(model).graph
    written = export_model(graph)
    (search,) = (node for node in written.graph.node if node.op_type == "BeamSearch")
    body = next(attribute.g for attribute in search.attribute if attribute.name == "decoder")
    assert [info.name for info in body.input] == ["input_ids", "position_ids", "attention_mask", "past_0"]
    assert [info.name for info in body.output] == ["logits", "present_0"]
    feeds = {
        "input_ids": np.array([[1, 1]], np.int32),
        "limit": np.array([5], np.int32),
        "beams": np.array([2], np.int32),
    }
    wanted = runtime_of(model, feeds)[0]
    np.testing.assert_array_equal(runtime_of(written, feeds)[0], wanted)
    np.testing.assert_array_equal(evaluate_graph(graph, list(feeds.values()))[0], wanted)


def test_a_binary_classifier_of_onnx_ml_runs():
    graph = import_model(
        parse_model(
            """<ir_version: 8, opset_import: ["": 15, "ai.onnx.ml": 1]>
            net (float[N, 2] x) => (int64[N] label, float[N, 2] scores) {
                label, scores = ai.onnx.ml.LinearClassifier <
                    coefficients = [1.0, -1.0], intercepts = [0.5], classlabels_ints = [0, 1],
                    post_transform = "LOGISTIC"
                > (x)
            }"""
        )
    ).graph
    label, scores = evaluate_graph(graph, [np.array([[1, 0], [0, 3]], np.float32)])
    assert label.tolist() == [1, 0]
    np.testing.assert_allclose(scores[:, 1], 1 / (1 + np.exp([-1.5, 2.5])), rtol=1e-5)
