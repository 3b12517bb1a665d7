import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model

from tests.frontends.onnx.contrib.written import graph_of, operators, without, written

BIASED = """
graph @g(%x: f32[B, 4, 8], %w: f32[8, 6], %b: f32[6]) {
  %m: f32[B, 4, 6] = matmul(%x, %w)
  %s: f32[B, 4, 6] = add(%m, %b)
  %y: f32[B, 4, 6] = gelu(%s)
  return %y
}
"""
LINEAR = """
graph @g(%x: f32[B, 8], %w: f32[6, 8], %b: f32[6]) {
  %m: f32[B, 6] = gemm(%x, %w, %b) {trans_b = true}
  %y: f32[B, 6] = gelu(%m) {approximate = "tanh"}
  return %y
}
"""
SILU = """
graph @g(%x: f32[B, 8]) {
  %y: f32[B, 8] = silu(%x) {alpha = 1.5}
  return %y
}
"""


def test_the_bias_of_a_matmul_goes_into_the_gelu_behind_it():
    assert written(BIASED) == ["MatMul", ".BiasGelu"]


def test_a_tanh_gelu_takes_the_bias_of_a_linear_layer_whose_weight_is_transposed():
    assert written(LINEAR) == ["Transpose", "MatMul", ".FastGelu"]


def test_a_tanh_gelu_alone():
    assert written('graph @g(%x: f32[B]) {\n %y: f32[B] = gelu(%x) {approximate = "tanh"}\n return %y\n}') == [
        ".FastGelu"
    ]


def test_a_tanh_gelu_of_a_scalar_is_the_standard_one() -> None:
    assert written('graph @g(%x: f32[]) {\n %y: f32[] = gelu(%x) {approximate = "tanh"}\n return %y\n}') == ["Gelu"]


def test_silu_is_one_operator():
    assert written(SILU) == [".QuickGelu"]


@pytest.mark.parametrize(("text", "operators"), [(BIASED, ["MatMul", "Add", "Gelu"]), (LINEAR, ["Gemm", "Gelu"])])
def test_what_the_installed_version_lacks_is_written_with_standard_operators(text, operators):
    assert written(text, without("BiasGelu", "FastGelu")) == operators


def test_a_sum_that_is_read_elsewhere_stays():
    text = BIASED.replace("return %y", "return %y, %s")
    assert written(text) == ["MatMul", "Add", "Gelu"]


def test_a_bias_that_is_no_vector_stays():
    text = BIASED.replace("%b: f32[6]", "%b: f32[4, 6]")
    assert written(text) == ["MatMul", "Add", "Gelu"]


def test_a_bias_that_makes_the_matmul_wider_stays():
    text = BIASED.replace("%w: f32[8, 6]", "%w: f32[8, 1]").replace("%m: f32[B, 4, 6]", "%m: f32[B, 4, 1]")
    assert written(text) == ["MatMul", "Add", "Gelu"]


def test_half_precision_is_for_gpus():
    assert written(BIASED.replace("f32", "f16"), runs=False) == ["MatMul", ".BiasGelu"]
    assert written(BIASED.replace("f32", "f64"), runs=False) == ["MatMul", "Add", "Gelu"]


def test_a_gelu_after_any_bias_and_one_alone_before_opset_20():
    text = "graph @g(%x: f32[B, 4], %b: f32[4]) {\n %s = add(%b, %x)\n %y = gelu(%s)\n return %y\n}"
    assert written(text) == [".BiasGelu"]
    assert written(text.replace("%b: f32[4]", "%b: f32[B, 4]")) == ["Add", "Gelu"]
    alone = graph_of("graph @g(%x: f32[B, 4]) {\n %y = gelu(%x)\n return %y\n}")
    assert operators(export_model(alone, opset=19, dialect=Dialect.ORT)) == [".Gelu"]
    assert operators(export_model(alone, opset=20, dialect=Dialect.ORT)) == ["Gelu"]
