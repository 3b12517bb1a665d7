"""Arithmetic in and out of ONNX, every version of every operator beside ONNX Runtime."""

import ml_dtypes
import numpy as np
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.ops.arithmetic import EXPORTS, IMPORTS
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.ops.arithmetic import OPS
from capgraph.ir.types import DType, TensorType

from tests.frontends.onnx.ops.every_version import every_version
from tests.frontends.onnx.ops.there_and_back import (
    check,
    check_in_runtime,
    evaluated,
    feeds_of,
    imported,
    op_names,
    reference,
    runtime_of,
)
from tests.ir.ops.drawn_arrays import assert_same
from tests.ir.ops.onnx_oracle import one_node, random, runtime

COUNT = {"Min": 3, "Max": 3, "Sum": 3, "Mean": 3} | dict.fromkeys(["Add", "Sub", "Mul", "Div", "Mod", "Pow"], 2)
WITHIN = {"Acosh": (1.0, 4.0), "Log": (0.1, 4.0), "Sqrt": (0.0, 4.0), "Pow": (0.1, 2.0)}
ATTRS = {"Mod": {"fmod": 1}}


def operands(operator):
    low, high = WITHIN.get(operator, (-0.9, 0.9))
    shapes = [(2, 3), (3,), (2, 1)][: COUNT.get(operator, 1)]
    generator = np.random.default_rng(7)
    return [generator.uniform(low, high, shape).astype(np.float32) for shape in shapes]


def test_every_op_goes_out():
    assert EXPORTS.keys() == {op.name for op in OPS}


@every_version(IMPORTS)
def test_every_version(operator, opset):
    inputs, attrs = operands(operator), ATTRS.get(operator, {})
    if opset == 7 and len(inputs) == 3:  # variadic operators broadcast from opset 8 on
        inputs = [inputs[0], -inputs[0], 2 * inputs[0]]
    check_in_runtime(operator, *inputs, opset=opset, attrs=attrs)


@pytest.mark.parametrize("operator", ["Sum", "Mean", "Min", "Max"])
def test_one_operand_alone(operator):
    x = random(1, 2, 3)
    graph = check(one_node(operator, [x], 1, 13, {}), feeds_of(x), [x])
    assert op_names(graph) == ([] if operator in ("Sum", "Mean") else [operator.lower()])


@pytest.mark.parametrize("attrs", [{}, {"min": -0.5}, {"max": 0.5}, {"min": -0.5, "max": 0.5}])
def test_clip_with_attributes(attrs):
    graph = check_in_runtime("Clip", random(1, 2, 3), opset=7, attrs=attrs, symbols=["x0"])
    assert op_names(graph) == ["clip"]  # without bounds, too: they are the greatest floats then, which infinity is not


@pytest.mark.parametrize("bounds", [(-0.5, None), (None, 0.5), (-0.5, 0.5), (0.5, -0.5)])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_clip_with_operands(bounds, shape):
    inputs = [random(1, 2, 3), *(None if b is None else np.full(shape, b, np.float32) for b in bounds)]
    inputs = inputs[:2] if inputs[2] is None else inputs
    low, high = (-np.inf if b is None and i == 0 else np.inf if b is None else b for i, b in enumerate(bounds))
    expected = np.minimum(np.maximum(inputs[0], np.float32(low)), np.float32(high))
    check(one_node("Clip", inputs, 1, 13, {}), feeds_of(*inputs), [expected])


@pytest.mark.parametrize("opset", [13, 26])
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float16])
def test_mod_with_the_sign_of_the_divisor(dtype, opset):
    a, b = np.array([5, -5, 5, -5, 4, 0], dtype), np.array([3, 3, -3, -3, 2, -2], dtype)
    graph = Graph()
    values = [graph.add_input(f"x{i}", TensorType(DType.of(dtype), (6,))) for i in range(2)]
    graph.set_outputs([graph.append(native("mod"), values).output])
    (wanted,) = evaluated(graph, feeds_of(a, b))
    assert wanted.tolist() == [2, 1, -1, -2, 0, 0]
    exported = export_model(graph, dialect=Dialect.STANDARD, opset=opset)
    assert_same(reference(exported, feeds_of(a, b))[0], wanted)
    assert_same(evaluated(imported(exported), feeds_of(a, b))[0], wanted)


@pytest.mark.parametrize(("op", "count"), [("max", 2), ("min", 3), ("clip", 3)])
def test_extrema_broadcast_from_opset_8_on(op, count):
    graph = Graph()
    shapes = [(2, 3), (), ()][:count]
    values = [graph.add_input(f"x{i}", TensorType(DType.F32, shape)) for i, shape in enumerate(shapes)]
    graph.set_outputs([graph.append(native(op), values).output])
    with pytest.raises(UnsupportedError, match="different shapes") as caught:
        export_model(graph, dialect=Dialect.STANDARD, opset=7)
    assert caught.value.remedy == "opset=8 (--opset 8)"
    inputs = feeds_of(*(random(i, *shape) for i, shape in enumerate(shapes)))
    exported = export_model(graph, dialect=Dialect.STANDARD, opset=8)
    assert_same(reference(exported, inputs)[0], evaluated(graph, inputs)[0])


def test_rsqrt_goes_out_in_two_steps():
    graph = Graph()
    x = graph.add_input("x0", TensorType(DType.F32, (3,)))
    graph.set_outputs([graph.append(native("rsqrt"), [x]).output])
    exported = export_model(graph, dialect=Dialect.STANDARD)
    assert [node.op_type for node in exported.graph.node] == ["Sqrt", "Reciprocal"]
    (found,) = reference(exported, {"x0": np.array([1, 4, 16], np.float32)})
    assert found.tolist() == [1, 0.5, 0.25]


def test_pow_of_two_dtypes():
    x, exponent = np.array([1, 2, 3], np.float32), np.array([3, 2, -1], np.int64)
    check(one_node("Pow", [x, exponent], 1, 15, {}), feeds_of(x, exponent))


@pytest.mark.parametrize("operator", ["Add", "Mul", "Max", "Exp", "Erf"])
def test_bf16(operator):
    inputs = [array.astype(ml_dtypes.bfloat16) for array in operands(operator)]
    wide = [array.astype(np.float32) for array in inputs]
    (exact,) = runtime(operator, *wide, opset=13)
    graph = imported(one_node(operator, inputs, 1, 13, {}))
    (found,) = evaluated(graph, feeds_of(*inputs))
    np.testing.assert_allclose(found.astype(np.float32), exact, rtol=2**-8)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_the_sign_of_nan_is_nan_in_runtimes(dtype):
    x = np.array([np.nan, -2, 0, 3], dtype)
    graph = imported(one_node("Sign", [x], 1, 13, {}))
    written = {
        each: [node.op_type for node in export_model(graph, dialect=each).graph.node]
        for each in (Dialect.FAITHFUL, Dialect.STANDARD)
    }
    is_small = x.itemsize == 2
    assert written == {
        Dialect.FAITHFUL: ["Sign"],
        Dialect.STANDARD: ["Cast", "Sign", "Cast"] if is_small else ["Sign"],
    }
    if dtype is not ml_dtypes.bfloat16:  # which the runtime takes no arrays of
        [found] = runtime_of(export_model(graph, dialect=Dialect.STANDARD), feeds_of(x))
        assert np.array_equal(found, np.sign(x), equal_nan=True)
