from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.contrib import IN_FILES, ON_CUDA
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model

from tests.frontends.onnx.contrib.written import feeds, graph_of, operators, without, written
from tests.frontends.onnx.ops.there_and_back import compare, evaluated, runtime_of

BLOCK = """
graph @g(%x: f32[B, 4, 8], %w: f32[8, 8], %b: f32[8], %scale: f32[8], %shift: f32[8]) {
  %m: f32[B, 4, 8] = matmul(%x, %w)
  %s: f32[B, 4, 8] = add(%m, %b)
  %r: f32[B, 4, 8] = add(%s, %x)
  %y: f32[B, 4, 8] = layer_norm(%r, %scale, %shift) {epsilon = 0.001}
  return %y
}
"""
RESIDUAL = """
graph @g(%x: f32[B, 8], %z: f32[B, 8], %scale: f32[8]) {
  %r: f32[B, 8] = add(%x, %z)
  %y: f32[B, 8] = NORM
  %o: f32[B, 8] = add(%y, %r)
  return %o
}
"""


def test_matmul_bias_residual_and_norm():
    assert written(BLOCK) == ["MatMul", ".SkipLayerNormalization"]


def test_files_for_the_cpu_keep_sum_and_norm_which_are_quicker_there():
    assert written(BLOCK, IN_FILES) == ["MatMul", "Add", "Add", "LayerNormalization"]
    assert written(BLOCK.replace("f32", "f16"), IN_FILES, runs=False) == ["MatMul", ".SkipLayerNormalization"]
    assert written(BLOCK, ON_CUDA) == ["MatMul", ".SkipLayerNormalization"]


def test_a_sum_that_is_read_later_is_a_result_too():
    assert written(RESIDUAL.replace("NORM", "layer_norm(%r, %scale, _)")) == [".SkipLayerNormalization", "Add"]
    assert written(RESIDUAL.replace("NORM", "rms_norm(%r, %scale)")) == [".SkipSimplifiedLayerNormalization", "Add"]


def test_a_sum_that_is_returned():
    text = RESIDUAL.replace("NORM", "layer_norm(%r, %scale, _)").replace("return %o", "return %r, %o")
    assert written(text) == [".SkipLayerNormalization", "Add"]


def test_a_sum_that_is_read_before_the_norm_stays_a_node():
    text = """
graph @g(%x: f32[B, 8], %z: f32[B, 8], %scale: f32[8]) {
  %r: f32[B, 8] = add(%x, %z)
  %n: f32[B, 8] = neg(%r)
  %y: f32[B, 8] = layer_norm(%r, %scale, _)
  %o: f32[B, 8] = add(%y, %n)
  return %o
}
"""
    assert written(text) == ["Add", "Neg", "LayerNormalization", "Add"]


def test_a_linear_layer_before_the_residual():
    text = """
graph @g(%x: f32[B, 8], %w: f32[8, 8], %b: f32[8], %scale: f32[8]) {
  %m: f32[B, 8] = gemm(%x, %w, %b)
  %r: f32[B, 8] = add(%x, %m)
  %y: f32[B, 8] = layer_norm(%r, %scale, _)
  return %y
}
"""
    assert written(text) == ["MatMul", ".SkipLayerNormalization"]
    assert written(text, without("SkipLayerNormalization")) == ["Gemm", "Add", "LayerNormalization"]


def test_norms_that_the_operators_do_not_do():
    two_axes = BLOCK.replace("{epsilon = 0.001}", "{axis = 1}").replace(
        "%scale: f32[8], %shift: f32[8]", "%scale: f32[4, 8], %shift: f32[4, 8]"
    )
    assert ".SkipLayerNormalization" not in written(two_axes)
    broadcast = RESIDUAL.replace("NORM", "layer_norm(%r, %scale, _)").replace("%z: f32[B, 8]", "%z: f32[1, 8]")
    assert ".SkipLayerNormalization" not in written(broadcast)
    same = RESIDUAL.replace("NORM", "layer_norm(%r, %scale, _)").replace("add(%x, %z)", "add(%x, %x)")
    assert ".SkipLayerNormalization" not in written(same)


def test_a_bias_that_makes_a_matmul_wider_is_no_bias_of_the_operator():
    narrow = BLOCK.replace("%w: f32[8, 8]", "%w: f32[8, 1]").replace("%m: f32[B, 4, 8]", "%m: f32[B, 4, 1]")
    assert written(narrow) == ["MatMul", "Add", ".SkipLayerNormalization"]


def test_layer_norm_before_opset_17_is_one_operator_of_the_default_domain():
    graph = graph_of(RESIDUAL.replace("NORM", "layer_norm(%r, %scale, _)"))
    model = export_model(graph, opset=12, dialect=Dialect.ORT)
    assert operators(model) == ["Add", "LayerNormalization", "Add"]
    assert [entry.domain for entry in model.opset_import] == [""]
    given = feeds(graph)
    compare(runtime_of(model, given), evaluated(graph, given))
    assert [node.op.name for node in import_model(model).graph.nodes] == ["add", "layer_norm", "add"]
    assert operators(export_model(graph, opset=17, dialect=Dialect.ORT)) == ["Add", "LayerNormalization", "Add"]
    assert "ReduceMean" in operators(export_model(graph, opset=12, dialect=Dialect.STANDARD))
