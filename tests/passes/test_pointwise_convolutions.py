"""Matmuls on the way back to channels-first order become convolutions."""

import pytest
from capgraph.passes.fold.pointwise_convolutions import PointwiseConvolutions

from tests.passes.checking import check_pass

CONV = "{strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1}"
CONSTANTS = """
          %w = constant() {value = dense<f32[2, 3]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>}
          %b = constant() {value = dense<f32[3]: [1.0, 2.0, 3.0]>}
          %one = constant() {value = dense<f32[]: 1.0>}
          %w1 = constant() {value = dense<f32[2, 1]: [1.0, 2.0]>}
          %w3 = constant() {value = dense<f32[1, 2, 1]: [1.0, 2.0]>}
"""


def test_matmul_bias_and_function() -> None:
    check_pass(
        PointwiseConvolutions(),
        """
        graph @main(%x: f32[N, H, W, 2]) {
          %w = constant() {value = dense<f32[2, 3]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>}
          %b = constant() {value = dense<f32[1, 3]: [1.0, 2.0, 3.0]>}
          %y = matmul(%x, %w)
          %a = add(%y, %b)
          %g = gelu(%a)
          %z = transpose(%g) {perm = [0, 3, 1, 2]}
          return %z
        }""",
        f"""
        graph @main(%x: f32[N, H, W, 2]) {{
          %t = transpose(%x) {{perm = [0, 3, 1, 2]}}
          %w = constant() {{value = dense<f32[3, 2, 1, 1]: [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]>}}
          %b = constant() {{value = dense<f32[3]: [1.0, 2.0, 3.0]>}}
          %y = conv(%t, %w, %b) {CONV}
          %z = gelu(%y)
          return %z
        }}""",
    )


def test_matmuls_over_the_steps_of_a_sequence() -> None:
    check_pass(
        PointwiseConvolutions(),
        """
        graph @main(%x: f32[N, 2, C]) {
          %w = constant() {value = dense<f32[2, 3]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>}
          %b = constant() {value = dense<f32[3]: [1.0, 2.0, 3.0]>}
          %v = constant() {value = dense<f32[3, 1]: [1.0, 2.0, 3.0]>}
          %t = transpose(%x) {perm = [0, 2, 1]}
          %y = matmul(%t, %w)
          %a = add(%y, %b)
          %g = gelu(%a)
          %p = matmul(%g, %v)
          %z = transpose(%p) {perm = [0, 2, 1]}
          return %z
        }""",
        """
        graph @main(%x: f32[N, 2, C]) {
          %t = transpose(%x) {perm = [0, 2, 1]}
          %u = transpose(%t) {perm = [0, 2, 1]}
          %w = constant() {value = dense<f32[3, 2]: [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]>}
          %y = matmul(%w, %u)
          %b = constant() {value = dense<f32[3, 1]: [1.0, 2.0, 3.0]>}
          %a = add(%y, %b)
          %g = gelu(%a)
          %v = constant() {value = dense<f32[1, 3]: [1.0, 2.0, 3.0]>}
          %z = matmul(%v, %g)
          return %z
        }""",
    )


def test_matmul_alone_of_sequences() -> None:
    check_pass(
        PointwiseConvolutions(),
        """
        graph @main(%x: f32[N, T, 1]) {
          %w = constant() {value = dense<f32[1, 2]: [1.0, 2.0]>}
          %y = matmul(%x, %w)
          %z = transpose(%y) {perm = [0, 2, 1]}
          return %z
        }""",
        """
        graph @main(%x: f32[N, T, 1]) {
          %t = transpose(%x) {perm = [0, 2, 1]}
          %w = constant() {value = dense<f32[2, 1, 1]: [1.0, 2.0]>}
          %z = conv(%t, %w, _) {strides = [1], pads = [0, 0], dilations = [1], groups = 1}
          return %z
        }""",
    )


@pytest.mark.parametrize(
    "body",
    [
        # Another order than channels-first.
        "%y = matmul(%x, %w)\n %a = add(%y, %b)\n %z = transpose(%a) {perm = [0, 3, 2, 1]}\n return %z",
        # The matmul is read in its own order too.
        "%y = matmul(%x, %w)\n %a = add(%y, %b)\n %z = transpose(%a) {perm = [0, 3, 1, 2]}\n return %z, %a",
        # Not one addend for each channel.
        "%y = matmul(%x, %w)\n %a = add(%y, %one)\n %z = transpose(%a) {perm = [0, 3, 1, 2]}\n return %z",
        # Not even with one channel.
        "%y = matmul(%x, %w1)\n %a = add(%y, %one)\n %z = transpose(%a) {perm = [0, 3, 1, 2]}\n return %z",
        # A stack of matrices.
        "%y = matmul(%x, %w3)\n %z = transpose(%y) {perm = [0, 3, 1, 2]}\n return %z",
        # Softmax minds the order.
        "%y = matmul(%x, %w)\n %a = softmax(%y)\n %z = transpose(%a) {perm = [0, 3, 1, 2]}\n return %z",
    ],
)
def test_stays(body: str) -> None:
    check_pass(PointwiseConvolutions(), f"graph @main(%x: f32[N, H, W, 2]) {{ {CONSTANTS} {body} }}", None)


def test_doubles_stay_multiplied() -> None:
    text = """
        graph @main(%x: f64[N, H, W, 2]) {
          %w = constant() {value = dense<f64[2, 1]: [1.0, 2.0]>}
          %y = matmul(%x, %w)
          %z = transpose(%y) {perm = [0, 3, 1, 2]}
          return %z
        }"""
    check_pass(PointwiseConvolutions(), text, text)
