"""Random programs of views, writes in place and breaks of the graph are as in eager PyTorch.

`python -m tests.fuzz_views` does the same without end.
"""

from collections import Counter

import pytest
import torch

from tests.fuzz_views import SHARING, tried

torch.set_num_threads(1)


@pytest.mark.parametrize(("seed", "executor"), [(0, "ort"), (SHARING, "eager"), (11, "eager"), (12, "graph")])
def test_random_programs(seed: int, executor: str) -> None:
    tally: Counter[str] = Counter()
    with torch.no_grad():
        assert not tried(seed, executor, tally, broken=1, count=6)
    assert tally["programs"] == 6
