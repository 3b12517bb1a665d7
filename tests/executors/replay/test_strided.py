"""Large inputs that are not contiguous: served by what is quicker, which is found by trying."""

import numpy as np
import pytest
from capgraph.executors.replay import strided
from capgraph.executors.replay.strided import TRIALS, StridedInputs, StrideTrial
from capgraph.ir.builder import Builder

from tests.executors.host.running import planned
from tests.executors.replay.programs import compiled, rows

SIDE = 256


def timed(monkeypatch: pytest.MonkeyPatch, eager: float, replay: float) -> StrideTrial:
    """A trial of calls that take so many seconds of a clock that is made up."""
    trial, now = StrideTrial(), [0.0]
    monkeypatch.setattr(strided, "perf_counter", lambda: now[0])
    for _ in range(2 * TRIALS):
        seconds = eager if trial.is_eagers_turn else replay
        with trial.timed():
            now[0] += seconds
    return trial


def test_turns_alternate_and_then_the_quicker_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = StrideTrial()
    turns = []
    for _ in range(2 * TRIALS):
        turns.append(trial.is_eagers_turn)
        with trial.timed():
            pass
    assert turns == [False, True] * TRIALS
    assert timed(monkeypatch, 1, 2).is_eagers_turn
    assert not timed(monkeypatch, 2, 1).is_eagers_turn


def test_a_call_that_fails_is_no_trial() -> None:
    trial = StrideTrial()
    with pytest.raises(ZeroDivisionError), trial.timed():
        _ = 1 / 0
    assert not trial.is_eagers_turn


def test_only_large_strided_inputs_are_tried() -> None:
    b = Builder()
    x, y = b.input("x", f"f32[{SIDE}, {SIDE}]"), b.input("y", "f32[8, 8]")
    inputs = StridedInputs(planned(b.finish({"a": b.op("relu", x), "b": b.op("relu", y)})))
    large, small = rows(SIDE, 0, SIDE), rows(8, 0, 8)
    assert inputs.trial([large, small]) is None
    assert inputs.trial([large, small.T]) is None
    assert inputs.trial([large.T, small]) is inputs.trial([large.T, small.T]) is not None


def test_whoever_serves_a_call_the_numbers_are_right() -> None:
    b = Builder()
    program = compiled(b.finish({"y": b.op("neg", b.input("x", f"f32[{SIDE}, {SIDE}]"))}))
    for call in range(3 * TRIALS):
        x = rows(SIDE, call, SIDE)
        for given in (x, x.T):
            np.testing.assert_array_equal(program.run({"x": given})["y"], -given)
    reasons = program.stats().counters.eager_reasons
    assert reasons["a large input is strided, and copying it costs more"] >= TRIALS
