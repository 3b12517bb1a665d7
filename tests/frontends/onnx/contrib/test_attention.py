import numpy as np
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.contrib import IN_FILES
from capgraph.frontends.onnx.exporting.exporter import export_model

from tests.frontends.onnx.contrib.written import graph_of, without, written

ALONE = """
graph @g(%q: f32[B, T, 8], %k: f32[B, T, 8], %v: f32[B, T, 8]) {
  %y: f32[B, T, 8] = attention(%q, %k, %v, _, _) {heads = 2, kv_heads = 2}
  return %y
}
"""


def block(*, biases: bool = True, causal: bool = False, value_size: int = 8):
    """Self-attention with constant weights, on f32[B, T, 8]."""
    return f"""
graph @g(%x: f32[B, T, 8]) {{
{"".join(_projection(name, size, biases) for name, size in (("q", 8), ("k", 8), ("v", value_size)))}
  %y: f32[B, T, {value_size}] = attention(%q, %k, %v, _, _) {{heads = 2, kv_heads = 2, causal = {str(causal).lower()}}}
  return %y
}}
"""


def _projection(name: str, size: int, has_bias: bool) -> str:
    weight = _numbers(np.sin(np.arange(8 * size) + ord(name)))
    lines = f"  %w{name}: f32[8, {size}] = constant() {{value = dense<f32[8, {size}]: {weight}>}}\n"
    if not has_bias:
        return f"{lines}  %{name}: f32[B, T, {size}] = matmul(%x, %w{name})\n"
    bias = _numbers(np.cos(np.arange(size) + ord(name)))
    lines += f"  %b{name}: f32[{size}] = constant() {{value = dense<f32[{size}]: {bias}>}}\n"
    lines += f"  %m{name}: f32[B, T, {size}] = matmul(%x, %w{name})\n"
    return f"{lines}  %{name}: f32[B, T, {size}] = add(%m{name}, %b{name})\n"


def _numbers(values: np.ndarray) -> str:
    return "[" + ", ".join(f"{value:.3f}" for value in values) + "]"


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("value_size", [8, 4])
def test_matmuls_biases_and_attention_are_one_operator(biases, causal, value_size):
    assert written(block(biases=biases, causal=causal, value_size=value_size)) == [".Attention"]


def test_weights_that_were_joined_are_not_written_a_second_time():
    model = export_model(graph_of(block()), dialect=Dialect.ORT)
    assert sorted(list(each.dims) for each in model.graph.initializer) == [[8, 24], [24]]


def test_without_that_operator_the_matmuls_stay_and_the_biases_go_in():
    names = written(block(), without("Attention"))
    assert names == ["MatMul", "MatMul", "MatMul", ".MultiHeadAttention"]
    assert "Attention" in written(block(), without("Attention", "MultiHeadAttention"))


@pytest.mark.parametrize("causal", ["true", "false"])
def test_attention_alone(causal):
    text = ALONE.replace("kv_heads = 2", f"kv_heads = 2, causal = {causal}, scale = 0.3")
    assert written(text) == [".MultiHeadAttention"]


@pytest.mark.parametrize(("batch", "heads", "is_fused"), [("B", 2, True), ("B", 1, False), (1, 2, False)])
def test_masks_that_older_versions_get_wrong_are_not_written_to_files(batch, heads, is_fused):
    shape = f"[{batch}, {heads}, T, T]"
    lines = f"""{{
  %hidden: f32[] = constant() {{value = dense<f32[]: -1e9>}}
  %m: f32{shape} = where(%c, %hidden, %hidden)
"""
    text = ALONE.replace("%v: f32[B, T, 8]", f"%v: f32[B, T, 8], %c: bool{shape}").replace("_, _", "%m, _")
    text = text.replace("{\n", lines, 1)
    assert ".MultiHeadAttention" in written(text)
    assert (".MultiHeadAttention" in written(text, IN_FILES)) is is_fused


def test_a_mask_is_added():
    lines = """{
  %hidden: f32[] = constant() {value = dense<f32[]: -1e9>}
  %zero: f32[] = constant() {value = dense<f32[]: 0.0>}
  %m: f32[B, 1, T, T] = where(%c, %zero, %hidden)
"""
    text = ALONE.replace("%v: f32[B, T, 8]", "%v: f32[B, T, 8], %c: bool[B, 1, T, T]").replace("_, _", "%m, _")
    chosen = text.replace("{\n", lines, 1)
    assert written(chosen) == ["Where", ".MultiHeadAttention"]
    assert written(chosen.replace("-1e9", "-inf")) == ["Where", "Attention"]  # theirs is NaN where nothing is seen


def test_what_the_operators_do_not_do_stays_standard():
    shared = ALONE.replace("%k: f32[B, T, 8], %v: f32[B, T, 8]", "%k: f32[B, T, 4], %v: f32[B, T, 4]")
    assert written(shared.replace("kv_heads = 2", "kv_heads = 1")) == ["Attention"]
    capped = ALONE.replace("kv_heads = 2", "kv_heads = 2, softcap = 2.0")
    assert written(capped) == ["Attention"]
    truth = ALONE.replace("%v: f32[B, T, 8]", "%v: f32[B, T, 8], %m: bool[B, 1, T, T]").replace("_, _", "%m, _")
    assert written(truth) == ["Attention"]
    longer = ALONE.replace("%k: f32[B, T, 8], %v: f32[B, T, 8]", "%k: f32[B, 7, 8], %v: f32[B, 7, 8]")
    assert written(longer.replace("kv_heads = 2", "kv_heads = 2, causal = true")) == ["Attention"]
    assert written(longer) == [".MultiHeadAttention"]


@pytest.mark.parametrize("scale", ["0.0", "1e-50"])
def test_no_scale_is_not_a_scale_of_zero(scale):
    assert written(ALONE.replace("kv_heads = 2", f"kv_heads = 2, scale = {scale}")) == ["Mul", "Attention"]


def test_a_bias_that_makes_an_operand_wider_stays():
    text = """
graph @g(%a: f32[B, T, 1], %b: f32[B, T, 1], %c: f32[B, T, 1]) {
  %w: f32[8] = constant() {value = dense<f32[8]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]>}
  %q: f32[B, T, 8] = add(%a, %w)
  %k: f32[B, T, 8] = add(%b, %w)
  %v: f32[B, T, 8] = add(%c, %w)
  %y: f32[B, T, 8] = attention(%q, %k, %v, _, _) {heads = 2, kv_heads = 2}
  return %y
}
"""
    assert written(text) == ["Add", "Add", "Add", ".MultiHeadAttention"]
