from textwrap import dedent

import pytest
from capgraph.ir.text.parser import parse
from capgraph.passes.planning.padding import mask_padding

from tests.passes.planning.padding.judging import maskable, safe, unsafe


def test_rows_columns_and_batches_are_safe() -> None:
    safe("""
        graph @main(%x: f32[S, 4], %w: f32[4, 3], %y: f32[3, S], %b: f32[S, 2, 4], %c: f32[3]) {
          %a: f32[S, 3] = matmul(%x, %w)
          %d: f32[S, 3] = gemm(%x, %w, %c)
          %e: f32[4, S] = matmul(%w, %y)
          %f: f32[S, 2, 3] = matmul(%b, %w)
          return %a, %d, %e, %f
        }""")


@pytest.mark.parametrize(
    "matmul", ["matmul(%x, %y)", "gemm(%x, %y, _)", 'einsum(%x, %y) {equation = "ij,jk->ik"}']
)  # fmt: skip
def test_a_contraction_is_masked_in_both_operands(matmul: str) -> None:
    masked = maskable(
        f"""
        graph @main(%x: f32[2, S], %y: f32[S, 3]) {{
          %a: f32[2, 3] = {matmul}
          return %a
        }}""",
        "it contracts an axis that carries S",
    )
    assert sum(node.op.name == "where" for node in masked.nodes) == 2


def test_zeros_meet_no_operand_that_may_be_infinite() -> None:
    """Where there are no real elements the sum is 0, but padding times infinity is none."""
    unsafe(
        """
        graph @main(%x: f32[2, S], %y: f32[S, 3], %z: f32[3, 4]) {
          %a: f32[2, 4] = einsum(%x, %y, %z) {equation = "ab, bc, cd -> ad"}
          return %a
        }""",
        "it contracts an axis that carries S, which one of its operands lacks",
    )


def test_integers_are_masked_in_one_operand() -> None:
    masked = maskable(
        """
        graph @main(%x: i64[2, S], %y: i64[S, 3]) {
          %a: i64[2, 3] = matmul(%x, %y)
          return %a
        }""",
        "it contracts an axis that carries S",
    )
    assert sum(node.op.name == "where" for node in masked.nodes) == 1


def test_softmax_leaves_zeros_so_that_only_values_are_masked() -> None:
    text = """
        graph @main(%q: f32[B, T, 4], %k: f32[B, S, 4], %v: f32[B, S, 4]) {
          %kt: f32[B, 4, S] = transpose(%k) {perm = [0, 2, 1]}
          %s: f32[B, T, S] = matmul(%q, %kt)
          %p: f32[B, T, S] = softmax(%s)
          %o: f32[B, T, 4] = matmul(%p, %v)
          return %o
        }"""
    reason = "what stands behind the real elements of axis 2 counts"
    masked = maskable(text, reason)
    assert sum(node.op.name == "where" for node in masked.nodes) == 3  # over no keys it leaves NaN
    from_one = mask_padding(parse(dedent(text)), "S", largest=8, least=1)
    assert from_one is not None
    assert sum(node.op.name == "where" for node in from_one.nodes) == 2


def test_a_diagonal_is_unsafe() -> None:
    unsafe(
        """
        graph @main(%x: f32[S, S]) {
          %a: f32[S] = einsum(%x) {equation = "ii->i"}
          return %a
        }""",
        "it takes a diagonal",
    )


def test_convolutions_take_a_batch_only() -> None:
    convolution = "{strides = [1], pads = [1, 1], dilations = [1]}"
    safe(f"""
        graph @main(%x: f32[S, 2, 5], %w: f32[3, 2, 3], %b: f32[3]) {{
          %a: f32[S, 3, 5] = conv(%x, %w, %b) {convolution}
          return %a
        }}""")
    unsafe(
        f"""
        graph @main(%x: f32[1, 2, S], %w: f32[3, 2, 3]) {{
          %a: f32[1, 3, S] = conv(%x, %w, _) {convolution}
          return %a
        }}""",
        "it slides over",
    )


def test_rows_of_a_grouped_matmul_are_safe_and_its_groups_are_not() -> None:
    safe("""
        graph @main(%x: f32[S, 4], %w: f32[3, 4, 5], %e: i64[3]) {
          %y: f32[S, 5] = grouped_matmul(%x, %w, %e)
          return %y
        }""")
    unsafe(
        """
        graph @main(%x: f32[6, 4], %w: f32[S, 4, 5], %e: i64[S]) {
          %y: f32[6, 5] = grouped_matmul(%x, %w, %e)
          return %y
        }""",
        "carries S",
    )
    unsafe(
        """
        graph @main(%x: f32[6, S], %w: f32[3, S, 5], %e: i64[3]) {
          %y: f32[6, 5] = grouped_matmul(%x, %w, %e)
          return %y
        }""",
        "carries S",
    )
