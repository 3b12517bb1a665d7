from tests.frontends.onnx.contrib.written import without, written

BLOCK = """
graph @g(%x: f32[B, 3, 8, 8], %w: f32[4, 3, 3, 3], %b: f32[4], %z: f32[B, 4, 4, 4]) {
  %c: f32[B, 4, 4, 4] = conv(%x, %w, %b) {strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1]}
  %s: f32[B, 4, 4, 4] = add(%c, %z)
  %y: f32[B, 4, 4, 4] = relu(%s)
  return %y
}
"""


def test_convolution_sum_and_relu_are_one_operator():
    assert written(BLOCK) == [".FusedConv"]
    assert written(BLOCK, without("FusedConv")) == ["Conv", "Add", "Relu"]
    assert written(BLOCK.replace("f32", "f16"), runs=False) == ["Conv", "Add", "Relu"]


def test_a_sum_of_two_convolutions_keeps_one_of_them():
    text = BLOCK.replace("%z: f32[B, 4, 4, 4]", "%v: f32[4, 3, 1, 1]").replace(
        "  %s:",
        "  %z: f32[B, 4, 4, 4] = conv(%x, %v, _) {strides = [2, 2], pads = [0, 0, 0, 0], dilations = [1, 1]}\n  %s:",
    )
    assert sorted(written(text)) == [".FusedConv", "Conv"]


def test_a_sum_that_broadcasts_stays():
    assert written(BLOCK.replace("%z: f32[B, 4, 4, 4]", "%z: f32[4, 1, 1]")) == ["Conv", "Add", "Relu"]
