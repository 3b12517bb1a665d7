"""Sizes of calls of PyTorch modules: ranges, guards, and dims that are made of others."""

from typing import Any

import capgraph
import pytest
import torch
from capgraph.frontends.torch.guards import Guard
from capgraph.frontends.torch.model import TorchModel
from capgraph.ir.dims import symbol
from capgraph.ir.errors import InputError
from capgraph.ir.graph import Graph
from capgraph.ir.types import DType, TensorType
from capgraph.pytorch.sizes import SizeChecks
from torch.export import Dim

torch.set_num_threads(1)
B, C = symbol("b"), symbol("c")


def _checks(*shape: Any, **facts: Any) -> SizeChecks:
    graph = Graph("g")
    graph.add_input("x", TensorType(DType.F32, shape))
    return SizeChecks(TorchModel(graph, **facts))


@pytest.mark.parametrize(
    ("size", "problem"), [(8, ""), (9, ""), (5, "b is 2, .* 3 to 4"), (12, "no b makes .* 2\\*b \\+ 1")]
)
def test_a_linear_dim_tells_its_symbol(size: int, problem: str) -> None:
    checks = _checks(2 * B + 1, ranges={"b": (3, 4)})
    given = {"x": torch.zeros(size)}
    if size % 2 and not problem:
        checks.check(given)
        return
    with pytest.raises(InputError, match=problem or "no b makes the size 8"):
        checks.check(given)


def test_guards_are_checked_on_what_dims_tell() -> None:
    checks = _checks(2 * B, guards=[Guard(B, ">", 3)])
    checks.check({"x": torch.zeros(8)})
    with pytest.raises(InputError, match="sizes with b > 3, but b = 3"):
        checks.check({"x": torch.zeros(6)})
    assert checks.notes == []


def test_what_no_input_tells_is_noted() -> None:
    checks = _checks(B * C, guards=[Guard(B, ">", 3)], ranges={"c": (2, 5)})
    assert [note.split(", which")[0] for note in checks.notes] == [
        "PyTorch traced it for b > 3",
        "PyTorch traced it for c of 2 to 5",
    ]
    checks.check({"x": torch.zeros(6)})


class Branch(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 100 if (x.shape[0] // 2) % 2 == 0 else x * 1


def test_guards_of_derived_dims() -> None:
    program = capgraph.optimize(
        Branch(), args=(torch.ones(12),), dynamic_shapes=({0: 2 * Dim("half", max=64)},), executor="eager"
    )
    assert program(torch.ones(8)).tolist() == [100.0] * 8
    for size, problem in ((6, "half = 3"), (7, "no half makes the size 7"), (130, "half is 65, .* to 64")):
        with pytest.raises(InputError, match=problem):
            program(torch.ones(size))


class Twice(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


def test_ranges_of_derived_dims() -> None:
    shapes = {"x": {0: 2 * Dim("c", min=3, max=10)}}
    program = capgraph.optimize(Twice(), args=(torch.ones(12),), dynamic_shapes=shapes, executor="eager")
    assert str(program.inputs["x"]) == "f32[2*c]"
    for size in (6, 20):
        assert program(torch.ones(size)).shape == (size,)
    for size, value in ((40, 20), (2, 1)):
        with pytest.raises(InputError, match=f"c is {value}, but the module was exported for 3 to 10"):
            program(torch.ones(size))
