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


def test_a_transposed_operand():
    assert written(TURNED) == [".FusedMatMul"]
    assert written(TURNED, without("FusedMatMul")) == ["Transpose", "MatMul"]


def test_a_scaled_product():
    assert written(SCALED) == [".FusedMatMul"]


def test_other_permutations_and_other_readers_stay():
    other = TURNED.replace("%b: f32[B, 6, 8]", "%b: f32[8, B, 6]").replace("[0, 2, 1]", "[1, 0, 2]")
    assert written(other) == ["Transpose", "MatMul"]
    assert written(TURNED.replace("return %y", "return %y, %t")) == ["Transpose", "MatMul"]
    assert written(SCALED.replace("return %y", "return %y, %m")) == ["MatMul", "Mul"]
