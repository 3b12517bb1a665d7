"""Slots listed by segment, and segments reduced: together what a scatter does."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir.errors import ExecutionError, ShapeError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.ir.ops.native_runs import assert_same, only, outcome

DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int32, np.uint8)


@given(st.integers(1, 6), st.data())
def test_slots_lie_by_segment_in_order(count: int, data: st.DataObject) -> None:
    indices = data.draw(hnp.arrays(np.int64, st.integers(0, 12), elements=st.integers(-count, count - 1)))
    starts, slots = outcome("segment_slots", indices, count=count)
    assert starts[0] == 0
    for segment in range(count):
        own = [place for place, index in enumerate(indices) if index % count == segment]
        assert slots[starts[segment] : starts[segment + 1]].tolist() == own


@given(st.sampled_from(DTYPES), st.sampled_from(["add", "mul", "max", "min"]), st.integers(1, 5), st.data())
def test_together_they_are_a_scatter(dtype: Any, reduction: str, count: int, data: st.DataObject) -> None:
    rest = data.draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
    indices = data.draw(hnp.arrays(np.int64, st.integers(0, 9), elements=st.integers(-count, count - 1)))
    updates, x = (
        data.draw(hnp.arrays(np.int64, (size, *rest), elements=st.integers(0, 3))).astype(dtype)
        for size in (len(indices), count)
    )
    starts, slots = outcome("segment_slots", indices, count=count)
    found = only("segment_reduce", x, starts, slots, updates, reduction=reduction, static=(1,))
    places = np.broadcast_to(indices.reshape(-1, *(1,) * len(rest)), updates.shape)
    assert_same(found, only("scatter_elements", x, places, updates, axis=0, reduction=reduction))


def test_a_number_starts_all_segments() -> None:
    starts, slots = np.array([0, 0, 2], np.int32), np.array([1, 0], np.int32)
    updates = np.array([[1, 2], [3, np.inf]], np.float16)
    found = only("segment_reduce", np.array(-1, np.float16), starts, slots, updates, reduction="add")
    assert_same(found, np.array([[-1, -1], [3, np.inf]], np.float16))


def test_indices_outside_are_told() -> None:
    with pytest.raises(ExecutionError, match="index 3 is out of range"):
        outcome("segment_slots", np.array([0, 3]), count=3)


def test_each_slot_has_one_update() -> None:
    numbers = np.zeros(3, np.int32)
    with pytest.raises(ShapeError, match="one update for each slot"):
        outcome("segment_reduce", np.zeros(2), numbers, numbers, np.zeros(4), reduction="add")
