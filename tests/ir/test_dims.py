"""What can be asked of dims: by examples, and that no answer is ever wrong by drawn expressions and sizes."""

import pytest
from capgraph.ir.dims import Dim, Truth, compare, dim_max, dim_min, is_at_least, solve, symbol
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.drawn_dims import NAMES, Tree, built, plain, trees, values

B, T, H = (symbol(name) for name in "BTH")


@pytest.mark.parametrize(
    ("expr", "value", "env", "expected"),
    [
        (2 * T, 8, {}, ("T", 4)),
        (2 * T + 1, 9, {}, ("T", 4)),
        (10 - T, 4, {}, ("T", 6)),
        (T, 0, {}, ("T", 0)),
        (B * T, 12, {"B": 3}, ("T", 4)),
        (2 * T, 7, {}, None),
        (T + 5, 4, {}, None),
        (T * T, 4, {}, None),
        (T // 2, 4, {}, None),
        (T + B, 4, {}, None),
        (T + T // 2, 6, {}, None),
        (T, 4, {"T": 4}, None),
        (4, 4, {}, None),
        (B * T, 0, {"B": 0}, None),
    ],
)
def test_solve(expr: Dim, value: int, env: dict[str, int], expected: tuple[str, int] | None) -> None:
    assert solve(expr, value, env) == expected


@given(trees, values, st.sampled_from(NAMES))
def test_a_solution_is_the_only_one(tree: Tree, env: dict[str, int], unknown: str) -> None:
    value = plain(tree, env)
    solution = solve(built(tree), value, {name: size for name, size in env.items() if name != unknown})
    assert solution is None or solution == (unknown, env[unknown])


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (T, T, Truth.YES),
        (3, 3, Truth.YES),
        (3, 4, Truth.NO),
        (T + 1, T, Truth.NO),
        (2 * T + 1, 2 * T, Truth.NO),
        (2 * T + 1, 2 * B, Truth.NO),  # odd and even
        (3 * T + 6 * B, 3 * H + 1, Truth.NO),
        (T + 1, 0, Truth.NO),
        (T % 4, 4, Truth.NO),
        (dim_min(T, 4), 5, Truth.NO),
        (T, B, Truth.UNKNOWN),
        (T, 4, Truth.UNKNOWN),
        (2 * T, 2 * B, Truth.UNKNOWN),
        (dim_max(T, 4), T, Truth.UNKNOWN),
    ],
)
def test_compare(a: Dim, b: Dim, expected: Truth) -> None:
    assert compare(a, b) is expected
    assert compare(b, a) is expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (T, 0, Truth.YES),
        (T + B, T, Truth.YES),
        (T, T // 2, Truth.YES),
        (dim_max(T, 8), T, Truth.YES),
        (T, dim_min(T, 8), Truth.YES),
        (T, T % 4, Truth.YES),
        (T, T + 1, Truth.NO),
        (dim_min(T, 8), 9, Truth.NO),
        (T, 1, Truth.UNKNOWN),
        (T, B, Truth.UNKNOWN),
    ],
)
def test_is_at_least(a: Dim, b: Dim, expected: Truth) -> None:
    assert is_at_least(a, b) is expected


@given(trees, trees, values)
def test_an_answer_is_never_wrong(first: Tree, second: Tree, env: dict[str, int]) -> None:
    x, y = plain(first, env), plain(second, env)
    a, b = built(first), built(second)
    if compare(a, b) is not Truth.UNKNOWN:
        assert (compare(a, b) is Truth.YES) == (x == y)
    if is_at_least(a, b) is not Truth.UNKNOWN:
        assert (is_at_least(a, b) is Truth.YES) == (x >= y)
    if a == b:
        assert compare(a, b) is Truth.YES
        assert hash(a) == hash(b)


def test_a_question_about_too_large_a_difference_is_answered() -> None:
    left, right = (sum((symbol(f"{side}{i}") for i in range(150)), start=0) for side in "lr")
    assert compare(left, right) is Truth.UNKNOWN
    assert is_at_least(left, right) is Truth.UNKNOWN
