"""TopK, Unique, NonZero, Compress and NonMaxSuppression in and out of ONNX, over opset versions."""

import numpy as np
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.builder import Builder
from capgraph.ir.types import DType

from tests.frontends.onnx.ops.operator_cases import Case, hold, ints, numbered
from tests.frontends.onnx.ops.there_and_back import compare, evaluated, imported, runtime_of

X = np.array([[3, 1, 2, 3], [0, 0, 5, 4]], np.float32)
BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]], np.float32)
SCORES = np.array([[[0.9, 0.75, 0.6, 0.95]]], np.float32)
LIMITS = (ints(3), np.array([0.5], np.float32), np.array([0.1], np.float32))

CASES = [
    Case("TopK", 7, (X,), ("top_k",), {"k": 2}, outputs=2),
    Case("TopK", 10, (X, ints(3)), ("top_k",), {"axis": 1}, constants={1}, outputs=2),
    Case("TopK", 11, (X, ints(1)), ("top_k",), {"axis": 0, "largest": 0}, constants={1}, outputs=2),
    Case("TopK", 11, (X, ints(3)), ("dynamic_top_k",), {"largest": 1, "sorted": 1}, outputs=2),
    Case("NonZero", 9, (X,), ("non_zero",)),
    Case("Compress", 9, (X, np.array([True, False, True])), ("compress",), {"axis": 1}),
    Case("Compress", 11, (X, np.array([True, False, True])), ("compress",)),
    Case("Unique", 11, (X[0],), ("unique",), {"sorted": 0}, outputs=4),
    Case("Unique", 11, (numbered(3, 2) // 4,), ("unique",), {"sorted": 1, "axis": 0}, outputs=4),
    Case("NonMaxSuppression", 10, (BOXES, SCORES, *LIMITS), ("non_max_suppression",)),
    Case("NonMaxSuppression", 11, (BOXES, SCORES, *LIMITS), ("non_max_suppression",), {"center_point_box": 1}),
    Case("NonMaxSuppression", 11, (BOXES, SCORES, LIMITS[0]), ("non_max_suppression",)),
]


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_operators(case: Case, symbols: bool) -> None:
    hold(case, symbols=symbols and case.operator != "NonMaxSuppression")


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "i32", "bool"])
def test_a_sort_is_written_as_the_top_of_all(dtype: str, descending: bool) -> None:
    builder = Builder()
    x = builder.input("x", f"{dtype}[B, T]")
    values, indices = builder.ops("sort", x, axis=0, descending=descending)
    graph = builder.finish({"values": values, "indices": indices})
    feeds = {"x": X.astype(DType.of(dtype).numpy)}
    wanted = evaluated(graph, feeds)
    exported = export_model(graph)
    compare(runtime_of(exported, feeds), wanted)
    compare(evaluated(imported(exported), feeds), wanted)


def test_a_scalar_k_is_written_as_a_vector() -> None:
    builder = Builder()
    x, k = builder.input("x", "f32[B, T]"), builder.input("k", "i64[]")
    values, indices = builder.ops("dynamic_top_k", x, k, axis=0)
    graph = builder.finish({"values": values, "indices": indices})
    feeds = {"x": X, "k": np.array(2)}
    exported = export_model(graph)
    compare(runtime_of(exported, feeds), evaluated(graph, feeds))
    compare(evaluated(imported(exported), feeds), evaluated(graph, feeds))
