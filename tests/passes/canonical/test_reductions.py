"""Reductions take in reshapes that only add or drop the reduced axes, and reductions of the same kind."""

import pytest
from capgraph.passes.canonicalise import Canonicalise

from tests.passes.checking import check_pass


def test_dropped_and_added_axes() -> None:
    check_pass(
        Canonicalise(),
        """
        graph @main(%x: f32[N, C, H, W]) {
          %a = reduce_mean(%x) {axes = [2, 3], keep_dims = true}
          %b = reshape(%a) {shape = [N, C]}
          %c = reduce_sum(%x) {axes = [1], keep_dims = false}
          %d = reshape(%c) {shape = [N, 1, H, W]}
          return %b, %d
        }""",
        """
        graph @main(%x: f32[N, C, H, W]) {
          %b = reduce_mean(%x) {axes = [2, 3], keep_dims = false}
          %d = reduce_sum(%x) {axes = [1], keep_dims = true}
          return %b, %d
        }""",
    )


@pytest.mark.parametrize(("keep_dims", "second"), [("true", 3), ("false", 1)])
def test_a_maximum_of_maxima(keep_dims: str, second: int) -> None:
    check_pass(
        Canonicalise(),
        f"""
        graph @main(%x: f32[N, C, H, W]) {{
          %a = reduce_max(%x) {{axes = [0, 2], keep_dims = {keep_dims}}}
          %b = reduce_max(%a) {{axes = [{second}], keep_dims = {keep_dims}}}
          return %b
        }}""",
        f"""
        graph @main(%x: f32[N, C, H, W]) {{
          %b = reduce_max(%x) {{axes = [0, 2, 3], keep_dims = {keep_dims}}}
          return %b
        }}""",
    )


@pytest.mark.parametrize(
    "body",
    [
        "%a = reduce_sum(%x) {axes = [1], keep_dims = true}\n %b = reshape(%a) {shape = [1, N]}\n return %b",
        "%a = reduce_sum(%x) {axes = [1], keep_dims = true}\n %b = reshape(%a) {shape = [N]}\n return %b, %a",
        "%a = reduce_max(%x) {axes = [1], keep_dims = true}\n"
        "%b = reduce_min(%a) {axes = [0], keep_dims = true}\n return %b",
        "%a = reduce_sum(%x) {axes = [1], keep_dims = true}\n"
        "%b = reduce_sum(%a) {axes = [0], keep_dims = true}\n return %b",  # adds in another order
    ],
)
def test_stays(body: str) -> None:
    check_pass(Canonicalise(), f"graph @main(%x: f32[N, 4]) {{ {body} }}", None)
