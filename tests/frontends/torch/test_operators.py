"""Two samples of every operator of PyTorch: equal to eager PyTorch, and native where the table says so.

The first is imported as it is traced for a GPU too. Samples that are native and determined are compiled together.

All samples: `make test-ops`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest
import torch

from tests.frontends.torch.operator_samples import (
    Outcome,
    Sample,
    check,
    check_on_cuda,
    compiled,
    is_traced_on_cuda,
    joined,
    may_join,
    operators,
    prepare,
    samples,
)
from tests.frontends.torch.operator_table import UNCLAIMED, claimed

PARTS = 24
"""The operators are shared out over so many tests: asking for their names takes seconds, and so is left to the run."""

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # PyTorch warns of its own operators' old forms
]


@pytest.mark.parametrize("part", range(PARTS))
def test_samples(part: int) -> None:
    with ThreadPoolExecutor(1) as thread:  # Dynamo walks the whole stack for each call that it sees: pytest's is deep
        faults = thread.submit(_faults_of, part).result()
    assert not faults, "\n".join(faults)


def _faults_of(part: int) -> list[str]:
    prepare()
    promises = claimed()
    faults: list[str] = []
    together: list[tuple[str, Sample]] = []
    on_cuda: list[tuple[str, Sample]] = []
    for name in [name for name in operators() if name not in UNCLAIMED][part::PARTS]:
        native, total = promises.get(name, (0, 0))
        is_native = native == total
        for index, sample in enumerate(islice(samples(name), 2)):
            label = f"{name}, sample {index}"
            if native and is_native and may_join(sample):
                together.append((label, sample))
            else:
                faults += _labeled(label, _fault(sample, is_native=is_native))
            if not index and native and is_traced_on_cuda(name):
                if is_native:
                    on_cuda.append((label, sample))
                else:
                    faults += _labeled(label, _fault_on_cuda(sample, is_native=False))
    return faults + _faults_together(together, _fault) + _faults_together(on_cuda, _fault_on_cuda)


def _faults_together(named: Sequence[tuple[str, Sample]], fault_of: Callable[..., str]) -> list[str]:
    """All at once, in a quarter of the time, and one by one where something is wrong."""
    fault = fault_of(joined([sample for _, sample in named]), is_native=True)
    if not fault:
        return []
    alone = [line for label, sample in named for line in _labeled(label, fault_of(sample, is_native=True))]
    return alone or [f"all of {[label for label, _ in named]} together: {fault}"]


def _labeled(label: str, fault: str) -> list[str]:
    return [f"{label}: {fault}"] if fault else []


def _fault(sample: Sample, *, is_native: bool) -> str:
    try:
        outcome = check(sample)
    except Exception as error:  # noqa: BLE001  # all that fail are named
        return f"{type(error).__name__}: {error}"
    if is_native and outcome.kind != "native":
        return f"{outcome}, but the page says that all its samples are native"
    return ""


def _fault_on_cuda(sample: Sample, *, is_native: bool) -> str:
    try:
        check_on_cuda(sample, is_native=is_native)
    except Exception as error:  # noqa: BLE001  # all that fail are named
        return f"on CUDA {type(error).__name__}: {error}"
    return ""


def _off_by_one(sample: Sample) -> tuple[list[Any], Outcome]:
    results, outcome = compiled(sample)
    return [result + 1 for result in results], outcome


def test_a_wrong_result_is_found() -> None:
    with pytest.raises(AssertionError):
        check(next(samples("add")), _off_by_one)


def test_a_lowering_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from capgraph.frontends.torch.importer import LOWERINGS

    monkeypatch.setitem(LOWERINGS, "aten.sin", LOWERINGS["aten.cos"])
    assert "not close" in _fault(next(samples("sin")), is_native=True)


def test_a_lowering_that_is_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from capgraph.frontends.torch.importer import LOWERINGS

    monkeypatch.delitem(LOWERINGS, "aten.sin")
    assert "aten.sin.default" in _fault(next(samples("sin")), is_native=True)


def test_draws_are_captured() -> None:
    _, outcome = compiled(next(samples("nn.functional.dropout")))
    assert outcome.kind == "native"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (0, 2)),
        lambda x: torch.nn.functional.adaptive_max_pool2d(x, (2, 0)),
        lambda x: torch.nn.functional.adaptive_max_pool1d(x[0], 0, return_indices=True),
        lambda x: (
            x[0, 0, : round(x.shape[2] / 2 + 1)] + round(x.shape[3] / 2 * 12.34, 1) + round(x.shape[3] * 17.3, -1)
        ),
        lambda x: torch.arange(0, 40, x.shape[3]) + torch.arange(x.shape[2], 2 * x.shape[3] + 20, x.shape[2]).sum(),
    ],
    ids=["average", "greatest", "places", "round", "steps"],
)
def test_sizes_of_nothing_and_numbers_of_sizes(function: Any) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="capgraph", fullgraph=True, dynamic=True)
    for size in (5, 6, 7):
        x = torch.randn(2, 3, size, size + 1)
        torch.testing.assert_close(compiled(x), function(x))


def test_a_complex_number_without_axes_keeps_both_parts() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        return x.sum(0), x.flip(0), x.mean(), x.index_select(0, torch.tensor([0]))

    x = torch.tensor(2.0 + 3.0j)
    for one, other in zip(torch.compile(function, backend="capgraph")(x), function(x), strict=True):
        torch.testing.assert_close(one, other)


def test_complex_numbers_are_joined_with_what_has_none() -> None:
    torch._dynamo.reset()

    def function(x: Any, nothing: Any) -> Any:
        none = nothing.to(x.dtype)
        return torch.cat([nothing, x], -1), torch.cat([none, x, x.real]), torch.cat([none, nothing])

    x, nothing = torch.randn(2, 3, 2, dtype=torch.complex64), torch.empty(0)
    for one, other in zip(torch.compile(function, backend="capgraph")(x, nothing), function(x, nothing), strict=True):
        torch.testing.assert_close(one, other)


def test_zeros_have_the_signs_of_pytorch() -> None:
    """And infinities make NaN where they do there: a real number is a complex one with an imaginary part of 0."""
    numbers = torch.tensor([0.0, -0.0, 0.5, -0.5, 7.0, -7.0, float("inf"), -float("inf")])
    a, b = numbers.repeat(len(numbers)), numbers.repeat_interleave(len(numbers))

    def function(a: Any, b: Any) -> Any:
        z = torch.view_as_complex(torch.stack([a, b], -1))
        complex_ones = (z * 2, z * -1, z * a, z + 1, z - 1, z * z)
        reals = (torch.view_as_real(each) for each in complex_ones)
        return a % b, a % 7, torch.fmod(a, b), torch.floor_divide(a, b), a // 2, *reals

    compiled = torch.compile(function, backend="capgraph", fullgraph=True, options={"executor": "eager"})
    for index, (one, other) in enumerate(zip(compiled(a, b), function(a, b), strict=True)):
        is_like = (one == other) & (one.signbit() == other.signbit()) | one.isnan() & other.isnan()
        assert is_like.all(), index
