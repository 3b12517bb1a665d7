from itertools import combinations

import capgraph
import pytest
from hypothesis import given
from hypothesis import strategies as st


def waste(ladder: tuple[int, ...], observed: list[int]) -> int:
    return sum(min(size for size in ladder if size >= each) - each for each in observed)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=24), st.integers(1, 5))
def test_no_other_ladder_wastes_less(observed: list[int], k: int) -> None:
    found = capgraph.suggest_buckets(observed, k)
    sizes = sorted(set(observed))
    assert len(found) <= k
    others = [c for count in range(1, min(k, len(sizes)) + 1) for c in combinations(sizes, count) if c[-1] == sizes[-1]]
    assert waste(found, observed) == min(waste(other, observed) for other in others)


def test_frequent_sizes_get_their_own_bucket() -> None:
    assert capgraph.suggest_buckets([3] * 100 + [7, 8, 9, 30], k=3) == (3, 9, 30)
    assert capgraph.suggest_buckets([5, 5], k=8) == (5,)


@pytest.mark.parametrize(("observed", "k"), [([], 3), ([1], 0), ([-1], 2)])
def test_bad_samples_are_refused(observed: list[int], k: int) -> None:
    with pytest.raises(capgraph.InputError):
        capgraph.suggest_buckets(observed, k)
