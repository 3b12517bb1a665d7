"""Writes one behind the other."""

import pytest
from capgraph.passes.cleanup.canonicalize import Canonicalize

from tests.passes.checking import check_pass

INPUTS = "%a: f32[2, 1, 3], %b: f32[2, 2, 3], %c: f32[2, 1, 3], %s: f32[2, 4, 3]"


def check(before: str, after: str | None) -> None:
    wrapped = f"graph @main({INPUTS}) {{ {after} return %y }}" if after is not None else None
    check_pass(Canonicalize(), f"graph @main({INPUTS}) {{ {before} return %y }}", wrapped)


def write(name: str, base: str, update: str, start: int) -> str:
    return f"""
        %at{name} = constant() {{value = dense<i64[2]: [{start}, {start}]>}}
        %{name}: f32[2, 4, 3] = tensor_scatter(%{base}, %{update}, %at{name}) {{axis = 1}}"""


EMPTY = "%e: f32[2, 4, 3] = neg(%s)"


def test_writes_that_fill_a_tensor_are_its_parts() -> None:
    """RWKV writes each step of a text into zeros."""
    before = EMPTY + write("p", "e", "a", 3) + write("q", "p", "b", 1) + write("y", "q", "c", 0)
    check(before, "%y: f32[2, 4, 3] = concat(%c, %b, %a) {axis = 1}")


def test_what_is_written_over_is_gone() -> None:
    before = (
        EMPTY + write("o", "e", "c", 3) + write("p", "o", "a", 3) + write("q", "p", "b", 1) + write("y", "q", "c", 0)
    )
    check(before, "%y: f32[2, 4, 3] = concat(%c, %b, %a) {axis = 1}")


@pytest.mark.parametrize(
    "lines",
    [
        # a step that nothing is written to
        EMPTY + write("p", "e", "a", 3) + write("y", "p", "b", 0),
        # a write over a part of another
        EMPTY + write("p", "e", "b", 2) + write("q", "p", "b", 1) + write("y", "q", "a", 0),
        # a cache of the caller's
        write("p", "s", "a", 3) + write("q", "p", "b", 1) + write("y", "q", "c", 0),
    ],
    ids=["missing", "overlapping", "cache"],
)
def test_other_writes_stay(lines: str) -> None:
    check(lines, None)
