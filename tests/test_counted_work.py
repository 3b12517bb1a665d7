"""What the counts of work see."""

import numpy as np
import pytest
from capgraph.ir.dims import symbol

from tests.counted_work import TooMuchWorkError, calls_in, lines_in, most_bytes_in


def test_calls_of_python_and_of_c_are_counted() -> None:
    def one(numbers: list[int]) -> int:
        return len(numbers)

    assert calls_in(lambda: None) == 1
    assert calls_in(lambda: one([])) == 3
    assert calls_in(lambda: [one([]) for _ in range(10)]) - calls_in(lambda: [one([]) for _ in range(5)]) == 10


def test_too_many_calls_are_stopped() -> None:
    with pytest.raises(TooMuchWorkError, match="more than 100 calls"):
        calls_in(lambda: [len(()) for _ in range(10**12)], at_most=100)


def test_lines_of_the_package_are_counted() -> None:
    assert lines_in(lambda: sum(range(1000))) == 0
    once = lines_in(lambda: symbol("B") + 1)
    assert once > 0
    assert lines_in(lambda: [symbol("B") + 1 for _ in range(10)]) == 10 * once


def test_bytes_that_are_held_at_once_are_counted() -> None:
    assert 8_000_000 <= most_bytes_in(lambda: np.zeros(1_000_000)) < 8_100_000
    assert 8_000_000 <= most_bytes_in(lambda: [np.zeros(1_000_000).sum() for _ in range(3)]) < 8_100_000
