import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.files.metadata import opset_reason
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.builder import Builder
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.types import DType
from onnx import ModelProto

from tests.frontends.onnx.sample_models import parsed


def versions(model: ModelProto) -> tuple[int, int]:
    return model.opset_import[0].version, model.ir_version


def from_file(opset: int, ir_version: int, nodes: str = "y = Relu(x)") -> Graph:
    head = f'<ir_version: {ir_version}, opset_import: ["": {opset}]>'
    return import_model(parsed(f"{head} net (float[N, 4] x) => (float[N, 4] y) {{ {nodes} }}")).graph


def unwritable(graph: Graph) -> Graph:
    """The graph with a node that no opset before 18 has."""
    x = graph.outputs[0]
    number = graph.append(native("cast"), (x,), {"to": DType.I32}).output
    both = graph.append(native("bitwise_and"), (number, number)).output
    graph.set_outputs([both], ["y"])
    return graph


@pytest.mark.parametrize(("opset", "ir_version"), [(7, 4), (9, 4), (13, 7), (17, 8), (21, 10), (24, 13), (26, 13)])
def test_a_file_keeps_the_versions_of_its_model(opset: int, ir_version: int) -> None:
    graph = from_file(opset, ir_version)
    for dialect in (Dialect.STANDARD, Dialect.ORT):
        assert versions(export_model(graph, keep_versions=True, dialect=dialect)) == (opset, ir_version)


def test_initializers_that_are_no_inputs_take_ir_4() -> None:
    assert versions(export_model(from_file(8, 3), keep_versions=True)) == (8, 4)


def test_an_older_opset_gets_the_ir_version_that_came_with_it() -> None:
    assert versions(export_model(from_file(24, 12), keep_versions=True, opset=17)) == (17, 8)


def test_an_ir_version_that_lacks_the_opset_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"(?s)IR 7 is too old for opset 17.*ir_version=8"):
        export_model(from_file(17, 8), keep_versions=True, ir_version=7)
    assert versions(export_model(from_file(17, 8), keep_versions=True, ir_version=9)) == (17, 9)


def test_a_graph_from_elsewhere_is_written_at_the_newest_opset_that_runtimes_have_long_had() -> None:
    b = Builder()
    graph = b.finish({"y": b.op("gelu", b.input("x", "f32[3]"))})
    assert versions(export_model(graph, keep_versions=True)) == (20, 9)


def test_the_least_opset_that_has_all_is_taken_and_the_reason_said() -> None:
    model = export_model(unwritable(from_file(13, 7)), keep_versions=True)
    assert versions(model) == (18, 8)
    assert opset_reason(model) == "opset 18: BitwiseAnd does not exist in opset 13"
    with pytest.raises(UnsupportedError, match=r"(?s)BitwiseAnd does not exist in opset 17.*opset=18"):
        export_model(unwritable(from_file(13, 7)), opset=17)
