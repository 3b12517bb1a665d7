"""Weights that are computed from codes become one node that dequantizes them; what is no such weight stays."""

import numpy as np
import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.types import DType
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.quantize.recognize_coded_weights import RecognizeCodedWeights
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.checking import check_pass


def test_bytes_with_a_scale_for_each_row() -> None:
    check_pass(
        RecognizeCodedWeights(),
        """
        graph @main(%x: f32[1, 2]) {
          %w = constant() {value = dense<i8[3, 2]: [1, -2, 3, 4, 100, 6]>}
          %s = constant() {value = dense<f32[3, 1]: [0.5, 2.0, 4.0]>}
          %c = cast(%w) {to = f32}
          %m = mul(%c, %s)
          %t = transpose(%m) {perm = [1, 0]}
          %y = matmul(%x, %t)
          return %y
        }""",
        """
        graph @main(%x: f32[1, 2]) {
          %w = constant() {value = dense<i8[2, 3]: [1, 3, 100, -2, 4, 6]>}
          %s = constant() {value = dense<f32[3]: [0.5, 2.0, 4.0]>}
          %d = dequantize_linear(%w, %s, _) {to = f32}
          %y = matmul(%x, %d)
          return %y
        }""",
    )


def test_halves_of_bytes_in_blocks_with_a_zero_point() -> None:
    check_pass(
        RecognizeCodedWeights(),
        """
        graph @main(%x: f32[1, 4]) {
          %w = constant() {value = dense<u8[2, 2]: [16, 50, 84, 118]>}
          %s = constant() {value = dense<f32[2, 2, 1]: [1.0, 2.0, 4.0, 8.0]>}
          %fifteen = constant() {value = dense<u8[]: 15>}
          %four = constant() {value = dense<u8[]: 4>}
          %eight = constant() {value = dense<f32[]: 8.0>}
          %l = bitwise_and(%w, %fifteen)
          %h = shift_right(%w, %four)
          %lu = unsqueeze(%l) {axes = [2]}
          %hu = unsqueeze(%h) {axes = [2]}
          %j = concat(%lu, %hu) {axis = 2}
          %b = reshape(%j) {shape = [2, 2, 2]}
          %c = cast(%b) {to = f32}
          %z = sub(%c, %eight)
          %m = mul(%s, %z)
          %r = reshape(%m) {shape = [2, 4]}
          %y = gemm(%x, %r, _) {trans_b = true}
          return %y
        }""",
        """
        graph @main(%x: f32[1, 4]) {
          %w = constant() {value = dense<u4[4, 2]: [0, 4, 1, 5, 2, 6, 3, 7]>}
          %s = constant() {value = dense<f32[2, 2]: [1.0, 4.0, 2.0, 8.0]>}
          %z = constant() {value = dense<u4[2, 2]: [8, 8, 8, 8]>}
          %d = dequantize_linear(%w, %s, %z) {to = f32, axis = 0, block_size = 2}
          %y = gemm(%x, %d, _)
          return %y
        }""",
    )


def test_codes_that_are_scaled_behind_the_matmul() -> None:
    check_pass(
        RecognizeCodedWeights(),
        """
        graph @main(%x: f32[1, 2], %s: f32[3]) {
          %w = constant() {value = dense<i8[2, 3]: [1, -2, 3, 4, 100, 6]>}
          %c = cast(%w) {to = f32}
          %p = matmul(%x, %c)
          %y = mul(%p, %s)
          return %y
        }""",
        """
        graph @main(%x: f32[1, 2], %s: f32[3]) {
          %w = constant() {value = dense<i8[2, 3]: [1, -2, 3, 4, 100, 6]>}
          %one = constant() {value = dense<f32[]: 1.0>}
          %d = dequantize_linear(%w, %one, _) {to = f32}
          %p = matmul(%x, %d)
          %y = mul(%p, %s)
          return %y
        }""",
    )


def test_a_dequantized_weight_that_is_transposed_is_stored_so() -> None:
    check_pass(
        RecognizeCodedWeights(),
        """
        graph @main(%x: f32[1, 4]) {
          %w = constant() {value = dense<i4[2, 4]: [0, 1, 2, 3, 4, -5, 6, -7]>}
          %s = constant() {value = dense<f32[2, 2]: [1.0, 2.0, 4.0, 8.0]>}
          %d = dequantize_linear(%w, %s, _) {to = f32, axis = 1, block_size = 2}
          %t = transpose(%d) {perm = [1, 0]}
          %y = matmul(%x, %t)
          return %y
        }""",
        """
        graph @main(%x: f32[1, 4]) {
          %w = constant() {value = dense<i4[4, 2]: [0, 4, 1, -5, 2, 6, 3, -7]>}
          %s = constant() {value = dense<f32[2, 2]: [1.0, 4.0, 2.0, 8.0]>}
          %d = dequantize_linear(%w, %s, _) {to = f32, axis = 0, block_size = 2}
          %y = matmul(%x, %d)
          return %y
        }""",
    )


def test_integers_less_a_zero_point_and_rounded_behind_their_scale() -> None:
    check_pass(
        RecognizeCodedWeights(),
        """
        graph @main(%x: f16[1, 2]) {
          %w = constant() {value = dense<i8[2, 2]: [1, -2, 3, -8]>}
          %z = constant() {value = dense<i8[2, 1]: [1, 7]>}
          %s = constant() {value = dense<f32[2, 1]: [0.5, 2.0]>}
          %i = cast(%w) {to = i32}
          %j = cast(%z) {to = i32}
          %d = sub(%i, %j)
          %c = cast(%d) {to = f32}
          %m = mul(%c, %s)
          %h = cast(%m) {to = f16}
          %t = transpose(%h) {perm = [1, 0]}
          %y = matmul(%x, %t)
          return %y
        }""",
        """
        graph @main(%x: f16[1, 2]) {
          %w = constant() {value = dense<i4[2, 2]: [1, 3, -2, -8]>}
          %s = constant() {value = dense<f32[2]: [0.5, 2.0]>}
          %z = constant() {value = dense<i4[2]: [1, 7]>}
          %d = dequantize_linear(%w, %s, %z) {to = f16}
          %y = matmul(%x, %d)
          return %y
        }""",
    )


UNCHANGED = {
    "rows in codes too": """
        %xs = constant() {value = dense<f32[]: 0.5>}
        %q = cast(%x) {to = i8}
        %a = dequantize_linear(%q, %xs, _) {to = f32}
        %d = dequantize_linear(%w, %xs, _) {to = f32}
        %t = transpose(%d) {perm = [1, 0]}
        %y = matmul(%a, %t)""",
    "a scale that is an input": """
        %c = cast(%w) {to = f32}
        %m = mul(%c, %s)
        %y = matmul(%x, %m)""",
    "a scale for each number": """
        %each = constant() {value = dense<f32[2, 2]: [1.0, 2.0, 3.0, 4.0]>}
        %c = cast(%w) {to = f32}
        %m = mul(%c, %each)
        %y = matmul(%x, %m)""",
    "a zero point that is no whole number": """
        %half = constant() {value = dense<f32[]: 0.5>}
        %c = cast(%w) {to = f32}
        %z = sub(%c, %half)
        %y = matmul(%x, %z)""",
    "floats as integers": """
        %f = constant() {value = dense<f32[2, 2]: [1.0, 2.0, 3.0, 400.0]>}
        %i = cast(%f) {to = i32}
        %c = cast(%i) {to = f32}
        %y = matmul(%x, %c)""",
    "floats": """
        %f = constant() {value = dense<f16[2, 2]: [1.0, 2.0, 3.0, 4.0]>}
        %c = cast(%f) {to = f32}
        %y = matmul(%x, %c)""",
}


@pytest.mark.parametrize("body", UNCHANGED.values(), ids=UNCHANGED)
def test_what_stays(body: str) -> None:
    weight = "%w = constant() {value = dense<i8[2, 2]: [1, 2, 3, 4]>}"
    check_pass(
        RecognizeCodedWeights(),
        f"""
        graph @main(%x: f32[1, 2], %s: f32[2, 2]) {{
        {weight}
        {body}
        return %y
        }}""",
        None,
    )


def test_integers_of_4_bits() -> None:
    check_pass(
        RecognizeCodedWeights(),
        """
        graph @main(%x: f32[1, 2]) {
          %w = constant() {value = dense<i4[2, 2]: [1, -2, 3, -8]>}
          %c = cast(%w) {to = f32}
          %y = matmul(%x, %c)
          return %y
        }""",
        """
        graph @main(%x: f32[1, 2]) {
          %w = constant() {value = dense<i4[2, 2]: [1, -2, 3, -8]>}
          %one = constant() {value = dense<f32[]: 1.0>}
          %d = dequantize_linear(%w, %one, _) {to = f32}
          %y = matmul(%x, %d)
          return %y
        }""",
    )


@st.composite
def weights(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
    """Codes [N, K], scales [N, blocks], zero points and the block."""
    rows, blocks, block = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(2, 5))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    low, high = draw(st.sampled_from([(0, 16), (-8, 8), (0, 256), (-128, 128)]))
    dtype = np.uint8 if low == 0 else np.int8
    codes = random.integers(low, high, (rows, blocks * block)).astype(dtype)
    zeros = random.integers(low, high, (rows, blocks, 1)).astype(dtype) if draw(st.booleans()) else None
    return codes, random.standard_normal((rows, blocks, 1)).astype(np.float32), zeros, block


@given(weights())
def test_blocks_of_rows_mean_the_same(drawn: tuple[np.ndarray, np.ndarray, np.ndarray | None, int]) -> None:
    codes, scales, zeros, block = drawn
    rows, inner = codes.shape
    b = Builder()
    x = b.input("x", f"f32[2, {inner}]")
    blocks = b.op("reshape", b.constant(codes), shape=(rows, inner // block, block))
    value = b.op("cast", blocks, to=DType.F32)
    if zeros is not None:
        value = b.op("sub", value, b.op("cast", b.constant(zeros), to=DType.F32))
    weight = b.op("reshape", b.op("mul", value, b.constant(scales)), shape=(rows, inner))
    graph = b.finish({"y": b.op("matmul", x, b.op("transpose", weight, perm=(1, 0)))})
    given_x = np.random.default_rng(0).standard_normal((2, inner)).astype(np.float32)
    (before,) = evaluate_graph(graph, [given_x])
    Pipeline(((RecognizeCodedWeights(),),)).run(graph, check="structure")
    assert [node.op.name for node in graph.nodes if node.inputs] == ["dequantize_linear", "matmul"]
    (after,) = evaluate_graph(graph, [given_x])
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-3)
