"""Gathers, scatters, OneHot and Trilu in and out of ONNX, over opset versions."""

import numpy as np
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.builder import Builder

from tests.frontends.onnx.ops.operator_cases import Case, hold, ints, model_of, number, numbered
from tests.frontends.onnx.ops.there_and_back import check, compare, evaluated, imported, runtime_of, with_symbols

X = numbered(3, 4)
AT = np.array([[0, -1], [2, 1]])
UPDATES = np.full((2, 2), 9, np.float32)
OFF_ON = np.array([0, 1], np.float32)

CASES = [
    Case("Gather", 7, (X, AT), ("gather",)),
    Case("Gather", 13, (X, AT.astype(np.int32)), ("gather",), {"axis": -1}),
    Case("GatherElements", 11, (X, AT), ("gather_elements",), {"axis": 1}),
    Case("GatherND", 11, (X, AT), ("gather_nd",)),
    Case("GatherND", 13, (X, np.array([[1], [2], [0]])), ("gather_nd",), {"batch_dims": 1}),
    Case("Scatter", 9, (X, AT, UPDATES), ("scatter_elements",), {"axis": 1}),
    Case("ScatterElements", 11, (X, AT, UPDATES), ("scatter_elements",), {"axis": 1}),
    Case("ScatterElements", 16, (X, AT, UPDATES), ("scatter_elements",), {"axis": 0, "reduction": "mul"}),
    Case("ScatterElements", 18, (X, AT, UPDATES), ("scatter_elements",), {"axis": 1, "reduction": "max"}),
    Case("ScatterND", 11, (X, np.array([[2], [0]]), numbered(2, 4)), ("scatter_nd",)),
    Case("ScatterND", 18, (X, np.array([[2], [2]]), numbered(2, 4)), ("scatter_nd",), {"reduction": "add"}),
    Case("OneHot", 9, (AT, number(4), OFF_ON), ("one_hot",), constants={1}),
    Case("OneHot", 11, (AT, number(4, np.float32), OFF_ON), ("one_hot",), {"axis": 0}, constants={1}),
    Case("OneHot", 11, (AT, ints(4), OFF_ON), ("dynamic_one_hot",), {"axis": 1}),
    Case("Trilu", 14, (X,), ("trilu",)),
    Case("Trilu", 14, (X, number(-1)), ("trilu",), {"upper": 0}, constants={1}),
    Case("Trilu", 14, (X, number(1)), ("dynamic_trilu",)),
]


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_operators(case: Case, symbols: bool) -> None:
    hold(case, symbols=symbols)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_the_cache_write(mode: str) -> None:
    cache, update = numbered(2, 1, 4, 3), -numbered(2, 1, 2, 3)
    at = ints(1, 2 if mode == "linear" else 3)
    # ONNX Runtime does not have the operator yet, so this is held to the suite's reference alone.
    graph = imported(model_of(Case("TensorScatter", 24, (cache, update, at), (), {"mode": mode})))
    feeds = {"x0": cache, "x1": update, "x2": at}
    expected = cache.copy()
    for entry in range(2):
        for step in range(2):
            expected[entry, :, (at[entry] + step) % 4] = update[entry, :, step]
    compare(evaluated(graph, feeds), [expected])
    exported = export_model(graph)
    assert [node.op_type for node in exported.graph.node] == ["TensorScatter"]
    compare(evaluated(imported(exported), feeds), [expected])


@pytest.mark.parametrize("x", [numbered(4), numbered(3, 4), numbered(2, 3, 4)])
@pytest.mark.parametrize("at", [ints(2), ints(3, 0, 3), np.array([[1], [2]])])
def test_columns_at_indices(x: np.ndarray, at: np.ndarray) -> None:
    model = model_of(Case("ArrayFeatureExtractor", 9, (x, at), ()))
    model.graph.node[0].domain = "ai.onnx.ml"
    model.opset_import.add(domain="ai.onnx.ml", version=1)
    feeds = {"x0": x, "x1": at}
    wanted = runtime_of(model, feeds)
    check(model, feeds, wanted)
    check(with_symbols(model), feeds, wanted)


@pytest.mark.parametrize("x", [numbered(4), numbered(1, 4)])
def test_a_known_row_is_looked_up_in_the_shape_of_the_indices(x: np.ndarray) -> None:
    at = np.array([[1], [3], [0]])
    model = model_of(Case("ArrayFeatureExtractor", 13, (x, at), (), constants={0}))
    model.graph.node[0].domain = "ai.onnx.ml"
    model.opset_import.add(domain="ai.onnx.ml", version=1)
    for tested in (model, with_symbols(model)):
        graph = check(tested, {"x1": at}, runtime_of(model, {"x1": at}))
        gather = next(node for node in graph.nodes if node.op.name == "gather")
        assert gather.output.shape == gather.operands[1].shape


@pytest.mark.parametrize("name", ["one_hot", "dynamic_one_hot"])
def test_a_scalar_index_is_written_as_a_vector(name: str) -> None:
    builder = Builder()
    index, values = builder.input("index", "i64[]"), builder.input("values", "f32[2]")
    if name == "one_hot":
        hot = builder.op(name, index, values, depth=4)
    else:
        hot = builder.op(name, index, builder.input("depth", "i64[]"), values)
    graph = builder.finish({"hot": hot})
    feeds = {"index": np.array(2), "values": np.array([0.5, 3], np.float32), "depth": np.array(4)}
    feeds = {value.name: feeds[value.name] for value in graph.inputs}
    exported = export_model(graph)
    compare(runtime_of(exported, feeds), evaluated(graph, feeds))
    compare(evaluated(imported(exported), feeds), evaluated(graph, feeds))
