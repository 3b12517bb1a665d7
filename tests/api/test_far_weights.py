"""Weights of which a few elements are looked at in fewer and fewer calls."""

import capgraph
import pytest
import torch
from capgraph.pytorch.weights import _Far


def test_what_was_seen_to_be_written_stays_written() -> None:
    weight = torch.ones(4)
    far = _Far("model", [weight])
    assert [far.are_unwritten() for _ in range(6)] == [True] * 6
    weight.data.mul_(2)
    assert far.are_unwritten()  # the next look is in the eighth call
    with pytest.warns(capgraph.CapgraphWarning, match=r"through \.data"):
        assert not far.are_unwritten()
    assert [far.are_unwritten() for _ in range(10)] == [False] * 10
