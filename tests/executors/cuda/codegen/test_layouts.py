"""Index spaces: how tensors are walked together."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace
from capgraph.executors.cuda.kernel_ir.layouts import (
    Layout,
    Space,
    contiguous,
    dense,
    index_lines,
    index_type,
    layout_of,
    offset_text,
)
from capgraph.ir.plan import View
from capgraph.ir.types import DType
from hypothesis import given
from hypothesis import strategies as st

HERE = BufferPlace(0)


def space_of(layouts: Sequence[Layout]) -> Space:
    """The space of tensors of one shape, in the order of the first and with as few axes as they allow."""
    return Space(layouts[0].shape, tuple(layout.strides for layout in layouts)).ordered(0).joined()


def of(array: np.ndarray) -> Layout:
    strides = tuple(step // array.itemsize for step in array.strides)
    return Layout(DType.of(array.dtype), array.shape, strides, HERE, 16)


def offsets(layout: Layout) -> np.ndarray:
    """The offset of each element, in elements."""
    grids = np.indices(layout.shape)
    return sum((grid * stride for grid, stride in zip(grids, layout.strides, strict=True)), np.zeros(layout.shape, int))


NUMBERS = np.arange(2 * 3 * 4 * 6).reshape(2, 3, 4, 6).astype(np.float32)


def test_a_view_in_bytes_becomes_a_layout_in_elements():
    layout = layout_of(View(3, 8, DType.F16, (2, 1, 5), (10, 999, 2)))
    assert layout.strides == (5, 0, 1)
    assert (layout.place, layout.alignment, layout.reach) == (BufferPlace(3, 8), 8, 9)
    assert contiguous(layout)


def test_dense_tensors_are_one_axis():
    assert space_of([of(NUMBERS), of(NUMBERS)]) == Space((144,), ((1,), (1,)))


def test_tensors_that_are_permuted_alike_are_one_axis():
    images = NUMBERS.transpose(0, 3, 1, 2)
    assert space_of([of(images), of(images)]).shape == (144,)
    assert of(images).is_dense
    assert not of(images[:, ::2]).is_dense


def test_a_broadcast_axis_stays_apart():
    bias = of(np.zeros(6, np.float32)).broadcast((2, 3, 4, 6))
    assert space_of([of(NUMBERS), bias]) == Space((24, 6), ((6, 1), (0, 1)))


def test_a_channel_parameter_of_channels_last_images():
    images = of(NUMBERS.transpose(0, 3, 1, 2))
    scale = of(np.zeros((6, 1, 1), np.float32)).broadcast(images.shape)
    assert space_of([images, scale]) == Space((24, 6), ((6, 1), (0, 1)))


def test_axes_of_size_one_do_not_count():
    x = of(np.zeros((1, 5, 1, 7), np.float32)[:, ::-1])
    assert space_of([x]).shape == (5, 7)
    assert space_of([of(np.zeros((1, 1), np.float32))]) == Space((), ((),))


@given(st.permutations(range(4)), st.lists(st.booleans(), min_size=4, max_size=4), st.data())
def test_a_joined_space_reaches_the_same_elements(order, broadcast, data):
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(4))
    base = np.zeros([shape[axis] for axis in order], np.float32).transpose(np.argsort(order))
    small = np.zeros([1 if flag else size for flag, size in zip(broadcast, shape, strict=True)], np.float32)
    tensors = [of(base), of(small).broadcast(shape)]
    space = space_of(tensors)
    walked = [offsets(Layout(DType.F32, space.shape, strides, HERE, 16)).reshape(-1) for strides in space.strides]
    plain = [offsets(tensor).reshape(-1) for tensor in tensors]
    assert sorted(zip(*walked, strict=True)) == sorted(zip(*plain, strict=True))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda x: x.permuted((3, 0, 2, 1)), NUMBERS.transpose(3, 0, 2, 1)),
        (lambda x: x.split(3, (2, 3)), NUMBERS.reshape(2, 3, 4, 2, 3)),
        (lambda x: x.without([1]), NUMBERS[:, 0]),
        (lambda x: x.inserted(1, 5), np.broadcast_to(NUMBERS[:, None], (2, 5, 3, 4, 6))),
        (lambda x: x.broadcast((7, 2, 3, 4, 6)), np.broadcast_to(NUMBERS, (7, 2, 3, 4, 6))),
    ],
)
def test_layouts_move_as_arrays_do(change, expected):
    changed = change(of(NUMBERS))
    assert changed.shape == expected.shape
    assert np.array_equal(offsets(changed), expected)


def test_a_part_begins_elsewhere():
    part = of(NUMBERS).part(2, 3, 2, -2)
    assert np.array_equal(offsets(part) + part.place.offset // 4, NUMBERS[:, :, 3::-2])
    assert part.alignment == 8


def test_bytes_of_broadcast_elements_count_once():
    assert of(np.zeros((1, 6), np.float32)).broadcast((100, 6)).nbytes == 24


@given(st.lists(st.integers(1, 5), max_size=4))
def test_indices_are_taken_apart_in_row_major_order(shape):
    for position in range(math.prod(shape)):
        names: dict[str, int] = {}
        for statement in "".join(index_lines("i", str(position), shape, "int")).split(";"):
            text = statement.replace("const int ", "").replace("unsigned ", "").replace("u", "").strip()
            exec(text.replace("/=", "//="), {}, names) if text else None
        found = tuple(names[f"i{axis}"] for axis in range(len(shape)))
        assert found == tuple(int(index) for index in np.unravel_index(position, shape)) if shape else not names


def test_offsets_leave_out_what_is_broadcast():
    assert offset_text("i", (12, 0, 1)) == "i0 * 12 + i2"
    assert offset_text("i", (0, 0)) == "0"


def test_wide_indices_only_where_needed():
    assert index_type([2**31 - 1]) == "int"
    assert index_type([5, 2**31]) == "i64"
    assert dense(DType.F32, (3, 1, 5), HERE).strides == (5, 0, 1)
