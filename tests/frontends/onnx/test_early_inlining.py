"""Models in which ONNX Runtime inlines operators before it optimizes."""

import onnx
import onnx.inliner
import onnxruntime
from capgraph.frontends.onnx.exporting.early_inlining import DOMAIN, ask_for_early_inlining
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.equality import assert_equal

SWISH = """<ir_version: 10, opset_import: ["": 24]>
net (float[N] x) => (float[N] y) { a = Neg(x)  b = Swish<alpha = 1.5>(a)  y = Neg(b) }"""


def asking(text=SWISH):
    model = onnx.parser.parse_model(text)
    ask_for_early_inlining(model)
    return model


def optimized(model, folder):
    """The operators that ONNX Runtime runs."""
    path = folder / "optimized.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(path).graph.node]


def test_onnx_runtime_optimizes_what_it_inlined(tmp_path):
    assert optimized(asking(), tmp_path) == ["Neg", "QuickGelu", "Neg"]


def test_the_model_is_valid_and_its_nodes_are_as_they_were():
    model, before = asking(), onnx.parser.parse_model(SWISH)
    onnx.checker.check_model(model, full_check=True)
    assert model.graph == before.graph
    assert onnx.inliner.inline_local_functions(model).graph.node == before.graph.node
    assert_equal(import_model(model).graph, import_model(before).graph)


def test_the_function_says_why_it_is_there():
    (function,) = asking().functions
    assert "ONNX Runtime" in function.doc_string


def test_a_domain_that_the_model_imports_already_is_kept():
    model = asking(SWISH.replace('"": 24', f'"": 24, "{DOMAIN}": 3'))
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 24), (DOMAIN, 3)]
