import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.attributes import attribute_to_proto
from capgraph.ir.constant import Constant
from capgraph.ir.dims import symbol
from capgraph.ir.errors import TypeRuleError, UnsupportedError
from capgraph.ir.types import DType, TensorType
from onnx import AttributeProto


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, "INT"),
        (True, "INT"),
        (0.5, "FLOAT"),
        ("text", "STRING"),
        (b"\xff", "STRING"),
        (DType.F16, "INT"),
        ((1, 2), "INTS"),
        ((), "INTS"),
        ((1, 0.5), "FLOATS"),
        (("a", "b"), "STRINGS"),
        (Constant(np.ones(2)), "TENSOR"),
        ((Constant(np.ones(2)),), "TENSORS"),
        (TensorType(DType.F32, (2,)), "TYPE_PROTO"),
        (onnx.GraphProto(name="g"), "GRAPH"),
    ],
)
def test_the_kind_follows_from_the_value(value, kind):
    proto = attribute_to_proto("a", value)
    assert AttributeProto.AttributeType.Name(proto.type) == kind
    assert proto.name == "a"


def test_the_schema_tells_ints_from_floats():
    schema = onnx.defs.get_schema("Elu", 22)
    assert attribute_to_proto("alpha", 1, schema) == onnx.helper.make_attribute("alpha", 1.0)
    scaler = onnx.defs.get_schema("Scaler", 1, "ai.onnx.ml")
    assert list(attribute_to_proto("scale", (1, 2), scaler).floats) == [1, 2]
    assert attribute_to_proto("scale", (), scaler).type == AttributeProto.FLOATS


def test_a_value_of_another_kind_is_refused():
    with pytest.raises(TypeRuleError, match="alpha cannot be"):
        attribute_to_proto("alpha", (1.0,), onnx.defs.get_schema("Elu", 22))
    with pytest.raises(TypeRuleError, match="cannot be an ONNX attribute"):
        attribute_to_proto("alpha", object())


@pytest.mark.parametrize("value", [symbol("N"), (1, symbol("N"))])
def test_a_symbolic_size_is_refused_with_the_way_out(value):
    with pytest.raises(UnsupportedError, match=r"(?s)symbolic size N.*bind the sizes"):
        attribute_to_proto("pads", value)
