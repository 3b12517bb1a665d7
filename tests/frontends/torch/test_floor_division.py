"""Integer division rounds down, also where the dividend or the divisor is a limit of its type."""

from itertools import product
from pathlib import Path
from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from capgraph.frontends.torch.fx import from_fx
from capgraph.ir.types import DType

from tests.executors.cuda.codegen.cases import Case
from tests.executors.cuda.codegen.emulated import results_of_candidates
from tests.executors.cuda.emulator import HAS_COMPILER

torch.set_num_threads(1)
DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def numbers_of(dtype: torch.dtype) -> list[int]:
    limits = torch.iinfo(dtype)
    near = {limits.min, limits.min + 1, limits.max - 1, limits.max, *range(-3, 4)}
    return sorted(number for number in near if limits.min <= number <= limits.max)


class Divided(torch.nn.Module):
    """A tensor by a tensor and by numbers, a number by a tensor, and by the other names of it."""

    def forward(self, a: Any, b: Any) -> Any:
        return a // b, a // 3, a // -3, 5 // b, torch.div(a, b, rounding_mode="floor")


def wanted(a: np.ndarray, b: np.ndarray, dtype: torch.dtype) -> list[list[int]]:
    limits = torch.iinfo(dtype)
    count = limits.max - limits.min + 1

    def quotients(dividends: list[int], divisors: list[int]) -> list[int]:
        found = [x // y for x, y in zip(dividends, divisors, strict=True)]
        return [(each - limits.min) % count + limits.min for each in found]

    x, y = a.tolist(), b.tolist()
    same = quotients(x, y)
    below = (-3 - limits.min) % count + limits.min  # what -3 is in the type
    return [same, quotients(x, [3] * len(x)), quotients(x, [below] * len(x)), quotients([5] * len(y), y), same]


def pairs_of(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = zip(*((x, y) for x, y in product(numbers_of(dtype), repeat=2) if y), strict=True)
    return torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)


@pytest.mark.parametrize("executor", ["ort", "eager"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quotients_at_the_limits(dtype: torch.dtype, executor: str) -> None:
    given = pairs_of(dtype)
    arrays = [each.numpy() for each in given]
    found = capgraph.optimize(Divided(), args=given, executor=executor)(*given)
    assert [each.tolist() for each in found] == wanted(*arrays, dtype)


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_kernels_divide_alike(tmp_path: Path) -> None:
    cases, expected = [], []
    for dtype in DTYPES:
        given = pairs_of(dtype)
        arrays = [each.numpy() for each in given]
        graph = from_fx(torch.fx.symbolic_trace(Divided()), given).graph
        cases.append(Case(str(dtype), graph, {}, arrays))
        expected.append(wanted(*arrays, dtype))
    by_name = dict(zip((case.name for case in cases), expected, strict=True))
    for case, candidate, found in results_of_candidates(cases, tmp_path):
        assert [each.tolist() for each in found] == by_name[case.name], (case.name, candidate)


def test_what_is_needed_for_numbers() -> None:
    """A positive number takes no remainder; numbers without a sign are divided as they are."""
    ops = {}
    for dtype in (torch.int32, torch.uint8):
        graph = from_fx(torch.fx.symbolic_trace(Halved()), (torch.ones(2, dtype=dtype),)).graph
        ops[dtype] = [node.op.name for node in graph.nodes if node.op.name != "constant"]
        assert graph.outputs[0].tensor.dtype is DType.of(np.dtype(str(dtype).removeprefix("torch.")))
    assert ops == {torch.int32: ["div", "mul", "greater", "cast", "sub"], torch.uint8: ["div"]}


class Halved(torch.nn.Module):
    """Half of a tensor."""

    def forward(self, a: Any) -> Any:
        return a // 2
