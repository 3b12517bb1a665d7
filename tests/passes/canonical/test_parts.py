"""Slices, concats, rolls and pads of each other."""

import pytest
from capgraph.passes.cleanup.canonicalize import Canonicalize

from tests.passes.checking import check_pass


def check(inputs: str, before: str, after: str | None) -> None:
    wrapped = f"graph @main({inputs}) {{ {after} }}" if after is not None else None
    check_pass(Canonicalize(), f"graph @main({inputs}) {{ {before} }}", wrapped)


def one(start: object, end: object, axis: int = 0, step: int = 1) -> str:
    return f"{{axes = [{axis}], starts = [{start}], ends = [{end}], steps = [{step}]}}"


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        (one(1, 9), one(2, 4), one(3, 5)),
        (one(-8, 9), one(2, -1), one(4, 8)),
        (one(0, 10, step=2), one(1, 9, step=2), one(2, 10, step=4)),
        (one(0, 2), one(5, 9), one(2, 2)),
    ],
)
def test_slice_of_slice_along_one_axis(first: str, second: str, joined: str) -> None:
    check("%x: f32[10, T]", f"%a = slice(%x) {first} %b = slice(%a) {second} return %b",
          f"%b = slice(%x) {joined} return %b")  # fmt: skip


def test_slices_along_several_axes_although_one_is_read_twice() -> None:
    check(
        "%x: f32[N, H, W]",
        f"""
        %a = slice(%x) {one(0, 2**63 - 1, axis=1, step=2)}
        %b = slice(%a) {one(0, 2**63 - 1, axis=2, step=2)}
        %c = slice(%a) {one(1, 2**63 - 1, axis=2, step=2)}
        return %b, %c
        """,
        f"""
        %b = slice(%x) {{axes = [1, 2], starts = [0, 0], ends = [{2**63 - 1}, {2**63 - 1}], steps = [2, 2]}}
        %c = slice(%x) {{axes = [1, 2], starts = [0, 1], ends = [{2**63 - 1}, {2**63 - 1}], steps = [2, 2]}}
        return %b, %c
        """,
    )


@pytest.mark.parametrize(
    ("bounds", "result"),
    [
        (one(3, 8), "return %y as d"),
        (one(0, "3 + T"), "%d = concat(%x, %z) {axis = 0} return %d"),
        (one(4, 7), f"%d = slice(%y) {one(1, 4)} return %d"),
    ],
)
def test_slice_of_concat(bounds: str, result: str) -> None:
    third = "%z" if "T" in bounds else "%y"
    other = "%y" if third == "%z" else "%z"
    check(
        "%x: f32[3], %y: f32[5], %z: f32[T]",
        f"%c = concat(%x, {third}, {other}) {{axis = 0}} %d = slice(%c) {bounds} return %d",
        result,
    )


def test_indices_in_order_are_a_slice() -> None:
    check(
        "%x: f32[N, 7]",
        "%i = constant() {value = dense<i64[3]: [-4, -3, -2]>} %y = gather(%x, %i) {axis = 1} return %y",
        f"%y = slice(%x) {one(3, 6, axis=1)} return %y",
    )


def test_slices_joined_again() -> None:
    check(
        "%x: f32[N, 7], %y: f32[N, 2]",
        f"""
        %a = slice(%x) {one(0, 3, axis=1)}
        %b = slice(%x) {one(3, 7, axis=1)}
        %c = concat(%a, %b) {{axis = 1}}
        %d = slice(%x) {one(1, 3, axis=1)}
        %e = slice(%x) {one(3, 5, axis=1)}
        %f = concat(%y, %d, %e) {{axis = 1}}
        return %c, %f
        """,
        f"%g = slice(%x) {one(1, 5, axis=1)} %f = concat(%y, %g) {{axis = 1}} return %x as c, %f",
    )


def test_a_slice_that_ends_before_it_starts_is_empty() -> None:
    check(
        "%x: f32[6]",
        f"""
        %a = slice(%x) {one(3, 1)}
        %b = slice(%x) {one(1, 5)}
        %c = slice(%x) {one(3, 5)}
        %y = concat(%a, %b) {{axis = 0}}
        %z = concat(%a, %c) {{axis = 0}}
        return %y, %z
        """,
        f"""
        %b = slice(%x) {one(1, 5)}
        %c = slice(%x) {one(3, 5)}
        return %b as y, %c as z
        """,
    )
    check(
        "%x: f32[3], %y: f32[5]",
        f"%c = concat(%x, %y) {{axis = 0}} %d = slice(%c) {one(5, 3)} return %d",
        f"%d = slice(%y) {one(2, 2)} return %d",
    )


@pytest.mark.parametrize(("size", "cut", "shift"), [(7, 2, 5), ("T + 3", 3, -3), ("T + 3", "T", 3)])
def test_the_end_before_the_beginning_is_a_roll(size: object, cut: object, shift: int) -> None:
    check(
        f"%x: f32[{size}, 2], %t: f32[T]",
        f"""
        %a = slice(%x) {one(cut, size)}
        %b = slice(%x) {one(0, cut)}
        %c = concat(%a, %b) {{axis = 0}}
        return %c
        """,
        f"%c = roll(%x) {{axes = [0], shifts = [{shift}]}} return %c",
    )


def test_rolls_join() -> None:
    check(
        "%x: f32[N, 7]",
        "%a = roll(%x) {axes = [0, 1], shifts = [1, 2]} %b = roll(%a) {axes = [1], shifts = [-5]} return %b",
        "%b = roll(%x) {axes = [0, 1], shifts = [1, -3]} return %b",
    )
    check("%x: f32[N, 7]", "%a = roll(%x) {axes = [0], shifts = [0]} return %a", "return %x as a")


def test_pads_add_up() -> None:
    check(
        "%x: f32[N, T], %v: f32[]",
        """
        %a = pad(%x, %v) {pads = [1, 0, 2, 0], mode = "constant"}
        %b = pad(%a, %v) {pads = [0, 3, 1, 0], mode = "constant"}
        return %b
        """,
        '%b = pad(%x, %v) {pads = [1, 3, 3, 0], mode = "constant"} return %b',
    )


@pytest.mark.parametrize(
    "body",
    [
        f"%a = slice(%x) {one(1, 9)} %b = slice(%a) {one(2, 4)} return %b",  # the first may be clamped
        f"%a = slice(%x) {one(0, 3)} %b = slice(%x) {one(3, 6)} %c = concat(%a, %b) {{axis = 0}} return %c",
        f"%a = slice(%y) {one(0, 3)} %b = slice(%y) {one(4, 7)} %c = concat(%a, %b) {{axis = 0}} return %c",
        f"%a = slice(%y) {one(2, 7)} %b = slice(%y) {one(0, 2)} %c = concat(%a, %b) {{axis = 0}} return %c, %a",
        f"%a = slice(%z) {one('T', 'K')} %b = slice(%z) {one('K', 'T + K')} %c = concat(%a, %b) {{axis = 0}} return %c",
        f"%c = concat(%x, %y) {{axis = 0}} %d = slice(%c) {one(2, 3)} return %d",
        f"%c = concat(%y, %y) {{axis = 0}} %d = slice(%c) {one(5, 9)} return %d",  # across the seam
        "%i = constant() {value = dense<i64[3]: [3, 2, 1]>} %d = gather(%y, %i) {axis = 0} return %d",
        "%a = pad(%y, %v) {pads = [1, -1], mode = \"constant\"}"
        "%b = pad(%a, %v) {pads = [0, 2], mode = \"constant\"} return %b",
    ],
)  # fmt: skip
def test_stays(body: str) -> None:
    check("%x: f32[N], %y: f32[7], %z: f32[T + K], %t: f32[T], %k: f32[K], %v: f32[]", body, None)
