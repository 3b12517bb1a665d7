from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.executors.replay.verification import output_problem, segment_problem, tail_poison
from capgraph.ir.plan import Segment

from tests.counted_work import most_bytes_in

F32 = np.float32


def problem(old: object, new: object) -> str:
    return output_problem([old], [new], ["y"])


@pytest.mark.parametrize("dtype", [F32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, "c8"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2)])
def test_roundings_are_no_problem_and_more_is(dtype: Any, shape: tuple[int, ...]) -> None:
    old = np.full(shape, 3, dtype)
    assert problem(old, old.copy()) == ""
    if old.size:
        assert problem(old, (old * np.asarray(2, dtype)).astype(dtype)).startswith("output y differs by")
    close = (old.astype(np.complex128) * (1 + 1e-6)).astype(dtype) if dtype == "c8" else old
    assert problem(old, close) == ""


def test_a_difference_is_measured_by_the_largest_value() -> None:
    old = np.array([1e6, 1e-6], F32)
    assert problem(old, np.array([1e6, 2e-6], F32)) == ""
    assert problem(old, np.array([1.01e6, 1e-6], F32)) != ""


def test_what_underflows_is_lost_as_a_whole() -> None:
    assert problem(np.array([8.5e-44], F32), np.array([1e-43], F32)) == ""
    assert problem(np.array([8.5e-38], F32), np.array([1e-37], F32)) != ""


def test_what_is_not_finite_must_stand_at_the_same_places() -> None:
    old = np.array([np.nan, np.inf, 1], F32)
    assert problem(old, old.copy()) == ""
    for index, wrong in ((0, 1.0), (1, 1.0), (2, np.nan), (2, np.inf)):
        new = old.copy()
        new[index] = wrong
        assert problem(old, new) != "", (index, wrong)


def test_integers_are_exact_and_shapes_and_dtypes_count() -> None:
    assert problem(np.array([1, 2]), np.array([1, 3])) == "output y differs in 1 of 2 elements"
    assert "instead of" in problem(np.zeros(2, F32), np.zeros(3, F32))
    assert "instead of" in problem(np.zeros(2, F32), np.zeros(2))
    assert problem(["a"], ["a"]) == ""


def test_results_of_the_same_bits_are_not_compared_number_by_number() -> None:
    cache = np.full(1 << 20, 3, ml_dtypes.bfloat16)
    same = cache.copy()
    assert most_bytes_in(lambda: problem(cache, same)) <= 2 * cache.nbytes + 4096


def test_padded_rows_hold_the_worst_that_cannot_fail() -> None:
    assert np.isnan(tail_poison(np.zeros(2, F32)))
    assert np.isnan(tail_poison(np.zeros(2, ml_dtypes.bfloat16)))
    assert tail_poison(np.array([3, 1])) == 3
    assert tail_poison(np.zeros(0, np.int64)) == 0
    assert not tail_poison(np.array([True]))


class Replayed:
    """A bound plan whose replay gives other numbers than its eager run."""

    def __init__(self, eager: Any, replayed: Any) -> None:
        self._results = [eager, replayed]
        self.ran: list[str] = []

    def live_results(self, _segment: object) -> list[Any]:
        return [self._results.pop(0)]

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.ran.append(name)


class Rounding:
    """A recording that does not keep bits."""

    keeps_bits = False

    def replay(self) -> None:
        pass


class Exact(Rounding):
    keeps_bits = True


@pytest.mark.parametrize(("recording", "is_fine"), [(Rounding(), True), (Exact(), False)])
def test_recordings_keep_the_bits_of_eager_runs_unless_they_say_that_they_do_not(recording, is_fine) -> None:
    segment = Segment(0, 1, True)
    once = np.ones(3, F32)
    assert (segment_problem(Replayed(once, np.nextafter(once, F32(2))), segment, recording) == "") is is_fine
    assert segment_problem(Replayed(once, once * 2), segment, recording) != ""
    assert segment_problem(Replayed(once, once.copy()), segment, recording) == ""
