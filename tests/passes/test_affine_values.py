"""What is said of positions holds for every size: each claim is held to the evaluated tensor."""

import numpy as np
import pytest
from capgraph.ir.dims import evaluate
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.text.parser import parse
from capgraph.passes.cleanup.affine_values import AffineValues, bounds_of
from hypothesis import given
from hypothesis import strategies as st


def claim(lines: str, sizes: dict[str, int]) -> bool:
    """Whether something is known of %y; what is known must be what evaluation gives."""
    graph = parse(f"graph @main(%x: f32[B, T]) {{\n{lines}\n  return %y\n}}\n")
    (value,) = graph.outputs
    found = AffineValues().of(value)
    if found is None:
        return False
    (result,) = evaluate_graph(graph, [np.zeros((sizes["B"], sizes["T"]), np.float32)])
    expected = np.full(result.shape, evaluate(found.start, sizes), np.int64)
    for axis, stride in enumerate(found.strides):
        ramp = np.arange(result.shape[axis]) * evaluate(stride, sizes)
        expected += ramp.reshape(-1, *(1,) * (result.ndim - axis - 1))
    assert np.array_equal(result.astype(np.int64), expected)
    low, high = bounds_of(found, value.shape)
    assert low is None or not result.size or low <= result.min()
    assert high is None or not result.size or high >= result.max()
    return True


RANGE = "%t: i64[T] = arange() {limit = T}"
FOLLOWED = {
    "range": "%y: i64[T] = arange() {start = 3, limit = 2*T + 3, step = 2}",
    "constant": "%y: i64[2, 3] = constant() {value = dense<i64[2, 3]: [5, 6, 7, 1, 2, 3]>}",
    "views": f"{RANGE}\n%a: i64[T, 1] = reshape(%t) {{shape = [T, 1]}}\n%b: i64[T, B] = expand(%a) {{shape = [T, B]}}\n"
    "%y: i64[B, T] = transpose(%b) {perm = [1, 0]}",
    "slice": f"{RANGE}\n%y: i64[T // 2] = slice(%t) {{axes = [0], starts = [1], ends = [T], steps = [2]}}",
    "outer sum": f"{RANGE}\n%a: i64[T, 1] = reshape(%t) {{shape = [T, 1]}}\n%y: i64[T, T] = sub(%a, %t)",
    "continued": f"{RANGE}\n%u: i64[B] = arange() {{start = T, limit = T + B}}\n"
    "%y: i64[T + B] = concat(%t, %u) {axis = 0}",
    "gather": f"{RANGE}\n%c: i64[2, 3] = constant() {{value = dense<i64[2, 3]: [0, 1, 2, 10, 11, 12]>}}\n"
    "%i: i64[2] = constant() {value = dense<i64[2]: [1, 2]>}\n%y: i64[2, 2] = gather(%c, %i) {axis = 1}",
    "decided": f"{RANGE}\n%z: i64[] = constant() {{value = dense<i64[]: 0>}}\n%y: bool[T] = less(%t, %z)",
}
NOT_FOLLOWED = {
    "squares": f"{RANGE}\n%y: i64[T] = mul(%t, %t)",
    "data": "%y: bool[B, T] = greater(%x, %x)",
    "a gap": f"{RANGE}\n%u: i64[B] = arange() {{start = T + 1, limit = T + B + 1}}\n"
    "%y: i64[T + B] = concat(%t, %u) {axis = 0}",
    "large": "%y: i64[2] = constant() {value = dense<i64[2]: [9223372036854775807, -9223372036854775808]>}",
    "from the end": f"{RANGE}\n%y: i64[min(2, T)] = slice(%t) {{axes = [0], starts = [-2], ends = [99], steps = [1]}}",
    "joined rows": "%c: i64[2, 2] = constant() {value = dense<i64[2, 2]: [0, 1, 5, 6]>}\n"
    "%y: i64[4] = reshape(%c) {shape = [4]}",
}


@pytest.mark.parametrize("lines", FOLLOWED.values(), ids=FOLLOWED)
@given(st.fixed_dictionaries({"B": st.integers(1, 4), "T": st.integers(1, 5)}))
def test_what_is_followed(lines, sizes):
    assert claim(lines, sizes)


@pytest.mark.parametrize("lines", NOT_FOLLOWED.values(), ids=NOT_FOLLOWED)
def test_what_is_not_followed(lines):
    assert not claim(lines, {"B": 2, "T": 3})
