"""Convolutions in and out of ONNX: auto_pad, output_shape, symbolic sizes and pads."""

from typing import Any

import numpy as np
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.frontends.onnx.ops.windows import same_pads, split_pads
from capgraph.ir.builder import Builder
from capgraph.ir.dims import Dim, evaluate, symbol
from capgraph.ir.errors import ModelError, UnsupportedError
from hypothesis import given
from hypothesis import strategies as st

from tests.frontends.onnx.ops.operator_cases import Case, hold, ints, model_of
from tests.frontends.onnx.ops.there_and_back import compare, evaluated, imported, runtime_of
from tests.ir.ops.onnx_oracle import random

CONV_T, QCONV = "ConvTranspose", "QLinearConv"
X, WEIGHT, BIAS = random(1, 2, 4, 7, 6), random(2, 6, 2, 3, 2), random(3, 6)
BACK = random(4, 4, 3, 3, 2)
BYTES, BYTE_WEIGHT = random(5, 1, 4, 7, 6, dtype=np.uint8), random(6, 6, 2, 3, 2, dtype=np.uint8)
ZERO, SCALE = np.array(120, np.uint8), np.array(0.05, np.float32)

CASES = [
    Case("Conv", 7, (X, WEIGHT, BIAS), ("conv",), {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1]}),
    Case("Conv", 11, (X, WEIGHT), ("conv",), {"group": 2, "dilations": [2, 1], "kernel_shape": [3, 2]}),
    Case("Conv", 22, (X, WEIGHT), ("conv",), {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("Conv", 22, (X, WEIGHT), ("conv",), {"group": 2, "auto_pad": "SAME_LOWER"}),
    Case("Conv", 22, (X, WEIGHT), ("conv",), {"group": 2, "auto_pad": "VALID", "strides": [3, 1]}),
    Case("Conv", 22, (random(1, 2, 3, 9), random(2, 4, 3, 3)), ("conv",), {"auto_pad": "SAME_UPPER", "strides": [4]}),
    Case(CONV_T, 7, (X, BACK), ("conv_transpose",), {"strides": [2, 3], "pads": [1, 0, 0, 1]}),
    Case(CONV_T, 11, (X, BACK), ("conv_transpose",), {"group": 2, "strides": [2, 2], "output_padding": [1, 0]}),
    Case(CONV_T, 22, (X, BACK), ("conv_transpose",), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    Case(CONV_T, 22, (X, BACK), ("conv_transpose",), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    Case(CONV_T, 22, (X, BACK), ("conv_transpose",), {"strides": [2, 2], "auto_pad": "VALID"}),
    Case(CONV_T, 22, (X, BACK, random(8, 3)), ("conv_transpose",), {"strides": [2, 2], "output_shape": [14, 11]}),
    Case(CONV_T, 22, (X, BACK), ("conv_transpose",), {"strides": [3, 3], "output_shape": [22, 17]}),
    Case(CONV_T, 22, (X, BACK), ("conv_transpose",), {"strides": [3, 3], "output_shape": [23, 19]}),
    Case("ConvInteger", 10, (BYTES, BYTE_WEIGHT, ZERO), ("conv_integer",), {"group": 2, "pads": [1, 1, 0, 0]}),
    Case("ConvInteger", 10, (BYTES, BYTE_WEIGHT, ZERO), ("conv_integer",), {"group": 2, "auto_pad": "SAME_UPPER"}),
    Case(QCONV, 10, (BYTES, SCALE, ZERO, BYTE_WEIGHT, SCALE, ZERO, SCALE, ZERO), ("qlinear_conv",), {"group": 2}),
    Case("Col2Im", 18, (random(1, 2, 12, 20), ints(5, 6), ints(2, 2)), ("col2im",), constants={1, 2}),
]  # fmt: skip


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions_there_and_back(case: Case, symbols: bool) -> None:
    hold(case, symbols=symbols)


def test_deform_conv_there_and_back() -> None:
    inputs = (random(1, 2, 4, 6, 6), random(2, 4, 2, 2, 2), random(7, 2, 8, 5, 5), random(8, 4), random(9, 2, 4, 5, 5))
    hold(Case("DeformConv", 19, inputs, ("deform_conv",), {"group": 2}), symbols=False)


def test_an_older_model_with_an_unused_kernel_shape_that_is_wrong() -> None:
    with pytest.raises(ModelError, match="kernel_shape"):
        import_model(model_of(Case("Conv", 11, (X, WEIGHT), (), {"group": 2, "kernel_shape": [3, 3]})))


def test_col2im_of_a_size_that_only_running_tells_stays_foreign() -> None:
    case = Case("Col2Im", 18, (random(1, 2, 12, 20), ints(5, 6), ints(2, 2)), ("onnx.Col2Im",), constants={2})
    graph = imported(model_of(case), native=False)
    assert [node.op.name for node in graph.nodes if node.op.name != "constant"] == ["onnx.Col2Im"]


@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    data=st.data(),
    mode=st.sampled_from(["SAME_UPPER", "SAME_LOWER"]),
)
def test_same_pads_give_one_window_for_each_stride(sizes: list[int], data: st.DataObject, mode: str) -> None:
    rank = len(sizes)
    drawn = [data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank)) for _ in range(3)]
    kernel, strides, dilations = drawn
    names: list[Dim] = [symbol(f"s{axis}") for axis in range(rank)]
    env = {f"s{axis}": size for axis, size in enumerate(sizes)}
    pads = [evaluate(pad, env) for pad in same_pads(mode, names, kernel, strides, dilations)]
    assert tuple(pads) == same_pads(mode, sizes, kernel, strides, dilations)
    for axis, size in enumerate(sizes):
        extent = dilations[axis] * (kernel[axis] - 1) + 1
        begin, end = pads[axis], pads[rank + axis]
        assert (size + begin + end - extent) // strides[axis] + 1 == -(-size // strides[axis])
        assert abs(begin - end) <= 1
        assert begin >= 0 <= end


def test_an_odd_pad_is_where_the_mode_says() -> None:
    assert split_pads("SAME_UPPER", [3]) == (1, 2)
    assert split_pads("SAME_LOWER", [3]) == (2, 1)


def test_pads_that_no_attribute_can_say_become_a_node() -> None:
    build = Builder("padded")
    x = build.input("x", "f32[1, 2, H]")
    weight, back, bias = build.input("w", "f32[3, 2, 2]"), build.input("v", "f32[2, 3, 2]"), build.input("b", "f32[3]")
    height = symbol("H")
    attrs: dict[str, Any] = {"strides": [1], "dilations": [1], "pads": [height - 1, 0]}
    outputs = {
        "conv": build.op("conv", x, weight, bias, **attrs),
        "cut": build.op("conv_transpose", x, back, bias, output_padding=[0], **{**attrs, "pads": [height - 1, 1]}),
        "grown": build.op("conv_transpose", x, back, bias, output_padding=[0], **{**attrs, "pads": [1 - height, 1]}),
    }
    graph = build.finish(outputs)
    feeds = {
        "x": random(1, 1, 2, 5),
        "w": random(2, 3, 2, 2),
        "v": random(3, 2, 3, 2),
        "b": random(4, 3),
    }
    compare(runtime_of(export_model(graph), feeds), evaluated(graph, feeds))


def test_deform_conv_with_symbolic_pads() -> None:
    build = Builder("padded")
    x, offset = build.input("x", "f32[1, 2, H, 3]"), build.input("o", "f32[1, 8, 2*H - 2, 2]")
    attrs: dict[str, Any] = {"strides": [1, 1], "dilations": [1, 1], "pads": [symbol("H") - 1, 0, 0, 0]}
    weight = build.input("w", "f32[3, 2, 2, 2]")
    graph = build.finish({"y": build.op("deform_conv", x, weight, offset, None, None, **attrs)})
    feeds = {"x": random(1, 1, 2, 5, 3), "w": random(3, 3, 2, 2, 2), "o": random(2, 1, 8, 8, 2)}
    compare(runtime_of(export_model(graph), feeds), evaluated(graph, feeds))


@pytest.mark.parametrize("op", ["conv_integer", "qlinear_conv"])
def test_pads_that_cannot_be_written_are_refused(op: str) -> None:
    build = Builder("padded")
    x, weight = build.input("x", "u8[1, 1, H]"), build.input("w", "u8[1, 1, 2]")
    scale, zero = build.constant(np.float32(1)), build.constant(np.uint8(0))
    operands: dict[str, list[Any]] = {
        "conv_integer": [x, weight, None, None],
        "qlinear_conv": [x, scale, zero, weight, scale, zero, scale, zero, None],
    }
    pads = [symbol("H") - 1, 0]
    result = build.op(op, *operands[op], strides=[1], dilations=[1], pads=pads)
    graph = build.finish({"y": result})
    with pytest.raises(UnsupportedError, match="symbolic pads"):
        export_model(graph)
