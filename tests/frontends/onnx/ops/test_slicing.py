"""Slice, Split, Concat and Pad in and out of ONNX, over opset versions, static and dynamic, with symbolic sizes."""

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.builder import Builder
from capgraph.ir.dims import Dim, symbol
from capgraph.ir.equality import assert_equal
from capgraph.ir.errors import CapgraphError
from capgraph.ir.types import TensorType

from tests.frontends.onnx.ops.operator_cases import Case, hold, ints, model_of, number, numbered
from tests.frontends.onnx.ops.there_and_back import compare, evaluated, imported, op_names, runtime_of

B, T = symbol("B"), symbol("T")
X = numbered(4, 5, 6)
LAST = 2**63 - 1
F32 = np.float32

SLICES = [
    Case("Slice", 7, (X,), ("slice",), {"starts": [1, -3], "ends": [LAST, -1], "axes": [0, 2]}),
    Case("Slice", 9, (X,), ("slice",), {"starts": [1, 0], "ends": [3, 2]}),
    Case("Slice", 10, (X, ints(1, 2), ints(3, LAST)), ("slice",), constants={1, 2}),
    Case("Slice", 13, (X, ints(-1), ints(-LAST - 1), ints(-2), ints(-2)), ("slice",), constants={1, 2, 3, 4}),
    Case("Slice", 13, (X, ints(1), ints(5), None, ints(2)), ("slice",), constants={1, 2, 4}),
    Case("Slice", 13, (X, ints(1), ints(5), ints(1), ints(2)), ("dynamic_slice",), constants={3}),
    Case("Slice", 13, (X, ints(1), ints(5), ints(1), ints(2)), ("dynamic_slice",)),
    Case("Slice", 13, (X, ints(-9), ints(-LAST - 1), ints(1), ints(-2)), ("slice",), constants={1, 2, 3, 4}),
    Case("Slice", 13, (X, ints(-LAST), ints(-2), ints(-1), ints(-1)), ("slice",), constants={1, 2, 3, 4}),
    Case("Slice", 13, (X, ints(-9, -4), ints(-8, -9), ints(2, 1), ints(-2, -1)), ("dynamic_slice",)),
    Case("Slice", 11, (X, *(ints(n).astype(np.int32) for n in (1, 5, 1))), ("slice",), constants={1, 2, 3}),
]
SPLITS = [
    Case("Split", 7, (X,), ("split",), {"axis": 0}, outputs=2),
    Case("Split", 11, (X,), ("split",), {"axis": -1, "split": [1, 2, 3]}, outputs=3),
    Case("Split", 13, (X, ints(1, 4)), ("split",), {"axis": 1}, constants={1}, outputs=2),
    Case("Split", 13, (X,), ("split",), {"axis": 2}, outputs=3),
    Case("Split", 18, (X,), ("split",), {"axis": 1, "num_outputs": 3}, outputs=3),
    Case("Split", 18, (X, ints(1, 4)), ("dynamic_split",), {"axis": 1}, outputs=2),
]
CONCATS = [
    Case("Concat", 7, (X, numbered(4, 2, 6), numbered(4, 0, 6)), ("concat",), {"axis": 1}),
    Case("Concat", 13, (X,), ("concat",), {"axis": -1}),
]
PADS = [
    Case("Pad", 7, (X,), ("pad",), {"pads": [0, 1, 2, 3, 0, 1], "value": 2.5}),
    Case("Pad", 7, (X,), ("pad",), {"pads": [0, 1, 2, 3, 0, 1], "mode": "reflect"}),
    Case("Pad", 10, (X,), ("pad",), {"pads": [0, -1, 2, 3, 0, -1]}),
    Case("Pad", 11, (X, ints(1, 0, 0, 1, 0, 0), number(3, F32)), ("pad",), constants={1, 2}),
    Case("Pad", 13, (X, ints(1, 0, 0, 1, 0, 0)), ("pad",), {"mode": "edge"}, constants={1}),
    Case("Pad", 18, (X, ints(1, 2), None, ints(-1)), ("pad",), constants={1, 3}),
    Case("Pad", 19, (X, ints(1, 0, 0, 1, 0, 0)), ("pad",), {"mode": "wrap"}, constants={1}),
    Case("Pad", 13, (X, ints(1, 0, 0, 1, 0, 0), number(3, F32)), ("dynamic_pad",)),
    Case("Pad", 18, (X, ints(1, 2), None, ints(1)), ("dynamic_pad",), constants={3}),
]


@pytest.mark.parametrize("case", SLICES + SPLITS + CONCATS + PADS, ids=str)
def test_operators_with_plain_sizes(case: Case) -> None:
    hold(case)


@pytest.mark.parametrize("case", SLICES + SPLITS[:2] + SPLITS[3:] + PADS, ids=str)
def test_operators_with_symbolic_sizes(case: Case) -> None:
    hold(case, symbols=True)


def test_what_a_dynamic_op_leaves_alone_keeps_its_size() -> None:
    model = model_of(Case("Slice", 13, (X, ints(1), ints(5), ints(1)), (), constants={3}))
    assert str(imported(model).outputs[0].type) == "f32[4, u0, 6]"
    model = model_of(Case("Pad", 18, (X, ints(1, 2), None, ints(1)), (), constants={3}))
    assert str(imported(model).outputs[0].type) == "f32[4, u0, 6]"
    model = model_of(Case("Split", 18, (X, ints(1, 4)), (), {"axis": 1}, outputs=2))
    assert [str(value.type) for value in imported(model).outputs] == ["f32[4, u0, 6]", "f32[4, u1, 6]"]


def test_no_more_parts_are_counted_than_anything_has() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    damaged (float[6] x, int64[2147483647] sizes) => (float[A] a, float[B] b) { a, b = Split (x, sizes) }
    """
    graph = imported(onnx.parser.parse_model(text), native=False)
    assert len(graph.outputs) == 2


def test_bounds_that_are_computed_from_shapes_are_followed() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    last (float[B, T, 4] x, float[S, 4] table) => (float[B, one, 4] y, float[R, 4] rows) {
      shape = Shape(x)
      at = Constant<value_ints = [1]>()
      length = Gather<axis = 0>(shape, at)
      zero = Constant<value_ints = [0]>()
      rows = Slice(table, zero, length, zero)
      minus = Constant<value_ints = [-1]>()
      y = Slice(x, minus, length, at)
    }
    """
    graph = imported(onnx.parser.parse_model(text))
    assert op_names(graph).count("slice") == 2
    assert [str(value.type) for value in graph.outputs] == ["f32[B, min(1, T), 4]", "f32[min(S, T), 4]"]
    feeds = {"x": numbered(2, 3, 4), "table": numbered(7, 4)}
    compare(runtime_of(export_model(graph), feeds), evaluated(graph, feeds))


@pytest.mark.parametrize("step", [-1, -2])
@pytest.mark.parametrize("end", [-LAST - 1, -(2**31) + 1, -7, -4, -3, -2, 0, 1, LAST, T // 2])
@pytest.mark.parametrize("start", [-LAST - 1, -6, -3, -2, -1, 2])
def test_a_slice_backwards_from_before_an_axis_is_written_as_what_it_is(start: int, end: Dim, step: int) -> None:
    """There the op takes nothing, and ONNX's operator the first element."""
    builder = Builder()
    x = builder.input("x", "f32[T, 4]")
    attrs = {"axes": (0, 1), "starts": (start, start), "ends": (end, end if isinstance(end, int) else 1)}
    graph = builder.finish({"y": builder.op("slice", x, **attrs, steps=(step, step))})
    exported = export_model(graph)
    again = imported(exported)
    assert_equal(again, imported(export_model(again)))
    for size in range(1, 8):
        feeds = {"x": numbered(size, 4)}
        wanted = evaluated(graph, feeds)
        compare(runtime_of(exported, feeds), wanted)
        compare(evaluated(again, feeds), wanted)


def test_equal_parts_of_a_symbolic_size_are_written_by_their_number() -> None:
    text = """
    <ir_version: 9, opset_import: ["": 18]>
    gate (float[B, T] x) => (float[B, S] a, float[B, R] b) {
      both = Concat<axis = 1>(x, x)
      a, b = Split<axis = 1, num_outputs = 2>(both)
    }
    """
    graph = imported(onnx.parser.parse_model(text))
    assert [value.type for value in graph.outputs] == [TensorType(graph.inputs[0].tensor.dtype, (B, T))] * 2
    assert [node.op_type for node in export_model(graph).graph.node] == ["Concat", "Split"]


def test_a_split_that_does_not_add_up_is_an_error_at_its_node() -> None:
    with pytest.raises(CapgraphError, match=r"along axis 1[\s\S]*split\("):
        imported(model_of(Case("Split", 13, (X, ints(1, 3)), (), {"axis": 1}, constants={1}, outputs=2)))


def test_a_slice_over_what_is_not_there_is_empty() -> None:
    hold(Case("Slice", 13, (numbered(0, 3), ints(0), ints(2)), ("slice",), constants={1, 2}), symbols=True)


def test_pad_axes_of_32_bits_are_written_as_64() -> None:
    builder = Builder()
    x, pads = builder.input("x", "f32[2, 3]"), builder.input("pads", "i64[2]")
    graph = builder.finish({"y": builder.op("dynamic_pad", x, pads, None, builder.constant(np.array([1], np.int32)))})
    feeds = {"x": numbered(2, 3), "pads": np.array([1, 2])}
    exported = export_model(graph)
    compare(runtime_of(exported, feeds), evaluated(graph, feeds))
    compare(evaluated(imported(exported), feeds), evaluated(graph, feeds))
