"""Comparisons, bits and selection in and out of ONNX, every version of every operator beside ONNX Runtime."""

import ml_dtypes
import numpy as np
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.frontends.onnx.ops.logic import EXPORTS, IMPORTS
from capgraph.ir.errors import ModelError
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.ops.logic import OPS
from capgraph.ir.types import DType, TensorType

from tests.frontends.onnx.ops.every_version import every_version
from tests.frontends.onnx.ops.reference_only import check_in_reference
from tests.frontends.onnx.ops.there_and_back import check_in_runtime, evaluated, feeds_of, imported, op_names, reference
from tests.ir.ops.onnx_oracle import one_node

TRUTHS = [np.array([[True, False]]), np.array([[True], [False]])]
NUMBERS = [np.array([[1, 2, 3]], np.float32), np.array([[2], [3]], np.float32)]
BITS = [np.array([0b1100, 0b1010], np.uint8), np.array([0b0110, 1], np.uint8)]
LIMITS = [np.array([np.nan, np.inf, -np.inf, 1], np.float32)]
INPUTS = {
    "Not": TRUTHS[:1],
    "BitwiseNot": BITS[:1],
    "IsNaN": LIMITS,
    "IsInf": LIMITS,
    "Where": [TRUTHS[1], *NUMBERS],
    "BitShift": BITS,
}
ATTRS = {"BitShift": {"direction": "LEFT"}, "IsInf": {"detect_negative": 0}}


def operands(operator):
    if operator in INPUTS:
        return INPUTS[operator]
    return BITS if operator.startswith("Bitwise") else TRUTHS if operator in ("And", "Or", "Xor") else NUMBERS


def test_every_op_goes_out():
    assert EXPORTS.keys() == {op.name for op in OPS}


@every_version(IMPORTS)
def test_every_version(operator, opset):
    inputs, attrs = operands(operator), ATTRS.get(operator, {})
    if operator == "Equal" and opset == 7:
        inputs = [array.astype(np.int64) for array in inputs]
    check_in_runtime(operator, *inputs, opset=opset, attrs=attrs)


def test_not_equal_goes_out_in_two_steps():
    graph = Graph()
    values = [graph.add_input(f"x{i}", TensorType(DType.F32, (2,))) for i in range(2)]
    graph.set_outputs([graph.append(native("not_equal"), values).output])
    exported = export_model(graph)
    assert [node.op_type for node in exported.graph.node] == ["Equal", "Not"]
    (found,) = reference(exported, feeds_of(np.array([1, 2], np.float32), np.array([1, 3], np.float32)))
    assert found.tolist() == [False, True]


def test_equal_strings():
    a, b = np.array(["a", "b"], object), np.array(["a", "c"], object)
    graph = imported(one_node("Equal", [a, b], 1, 19, {}))
    assert evaluated(graph, feeds_of(a, b))[0].tolist() == [True, False]


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_signed_shifts_need_opset_28(direction):
    a, b = np.array([-7, 7, -128], np.int8), np.array([1, 9, 7], np.int8)
    graph = check_in_reference(one_node("BitShift", [a, b], 1, 28, {"direction": direction}), feeds_of(a, b))
    assert op_names(graph) == [f"shift_{direction.lower()}"]
    assert export_model(graph).opset_import[0].version == 28


def test_a_shift_in_no_direction_is_refused():
    model = one_node("BitShift", BITS, 1, 11, {"direction": "UP"})
    with pytest.raises(ModelError, match="LEFT or RIGHT"):
        import_model(model)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e5m2, ml_dtypes.bfloat16])
@pytest.mark.parametrize("operator", ["IsInf", "IsNaN"])
def test_tests_of_small_floats(operator, dtype):
    x = LIMITS[0].astype(dtype)
    check_in_reference(one_node(operator, [x], 1, 20, {}), feeds_of(x))
