"""Pools in and out of ONNX: auto_pad, older defaults, symbolic sizes."""

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Constant
from capgraph.ir.dims import symbol
from capgraph.ir.equality import assert_equal
from capgraph.ir.errors import UnsupportedError

from tests.frontends.onnx.ops.operator_cases import Case, hold, ints, model_of
from tests.frontends.onnx.ops.there_and_back import compare, evaluated, feeds_of, imported, op_names, runtime_of
from tests.frontends.onnx.ops.there_and_back import reference as reference_of
from tests.ir.ops.onnx_oracle import random

X = random(1, 2, 3, 9, 8)
SQUARE: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2]}
UNPOOLED = (random(1, 1, 1, 2, 2), ints(5, 7, 13, 15).reshape(1, 1, 2, 2))

CASES = [
    Case("MaxPool", 7, (X,), ("max_pool",), {**SQUARE, "pads": [1, 0, 1, 1]}),
    Case("MaxPool", 10, (X,), ("max_pool",), {**SQUARE, "ceil_mode": 1, "dilations": [2, 1]}),
    Case("MaxPool", 12, (X,), ("max_pool",), {"kernel_shape": [2, 3]}),
    Case("MaxPool", 22, (X,), ("max_pool",), {**SQUARE, "auto_pad": "SAME_UPPER"}),
    Case("MaxPool", 22, (X,), ("max_pool",), {**SQUARE, "auto_pad": "SAME_LOWER"}),
    Case("MaxPool", 22, (X,), ("max_pool",), {**SQUARE, "auto_pad": "VALID"}),
    Case("MaxPool", 8, (X,), ("max_pool_with_indices",), {**SQUARE, "pads": [1, 1, 1, 1]}, outputs=2),
    Case("MaxPool", 12, (X,), ("max_pool_with_indices",), {**SQUARE, "storage_order": 1}, outputs=2),
    Case("AveragePool", 7, (X,), ("average_pool",), {**SQUARE, "pads": [1, 0, 1, 1], "count_include_pad": 1}),
    Case("AveragePool", 7, (X,), ("average_pool",), {**SQUARE, "pads": [1, 0, 1, 1]}),
    Case("AveragePool", 10, (X,), ("average_pool",), {**SQUARE, "ceil_mode": 1}),
    Case("AveragePool", 19, (X,), ("average_pool",), {**SQUARE, "dilations": [2, 2]}),
    Case("AveragePool", 22, (X,), ("average_pool",), {**SQUARE, "auto_pad": "SAME_LOWER"}),
    Case("LpPool", 7, (X,), ("lp_pool",), {**SQUARE, "pads": [1, 0, 1, 1], "p": 1}),
    Case("LpPool", 18, (X,), ("lp_pool",), {**SQUARE, "dilations": [1, 2]}),
    Case("GlobalAveragePool", 7, (X,), ("reduce_mean",)),
    Case("GlobalMaxPool", 7, (X,), ("reduce_max",)),
    Case("GlobalLpPool", 7, (X,), ("reduce_l2",)),
    Case("GlobalLpPool", 7, (X,), ("reduce_l1",), {"p": 1}),
    Case("MaxUnpool", 9, UNPOOLED, ("max_unpool",), {"kernel_shape": [2, 2], "strides": [2, 2]}),
]  # fmt: skip


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_pools_there_and_back(case: Case, symbols: bool) -> None:
    hold(case, symbols=symbols and case.operator != "MaxUnpool")


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [0, 1, 1, 1], [1, 0, 0, 2], [0, 0, 2, 1]], ids=str)
@pytest.mark.parametrize("attrs", [{}, {"count_include_pad": 1}, {"dilations": [1, 2]}], ids=str)
@pytest.mark.parametrize("strides", [[4, 3], [5, 4]], ids=str)
def test_windows_in_the_padding_alone_are_left_out_at_old_opsets(
    strides: list[int], attrs: dict[str, Any], pads: list[int]
) -> None:
    operator, opset = ("MaxPool", 12) if "dilations" in attrs else ("AveragePool", 11)
    rounded = {"kernel_shape": [3, 3], "ceil_mode": 1, "strides": strides, "pads": pads, **attrs}
    for rows, columns in itertools.product(range(3, 7), range(5, 8)):
        x = random(3, 1, 2, rows, columns)
        graph = imported(model_of(Case(operator, opset, (x,), (), rounded)))
        written = export_model(graph, keep_versions=True)
        assert written.opset_import[0].version == opset
        compare(runtime_of(written, feeds_of(x)), evaluated(graph, feeds_of(x)))


@pytest.mark.parametrize("strides", [[3, 1], [3, 2], [2, 3]], ids=str)
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0]], ids=str)
@pytest.mark.parametrize("order", [0, 1])
def test_indices_where_windows_are_left_out_count_in_all_of_the_picture(
    strides: list[int], pads: list[int], order: int
) -> None:
    attrs = {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": strides, "pads": pads, "storage_order": order}
    for rows, columns in itertools.product(range(2, 6), repeat=2):
        x = random(3, 2, 2, rows, columns)
        graph = imported(model_of(Case("MaxPool", 12, (x,), (), attrs, outputs=2)))
        written = export_model(graph, keep_versions=True)
        assert written.opset_import[0].version == 12
        compare(runtime_of(written, feeds_of(x)), evaluated(graph, feeds_of(x)))


def test_windows_are_left_out_beside_symbolic_sizes() -> None:
    text = """g (float[1, 2, N, M, 2] x) => (float[?, ?, ?, ?, ?] y, int64[?, ?, ?, ?, ?] i) {
      y, i = MaxPool <kernel_shape = [2, 2, 1], strides = [2, 1, 3], pads = [1, 0, 0, 1, 0, 0], ceil_mode = 1> (x) }"""
    graph = imported(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'))
    written = export_model(graph, keep_versions=True)
    assert written.opset_import[0].version == 17
    for rows, columns in itertools.product(range(1, 5), range(2, 4)):
        feeds = {"x": random(3, 1, 2, rows, columns, 2)}
        compare(runtime_of(written, feeds), evaluated(graph, feeds))


def test_a_global_pool_of_another_norm() -> None:
    graph = imported(model_of(Case("GlobalLpPool", 22, (X,), ("lp_pool",), {"p": 3})))
    wanted = [np.sum(np.abs(X) ** 3, (2, 3), keepdims=True) ** (1 / 3)]
    compare(evaluated(graph, feeds_of(X)), wanted)
    compare(runtime_of(export_model(graph), feeds_of(X)), wanted)


def test_unpooling_to_a_known_shape() -> None:
    inputs = (*UNPOOLED, ints(1, 1, 5, 5))
    case = Case("MaxUnpool", 22, inputs, ("max_unpool",), {"kernel_shape": [2, 2], "strides": [2, 2]}, constants={2})
    model, feeds = model_of(case), feeds_of(*inputs[:2])
    wanted = reference_of(model, feeds)
    graph = imported(model)
    assert op_names(graph) == ["max_unpool"]
    compare(evaluated(graph, feeds), wanted)
    compare(reference_of(export_model(graph), feeds), wanted)


ROIS, IMAGES = np.array([[0, 0, 6, 6], [1.3, 2.1, 5.2, 7.9]], np.float32), ints(0, 1)


@pytest.mark.parametrize(
    "attrs", [{}, {"mode": "max", "output_height": 2, "output_width": 3, "sampling_ratio": 2}], ids=str
)
@pytest.mark.parametrize("opset", [10, 16, 22])
def test_roi_align_there_and_back(opset: int, attrs: dict[str, Any]) -> None:
    case = Case("RoiAlign", opset, (X, ROIS, IMAGES), ("roi_align",), attrs)
    feeds = feeds_of(*case.inputs)
    graph = imported(model_of(case))
    if opset < 22 and attrs.get("mode") != "max":
        compare(evaluated(graph, feeds), runtime_of(model_of(case), feeds))
    compare(evaluated(imported(export_model(graph)), feeds), evaluated(graph, feeds))
    compare(reference_of(export_model(graph), feeds), evaluated(graph, feeds))


def test_max_roi_pool_there_and_back() -> None:
    regions = np.array([[0, 0, 0, 6, 6], [1, 1, 2, 5, 7]], np.float32)
    case = Case("MaxRoiPool", 7, (X, regions), ("max_roi_pool",), {"pooled_shape": [2, 3], "spatial_scale": 0.5})
    feeds = feeds_of(*case.inputs)
    wanted = runtime_of(model_of(case), feeds)
    graph = imported(model_of(case))
    compare(evaluated(graph, feeds), wanted)
    compare(evaluated(imported(export_model(graph)), feeds), wanted)
    compare(runtime_of(export_model(graph, opset=20), feeds), wanted)


def test_pads_that_cannot_be_written_are_refused() -> None:
    build = Builder("padded")
    x = build.input("x", "f32[1, 1, H]")
    pooled = build.op("max_pool", x, kernel=[2], strides=[1], dilations=[1], pads=[symbol("H") - 1, 0])
    graph = build.finish({"y": pooled})
    with pytest.raises(UnsupportedError, match="no pool with pads"):
        export_model(graph)


def test_indices_that_are_known_leave_a_plain_pool() -> None:
    """Of an even fill the first place of each window is the largest: what is made of the places is a constant."""
    builder = Builder()
    x = builder.op("full", shape=(1, 1, 4, 4), value=Constant(np.array(2, np.float32)))
    window = {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil_mode": False}
    values, places = builder.ops("max_pool_with_indices", x, column_major=False, **window)
    graph = builder.finish({"values": values, "places": builder.op("neg", places)})
    again = imported(export_model(graph))
    assert "max_pool" in op_names(again)
    assert_equal(imported(export_model(again)), again)
    compare(evaluated(again, {}), evaluated(graph, {}))


@pytest.mark.parametrize("op", ["max_pool", "average_pool"])
def test_a_window_wider_than_all_that_there_is(op: str) -> None:
    """The result is empty, also by rounding up, where onnx's inference counts one window."""
    builder = Builder()
    extra = {"count_include_pad": False} if op == "average_pool" else {}
    window = {"kernel": (3,), "strides": (2,), "pads": (0, 0), "dilations": (1,), "ceil_mode": True}
    graph = builder.finish({"y": builder.op(op, builder.input("x", "f32[2, 1, 1]"), **window, **extra)})
    feeds = {"x": np.ones((2, 1, 1), np.float32)}
    (found,) = runtime_of(export_model(graph), feeds)
    assert found.shape == evaluated(graph, feeds)[0].shape == (2, 1, 0)
