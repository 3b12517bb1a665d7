"""The signs of zeros are PyTorch's where a program reads the bits of numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

torch.set_num_threads(1)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu,
    "relu6": torch.nn.functional.relu6,
    "hardtanh": lambda x: torch.nn.functional.hardtanh(x, -1.0, 0.0),
    "clamp": lambda x: x.clamp(-1, 0),
    "clamp_min": lambda x: x.clamp_min(0),
    "clamp_max": lambda x: x.clamp_max(0),
    "abs": torch.abs,
    "neg": torch.neg,
    "add": lambda x: x + 0,
    "sum": lambda x: x.view(-1, 1).sum(1),
    "sums": lambda x: x.view(-1, 5)[:, :1].expand(5, 5).sum(1),
    "sum of a scalar": lambda x: x[0].sum(0).view(1),
    "mean": lambda x: x.view(-1, 1).mean(1),
    "cumsum": lambda x: x.view(-1, 1).cumsum(1).view(-1),
}


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_zeros_whose_bits_are_read(executor: str) -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        return [made(x).view(torch.int32) for made in FUNCTIONS.values()]

    x = torch.tensor([-0.0, 0.0, -1.0, 1.0, float("nan")] * 5)
    with torch.no_grad():
        found = torch.compile(function, backend="capgraph", dynamic=False, options={"executor": executor})(x)
    for name, one, other in zip(FUNCTIONS, found, function(x), strict=True):
        is_number = ~other.view(torch.float32).isnan()
        assert one[is_number].tolist() == other[is_number].tolist(), name
        assert torch.equal(one.view(torch.float32).isnan(), ~is_number), name
