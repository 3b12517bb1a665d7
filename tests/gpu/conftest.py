"""What several test files on a GPU use."""

from collections.abc import Iterator

import pytest
from capgraph.executors.cuda.executor import open_device
from capgraph.executors.cuda.run.device import CudaDevice


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """GPU 0, where each step is done in the first candidate that fits."""
    made = open_device(0, tunes=False)
    with made.driver.active:
        yield made
    made.close()
