from typing import Any

import numpy as np
import pytest
from capgraph.executors.signature import whole_number


@pytest.mark.parametrize("given", [2, np.int64(2), np.uint8(2), np.array(2)])
def test_whole_numbers_become_ints(given: Any) -> None:
    assert type(whole_number(given)) is int
    assert whole_number(given) == 2


@pytest.mark.parametrize("given", [2.0, "2", True, np.True_, None, [2], np.float32(2)])
def test_anything_else_is_none(given: Any) -> None:
    assert whole_number(given) is None
