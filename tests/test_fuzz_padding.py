"""What the fuzz of padding takes for an excuse."""

from textwrap import dedent

import numpy as np
import pytest
from capgraph.ir.text.parser import parse

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
