"""Groups of axes under reshapes: examples, and what holds for every reshape."""

from math import prod

from capgraph.ir.dims import symbol
from capgraph.passes.cleanup.canonical.views import axis_groups
from hypothesis import given
from hypothesis import strategies as st

B = symbol("B")
T = symbol("T")


def test_cut_and_joined() -> None:
    assert axis_groups((B, T, 24), (B, T, 4, 6)) == [((0,), (0,)), ((1,), (1,)), ((2,), (2, 3))]
    assert axis_groups((B, T, 24), (B * T, 24)) == [((0, 1), (0,)), ((2,), (1,))]
    assert axis_groups((4, 6), (6, 4)) == [((0, 1), (0, 1))]


def test_ones_join_a_neighbor() -> None:
    assert axis_groups((B, 4), (B, 1, 4)) == [((0,), (0,)), ((1,), (1, 2))]
    assert axis_groups((B, 4, 1), (B, 4)) == [((0,), (0,)), ((1,), (1,)), ((2,), ())]
    assert axis_groups((), (1, 1)) == [((), (0, 1))]


def test_not_known() -> None:
    assert axis_groups((B, T), (T, 2 * B)) is None
    assert axis_groups((0, 4), (4, 0)) is None


@given(st.lists(st.integers(1, 4), max_size=5), st.data())
def test_groups_cover_both_shapes_and_have_equal_sizes(cuts: list[int], data: st.DataObject) -> None:
    joined: list[int] = []
    for size in cuts:
        if joined and data.draw(st.booleans()):
            joined[-1] *= size
        else:
            joined.append(size)
    for source, target in ((cuts, joined), (joined, cuts)):
        groups = axis_groups(source, target)
        assert groups is not None
        assert [axis for left, _ in groups for axis in left] == list(range(len(source)))
        assert [axis for _, right in groups for axis in right] == list(range(len(target)))
        assert all(prod(source[a] for a in left) == prod(target[a] for a in right) for left, right in groups)
