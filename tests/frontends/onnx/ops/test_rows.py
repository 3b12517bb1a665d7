import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.context.import_context import ImportContext, NotNative
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.frontends.onnx.ops.rows import attribute_default, export_as, import_as, padded_operands
from capgraph.ir.graph import Graph, Origin, Value
from capgraph.ir.ops import native
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType, TensorType

from tests.frontends.onnx.sample_models import parsed


class Scope:
    """As much of a scope as a one-to-one rule needs."""

    folder = None

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def resolve_attribute(self, proto: onnx.AttributeProto) -> onnx.AttributeProto:
        return proto


def context(op_type: str, inputs: int, version: int = 21, **attributes: object) -> ImportContext:
    graph = Graph("net")
    values: list[Value | None] = [graph.add_input(f"x{i}", TensorType(DType.F32, (2, 3))) for i in range(inputs)]
    node = onnx.helper.make_node(op_type, [f"x{i}" for i in range(inputs)], ["y"], **attributes)
    return ImportContext(Scope(graph), node, values, version, Origin())  # type: ignore[arg-type]


def attrs_of(rule: object, ctx: ImportContext) -> dict[str, object]:
    (value,) = rule(ctx)  # type: ignore[operator]
    return dict(value.producer.attrs)


def test_attributes_come_under_their_native_names():
    rule = import_as("argmax", "axis", keepdims="keep_dims", select_last_index="select_last")
    found = attrs_of(rule, context("ArgMax", 1, axis=1, keepdims=0, select_last_index=1))
    assert found == {"axis": 1, "keep_dims": False, "select_last": True}


def test_an_attribute_left_out_has_the_default_of_the_operator_s_version():
    rule = import_as("softmax", "axis")
    assert attrs_of(rule, context("Softmax", 1, version=13)) == {"axis": -1}
    assert attrs_of(rule, context("Softmax", 1, version=12)) == {"axis": 1}
    assert attribute_default(context("Cast", 1), "to") is None


def test_floats_are_the_decimals_that_they_were():
    assert attrs_of(import_as("elu", "alpha"), context("Elu", 1, alpha=0.1)) == {"alpha": 0.1}


def test_a_dtype_attribute():
    rule = import_as("cast", "to")
    assert attrs_of(rule, context("Cast", 1, to=onnx.TensorProto.FLOAT16))["to"] is DType.F16


def test_operands_left_out_are_absent():
    assert padded_operands(context("Clip", 1), native("clip"))[1:] == (None, None)


def test_surplus_operands_are_refused():
    with pytest.raises(NotNative, match="takes 1 operands, not 2"):
        padded_operands(context("Relu", 2), native("relu"))


def test_any_number_of_operands_where_the_last_is_variadic():
    assert len(padded_operands(context("Concat", 5), native("concat"))) == 5


def test_going_out():
    graph = parse("graph @net(%x: f32[2, 3]) { %y: i64[2] = argmax(%x) {axis = 1, keep_dims = false}  return %y }")
    (node,) = export_model(graph).graph.node
    assert node.op_type == "ArgMax"
    assert {a.name: a.i for a in node.attribute}.items() >= {"axis": 1, "keepdims": 0}.items()
    assert callable(export_as("ArgMax", "axis", keepdims="keep_dims"))


def test_a_row_there_and_back():
    model = parsed("net (float[N] x) => (float[N] y) { y = LeakyRelu <alpha = 0.25> (x) }")
    (node,) = export_model(import_model(model).graph).graph.node
    assert node.op_type == "LeakyRelu"
    assert np.float32(node.attribute[0].f) == np.float32(0.25)
