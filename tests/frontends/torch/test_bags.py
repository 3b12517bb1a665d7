"""Bags of rows: equal to PyTorch's, and nothing of them is left to PyTorch."""

from collections.abc import Iterator, Sequence
from typing import Any

import capgraph
import pytest
import torch
import torch.nn.functional as F
from capgraph.program import foreign_nodes
from capgraph.pytorch.backend import backend, live_programs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

torch.set_num_threads(1)
MODES = ("sum", "mean", "max")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


class Bags(nn.Module):
    def __init__(self, mode: str, padding: int | None = None, ends: bool = False) -> None:
        super().__init__()
        self.options = {"mode": mode, "padding_idx": padding, "include_last_offset": ends}
        self.weight = nn.Parameter(torch.randn(7, 3))

    def forward(self, indices: Any, offsets: Any = None, weights: Any = None) -> Any:
        return F.embedding_bag(indices, self.weight, offsets, per_sample_weights=weights, **self.options)


def check(module: nn.Module, *args: Any) -> list[str]:
    """Equal to PyTorch; the ops of the graph."""
    program = capgraph.optimize(module, args=args)
    assert not foreign_nodes(program.graph)
    torch.testing.assert_close(program(*args), module(*args), rtol=1e-5, atol=1e-6)
    return [node.op.name for node in program.graph.nodes]


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("mode", MODES)
def test_equal_bags_need_no_scatter(mode: str, padding: int | None) -> None:
    indices = torch.tensor([[1, 2, 2, 6], [2, 2, 2, 2], [0, 1, 2, 3]])
    assert "scatter_elements" not in check(Bags(mode, padding), indices)


def test_with_a_weight_for_each() -> None:
    check(Bags("sum"), torch.randint(0, 7, (3, 4)), None, torch.randn(3, 4))


@settings(max_examples=10)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.sampled_from(MODES),
    st.sampled_from([None, 2]),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_bags_of_any_size(sizes: Sequence[int], mode: str, padding: int | None, ends: bool, seed: int) -> None:
    torch.manual_seed(seed)
    total = torch.tensor(sizes).cumsum(0)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), total[:] if ends else total[:-1]])
    with torch.no_grad():
        check(Bags(mode, padding, ends), torch.randint(0, 7, (int(total[-1]),)), offsets)


def test_half_floats_are_summed_in_f32() -> None:
    module = Bags("sum").half()
    indices, offsets = torch.randint(0, 7, (400,)), torch.tensor([0, 3, 390])
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    found, told = compiled(indices, offsets), module.float()(indices, offsets)
    torch.testing.assert_close(found.float(), told, rtol=2e-3, atol=2e-3)
    assert not foreign_nodes(live_programs()[-1].graph)
