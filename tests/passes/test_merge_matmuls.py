"""Matmuls of one value become one matmul and a split; others stay apart."""

import pytest
from capgraph.ir.text.parser import parse
from capgraph.passes.fold.merge_matmuls import MergeMatmuls
from capgraph.passes.framework.pipeline import Pipeline

from tests.passes.checking import check_pass


def test_queries_keys_and_values_of_which_one_has_no_bias() -> None:
    check_pass(
        MergeMatmuls(),
        """
        graph @main(%x: f32[B, T, 2]) {
          %u = constant() {value = dense<f32[2, 1]: [1.0, 2.0]>}
          %v = constant() {value = dense<f32[2, 2]: [3.0, 4.0, 5.0, 6.0]>}
          %b = constant() {value = dense<f32[2]: [7.0, 8.0]>}
          %p = matmul(%x, %u)
          %q = matmul(%x, %v)
          %r = add(%b, %q)
          return %p, %r
        }""",
        """
        graph @main(%x: f32[B, T, 2]) {
          %w = constant() {value = dense<f32[2, 3]: [1.0, 3.0, 4.0, 2.0, 5.0, 6.0]>}
          %m = matmul(%x, %w)
          %c = constant() {value = dense<f32[3]: [0.0, 7.0, 8.0]>}
          %a = add(%m, %c)
          %p, %r = split(%a) {axis = 2, sizes = [1, 2]}
          return %p, %r
        }""",
    )


def test_gate_and_up() -> None:
    check_pass(
        MergeMatmuls(),
        """
        graph @main(%x: f32[T, 1]) {
          %u = constant() {value = dense<f32[1, 1]: [2.0]>}
          %v = constant() {value = dense<f32[1, 1]: [3.0]>}
          %p = matmul(%x, %u)
          %s = silu(%p)
          %q = matmul(%x, %v)
          %y = mul(%s, %q)
          return %y
        }""",
        """
        graph @main(%x: f32[T, 1]) {
          %w = constant() {value = dense<f32[1, 2]: [2.0, 3.0]>}
          %m = matmul(%x, %w)
          %p, %q = split(%m) {axis = 1, sizes = [1, 1]}
          %s = silu(%p)
          %y = mul(%s, %q)
          return %y
        }""",
    )


@pytest.mark.parametrize(
    "body",
    [
        "%p = matmul(%x, %u) %q = matmul(%z, %v) return %p, %q",  # of two values
        "%p = matmul(%x, %u) %q = matmul(%x, %given) return %p, %q",  # a weight that changes
        "%p = matmul(%x, %u) %q = matmul(%x, %u) return %p, %q",  # one weight for both
    ],
)
def test_stays(body: str) -> None:
    inputs = "%x: f32[T, 2], %z: f32[T, 2], %given: f32[2, 2]"
    constants = """
      %u = constant() {value = dense<f32[2, 1]: [1.0, 2.0]>}
      %v = constant() {value = dense<f32[2, 1]: [3.0, 4.0]>}
    """
    check_pass(MergeMatmuls(), f"graph @main({inputs}) {{ {constants} {body} }}", None)


def test_least() -> None:
    text = """
    graph @main(%x: f32[T, 1]) {
      %u = constant() {value = dense<f32[1, 1]: [2.0]>}
      %v = constant() {value = dense<f32[1, 1]: [3.0]>}
      %p = matmul(%x, %u)
      %q = matmul(%x, %v)
      return %p, %q
    }"""
    check_pass(MergeMatmuls(least=3), text, None)


@pytest.mark.parametrize(
    ("epilogue", "is_merged"),
    [
        ("%s = silu(%p) %y = mul(%s, %q) return %y", False),
        ("%s = silu(%p) return %s, %q", False),
        ("%s = softmax(%p) {axis = 1} return %s, %q", True),
    ],
)
def test_matmuls_with_an_epilogue_are_spared(epilogue: str, is_merged: bool) -> None:
    text = f"""
    graph @main(%x: f32[T, 1]) {{
      %u = constant() {{value = dense<f32[1, 1]: [2.0]>}}
      %v = constant() {{value = dense<f32[1, 1]: [3.0]>}}
      %p = matmul(%x, %u)
      %q = matmul(%x, %v)
      {epilogue}
    }}"""
    graph = parse(text)
    Pipeline(((MergeMatmuls(spares_epilogues=True),),)).run(graph)
    matmuls = [node for node in graph.nodes if node.op.name == "matmul"]
    assert len(matmuls) == (1 if is_merged else 2)


def test_weights_in_codes_become_one() -> None:
    check_pass(
        MergeMatmuls(),
        """
        graph @main(%x: f32[B, 2]) {
          %u = constant() {value = dense<i8[2, 1]: [1, 2]>}
          %v = constant() {value = dense<i8[2, 2]: [3, 4, 5, 6]>}
          %s = constant() {value = dense<f32[]: 0.5>}
          %t = constant() {value = dense<f32[2]: [2.0, 4.0]>}
          %a = dequantize_linear(%u, %s, _) {to = f32}
          %b = dequantize_linear(%v, %t, _) {to = f32}
          %p = matmul(%x, %a)
          %q = matmul(%x, %b)
          return %p, %q
        }""",
        """
        graph @main(%x: f32[B, 2]) {
          %w = constant() {value = dense<i8[2, 3]: [1, 3, 4, 2, 5, 6]>}
          %s = constant() {value = dense<f32[3]: [0.5, 2.0, 4.0]>}
          %d = dequantize_linear(%w, %s, _) {to = f32}
          %m = matmul(%x, %d)
          %p, %q = split(%m) {axis = 1, sizes = [1, 2]}
          return %p, %q
        }""",
    )


def test_weights_in_blocks_become_one_with_their_zero_points_and_those_of_other_blocks_do_not() -> None:
    block = "{to = f32, axis = 0, block_size = 2}"
    check_pass(
        MergeMatmuls(),
        f"""
        graph @main(%x: f32[B, 2]) {{
          %u = constant() {{value = dense<u4[2, 1]: [1, 2]>}}
          %v = constant() {{value = dense<u4[2, 1]: [3, 4]>}}
          %s = constant() {{value = dense<f32[1, 1]: [0.5]>}}
          %t = constant() {{value = dense<f32[1, 1]: [2.0]>}}
          %z = constant() {{value = dense<u4[1, 1]: [8]>}}
          %o = constant() {{value = dense<u4[1, 1]: [7]>}}
          %e = constant() {{value = dense<f32[2, 1]: [1.0, 2.0]>}}
          %a = dequantize_linear(%u, %s, %z) {block}
          %b = dequantize_linear(%v, %t, %o) {block}
          %c = dequantize_linear(%v, %e, _) {{to = f32, axis = 0, block_size = 1}}
          %p = matmul(%x, %a)
          %q = matmul(%x, %b)
          %r = matmul(%x, %c)
          return %p, %q, %r
        }}""",
        f"""
        graph @main(%x: f32[B, 2]) {{
          %v = constant() {{value = dense<u4[2, 1]: [3, 4]>}}
          %e = constant() {{value = dense<f32[2, 1]: [1.0, 2.0]>}}
          %c = dequantize_linear(%v, %e, _) {{to = f32, axis = 0, block_size = 1}}
          %w = constant() {{value = dense<u4[2, 2]: [1, 3, 2, 4]>}}
          %s = constant() {{value = dense<f32[1, 2]: [0.5, 2.0]>}}
          %z = constant() {{value = dense<u4[1, 2]: [8, 7]>}}
          %d = dequantize_linear(%w, %s, %z) {block}
          %m = matmul(%x, %d)
          %p, %q = split(%m) {{axis = 1, sizes = [1, 1]}}
          %r = matmul(%x, %c)
          return %p, %q, %r
        }}""",
    )
