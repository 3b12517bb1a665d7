"""What replay costs: beside the bare NumPy calls, and beside eager. Least times, as other work disturbs the rest."""

from collections.abc import Callable
from time import perf_counter

import numpy as np
import pytest
from capgraph.executors.eager import EagerExecutor
from capgraph.executors.replay.capture import record
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph

from tests.executors.host.running import host_plan
from tests.executors.replay.programs import F32, compiled
from tests.executors.replay.test_serving import LENGTH, gpt2, tokens

STEPS = 400
ROUNDS = 60
MICROSECONDS_A_STEP = 3.0


def chain(steps: int, width: int) -> Graph:
    b = Builder()
    x = b.input("x", f"f32[1, {width}]")
    h = x
    for index in range(steps):
        h = b.op("add" if index % 2 else "mul", h, x)
    return b.finish({"y": h})


def least(*calls: Callable[[], object]) -> list[float]:
    """The least seconds of each call, taken in turns."""
    times = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for index, call in enumerate(calls):
            start = perf_counter()
            call()
            times[index] = min(times[index], perf_counter() - start)
    return times


def test_a_replayed_step_costs_little_more_than_its_numpy_call() -> None:
    bound = host_plan(chain(STEPS, 8))
    recording = record(bound, bound.plan.segments[0])
    bound.load(0, np.ones((1, 8), F32))
    calls = [(call.function, call.operands, call.results) for step in bound.plan.steps for call in bound.calls_of(step)]
    assert len(calls) == STEPS

    def bare() -> None:
        for function, (first, second), (result,) in calls:
            function(first, second, result)

    replayed, alone = least(recording.replay, bare)
    assert (replayed - alone) / STEPS * 1e6 < MICROSECONDS_A_STEP


@pytest.mark.parametrize("width", [8, 4096])
def test_replay_is_not_slower_than_eager(width: int) -> None:
    graph = chain(100, width)
    program, eager = compiled(graph), EagerExecutor().compile(graph)
    x = np.ones((1, width), F32)
    program.run({"x": x})
    replayed, stepwise = least(lambda: program.run({"x": x}), lambda: eager.run({"x": x}))
    assert program.stats().counters.replayed_calls == ROUNDS
    assert replayed < stepwise


@pytest.mark.parametrize("batch", [1, 8])
def test_replay_of_a_model_is_not_slower_than_eager(batch: int) -> None:
    graph = gpt2()
    program = compiled(graph, dynamic={"batch": (batch, batch)})
    eager = EagerExecutor().compile(graph)
    inputs = {"input_ids": tokens(np.random.default_rng(0), batch, LENGTH)}
    program.run(inputs)
    replayed, stepwise = least(lambda: program.run(inputs), lambda: eager.run(inputs))
    assert program.stats().counters.replayed_calls == ROUNDS
    assert replayed < stepwise
