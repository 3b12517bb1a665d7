import pytest
from capgraph.executors.ort.library import onnxruntime
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.exporting.model_writer import LAST_KERNELS, NEWEST_IR, NEWEST_OPSET
from capgraph.frontends.onnx.files.metadata import opset_reason
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.frontends.onnx.schemas import schema_of, versions_of
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


@pytest.mark.parametrize(
    ("opset", "ir_version"), [(7, 4), (9, 4), (13, 7), (17, 8), (21, 10), (23, 10), (24, 13), (26, 13)]
)
def test_a_file_keeps_the_versions_of_its_model(opset: int, ir_version: int) -> None:
    graph = from_file(opset, ir_version)
    for dialect in (Dialect.STANDARD, Dialect.ORT):
        assert versions(export_model(graph, keep_versions=True, dialect=dialect)) == (opset, ir_version)


def test_initializers_that_are_no_inputs_take_ir_4() -> None:
    assert versions(export_model(from_file(8, 3), keep_versions=True)) == (8, 4)


def test_an_older_opset_gets_the_ir_version_that_came_with_it() -> None:
    assert versions(export_model(from_file(24, 12), keep_versions=True, opset=17)) == (17, 8)


def test_an_ir_version_that_lacks_the_opset_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"(?s)IR 7 is too old for opset 17.*ir_version=8 \(--ir 8\)"):
        export_model(from_file(17, 8), keep_versions=True, ir_version=7)
    assert versions(export_model(from_file(17, 8), keep_versions=True, ir_version=9)) == (17, 9)


def test_what_an_old_ir_version_lacks_is_named() -> None:
    with pytest.raises(UnsupportedError, match="IR 3 is too old for weights that are no inputs"):
        export_model(from_file(7, 4), keep_versions=True, ir_version=3)


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


ROIS = "y = RoiAlign <output_height = 2, output_width = 2> (x, r, b)"


def with_rois(opset: int, more: str = "") -> Graph:
    head = f'<ir_version: 10, opset_import: ["": {opset}]> net (float[1, 2, 8, 8] x, float[n, 4] r, int64[n] b)'
    return import_model(
        parsed(f"{head} => (float[n, 2, 2, 2] y{', float4e2m1[n] z' * bool(more)}) {{ {ROIS} {more} }}")
    ).graph


@pytest.mark.parametrize("opset", [16, 21, 22, 24])
def test_for_onnxruntime_the_opset_is_one_that_it_has_kernels_for(opset: int) -> None:
    graph = with_rois(opset)
    kept, chosen = (export_model(graph, keep_versions=True, dialect=each) for each in (Dialect.STANDARD, Dialect.ORT))
    assert (versions(kept)[0], versions(chosen)[0]) == (opset, min(opset, 21))
    assert opset_reason(chosen) == (
        "opset 21: ONNX Runtime has no kernel for RoiAlign after opset 21" if opset > 21 else ""
    )
    onnxruntime().InferenceSession(chosen.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("opset", "ir_version"), [(27, 13), (28, 14), (24, 14)])
def test_versions_that_onnxruntime_does_not_take_are_no_file_for_it(opset: int, ir_version: int) -> None:
    graph = from_file(opset, ir_version)
    model = export_model(graph, keep_versions=True, dialect=Dialect.ORT)
    assert versions(model) == (min(opset, NEWEST_OPSET), NEWEST_IR)
    assert opset_reason(model) == ("opset 26: ONNX Runtime 1.31 takes none newer" if opset > NEWEST_OPSET else "")
    assert versions(export_model(graph, keep_versions=True, dialect=Dialect.STANDARD)) == (opset, ir_version)
    assert versions(export_model(graph, dialect=Dialect.ORT, opset=opset))[0] == opset


def test_the_opset_that_an_error_names_has_every_node() -> None:
    head = '<ir_version: 10, opset_import: ["": 20]> net (float[N] x, bool c) => (seq(float[N]) y)'
    body = "s = SequenceConstruct(x)  y = If(c) <then_branch = t () => (seq(float[N]) a) { a = SequenceInsert(s, x) },"
    tail = "else_branch = e () => (seq(float[N]) b) { b = Identity(s) }>"
    graph = import_model(parsed(f"{head} {{ {body} {tail} }}")).graph
    with pytest.raises(UnsupportedError) as caught:
        export_model(graph, opset=9)
    least = int((caught.value.remedy or "").partition(" ")[0].removeprefix("opset="))
    assert versions(export_model(graph, opset=least))[0] == least


def test_an_opset_without_a_kernel_is_refused_where_it_was_chosen() -> None:
    with pytest.raises(UnsupportedError, match=r"(?s)no kernel for RoiAlign after opset 21.*opset=21"):
        export_model(with_rois(20), opset=22, keep_versions=True, dialect=Dialect.ORT)
    assert versions(export_model(with_rois(20), opset=22, dialect=Dialect.STANDARD))[0] == 22


def test_what_needs_a_newer_opset_than_there_is_a_kernel_for_is_written_there() -> None:
    graph = with_rois(23, "c = Cast <to = 1> (b) z = Cast <to = 23> (c)")
    chosen = export_model(graph, keep_versions=True, dialect=Dialect.ORT)
    assert versions(chosen)[0] == 23
    assert opset_reason(chosen) == "opset 23: ONNX Runtime has no kernel for RoiAlign after opset 21"


def test_the_last_kernels_are_those_of_onnxruntime() -> None:
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

    spans: dict[str, list[tuple[int, int]]] = {}
    for kernel in get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider" and kernel.domain == "":
            spans.setdefault(kernel.op_name, []).append(kernel.version_range)
    for op_type, found in spans.items():
        for since in (since for since in versions_of(op_type, "") if 8 <= since <= 24):
            schema = schema_of(op_type, since, "")
            has_kernel = any(a == since or a <= since <= b < 2**31 - 1 for a, b in found)
            is_run = has_kernel or schema is None or schema.deprecated or schema.has_function
            assert is_run == (since <= LAST_KERNELS.get(op_type, since)), (op_type, since)


@pytest.mark.parametrize(
    ("chosen", "text"),
    [({"opset": 99}, "opset 99 is not known: .* has 1 to"), ({"ir_version": 99}, "IR version 99 .* has 1 to")],
)
def test_versions_that_nobody_knows_are_refused(chosen: dict[str, int], text: str) -> None:
    with pytest.raises(UnsupportedError, match=text):
        export_model(from_file(17, 8), **chosen)
