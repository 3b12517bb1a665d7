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
    "a write to windows": lambda x: x.clone().unfold(0, 5, 5).mul_(1).flatten(),
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


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_results_whose_bits_are_read_behind_the_graph(executor: str) -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        x.neg_()
        x[:] += 0
        made = torch.where(x < 0, x, x + 0)
        return x.view(torch.int32), made, made.view(torch.int32)

    x = torch.tensor([0.0, -0.0, 2.0])
    found = torch.compile(function, backend="capgraph", options={"executor": executor})(x.clone())
    for one, other in zip(found, function(x.clone()), strict=True):
        assert torch.equal(one, other)


CHOICES: dict[str, Callable[[Any], Any]] = {
    "where": lambda x: torch.where(x < 0.25, x, x + 1),
    "trunc": torch.trunc,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
}


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_a_chosen_zero_keeps_its_sign(executor: str) -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        return [made(x).view(torch.int32) for made in CHOICES.values()]

    x = torch.tensor([-0.0, 0.0, -0.5, 0.5])
    with torch.no_grad():
        found = torch.compile(function, backend="capgraph", options={"executor": executor})(x)
    for name, one in zip(CHOICES, found, strict=True):
        assert torch.equal(one < 0, CHOICES[name](x).signbit()), name


EDGES = (0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 0.5, -0.3)
READERS: dict[str, Callable[[Any, Any], Any]] = {
    "atan2": torch.atan2,
    "copysign of abs": lambda x, y: torch.copysign(x.abs() + 1, y),
    "signbit of relu": lambda x, _: x.relu().signbit() & ~x.isnan(),
    "sqrt by power": lambda x, _: x**0.5,
    "rsqrt by power": lambda x, _: x**-0.5,
    "log1p": lambda x, _: x.log1p(),
    "hypot": torch.hypot,
    "quotient of trunc": lambda x, _: 1 / x.trunc(),
}


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_what_tells_zeros_apart(executor: str) -> None:
    torch._dynamo.reset()
    x, y = torch.cartesian_prod(torch.tensor(EDGES), torch.tensor(EDGES)).unbind(1)
    y = y.nan_to_num(nan=2.0)  # NaN has no sign to tell

    def function(x: Any, y: Any) -> Any:
        return [read(x, y) for read in READERS.values()]

    with torch.no_grad():
        found = torch.compile(function, backend="capgraph", options={"executor": executor})(x, y)
    for name, one, other in zip(READERS, found, function(x, y), strict=True):
        assert torch.allclose(one.double(), other.double(), equal_nan=True), name


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_zeros_that_are_written_to_a_part_and_seen_as_narrower_numbers(executor: str) -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        part = x[:3]
        part.neg_()
        return x.view(torch.int16)

    x, other = torch.arange(5.0), torch.arange(5.0)
    found = torch.compile(function, backend="capgraph", options={"executor": executor})(x)
    assert torch.equal(found, function(other))


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_zeros_of_sums_that_are_multiplied(executor: str) -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        return ((x * -3 + 3) * 0).view(torch.int16), ((x - 1) * -2).signbit()

    x = torch.arange(4.0)
    found = torch.compile(function, backend="capgraph", options={"executor": executor})(x)
    assert all(map(torch.equal, found, function(x)))
