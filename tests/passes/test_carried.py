"""Transposes past reshapes, held to NumPy for drawn shapes and orders."""

from math import prod

import numpy as np
from capgraph.passes.cleanup.canonical.views import after_reshape, before_reshape, units_as_in_result, units_in_place
from hypothesis import given
from hypothesis import strategies as st

SIZES = st.sampled_from([1, 2, 3, 4, 6])


@st.composite
def cut_shapes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two shapes with the same number of elements, of which the first joins neighbors of the second."""
    fine = draw(st.lists(SIZES, min_size=1, max_size=5))
    coarse: list[int] = []
    for size in fine:
        if coarse and draw(st.booleans()):
            coarse[-1] *= size
        else:
            coarse.append(size)
    return coarse, fine


@given(cut_shapes(), st.data())
def test_before_a_reshape(shapes: tuple[list[int], list[int]], data: st.DataObject) -> None:
    source, middle = shapes if data.draw(st.booleans()) else shapes[::-1]
    perm = data.draw(st.permutations(range(len(middle))))
    order = before_reshape(source, middle, perm)
    if order is None:
        return
    x = np.arange(prod(source)).reshape(source)
    expected = x.reshape(middle).transpose(perm)
    np.testing.assert_array_equal(x.transpose(order).reshape(expected.shape), expected)


@given(cut_shapes(), st.data())
def test_after_a_reshape(shapes: tuple[list[int], list[int]], data: st.DataObject) -> None:
    moved, target = shapes if data.draw(st.booleans()) else shapes[::-1]
    perm = data.draw(st.permutations(range(len(moved))))
    source = [moved[perm.index(axis)] for axis in range(len(moved))]
    found = after_reshape(source, perm, target)
    if found is None:
        return
    x = np.arange(prod(source)).reshape(source)
    shape, order = found
    np.testing.assert_array_equal(x.reshape(shape).transpose(order), x.transpose(perm).reshape(target))


def test_heads() -> None:
    assert before_reshape((2, 8, 24), (2, 8, 4, 6), (0, 2, 1, 3)) is None
    assert before_reshape((2, 8, 24), (16, 24), (1, 0)) == (2, 0, 1)
    assert after_reshape((2, 4, 8, 6), (0, 1, 3, 2), (8, 6, 8)) == ((8, 8, 6), (0, 2, 1))


@given(st.lists(SIZES, min_size=1, max_size=5), st.data())
def test_axes_of_size_one(shape: list[int], data: st.DataObject) -> None:
    perm = data.draw(st.permutations(range(len(shape))))
    x = np.arange(prod(shape)).reshape(shape)
    expected = x.transpose(perm)
    order = units_in_place(shape, perm)
    assert all(order[axis] == axis for axis, size in enumerate(shape) if size == 1)
    np.testing.assert_array_equal(x.transpose(order).reshape(-1), expected.reshape(-1))
    placed, order = units_as_in_result(shape, perm)
    np.testing.assert_array_equal(x.reshape(placed).transpose(order), expected)
    assert units_as_in_result(placed, order) == (placed, order)
