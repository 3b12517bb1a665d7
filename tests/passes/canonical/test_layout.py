"""Concats of concats become one, however many stand in a chain."""

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
