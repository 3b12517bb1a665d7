"""Casts and quantization in and out of ONNX, every version beside ONNX Runtime or the reference evaluator."""

import capgraph
import ml_dtypes
import numpy as np
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.frontends.onnx.ops.cast import EXPORTS
from capgraph.frontends.onnx.tensors import element_number
from capgraph.ir.errors import ModelError, UnsupportedError
from capgraph.ir.ops.cast import OPS
from capgraph.ir.types import DType
from onnx import ModelProto, parser

from tests.frontends.onnx.ops.every_version import every_version, of_onnx_runtime
from tests.frontends.onnx.ops.reference_only import check_in_reference
from tests.frontends.onnx.ops.there_and_back import (
    check,
    check_in_runtime,
    evaluated,
    feeds_of,
    imported,
    op_names,
    runtime_of,
)
from tests.ir.ops.onnx_oracle import one_node, random

X = np.array([-1.5, 0, 2.5, 300, 1e6], np.float32)


def test_every_op_goes_out():
    assert EXPORTS.keys() == {op.name for op in OPS}


@pytest.mark.parametrize("to", [DType.F16, DType.F64, DType.I32, DType.BOOL], ids=str)
@every_version(["Cast"])
def test_every_version_of_cast(operator, opset, to):
    attrs = {"to": element_number(to)}
    check_in_runtime(operator, X, opset=opset, attrs=attrs, symbols=["x0"])


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("to", [DType.F8E4M3FN, DType.F8E5M2, DType.F8E4M3FNUZ, DType.F8E5M2FNUZ], ids=str)
def test_fp8(to, saturate):
    attrs = {"to": element_number(to), "saturate": saturate}
    check_in_reference(one_node("Cast", [X], 1, 19, attrs), feeds_of(X))


@pytest.mark.parametrize("round_mode", ["up", "down", "nearest"])
def test_e8m0_goes_out_with_its_rounding(round_mode):
    x = np.array([1, 1.25, 1.5, 6], np.float32)
    attrs = {"to": element_number(DType.F8E8M0), "round_mode": round_mode}
    graph = imported(one_node("Cast", [x], 1, 24, attrs))
    again = imported(export_model(graph))
    assert again.last is not None
    assert again.last.attrs["round_mode"] == round_mode
    assert evaluated(again, feeds_of(x))[0].tobytes() == evaluated(graph, feeds_of(x))[0].tobytes()


def test_strings():
    x = np.array(["1.5", "-inf", "7"], object)
    graph = imported(one_node("Cast", [x], 1, 19, {"to": element_number(DType.F32)}))
    assert evaluated(graph, feeds_of(x))[0].tolist() == [1.5, -np.inf, 7]


def test_cast_like_takes_the_type_of_the_other_operand():
    like = np.zeros(3, ml_dtypes.bfloat16)
    graph = check_in_reference(one_node("CastLike", [X, like], 1, 19, {}), feeds_of(X, like))
    assert op_names(graph) == ["cast"]


def test_bit_cast():
    check(one_node("BitCast", [X], 1, 26, {"to": element_number(DType.U32)}), feeds_of(X))


def parameters(shape):
    """Scale and zero point."""
    scale = np.linspace(0.5, 2, int(np.prod(shape))).astype(np.float32).reshape(shape)
    return scale, np.full(shape, 3, np.int8)


@pytest.mark.parametrize("shape", [(), (3,)])
@every_version(["QuantizeLinear"])
def test_every_version_of_quantization(operator, opset, shape):
    shape = shape if opset >= 13 else ()
    x = random(1, 2, 3) * 50
    check_in_runtime(operator, x, *parameters(shape), opset=opset, symbols=["x0"])


@pytest.mark.parametrize("shape", [(), (3,)])
@every_version(["DequantizeLinear"])
def test_every_version_of_dequantization(operator, opset, shape):
    shape = shape if opset >= 13 else ()
    x = np.arange(-3, 3, dtype=np.int8).reshape(2, 3)
    check_in_runtime(operator, x, *parameters(shape), opset=opset)


@pytest.mark.parametrize("to", [DType.I4, DType.U2, DType.F8E4M3FN, DType.F4E2M1, DType.I16], ids=str)
def test_a_type_without_zero_point(to):
    x, scale = random(1, 2, 4), np.array([[0.5, 0.25], [1, 2]], np.float32)
    attrs = {"axis": -1, "block_size": 2, "output_dtype": element_number(to)}
    graph = check_in_reference(one_node("QuantizeLinear", [x, scale], 1, 25, attrs), feeds_of(x, scale))
    assert graph.outputs[0].type.dtype is to


def test_without_anything_said_the_type_is_u8():
    x, scale = random(1, 3), np.array(0.5, np.float32)
    graph = check(one_node("QuantizeLinear", [x, scale], 1, 13, {}), feeds_of(x, scale))
    assert graph.outputs[0].type.dtype is DType.U8


def test_before_opset_21_a_zero_point_says_the_type():
    x, scale = random(1, 3), np.array(0.5, np.float32)
    graph = imported(one_node("QuantizeLinear", [x, scale], 1, 21, {"output_dtype": element_number(DType.I8)}))
    exported = export_model(graph, opset=13)
    assert len(exported.graph.node[0].input) == 3
    assert evaluated(imported(exported), feeds_of(x, scale))[0].dtype == np.int8


def test_precision_and_output_type_come_through():
    x, scale = np.array([2049.0], np.float32), np.array(1.0, np.float32)
    attrs = {"precision": element_number(DType.F16), "output_dtype": element_number(DType.I16)}
    graph = check_in_reference(one_node("QuantizeLinear", [x, scale], 1, 23, attrs), feeds_of(x, scale))
    assert evaluated(graph, feeds_of(x, scale))[0].tolist() == [2048]
    q = np.array([3], np.int8)
    attrs = {"output_dtype": element_number(DType.F16)}
    back = check_in_reference(one_node("DequantizeLinear", [q, scale], 1, 23, attrs), feeds_of(q, scale))
    assert back.outputs[0].type.dtype is DType.F16


def test_a_zero_point_of_one_element_for_a_scale_of_none():
    x, scale, zero = np.array([0, 7], np.uint8), np.array(2, np.float32), np.array([1], np.uint8)
    check(one_node("DequantizeLinear", [x, scale, zero], 1, 21, {"axis": 0}), feeds_of(x, scale, zero))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_quantization_of_onnx_runtime(shape):
    scale, _ = parameters(shape)
    zero = np.full(shape, 300, np.uint16)
    inputs = [random(1, 2, 3) * 50, scale, zero]
    model = of_onnx_runtime(one_node("QuantizeLinear", inputs, 1, 13, {"axis": 1}))
    (quantized,) = expected = runtime_of(model, feeds_of(*inputs))
    check(model, feeds_of(*inputs), expected)
    inputs[0] = quantized
    model = of_onnx_runtime(one_node("DequantizeLinear", inputs, 1, 13, {"axis": 1}))
    check(model, feeds_of(*inputs), runtime_of(model, feeds_of(*inputs)))


@pytest.mark.parametrize("dialect", [Dialect.STANDARD, Dialect.ORT])
def test_16_bits_keep_the_opset_of_a_model_that_has_them_from_onnx_runtime(dialect):
    inputs = [random(2, 3) * 50, np.array(0.5, np.float32), np.array(300, np.uint16)]
    quantized = of_onnx_runtime(one_node("QuantizeLinear", inputs, 1, 17, {}))
    (numbers,) = runtime_of(quantized, feeds_of(*inputs))
    back = of_onnx_runtime(one_node("DequantizeLinear", [numbers, *inputs[1:]], 1, 17, {}))
    for model, feeds in ((quantized, feeds_of(*inputs)), (back, feeds_of(numbers, *inputs[1:]))):
        graph = import_model(model).graph
        for opset in (None, 13):
            written = export_model(graph, dialect=dialect, keep_versions=True, opset=opset)
            assert {each.domain: each.version for each in written.opset_import}[""] == (opset or 17)
            np.testing.assert_array_equal(runtime_of(written, feeds), runtime_of(model, feeds))
    graph.metadata.clear()
    own = [each.domain for each in export_model(graph, dialect=dialect, keep_versions=True).opset_import]
    assert ("com.microsoft" in own) == (dialect is Dialect.ORT)


@pytest.mark.parametrize("to", [DType.I16, DType.U16], ids=str)
@pytest.mark.parametrize("dtype", [DType.BF16, DType.I32, DType.F32], ids=str)
def test_16_bits_of_what_onnx_runtime_does_not_quantize_need_opset_21(dtype: DType, to: DType) -> None:
    x, scale = np.array([[3, -4]], dtype.numpy), np.array(0.5, np.float32 if dtype is DType.I32 else dtype.numpy)
    attrs = {"output_dtype": element_number(to)}
    if dtype is DType.F32:  # with a precision
        attrs |= {"precision": element_number(DType.F16)}
    check_in_dialects(one_node("QuantizeLinear", [x, scale], 1, 23, attrs))


def test_bfloat16_from_16_bits_needs_opset_21() -> None:
    inputs = [np.array([3, 4], np.uint16), np.array(0.5, ml_dtypes.bfloat16), np.array(300, np.uint16)]
    check_in_dialects(one_node("DequantizeLinear", inputs, 1, 21, {}))


def check_in_dialects(model: ModelProto) -> None:
    graph = imported(model)
    for dialect in Dialect:
        with pytest.raises(UnsupportedError, match="opset 20"):
            export_model(graph, dialect=dialect, opset=20)
        assert {each.domain for each in export_model(graph, dialect=dialect, opset=23).opset_import} == {""}


def test_two_types_that_contradict_are_refused():
    inputs = [random(1, 3), np.array(0.5, np.float32), np.array(0, np.int8)]
    with pytest.raises(ModelError, match="zero point is i8"):
        import_model(one_node("QuantizeLinear", inputs, 1, 21, {"output_dtype": element_number(DType.U8)}))


@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
def test_a_scale_along_an_axis_that_is_not_there_is_one(operator: str) -> None:
    x, y = ("float", "int8") if operator == "QuantizeLinear" else ("int8", "float")
    text = f"net ({x}[4] x, float[S] s, int8[S] z) => ({y}[?] y) {{ y = {operator}(x, s, z) }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 19]> {text}')
    feeds = {"x": np.arange(4).astype(X.dtype if x == "float" else np.int8)}
    feeds |= {"s": np.full(1, 0.5, np.float32), "z": np.ones(1, np.int8)}
    for executor in ("eager", "ort"):
        found = capgraph.optimize(model, executor=executor).run(feeds)["y"]
        np.testing.assert_array_equal(found, runtime_of(model, feeds)[0])


def test_dynamic_quantization():
    check_in_runtime("DynamicQuantizeLinear", random(1, 3, 4), opset=11, outputs=3)
