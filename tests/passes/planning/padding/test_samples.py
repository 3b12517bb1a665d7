"""When results of trials agree."""

import numpy as np
import pytest
from capgraph.passes.planning.padding.samples import is_same

WORDS = np.array(["a", "b", "a"], object)


@pytest.mark.parametrize(
    ("a", "b", "agree"),
    [
        (WORDS[:1], WORDS[2:], True),
        (WORDS[:1], WORDS[1:2], False),
        (WORDS[0], WORDS[2], True),
        (np.array("a", object), WORDS[0], True),
        (WORDS[1], np.array("a", object), False),
        (np.array([np.nan, -0.0]), np.array([np.nan, 0.0]), True),
        (np.zeros(2), np.zeros(3), False),
        (np.zeros((0, 2)), np.zeros((0, 2)), True),
        (np.array([2**53 + 1]), np.array([2**53]), False),
        (np.array([np.nan, 0.0, 1.0], np.float16), np.array([np.nan, -0.0, 1.0], np.float16), True),
        (np.array([np.nan, 1.0], np.float16), np.array([1.0, np.nan], np.float16), False),
        (np.array([1j, np.nan]), np.array([1j, np.nan]), True),
        (np.array([1j]), np.array([-1j]), False),
    ],
)
def test_agreement(a, b, agree: bool) -> None:
    assert is_same(a, b) == agree
