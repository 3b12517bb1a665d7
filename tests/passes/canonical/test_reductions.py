"""Reductions take in reshapes that only add or drop the reduced axes, and reductions of the same kind."""

import pytest
from capgraph.passes.cleanup.canonicalize import Canonicalize

from tests.passes.checking import check_pass


def test_dropped_and_added_axes() -> None:
    check_pass(
        Canonicalize(),
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


def test_a_softmax_between_dropped_and_added_axes() -> None:
    """A pool flattened for a softmax, as models before opset 13 have it."""
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f32[N, C, H, W]) {
          %a = reduce_mean(%x) {axes = [2, 3], keep_dims = true}
          %b = reshape(%a) {shape = [N, C]}
          %c = softmax(%b) {axis = -1}
          %d = reshape(%c) {shape = [N, C, 1, 1]}
          return %d
        }""",
        """
        graph @main(%x: f32[N, C, H, W]) {
          %a = reduce_mean(%x) {axes = [2, 3], keep_dims = true}
          %d = softmax(%a) {axis = 1}
          return %d
        }""",
    )


def test_a_softmax_before_dropped_axes() -> None:
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f32[N, C, H, W]) {
          %a = reduce_sum(%x) {axes = [1], keep_dims = true}
          %b = softmax(%a) {axis = 3}
          %c = reshape(%b) {shape = [N, H, W]}
          return %c
        }""",
        """
        graph @main(%x: f32[N, C, H, W]) {
          %a = reduce_sum(%x) {axes = [1], keep_dims = false}
          %c = softmax(%a) {axis = 2}
          return %c
        }""",
    )


@pytest.mark.parametrize(("keep_dims", "second"), [("true", 3), ("false", 1)])
def test_a_maximum_of_maxima(keep_dims: str, second: int) -> None:
    check_pass(
        Canonicalize(),
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
        "%a = reduce_sum(%x) {axes = [1], keep_dims = true}\n"
        "%b = softmax(%a) {axis = 1}\n %c = reshape(%b) {shape = [N]}\n return %c",  # over the dropped axis
        "%a = reduce_sum(%x) {axes = [1], keep_dims = true}\n"
        "%b = softmax(%a) {axis = 0}\n %c = reshape(%b) {shape = [1, N]}\n return %c",  # of another shape
        "%a = reduce_sum(%x) {axes = [1], keep_dims = true}\n"
        "%b = softmax(%a) {axis = 0}\n %c = reshape(%b) {shape = [N]}\n return %c, %b",  # read as it is
        "%a = reduce_max(%x) {axes = [1], keep_dims = true}\n"
        "%b = reduce_min(%a) {axes = [0], keep_dims = true}\n return %b",
        "%a = reduce_sum(%x) {axes = [1], keep_dims = true}\n"
        "%b = reduce_sum(%a) {axes = [0], keep_dims = true}\n return %b",  # adds in another order
    ],
)
def test_stays(body: str) -> None:
    check_pass(Canonicalize(), f"graph @main(%x: f32[N, 4]) {{ {body} }}", None)
