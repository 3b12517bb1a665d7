"""Expansions before ops that broadcast, and ops on what is expanded; those that the result needs stay."""

import pytest
from capgraph.passes.cleanup.canonicalize import Canonicalize

from tests.passes.checking import check_pass

INPUTS = "%x: f32[B, 4], %m: f32[1, 4], %c: bool[B, 1]"


def graph(*lines: str) -> str:
    """A graph that returns %y."""
    return "\n  ".join([f"graph @main({INPUTS}) {{", *lines]) + "\n  return %y\n}\n"


WIDE = "%e: f32[B, 4] = expand(%m) {shape = [B, 4]}"
TALL = "%e: f32[3, B, 4] = expand(%m) {shape = [3, B, 4]}"
HALF = "%h: f32[] = constant() {value = dense<f32[]: 0.5>}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((WIDE, "%y: f32[B, 4] = add(%x, %e)"), ("%y: f32[B, 4] = add(%x, %m)",)),
        ((WIDE, "%y: f32[B, 4] = where(%c, %x, %e)"), ("%y: f32[B, 4] = where(%c, %x, %m)",)),
        (
            (WIDE, HALF, "%y: f32[B, 4] = mul(%e, %h)"),
            (HALF, "%p: f32[1, 4] = mul(%m, %h)", "%y: f32[B, 4] = expand(%p) {shape = [B, 4]}"),
        ),
    ],
)
def test_expansions_go_or_come_last(before, after):
    check_pass(Canonicalize(), graph(*before), graph(*after))


def test_an_expansion_that_the_result_needs_stays():
    check_pass(Canonicalize(), graph(TALL, "%y: f32[3, B, 4] = add(%x, %e)"), None)


def test_an_expansion_that_others_read_is_not_repeated():
    lines = ("%p: f32[B, 4] = mul(%e, %h)", "%q: f32[B, 4] = sub(%e, %h)", "%y: f32[B, 4] = div(%p, %q)")
    check_pass(Canonicalize(), graph(WIDE, HALF, *lines), None)
