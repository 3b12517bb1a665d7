"""Weights of which a few elements are looked at in fewer and fewer calls."""

import capgraph
import pytest
import torch
from capgraph.pytorch.weights import MOST_CALLS, _Far


def test_what_was_seen_to_be_written_stays_written() -> None:
    weight = torch.ones(4)
    far = _Far("model", [weight], MOST_CALLS)
    assert [far.are_unwritten() for _ in range(6)] == [True] * 6
    weight.data.mul_(2)
    assert far.are_unwritten()  # the next look is in the eighth call
    with pytest.warns(capgraph.CapgraphWarning, match=r"through \.data"):
        assert not far.are_unwritten()
    assert [far.are_unwritten() for _ in range(10)] == [False] * 10


def test_weights_are_looked_at_each_time_where_that_is_asked_for() -> None:
    weight = torch.ones(4)
    far = _Far("model", [weight], 1)
    assert [far.are_unwritten() for _ in range(3)] == [True] * 3
    weight.data.mul_(2)
    with pytest.warns(capgraph.CapgraphWarning, match=r"through \.data"):
        assert not far.are_unwritten()
