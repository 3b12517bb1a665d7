"""Arrays on the device by their strides."""

from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.arrays.protocol import DeviceArray, Rows, as_rows
from capgraph.ir.plan import contiguous_strides


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((1, 3), (4, 4), True),
        ((3, 1), (4, 400), True),
        ((2, 1, 3), (12, 0, 4), True),
        ((0, 3), (1, 1), True),
        ((2, 3), (4, 8), False),
        ((2, 3), (24, 4), False),
        ((), (), True),
    ],
)
def test_axes_of_one_element_may_have_any_stride(shape: Any, strides: Any, expected: bool) -> None:
    made = DeviceArray(256, np.dtype(np.float32), shape, strides, None, unused)
    assert made.is_contiguous == expected


@pytest.mark.parametrize(
    ("shape", "source", "rows"),
    [
        ((2, 100), (8000, 8), Rows(2, 800, 800, 8000)),
        ((2, 3, 100), (24000, 8000, 8), Rows(6, 800, 800, 8000)),
        ((2, 3, 100), (8000, 800, 8), Rows(2, 2400, 2400, 8000)),
        ((7, 1, 100), (800, 8000, 8), Rows(1, 5600, 5600, 5600)),
        ((2, 10), (8000, 8), None),  # short
        ((2, 100), (8, 16), None),
        ((2, 100), (0, 8), None),
        ((2, 3, 100), (30000, 8000, 8), None),
    ],
)
def test_rows_are_found_in_strides(shape: Any, source: Any, rows: Rows | None) -> None:
    assert as_rows(shape, contiguous_strides(shape, 8), source, 8) == rows


def unused(_array: DeviceArray) -> Any:
    raise NotImplementedError
