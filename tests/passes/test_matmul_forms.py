"""Matmuls in their shortest forms."""

import pytest
from capgraph.passes.fold.matmul_forms import MatmulForms

from tests.passes.checking import check_pass

PLAIN = "{alpha = 1.0, beta = 1.0, trans_a = false, trans_b = false}"


def check(inputs: str, before: str, after: str | None) -> None:
    wrapped = f"graph @main({inputs}) {{ {after} }}" if after is not None else None
    check_pass(MatmulForms(), f"graph @main({inputs}) {{ {before} }}", wrapped)


def test_matmul_and_sum() -> None:
    check(
        "%x: f32[N, 4], %w: f32[4, 3], %b: f32[3], %c: f32[N, 1]",
        "%p = matmul(%x, %w) %y = add(%b, %p) %q = matmul(%x, %w) %z = add(%q, %c) return %y, %z",
        f"%y = gemm(%x, %w, %b) {PLAIN} %z = gemm(%x, %w, %c) {PLAIN} return %y, %z",
    )


def test_gemm_and_sum() -> None:
    check(
        "%x: f32[N, 4], %w: f32[4, 3], %b: f32[3]",
        "%p = gemm(%x, %w, _) {alpha = 2.0, beta = 5.0, trans_a = false, trans_b = false} %y = add(%p, %b) return %y",
        "%y = gemm(%x, %w, %b) {alpha = 2.0, beta = 1.0, trans_a = false, trans_b = false} return %y",
    )


def test_transposed_operands() -> None:
    check(
        "%x: f32[4, N], %w: f32[4, 3]",
        """
        %t = transpose(%x) {perm = [1, 0]}
        %y = matmul(%t, %w)
        %u = transpose(%w) {perm = [1, 0]}
        %z = gemm(%x, %u, _) {alpha = 1.0, beta = 1.0, trans_a = true, trans_b = true}
        return %y, %z
        """,
        """
        %y = gemm(%x, %w, _) {alpha = 1.0, beta = 1.0, trans_a = true, trans_b = false}
        %z = gemm(%x, %w, _) {alpha = 1.0, beta = 1.0, trans_a = true, trans_b = false}
        return %y, %z
        """,
    )


def test_rows_that_are_flattened_for_the_matmul() -> None:
    check(
        "%x: f32[B, T, 4], %w: f32[4, 3], %b: f32[3]",
        f"""
        %r = reshape(%x) {{shape = [B*T, 4]}}
        %g = gemm(%r, %w, %b) {PLAIN}
        %y = reshape(%g) {{shape = [B, T, 3]}}
        return %y
        """,
        "%p = matmul(%x, %w) %y = add(%p, %b) return %y",
    )


def test_rows_times_a_transposed_constant() -> None:
    check(
        "%x: f32[B, T, 1]",
        """
        %w = constant() {value = dense<f32[2, 1]: [1.0, 2.0]>}
        %r = reshape(%x) {shape = [B*T, 1]}
        %g = gemm(%r, %w, _) {alpha = 1.0, beta = 3.0, trans_a = false, trans_b = true}
        %y = reshape(%g) {shape = [B, T, 2]}
        return %y
        """,
        "%w = constant() {value = dense<f32[1, 2]: [1.0, 2.0]>} %y = matmul(%x, %w) return %y",
    )


@pytest.mark.parametrize(
    "body",
    [
        "%p = matmul(%x, %w) %y = add(%p, %b) return %y, %p",  # the matmul is read as well
        "%p = matmul(%x, %w) %y = add(%p, %s) return %y",  # the sum broadcasts the matmul
        f"%r = reshape(%s) {{shape = [2*N, 4]}} %g = gemm(%r, %w, %b) {PLAIN}"
        "%y = reshape(%g) {shape = [N, 2, 3]} return %y",  # other rows
        f"%r = reshape(%s) {{shape = [2*N, 4]}} %g = gemm(%r, %w, %c) {PLAIN}"
        "%y = reshape(%g) {shape = [2, N, 3]} return %y",  # an addend for each row
    ],
)
def test_stays(body: str) -> None:
    inputs = "%x: f32[N, 4], %w: f32[4, 3], %b: f32[3], %c: f32[2*N, 1], %s: f32[2, N, 4]"
    body = body.replace("add(%p, %s)", "add(%p, %s3)")
    check(f"{inputs}, %s3: f32[2, N, 3]", body, None)


def test_a_sum_that_may_broadcast_the_matmul_stays() -> None:
    body = "%p = matmul(%x, %w) %y = add(%p, %c) return %y"
    text = f"graph @main(%x: f32[N, 4], %w: f32[4, 3], %c: f32[M, 3]) {{ {body} }}"
    check_pass(MatmulForms(), text, None, numeric=False)


@pytest.mark.parametrize("dtype", ["i32", "i64", "u32", "u64"])
def test_matmuls_of_integers_stay(dtype: str) -> None:
    """ONNX Runtime multiplies matrices of integers only with MatMul."""
    check(
        f"%x: {dtype}[4, N], %w: {dtype}[4, 3], %b: {dtype}[3]",
        "%t = transpose(%x) {perm = [1, 0]} %p = matmul(%t, %w) %y = add(%p, %b) return %y",
        None,
    )
