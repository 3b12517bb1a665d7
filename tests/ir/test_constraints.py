"""What rules assume about sizes: an error when it cannot hold, a constraint when it may."""

import pytest
from capgraph.ir.dims import Dim, symbol
from capgraph.ir.dims.constraints import Constraint, Difference, collect_constraints, require_equal
from capgraph.ir.errors import ShapeError

B, T = symbol("B"), symbol("T")


@pytest.mark.parametrize(
    ("left", "right", "common", "constrained"),
    [
        (4, 4, 4, False),
        (B, B, B, False),
        (2 * B, B + B, 2 * B, False),
        (B, T, B, True),
        (B, 4, 4, True),
        (4, B, 4, True),
    ],
)
def test_the_more_concrete_size_is_given(left: Dim, right: Dim, common: Dim, constrained: bool) -> None:
    with collect_constraints() as found:
        assert require_equal(left, right, "sizes") == common
    assert found == ([Constraint(left, right, "sizes")] if constrained else [])
    assert require_equal(left, right, "sizes") == common  # nobody listens


@pytest.mark.parametrize(("left", "right"), [(3, 4), (B, B + 1), (2 * B, 5)])
def test_what_cannot_be_equal_is_an_error(left: Dim, right: Dim) -> None:
    with pytest.raises(ShapeError, match=r"sizes: .* differ"):
        require_equal(left, right, "sizes")


def test_collections_nest() -> None:
    with collect_constraints() as outer:
        require_equal(B, 1, "a")
        with collect_constraints() as inner:
            require_equal(B, 2, "b")
        require_equal(B, 3, "c")
    assert [item.reason for item in outer] == ["a", "c"]
    assert [item.reason for item in inner] == ["b"]


def test_a_constraint_is_checked_with_sizes() -> None:
    constraint = Constraint(B * 2, T, "rows")
    constraint.check({"B": 2, "T": 4})
    with pytest.raises(ShapeError, match=r"rows: 2\*B is 6, but T is 4"):
        constraint.check({"B": 3, "T": 4})
    assert str(constraint) == "2*B == T (rows)"


def test_whether_sizes_keep_what_was_assumed() -> None:
    n, m = symbol("n"), symbol("m")
    same, other, ratio = (Constraint(n, m, "same"), Difference(n, 1, "other"), Constraint(n // m, 1, "ratio"))
    assert same.holds({"n": 2, "m": 2})
    assert not same.holds({"n": 2, "m": 1})
    assert other.holds({"n": 2})
    assert not other.holds({"n": 1})
    assert not ratio.holds({"n": 2, "m": 0})
    assert same.symbols == {"n", "m"}


def test_an_equality_and_a_difference_of_the_same_sizes_are_two() -> None:
    same, other = Constraint(B, T, "sizes"), Difference(B, T, "sizes")
    assert same != other
    assert len({same, other, Difference(B, T, "sizes")}) == 2
    assert other not in (Difference(B, 1, "sizes"), Difference(1, T, "sizes"), Difference(B, T, "rows"))
