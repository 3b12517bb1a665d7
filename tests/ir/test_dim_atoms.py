"""The bounds of symbolic dims: as tight as expected by examples, and never passed by drawn expressions and sizes."""

import pytest
from capgraph.ir.dims import Dim, dim_max, dim_min, lower_bound, symbol, upper_bound
from capgraph.ir.dims.atoms import Query, Quotient
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.drawn_dims import Tree, built, plain, trees, values

B, T, H = (symbol(name) for name in "BTH")


@pytest.mark.parametrize(
    ("dim", "low", "high"),
    [
        (5, 5, 5),
        (T, 0, None),
        (T + 2, 2, None),
        (3 - T, None, 3),
        (B - T, None, None),
        (T % 4, 0, 3),
        (7 // (T + 2), 0, 3),
        (T - T // 4, 0, None),
        (dim_min(T, 9), 0, 9),
        (dim_max(T, 9), 9, None),
        (dim_max(dim_min(T, 9), 2), 2, 9),
        (T - dim_min(T, 5), 0, None),
        (dim_max(0, T - 3) - T, -3, 0),
    ],
)
def test_bounds(dim: Dim, low: int | None, high: int | None) -> None:
    assert (lower_bound(dim), upper_bound(dim)) == (low, high)


def test_ranges_tighten_the_bounds() -> None:
    ranges = {"T": (2, 10), "B": (1, None)}
    assert (lower_bound(T * B, ranges), upper_bound(T * B, ranges)) == (2, None)
    assert (lower_bound(T * T, ranges), upper_bound(T * T, ranges)) == (4, 100)
    assert (lower_bound(T // B, ranges), upper_bound(T // B, ranges)) == (0, 10)
    assert (lower_bound(H - T, ranges), upper_bound(H - T, ranges)) == (-10, None)
    assert (lower_bound(4, ranges), upper_bound(4, ranges)) == (4, 4)


@given(trees, values, st.integers(0, 3), st.integers(0, 3) | st.none())
def test_a_bound_is_never_passed(tree: Tree, env: dict[str, int], below: int, above: int | None) -> None:
    value = plain(tree, env)
    dim = built(tree)
    ranges = {name: (max(0, size - below), None if above is None else size + above) for name, size in env.items()}
    for low, high in (
        (lower_bound(dim), upper_bound(dim)),
        (lower_bound(dim, ranges), upper_bound(dim, ranges)),
    ):
        assert low is None or low <= value
        assert high is None or value <= high


def test_operands_that_are_shared_are_looked_into_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0
    interval = Quotient.interval

    def counting(self: Quotient, query: Query, effort: int) -> tuple[int | None, int | None]:
        nonlocal counted
        counted += 1
        return interval(self, query, effort)

    monkeypatch.setattr(Quotient, "interval", counting)
    dim: Dim = T
    for _ in range(9):
        dim = dim + dim // 2
    before = counted
    assert lower_bound(dim, {"T": (2, 9)}) is not None
    assert counted - before < 100, "nine quotients, each in the next"
