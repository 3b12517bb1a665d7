import pytest

from tests.frontends.onnx.contrib.written import without, written

TURNED = """
graph @g(%a: f32[B, 4, 8], %b: f32[B, 6, 8]) {
  %t: f32[B, 8, 6] = transpose(%b) {perm = [0, 2, 1]}
  %y: f32[B, 4, 6] = matmul(%a, %t)
  return %y
}
"""
SCALED = """
graph @g(%a: f32[4, 8], %b: f32[8, 6]) {
  %half: f32[] = constant() {value = dense<f32[]: 0.5>}
  %m: f32[4, 6] = matmul(%a, %b)
  %y: f32[4, 6] = mul(%m, %half)
  return %y
}
"""
TURNED_BY_VECTOR = """
graph @g(%x: f32[8], %w: f32[8, 3]) {
  %t: f32[3, 8] = transpose(%w) {perm = [1, 0]}
  %y: f32[3] = matmul(%t, %x)
  return %y
}
"""
BATCH_BY_VECTOR = """
graph @g(%x: f32[8], %w: f32[2, 8, 3]) {
  %t: f32[2, 3, 8] = transpose(%w) {perm = [0, 2, 1]}
  %y: f32[2, 3] = matmul(%t, %x)
  return %y
}
"""


def test_a_transposed_operand():
    assert written(TURNED) == [".FusedMatMul"]
    assert written(TURNED, without("FusedMatMul")) == ["Transpose", "MatMul"]


def test_a_scaled_matmul():
    assert written(SCALED) == [".FusedMatMul"]


def test_other_permutations_and_other_readers_stay():
    other = TURNED.replace("%b: f32[B, 6, 8]", "%b: f32[8, B, 6]").replace("[0, 2, 1]", "[1, 0, 2]")
    assert written(other) == ["Transpose", "MatMul"]
    assert written(TURNED.replace("return %y", "return %y, %t")) == ["Transpose", "MatMul"]
    assert written(SCALED.replace("return %y", "return %y, %m")) == ["MatMul", "Mul"]


@pytest.mark.parametrize("form", [TURNED_BY_VECTOR, BATCH_BY_VECTOR])
def test_a_transposed_matrix_by_a_vector_stays(form):
    assert written(form, runs=False) == ["Transpose", "MatMul"]


def test_a_vector_by_a_transposed_matrix():
    text = TURNED_BY_VECTOR.replace("f32[8, 3]", "f32[3, 8]").replace("%t: f32[3, 8]", "%t: f32[8, 3]")
    assert written(text.replace("matmul(%t, %x)", "matmul(%x, %t)")) == [".FusedMatMul"]
