"""Random graphs on a GPU, served at random sizes with padding where the analysis allows it: always eager's numbers."""

import warnings

import pytest

with warnings.catch_warnings(action="ignore"):
    cupy = pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")

from capgraph.executors.cuda.executor import cuda_problem

from tests.fuzz_padding import tried

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(bool(cuda_problem().text), reason="no NVIDIA GPU answers here"),
]

SEEDS = 25


@pytest.mark.parametrize("block", range(4))
def test_whatever_is_served_is_right(block: int) -> None:
    tally, problems = tried(range(block * SEEDS, (block + 1) * SEEDS), on="cuda", nodes=12)
    assert not problems, "\n".join(problems)
    assert tally["padded calls"] >= 5
