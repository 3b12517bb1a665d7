"""Arrays on the device by their strides."""

from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.arrays import DeviceArray


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


def unused(_array: DeviceArray) -> Any:
    raise NotImplementedError
