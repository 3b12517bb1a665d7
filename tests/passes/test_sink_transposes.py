"""Transposes cancel across other operations, and are never made more."""

import pytest
from capgraph.passes.layout.sink_transposes import SinkTransposes

from tests.passes.checking import check_pass

LAST = "{perm = [0, 2, 3, 1]}"
FIRST = "{perm = [0, 3, 1, 2]}"


def check(inputs: str, before: str, after: str | None) -> None:
    wrapped = f"graph @main({inputs}) {{ {after} }}" if after is not None else None
    check_pass(SinkTransposes(), f"graph @main({inputs}) {{ {before} }}", wrapped)


def test_the_way_to_channels_last_and_back() -> None:
    check(
        "%x: f32[N, 2, H, W]",
        f"""
        %b = constant() {{value = dense<f32[2]: [1.0, 2.0]>}}
        %c = constant() {{value = dense<f32[]: 3.0>}}
        %a = transpose(%x) {LAST}
        %p = add(%a, %b)
        %r = relu(%p)
        %q = mul(%r, %c)
        %y = transpose(%q) {FIRST}
        return %y
        """,
        """
        %c = constant() {value = dense<f32[]: 3.0>}
        %b = constant() {value = dense<f32[1, 2, 1, 1]: [1.0, 2.0]>}
        %p = add(%x, %b)
        %r = relu(%p)
        %y = mul(%r, %c)
        return %y
        """,
    )


def test_a_residual_that_meets_two_transposes() -> None:
    check(
        "%x: f32[N, 2, H, W], %z: f32[N, 2, H, W]",
        f"""
        %a = transpose(%x) {LAST}
        %b = transpose(%z) {LAST}
        %s = add(%a, %b)
        %y = transpose(%s) {FIRST}
        return %y
        """,
        "%y = add(%x, %z) return %y",
    )


def test_one_transpose_below_instead_of_two_above() -> None:
    check(
        "%x: f32[N, 2, H, W], %z: f32[N, 2, H, W]",
        f"""
        %a = transpose(%x) {LAST}
        %b = transpose(%z) {LAST}
        %s = add(%a, %b)
        return %s
        """,
        f"%s = add(%x, %z) %y = transpose(%s) {LAST} return %y as s",
    )


def test_operations_with_axes() -> None:
    check(
        "%x: f32[N, 2, H, W], %z: f32[N, 3, H, W]",
        f"""
        %a = transpose(%x) {LAST}
        %b = transpose(%z) {LAST}
        %c = concat(%a, %b) {{axis = 3}}
        %d = softmax(%c) {{axis = -1}}
        %e = pad(%d, _) {{pads = [0, 1, 2, 0, 0, 3, 4, 0], mode = "constant"}}
        %f = slice(%e) {{axes = [3], starts = [1], ends = [4], steps = [1]}}
        %g = reduce_max(%f) {{axes = [1, 2], keep_dims = true}}
        %y = transpose(%g) {FIRST}
        return %y
        """,
        """
        %c = concat(%x, %z) {axis = 1}
        %d = softmax(%c) {axis = 1}
        %e = pad(%d, _) {pads = [0, 0, 1, 2, 0, 0, 3, 4], mode = "constant"}
        %f = slice(%e) {axes = [1], starts = [1], ends = [4], steps = [1]}
        %y = reduce_max(%f) {axes = [2, 3], keep_dims = true}
        return %y
        """,
    )


def test_a_mean_over_the_image() -> None:
    check(
        "%x: f32[N, 2, H, W]",
        f"%a = transpose(%x) {LAST} %y = reduce_mean(%a) {{axes = [1, 2], keep_dims = false}} return %y",
        "%y = reduce_mean(%x) {axes = [2, 3], keep_dims = false} return %y",
    )


@pytest.mark.parametrize(
    "body",
    [
        f"%r = relu(%x) %y = transpose(%r) {LAST} return %y",  # nothing to meet
        f"%a = transpose(%x) {LAST} %r = relu(%a) %y = transpose(%r) {FIRST} return %y, %r",  # read in between
        f"%a = transpose(%x) {LAST} %s = add(%a, %other) %y = transpose(%s) {FIRST} return %y, %a",  # as many after
        f"%a = transpose(%x) {LAST} %n = layer_norm(%a, %g, _) {{axis = -1}} %y = transpose(%n) {FIRST} return %y",
        f"%a = transpose(%x) {LAST} %y = reduce_sum(%a) {{axes = [1], keep_dims = false}} return %y",
    ],
)
def test_stays(body: str) -> None:
    check("%x: f32[2, 2, 3, 4], %other: f32[2, 3, 4, 2], %g: f32[2]", body, None)
