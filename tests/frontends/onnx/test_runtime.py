"""Operators of ONNX Runtime's own: their types without help from the model, and that every executor runs them."""

import capgraph
import numpy as np
import pytest
from capgraph.frontends.onnx import runtime
from capgraph.frontends.onnx.exporter import export_model
from capgraph.frontends.onnx.importer import import_model
from capgraph.ir.dims import symbol
from capgraph.ir.errors import ExecutionError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.types import DType, TensorType
from onnx import helper
from onnx.parser import parse_model

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
