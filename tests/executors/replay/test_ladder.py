from itertools import pairwise

import pytest
from capgraph.executors.replay.ladder import Buckets, checked_ladder, default_ladder
from capgraph.executors.replay.routing import checked_ranges, make_buckets
from capgraph.ir.errors import InputError
from hypothesis import given
from hypothesis import strategies as st


def test_the_default_ladder() -> None:
    assert default_ladder(1, 20) == (1, 2, 4, 8, 16, 20)
    whole = default_ladder(1, 512)
    assert whole[:5] == (1, 2, 4, 8, 16)
    assert set(range(8, 249, 8)) <= set(whole)
    assert [size for size in whole if size > 248] == list(range(256, 513, 16))
    assert default_ladder(3, 3) == (3,)
    assert default_ladder(0, 2) == (1, 2)


@given(st.integers(0, 600), st.integers(0, 600))
def test_a_ladder_ends_at_the_largest_size_and_rises(low: int, span: int) -> None:
    ladder = default_ladder(low, low + span)
    assert ladder[-1] == low + span
    assert all(low <= a < b for a, b in pairwise(ladder))


@pytest.mark.parametrize(("low", "high"), [(5, 4), (-1, 4)])
def test_an_empty_range_is_refused(low: int, high: int) -> None:
    with pytest.raises(InputError, match="empty or negative"):
        default_ladder(low, high)


def test_too_many_combinations_are_refused() -> None:
    with pytest.raises(InputError, match="7 dims make 78,125 combinations"):
        make_buckets({f"s{number}": (1, 16) for number in range(7)}, {})


def test_a_range_of_any_length_is_fine_for_a_users_ladder_alone() -> None:
    with pytest.raises(InputError, match="more sizes than can be recorded"):
        default_ladder(1, 1 << 40)
    assert checked_ladder([1, 8], 1, 1 << 40) == (1, 8)
    assert checked_ranges({"B": (1, 1 << 40)}, ["B"]) == {"B": (1, 1 << 40)}
    assert len(make_buckets({"B": (1, 1 << 40)}, {"B": [8]})) == 1


def test_a_users_ladder_is_sorted_and_checked() -> None:
    assert checked_ladder([8, 2, 8], 1, 8) == (2, 8)
    for bad in ([], [9], [0], [True], ["4"]):
        with pytest.raises(InputError):
            checked_ladder(bad, 1, 8)  # type: ignore[arg-type]


def test_several_dims_are_a_product_the_largest_first() -> None:
    buckets = Buckets.of_ladders({"B": (1, 4), "T": (16, 32)})
    assert list(buckets) == [{"B": 4, "T": 32}, {"B": 4, "T": 16}, {"B": 1, "T": 32}, {"B": 1, "T": 16}]
    both = frozenset({"B", "T"})
    assert buckets.smallest_for({"B": 2, "T": 16}, both) == {"B": 4, "T": 16}
    assert buckets.smallest_for({"B": 5, "T": 16}, both) is None
    assert buckets.smallest_for({"B": 2, "T": 20}, frozenset({"B"})) is None
    assert buckets.smallest_for({"B": 2, "T": 32}, frozenset({"B"})) == {"B": 4, "T": 32}


def test_listed_combinations_only() -> None:
    buckets = Buckets.of_tuples(("B", "T"), [(1, 128), (8, 16)])
    both = frozenset({"B", "T"})
    assert buckets.smallest_for({"B": 1, "T": 16}, both) == {"B": 1, "T": 128}  # both take 128 rows
    assert buckets.smallest_for({"B": 8, "T": 17}, both) is None
    with pytest.raises(InputError, match="one size for each"):
        Buckets.of_tuples(("B", "T"), [(1,)])
