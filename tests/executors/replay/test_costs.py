"""What replay does beside the bare NumPy calls, and beside eager, counted in calls."""

import numpy as np
import pytest
from capgraph.executors.replay.capture import record
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph

from tests.counted_work import calls_in, lines_in
from tests.executors.host.running import host_plan
from tests.executors.replay.programs import F32, compiled
from tests.executors.replay.test_serving import LENGTH, gpt2, tokens

MOST_LINES_A_STEP = 2


def chain(steps: int, width: int) -> Graph:
    b = Builder()
    x = b.input("x", f"f32[1, {width}]")
    h = x
    for index in range(steps):
        h = b.op("add" if index % 2 else "mul", h, x)
    return b.finish({"y": h})


def test_a_replayed_step_is_its_numpy_call() -> None:
    calls, lines = [], []
    for steps in (100, 400):
        bound = host_plan(chain(steps, 8))
        recording = record(bound, bound.plan.segments[0])
        bound.load(0, np.ones((1, 8), F32))
        assert sum(len(list(bound.calls_of(step))) for step in bound.plan.steps) == steps
        calls.append(calls_in(recording.replay))
        lines.append(lines_in(recording.replay))
    assert calls[1] == calls[0], "calls of ufuncs are no calls of functions"
    assert lines[1] - lines[0] <= 300 * MOST_LINES_A_STEP


@pytest.mark.parametrize("width", [8, 4096])
def test_replay_makes_a_tenth_of_the_calls_of_eager(width: int) -> None:
    graph = chain(100, width)
    program, eager = compiled(graph), EagerExecutor().compile(graph)
    inputs = {"x": np.ones((1, width), F32)}
    program.run(inputs)
    assert 10 * calls_in(lambda: program.run(inputs)) < calls_in(lambda: eager.run(inputs))
    assert program.stats().counters.replayed_calls == 1


@pytest.mark.parametrize("batch", [1, 8])
def test_replay_of_a_model_makes_a_tenth_of_the_calls_of_eager(batch: int) -> None:
    graph = gpt2()
    program = compiled(graph, dynamic={"batch": (batch, batch)})
    eager = EagerExecutor().compile(graph)
    inputs = {"input_ids": tokens(np.random.default_rng(0), batch, LENGTH)}
    program.run(inputs)
    assert 10 * calls_in(lambda: program.run(inputs)) < calls_in(lambda: eager.run(inputs))
    assert program.stats().counters.replayed_calls == 1
