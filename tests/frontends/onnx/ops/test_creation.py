"""Constants, fills, ranges and shapes in and out of ONNX."""

from typing import Any

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Constant
from capgraph.ir.dims import Dim, symbol
from capgraph.ir.equality import assert_equal
from capgraph.ir.types import DType
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx.ops.operator_cases import Case, hold, ints, number, numbered
from tests.frontends.onnx.ops.there_and_back import compare, evaluated, imported, op_names, runtime_of
from tests.ir.ops.onnx_oracle import Array

B, T = symbol("B"), symbol("T")
X = numbered(2, 3, 4)
F32 = np.float32


def constant_model(**attrs: Any) -> onnx.ModelProto:
    node = helper.make_node("Constant", [], ["y"], **attrs)
    graph = helper.make_graph([node], "constant", [], [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"value": numpy_helper.from_array(X)}, X),
        ({"value_float": 1.5}, np.array(1.5, F32)),
        ({"value_floats": [1.5, 2]}, np.array([1.5, 2], F32)),
        ({"value_int": 3}, np.array(3)),
        ({"value_ints": [3, 4]}, np.array([3, 4])),
        ({"value_string": "a"}, np.array("a", object)),
        ({"value_strings": ["a", "bc"]}, np.array(["a", "bc"], object)),
    ],
)
def test_constants_of_every_attribute(attrs: dict[str, Any], expected: Array) -> None:
    (found,) = evaluated(imported(constant_model(**attrs)), {})
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()


def test_a_sparse_constant_is_made_dense() -> None:
    values = helper.make_tensor("values", TensorProto.FLOAT, [2], [1, 2])
    indices = helper.make_tensor("indices", TensorProto.INT64, [2], [1, 5])
    sparse = helper.make_sparse_tensor(values, indices, [2, 3])
    (found,) = evaluated(imported(constant_model(sparse_value=sparse)), {})
    assert found.tolist() == [[0, 1, 0], [0, 0, 2]]


def fill(value: Any, dtype: Any) -> dict[str, Any]:
    return {"value": numpy_helper.from_array(np.array([value], dtype))}


CASES = [
    Case("ConstantOfShape", 9, (ints(2, 3),), ("full",), constants={0}),
    Case("ConstantOfShape", 9, (ints(2, 3),), ("full",), fill(7, np.int32), constants={0}),
    Case("ConstantOfShape", 9, (ints(2, 3),), ("dynamic_full",), fill(True, np.bool_)),
    Case("Shape", 7, (X,), ()),
    Case("Shape", 15, (X,), (), {"start": -2, "end": 2}),
    Case("Size", 7, (X,), ()),
    Case("EyeLike", 9, (numbered(3, 4),), ("eye_like",), {"k": -1}),
    Case("EyeLike", 9, (numbered(3, 4, dtype=np.int32),), ("eye_like",), {"dtype": TensorProto.DOUBLE}),
    Case("Range", 11, (number(2), number(9), number(3)), ("arange",), constants={0, 1, 2}),
    Case("Range", 11, (number(2), number(9), number(3)), ("dynamic_arange",)),
    Case("Range", 11, tuple(number(v, F32) for v in (1, -5, -2)), ("arange",), constants={0, 1, 2}),
    Case("Range", 11, tuple(number(v, F32) for v in (0, 1, 0.3)), (), constants={0, 1, 2}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operators(case: Case) -> None:
    hold(case)


def test_positions_of_a_symbolic_length_are_a_static_range() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    positions (float[B, T, 4] x) => (int64[P] y, float[R] z) {
      at = Constant<value_int = 1>()
      zero = Constant<value_int = 0>()
      shape = Shape(x)
      length = Gather<axis = 0>(shape, at)
      y = Range(zero, length, at)
      first = Constant<value_float = 0.0>()
      step = Constant<value_float = 1.0>()
      limit = Cast<to = 1>(length)
      z = Range(first, limit, step)
    }
    """
    graph = imported(onnx.parser.parse_model(text))
    assert [str(value.type) for value in graph.outputs] == ["i64[T]", "f32[T]"]
    feeds = {"x": numbered(2, 3, 4)}
    compare(evaluated(graph, feeds), [np.arange(3), np.arange(3, dtype=F32)])
    compare(runtime_of(export_model(graph, dialect=Dialect.STANDARD), feeds), evaluated(graph, feeds))


@pytest.mark.parametrize(
    ("dtype", "bounds", "op"),
    [
        (np.float32, (0, 1, 0.25), "constant"),
        (np.float32, (1, 0, -0.25), "constant"),
        (np.int16, (-32768, 32767, 16384), "arange"),
        (np.float32, (-3e38, 3e38, 1e38), "dynamic_arange"),
        (np.float32, (0, 1, 1e-45), "dynamic_arange"),
        (np.float32, (0, np.inf, 1), "dynamic_arange"),
        (np.float32, (0, np.nan, 1), "dynamic_arange"),
        (np.float32, (0.5, 1e9, 1), "dynamic_arange"),
        (np.float16, (-65504, 65504, 0.5), "dynamic_arange"),
    ],
)
def test_constant_ranges_are_folded_while_they_are_short(dtype: Any, bounds: tuple[float, ...], op: str) -> None:
    """Bounds far apart are none of the dtype's own business: their difference overflows it."""
    given = [numpy_helper.from_array(np.array(bound, dtype), name) for bound, name in zip(bounds, "abc", strict=True)]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    output = helper.make_tensor_value_info("y", element, [None])
    graph = helper.make_graph([helper.make_node("Range", ["a", "b", "c"], ["y"])], "range", [], [output], given)
    opset = 27 if dtype is np.float16 else 21
    made = imported(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10))
    assert made.outputs[0].producer is not None
    assert made.outputs[0].producer.op.name == op


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.I16, DType.I32, DType.I64])
@pytest.mark.parametrize("bounds", [(0, T, 1), (T, 2, -3), (1, 9, 2), (4, 4, 1)])
def test_a_range_comes_back_in_its_dtype(dtype: DType, bounds: tuple[Dim, Dim, int]) -> None:
    builder = Builder()
    builder.input("x", "f32[T]")
    start, limit, step = bounds
    graph = builder.finish({"y": builder.op("arange", start=start, limit=limit, step=step, dtype=dtype)})
    again = imported(export_model(graph))
    if T not in bounds or dtype is not DType.I16:
        assert_equal(again, graph)
    compare(evaluated(again, {"x": numbered(7)}), evaluated(graph, {"x": numbered(7)}))


@pytest.mark.parametrize(
    ("dtype", "start"), [(DType.F32, 2**24), (DType.F64, 2**53), (DType.I32, 2**31 - 1), (DType.U8, 3), (DType.F16, 3)]
)
def test_a_range_that_its_dtype_cannot_count_is_converted(dtype: DType, start: int) -> None:
    builder = Builder()
    graph = builder.finish({"y": builder.op("arange", start=start, limit=start + 3, step=1, dtype=dtype)})
    exported = export_model(graph)
    assert [node.op_type for node in exported.graph.node] == ["Range", "Cast"]
    compare(evaluated(imported(exported), {}), evaluated(graph, {}))


def test_a_fill_keeps_the_sizes_that_are_known() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    fill (float[B, 4] x, int64[1] n) => (float[B, M, 3] y) {
      shape = Shape<start = 0, end = 1>(x)
      three = Constant<value_ints = [3]>()
      target = Concat<axis = 0>(shape, n, three)
      y = ConstantOfShape(target)
    }
    """
    graph = imported(onnx.parser.parse_model(text))
    assert str(graph.outputs[0].type) == "f32[B, u0, 3]"
    feeds = {"x": numbered(2, 4), "n": ints(5)}
    compare(runtime_of(export_model(graph, dialect=Dialect.STANDARD), feeds), evaluated(graph, feeds))


MADE: list[tuple[str, dict[str, Any]]] = [
    ("full", {"shape": (B, T + 1), "value": Constant(np.array(2, np.int8))}),
    ("full", {"shape": (2,), "value": Constant(np.array("a", object))}),
    ("dims", {"values": (B, 2 * T, 3)}),
    ("dim", {"value": B * T}),
    ("arange", {"start": B, "limit": 4 * T, "step": 3}),
    ("arange", {"limit": T, "dtype": DType.F16}),
    ("arange", {"limit": T, "dtype": DType.U8}),
]


@pytest.mark.parametrize(("name", "attrs"), MADE)
def test_what_is_made_of_sizes_is_written(name: str, attrs: dict[str, Any]) -> None:
    builder = Builder()
    x = builder.input("x", "f32[B, T]")
    graph = builder.finish({"x_": x, "y": builder.op(name, **attrs)})
    feeds = {"x": numbered(2, 3)}
    wanted = evaluated(graph, feeds)[1]
    found = runtime_of(export_model(graph, dialect=Dialect.STANDARD), feeds)[1]
    assert (found.dtype, found.tolist()) == (wanted.dtype, wanted.tolist())
    assert name in op_names(graph)


@pytest.mark.parametrize("dtype", [np.float16, np.uint8])
def test_ranges_of_other_dtypes_are_written_in_wider_ones(dtype: Any) -> None:
    builder = Builder()
    bounds = [builder.input(name, f"{DType.of(dtype)}[]") for name in "abc"]
    graph = builder.finish({"y": builder.op("dynamic_arange", *bounds)})
    feeds = {name: number(value, dtype) for name, value in zip("abc", (1, 9, 2), strict=True)}
    compare(runtime_of(export_model(graph, dialect=Dialect.STANDARD), feeds), evaluated(graph, feeds))
