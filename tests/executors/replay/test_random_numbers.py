"""Recorded programs draw random numbers anew in each replay, as eager does from the same state, and are verified."""

from collections.abc import Mapping
from typing import Any

import capgraph
import numpy as np
import pytest
from capgraph import StateStore
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse

TEXT = """
graph @main(%x: f32[B, 4]) {
  %n: f32[B, 4] = random_normal() {shape = [B, 4], dtype = f32}
  %k: f32[B, 4] = bernoulli(%x) {dtype = f32}
  %m: i64[B, 3] = multinomial(%n) {dtype = i64, sample_size = 3}
  %f: f32[5] = random_uniform() {shape = [5], dtype = f32, seed = 5}
  %y: f32[B, 4] = mul(%n, %k)
  return %y, %m, %f
}"""


def graph() -> Graph:
    return parse(TEXT)


def recorded(**options: Any) -> Any:
    return capgraph.optimize(graph(), executor="graph", dynamic={"B": (1, 8)}, buckets={"B": [4, 8]}, **options)


def inputs(rows: int) -> dict[str, Array]:
    return {"x": np.full((rows, 4), 0.5, np.float32)}


def assert_same(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


def test_replays_draw_what_eager_draws_padded_or_not() -> None:
    program, oracle = recorded(strict=True), capgraph.optimize(graph(), executor="eager")
    program.seed(3)
    oracle.seed(3)
    seen: set[bytes] = set()
    for rows in (4, 4, 3, 8, 5, 1, 7, 4):
        expected = oracle.run(inputs(rows))
        assert_same(program.run(inputs(rows)), expected)
        seen.add(expected["m"][:1].tobytes() + expected["y"][:1].tobytes())
    assert len(seen) == 8
    stats = program.stats()
    assert (stats.counters.replayed_calls, stats.counters.padded_calls) == (6, 4)
    assert all(bucket.verified and bucket.segments == 1 and not bucket.eager_segments for bucket in stats.buckets)


@pytest.mark.parametrize("executor", ["eager", "graph"])
def test_a_seed_starts_again(executor: str) -> None:
    program = recorded() if executor == "graph" else capgraph.optimize(graph(), executor=executor)
    runs = []
    for seed in (1, 1, 2):
        program.seed(seed)
        runs.append([program.run(inputs(4)) for _ in range(3)])
    for first, again in zip(runs[0], runs[1], strict=True):
        assert_same(first, again)
    assert not np.array_equal(runs[0][0]["y"], runs[2][0]["y"])
    np.testing.assert_array_equal(runs[0][0]["f"], runs[2][1]["f"])


def test_programs_draw_from_states_of_their_own() -> None:
    first, second = recorded(), recorded()
    assert not np.array_equal(first.run(inputs(4))["y"], second.run(inputs(4))["y"])


def test_what_is_captured_beforehand_draws_as_well() -> None:
    program, oracle = recorded(capture={"up_front": True}), capgraph.optimize(graph(), executor="eager")
    program.seed(8)
    oracle.seed(8)
    for rows in (2, 8, 3):
        assert_same(program.run(inputs(rows)), oracle.run(inputs(rows)))
    assert program.stats().counters.eager_calls == 0


def test_states_of_the_model_lie_in_the_store_and_the_random_one_does_not() -> None:
    model = parse("""
        graph @main(%cache: f32[4], %x: f32[4]) {
          %n: f32[4] = random_normal() {shape = [4], dtype = f32}
          %y: f32[4] = add(%cache, %n)
          return %y, %x
        }""")
    model.set_states([(0, 0)])
    store = StateStore({"cache": np.zeros(4, np.float32)})
    program = capgraph.optimize(model, executor="graph", capture={"states": store})
    seen = []
    for _ in range(4):
        assert list(program.run({"x": np.zeros(4, np.float32)})) == ["x"]
        seen.append(store["cache"])
    steps = np.diff(np.stack([np.zeros(4, np.float32), *seen]), axis=0)
    assert len({step.tobytes() for step in steps}) == 4
    assert store.names == ("cache",)
    assert program.inputs.keys() == {"cache", "x"}


def test_rows_that_get_longer_are_served_at_their_sizes() -> None:
    model = parse("""
        graph @main(%x: f32[2, T]) {
          %n: f32[2, T] = random_normal() {shape = [2, T], dtype = f32}
          %y: f32[2, T] = add(%x, %n)
          return %y
        }""")
    program = capgraph.optimize(model, executor="graph", dynamic={"T": (1, 8)}, buckets={"T": [4, 8]})
    for size in (4, 4, 3):
        program.run({"x": np.zeros((2, size), np.float32)})
    stats = program.stats()
    assert stats.counters.replayed_calls == 1
    assert "draw other numbers" in program.explain()
