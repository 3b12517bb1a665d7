"""What the experts of a mixture are made of: histograms of few bins, and matmuls by group."""

from typing import Any

import capgraph
import numpy as np
import pytest
import torch
import transformers
from capgraph.frontends.torch import from_torch
from capgraph.frontends.torch.ops import reductions
from capgraph.ir.evaluate import evaluate_graph
from capgraph.program import foreign_nodes
from hypothesis import given
from hypothesis import strategies as st

from tests.frontends.torch.fake_cuda import fake_cuda, imported_on_cuda, module_on_cuda, on_cuda

torch.set_num_threads(1)


class Histogram(torch.nn.Module):
    def __init__(self, bins: int, low: float, high: float) -> None:
        super().__init__()
        self.bins, self.low, self.high = bins, low, high

    def forward(self, x: Any) -> Any:
        return torch.histc(x, self.bins, self.low, self.high)


_NUMBERS = st.integers(-4, 40).map(float) | st.floats(-3, 40, width=32)


@pytest.mark.parametrize(("limit", "bins"), [(reductions.MOST_COMPARED, 8), (reductions.MOST_COMPARED, 1), (0, 64)])
def test_a_histogram_is_native(limit: int, bins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "MOST_COMPARED", limit)  # beyond, ones are added at indices
    module = Histogram(bins, 0, max(bins - 1, 5))
    program = capgraph.optimize(module, args=(torch.zeros(12),), executor="eager", level=0)
    assert not foreign_nodes(program.graph)

    @given(st.lists(_NUMBERS, min_size=12, max_size=12))
    def counts_as_pytorch(numbers: list[float]) -> None:
        torch.testing.assert_close(program(torch.tensor(numbers)), module(torch.tensor(numbers)))

    counts_as_pytorch()


def test_a_range_that_the_elements_tell_is_foreign() -> None:
    x = torch.linspace(0, 1, 9)
    program = capgraph.optimize(Histogram(4, 0, 0), args=(x,), executor="eager")
    assert list(foreign_nodes(program.graph)) == ["aten.histc.default"]
    torch.testing.assert_close(program(x), Histogram(4, 0, 0)(x))


def test_a_histogram_of_integers_is_one_on_cuda_alone() -> None:
    x = torch.tensor([0, 1, 1, 7, 9, -1], dtype=torch.int32)
    graph = imported_on_cuda(Histogram(8, 0, 7), [x]).model.graph
    assert not foreign_nodes(graph)
    (found,) = evaluate_graph(graph, [x.numpy()], {})
    np.testing.assert_array_equal(found, [1, 2, 0, 0, 0, 0, 0, 1])


class Grouped(torch.nn.Module):
    def forward(self, x: Any, weights: Any, ends: Any) -> Any:
        return torch._grouped_mm(x, weights.transpose(-2, -1), offs=ends)


def test_matmuls_by_group_are_native() -> None:
    torch.manual_seed(0)
    x, weights = torch.randn(10, 16).bfloat16(), torch.randn(3, 24, 16).bfloat16()
    ends = torch.tensor([4, 4, 10], dtype=torch.int32)
    program = capgraph.optimize(Grouped(), args=(x, weights, ends), executor="eager")
    assert not foreign_nodes(program.graph)
    torch.testing.assert_close(program(x, weights, ends), Grouped()(x, weights, ends), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_mixture_is_native_on_cuda(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.MixtralConfig(**small, vocab_size=32, num_key_value_heads=1, num_local_experts=4)
    model = transformers.MixtralForCausalLM(config).eval().to(dtype)
    tokens = torch.zeros(2, 5, dtype=torch.int64)
    with fake_cuda() as mode:
        kwargs = {"input_ids": on_cuda(mode, tokens), "use_cache": False}
        graph = from_torch(module_on_cuda(mode, model), (), kwargs).graph
    assert not foreign_nodes(graph)
    assert sum(node.op.name == "grouped_matmul" for node in graph.nodes) == 2
