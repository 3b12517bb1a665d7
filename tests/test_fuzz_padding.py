"""What the fuzz of padding takes for an excuse."""

from textwrap import dedent

import numpy as np
import pytest
from capgraph.ir.text.parser import parse

from tests.comparable import held_outputs
from tests.fuzz_padding import divides_by_empty


@pytest.mark.parametrize(
    ("lines", "excused"),
    [
        ("%n: i64[] = size(%x)\n%y: i64[] = div(%n, %n)", True),
        ("%n: i64[] = dim() {value = N}\n%y: i64[2] = mod(%i, %n)", True),
        ("%n: i64[2] = dims() {values = [N, N]}\n%y: i64[2] = div(%n, %n)", True),
        ("%n: i64[] = dim() {value = N}\n%m: i64[2] = add(%n, %i)\n%y: i64[2] = mod(%i, %m)", False),  # by data
        ("%n: i64[] = dim() {value = N + 1}\n%y: i64[2] = div(%i, %n)", False),  # by 1
        ("%n: i64[] = dim() {value = N}\n%m: f32[] = cast(%n) {to = f32}\n%y: f32[N] = div(%x, %m)", False),  # floats
        ("%n: i64[] = dim() {value = N}\n%y: i64[2] = div(%i, %i)", False),
    ],
)
def test_only_integers_divided_by_a_size_of_nothing_are_excused(lines: str, excused: bool) -> None:
    graph = parse(dedent(f"graph @main(%x: f32[N], %i: i64[2]) {{\n{lines}\nreturn %y\n}}"))
    arrays = [np.zeros(0, np.float32), np.zeros(2, np.int64)]
    assert divides_by_empty(graph, {"N": 0}, arrays) == excused


@pytest.mark.parametrize(
    ("factors", "addend", "is_held"),
    [("alpha = 0.5", 1, True), ("alpha = 0.5", 2**32 - 1, False), ("alpha = 2.0", 2**32 - 1, True)],
)
def test_a_gemm_of_integers_is_held_to_what_they_have(factors: str, addend: int, is_held: bool) -> None:
    text = f"graph @main(%a: u32[1, 1], %c: u32[1]) {{\n%y: u32[1, 1] = gemm(%a, %a, %c) {{{factors}}}\nreturn %y\n}}"
    arrays = [np.array([[4]], np.uint32), np.array([addend], np.uint32)]
    assert bool(held_outputs(parse(text), arrays, {}).close) == is_held


@pytest.mark.parametrize(("x", "least", "most"), [(1.0, 1.0, 1.3), (-4.3, 1e4, 1e6), (0.0, 1.0, 1.0)])
def test_gelu_by_tanh_is_held_to_roundings_of_its_sum(x: float, least: float, most: float) -> None:
    graph = parse('graph @main(%x: f64[1]) {\n%y: f64[1] = gelu(%x) {approximate = "tanh"}\nreturn %y\n}')
    (grown,) = held_outputs(graph, [np.array([x])], {}).close.values()
    assert least <= grown / np.finfo(np.float64).eps <= most


def test_what_gelu_by_tanh_rounds_to_nothing_is_not_held() -> None:
    graph = parse('graph @main(%x: f64[1]) {\n%y: f64[1] = gelu(%x) {approximate = "tanh"}\nreturn %y\n}')
    assert not held_outputs(graph, [np.array([-40.0])], {}).close
