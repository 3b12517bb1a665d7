"""What the dialects write by default."""

import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.text.parser import parse

NEG = "graph @net(%x: f32[2]) { %y: f32[2] = neg(%x)  return %y }"
NIBBLES = "graph @net(%x: f32[2]) { %y: u2[2] = cast(%x) {to = u2}  %z: f32[2] = cast(%y) {to = f32}  return %z }"
SWISH_AND_NIBBLES = NIBBLES.replace("return %z", "%s: f32[2] = silu(%z)  return %s")


def opset(model):
    return next(entry.version for entry in model.opset_import if entry.domain == "")


@pytest.mark.parametrize(("dialect", "version"), [(Dialect.FAITHFUL, 26), (Dialect.STANDARD, 24), (Dialect.ORT, 24)])
def test_each_dialect_has_its_opset(dialect, version):
    assert dialect.opset == version
    assert opset(export_model(parse(NEG), dialect=dialect)) == version


def test_what_runtimes_get_is_newer_where_an_operator_needs_it():
    model = export_model(parse(NIBBLES), dialect=Dialect.STANDARD)
    assert opset(model) == 25
    assert {"capgraph.opset_reason"} == {entry.key for entry in model.metadata_props}


def test_swish_is_written_for_the_opset_that_the_others_need():
    model = export_model(parse(SWISH_AND_NIBBLES), dialect=Dialect.STANDARD)
    assert [node.op_type for node in model.graph.node] == ["Cast", "Cast", "Sigmoid", "Mul"]
    assert not model.functions
