"""Concats of concats become one, however many stand in a chain; splits that change nothing go."""

import pytest
from capgraph.passes.cleanup.canonicalize import Canonicalize

from tests.passes.checking import check_pass

INPUTS = "%x: f32[2, 3], %y: f32[1, 3], %z: f32[4, 3]"


def check(before: str, after: str) -> None:
    check_pass(Canonicalize(), f"graph @main({INPUTS}) {{{before}}}", f"graph @main({INPUTS}) {{{after}}}")


def test_a_chain_of_concats_keeps_the_order_of_its_operands() -> None:
    check(
        """
        %a = concat(%x, %y) {axis = 0}
        %b = concat(%z, %a, %y) {axis = -2}
        %c = concat(%b, %z) {axis = 0}
        %d = concat(%x, %c) {axis = 0}
        %e = neg(%d)
        return %e
        """,
        """
        %d = concat(%x, %z, %x, %y, %y, %z) {axis = 0}
        %e = neg(%d)
        return %e
        """,
    )


def test_concats_of_many_operands_are_spread_too() -> None:
    check(
        """
        %a = concat(%x, %y) {axis = 0}
        %b = concat(%a, %z) {axis = 0}
        %c = concat(%z, %y) {axis = 0}
        %d = concat(%y, %x) {axis = 0}
        %e = concat(%x, %c, %b, %y, %d, %z) {axis = 0}
        return %e
        """,
        "%e = concat(%x, %z, %y, %x, %y, %z, %y, %y, %x, %z) {axis = 0} return %e",
    )


def test_a_chain_ends_where_others_read_it_or_the_axis_changes() -> None:
    check(
        """
        %a = concat(%x, %y) {axis = 0}
        %b = concat(%a, %z) {axis = 0}
        %c = concat(%b, %x) {axis = 0}
        %d = concat(%c, %c) {axis = 1}
        %e = concat(%d, %d) {axis = 1}
        return %b, %e
        """,
        """
        %b = concat(%x, %y, %z) {axis = 0}
        %c = concat(%b, %x) {axis = 0}
        %d = concat(%c, %c) {axis = 1}
        %e = concat(%d, %d) {axis = 1}
        return %b, %e
        """,
    )


def test_parts_without_elements_are_left_out() -> None:
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f32[B, 4], %y: f32[B, 0], %z: f32[B, 2], %w: f32[C, 0]) {
          %a = concat(%y, %x, %z, %y) {axis = 1}
          %b = concat(%x, %y) {axis = -1}
          %c = concat(%y, %y) {axis = 1}
          return %a, %b, %c
        }""",
        """
        graph @main(%x: f32[B, 4], %y: f32[B, 0], %z: f32[B, 2], %w: f32[C, 0]) {
          %0 = concat(%x, %z) {axis = 1}
          %c = concat(%y, %y) {axis = 1}
          return %0 as a, %x as b, %c
        }""",
    )


def test_splits_that_change_nothing_go() -> None:
    check(
        """
        %a = split(%x) {axis = 0, sizes = [2]}
        %b, %c = split(%z) {axis = 0, sizes = [1, 3]}
        %d = concat(%b, %c) {axis = 0}
        return %a, %d
        """,
        "return %x as a, %z as d",
    )


@pytest.mark.parametrize(
    "parts",
    [
        "%part: f32[a, 4] = split(%x) {axis = 1, sizes = [4]}",
        "%l: f32[a, 1], %r: f32[a, 3] = split(%x) {axis = 1, sizes = [1, 3]} %part = concat(%l, %r) {axis = 1}",
    ],
)
def test_a_branch_keeps_a_split_that_says_a_size(parts: str) -> None:
    """The size of the result is open, and nothing more to the verifier once both branches have the size of x."""
    text = f"""
        graph @main(%c: bool[], %x: f32[a, b], %y: f32[b, 3]) {{
          %z: f32[a, u], %w: f32[b, 3] = if(%c, %x, %y) {{then_body = @then, else_body = @else}}
          return %z, %w
        }}

        graph @then(%x: f32[a, b], %y: f32[b, 3]) {{ %n = neg(%x) return %n, %y }}

        graph @else(%x: f32[a, b], %y: f32[b, 3]) {{ {parts} return %part, %y }}
    """
    check_pass(Canonicalize(), text, text)
