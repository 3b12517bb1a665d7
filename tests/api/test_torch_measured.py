"""PyTorch modules with sizes that only running tells, through both doors: one recording each."""

from collections.abc import Callable, Sequence
from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from torch import Tensor, nn


class Experts(nn.Module):
    """A mixture of experts as models wrote it before grouped matmuls: each expert takes the tokens routed to it."""

    def __init__(self, width: int = 8, count: int = 3, chosen: int = 2) -> None:
        super().__init__()
        self.count, self.chosen = count, chosen
        self.gate = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 16), nn.SiLU(), nn.Linear(16, width)) for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        weights, routed = torch.topk(torch.softmax(self.gate(x), -1), self.chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        mask = nn.functional.one_hot(routed, self.count).permute(2, 1, 0)
        result = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            place, token = torch.where(mask[index])
            result.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return result


def test_a_mixture_of_experts_is_one_recording() -> None:
    torch.manual_seed(0)
    module = Experts().eval()
    program = capgraph.optimize(module, args=(torch.randn(10, 8),), executor="graph")
    for call in range(5):
        x = torch.randn(10, 8) if call < 3 else torch.randn(1, 8).expand(10, 8).contiguous()  # some experts get none
        with torch.no_grad():
            expected = module(x)
        (given,) = program.run({"x": x.numpy()}).values()
        np.testing.assert_allclose(given, expected.numpy(), rtol=1e-4, atol=1e-5)
    stats = program.stats()
    (bucket,) = stats.buckets
    assert (bucket.segments, bucket.eager_segments, len(bucket.bounded)) == (1, 0, 3)
    assert (stats.counters.replayed_calls, stats.counters.size_reads) == (4, 0)


def rows_above(x: Tensor) -> Tensor:
    return torch.relu(x[x.sum(-1) > 0])


def attended(x: Tensor) -> Tensor:
    kept = rows_above(x)
    return torch.softmax(kept @ kept.T, -1) @ kept


def written(x: Tensor) -> Tensor:
    rows = torch.nonzero(x[:, 0] > 0).squeeze(1)
    result = torch.zeros_like(x)
    result[rows] = x[rows] + 1
    return result


CASES: dict[str, Callable[[Tensor], Tensor | Sequence[Tensor]]] = {
    "nonzero": lambda x: torch.nonzero(x > 0),
    "index by mask": lambda x: x[x > 0] * 2,
    "rows by mask": rows_above,
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "where": lambda x: torch.where(x > 0),
    "attention over what was kept": attended,
    "index_put": written,
}


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def draws(calls: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(6, 5, generator=generator) for _ in range(calls)]
    return [*drawn, -torch.ones(6, 5), torch.ones(6, 5)]


@pytest.mark.parametrize("name", CASES)
def test_exported_functions(name: str) -> None:
    function = CASES[name]
    program = capgraph.optimize(Function(function), args=(torch.randn(6, 5),), executor="graph")
    for x in draws(3):
        expected = function(x)
        wanted = [expected] if isinstance(expected, Tensor) else list(expected)
        for given, old in zip(program.run({"x": x.numpy()}).values(), wanted, strict=True):
            assert given.shape == tuple(old.shape)
            np.testing.assert_allclose(given, old.numpy(), rtol=1e-4, atol=1e-5)
    (bucket,) = program.stats().buckets
    assert (bucket.segments, bucket.eager_segments) == (1, 0)


@pytest.mark.parametrize("name", ["nonzero", "where", "rows by mask", "index_put"])
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_compiled_functions(name: str) -> None:
    torch._dynamo.reset()
    function = CASES[name]
    compiled = torch.compile(function, backend="capgraph", fullgraph=True, options={"executor": "graph"})
    for x in draws(3):
        torch.testing.assert_close(compiled(x), function(x))
    torch._dynamo.reset()
