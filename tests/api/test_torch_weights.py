"""Weights that are written to in ways that PyTorch does not count: what is seen at once, and what after some calls."""

from unittest.mock import PropertyMock, patch

import pytest
import torch
from capgraph.ir.notices import CapgraphWarning
from capgraph.pytorch.weights import MOST_CALLS, HeldWeights


def test_in_main_memory_each_call_looks() -> None:
    weights = [torch.randn(4, 300).t(), torch.zeros(0), torch.ones(2, dtype=torch.bfloat16)]
    held = HeldWeights("net", weights, range(len(weights)))
    assert held.are_unwritten(weights)
    weights[2].data.mul_(2)
    assert not held.are_unwritten(weights)


def test_versions_are_counted() -> None:
    weight = torch.ones(3)
    held = HeldWeights("net", [weight], [0])
    weight.add_(1)
    assert not held.are_unwritten([weight])


def test_on_a_gpu_fewer_and_fewer_calls_look() -> None:
    weights = [torch.randn(20, 30), torch.ones(5, dtype=torch.float16)]
    with patch.object(torch.Tensor, "is_cpu", PropertyMock(return_value=False)):
        held = HeldWeights("net", weights, range(len(weights)))
        looks = []
        for call in range(1, 3 * MOST_CALLS):
            with patch(
                "capgraph.pytorch.weights._Far._content", autospec=True, side_effect=lambda far: far._held
            ) as look:
                assert held.are_unwritten(weights)
            looks += [call] * look.called
        assert looks[:5] == [1, 2, 4, 8, 16]
        assert looks[-1] - looks[-2] == MOST_CALLS
        weights[0].data.mul_(2)
        with pytest.warns(CapgraphWarning, match=r"(?s)through \.data.*weight\.mul_\(2\)"):
            assert not all(held.are_unwritten(weights) for _ in range(MOST_CALLS))
