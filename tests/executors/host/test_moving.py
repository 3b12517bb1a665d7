"""Memory that moves: results that callers get as they are, and inputs that are read where callers have them."""

import gc
import weakref
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from capgraph.executors.host import memory as moving
from capgraph.executors.host.bound_plan import HostPlan
from capgraph.executors.host.memory import FRESH_BYTES, HostArena
from capgraph.executors.replay.capture import record
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.dims import symbol
from capgraph.ir.errors import ResourceError
from capgraph.ir.graph import Graph
from capgraph.ir.plan import Place
from capgraph.ir.target import HOST
from capgraph.ir.text.parser import parse
from capgraph.passes.planning.planner import PlanPolicy, make_plan

from tests.executors.replay.programs import F32, compiled, rows

SIDE = 256
"""Squares of this side in f32 are handed out as they are, also where a few calls touch them."""


def square(op: str) -> Graph:
    b = Builder()
    return b.finish({"y": b.op(op, b.input("x", f"f32[{SIDE}, {SIDE}]"))})


def squares(count: int) -> list[np.ndarray]:
    return [rows(SIDE, seed, SIDE) for seed in range(count)]


def bound_plan(graph: Graph) -> HostPlan:
    plan = make_plan(graph, {}, HOST, PlanPolicy(fresh_bytes=FRESH_BYTES))
    return HostPlan(plan, HostArena(plan.arena_bytes, plan.alignment))


def places(program: Any) -> list[Place]:
    (bucket,) = program._dispatcher._captured.values()
    plan = bucket.bound.plan
    return [plan.buffer_of(value).place for value in plan.graph.outputs]


@pytest.mark.parametrize(("op", "meaning"), [("neg", np.negative), ("sinh", np.sinh)])
def test_each_call_gives_other_memory(op: str, meaning: Any) -> None:
    """`neg` writes into the memory of the result, `sinh` brings an array of its own."""
    program = compiled(square(op))
    given = squares(4)
    results = [program.run({"x": x})["y"] for x in given]
    assert places(program) == [Place.OUTPUT]
    results[2][...] = 7
    for index in (0, 1, 3):
        np.testing.assert_array_equal(results[index], meaning(given[index]))
    assert program.stats().counters.replayed_calls == 3


def test_nothing_holds_a_result_that_its_caller_drops() -> None:
    program = compiled(square("neg"))
    (x,) = squares(1)
    for _ in range(2):
        program.run({"x": x})
    result = program.run({"x": x})["y"]
    memory = weakref.ref(result if result.base is None else result.base)
    del result
    gc.collect()
    assert memory() is None


def test_results_that_share_memory_are_taken_apart() -> None:
    b = Builder()
    h = b.op("neg", b.input("x", f"f32[{SIDE}, {SIDE}]"))
    turned = b.op("transpose", h, perm=[1, 0])
    program = compiled(
        b.finish({"a": h, "b": turned, "c": h, "d": b.op("slice", h, starts=[0], ends=[2], axes=[0], steps=[1])})
    )
    for x in squares(3):
        found = program.run({"x": x})
        found["a"][...] = 1
        found["b"][...] = 2
        np.testing.assert_array_equal(found["c"], -x)
        np.testing.assert_array_equal(found["d"], -x[:2])


def test_a_result_that_is_read_again_is_right() -> None:
    b = Builder()
    h = b.op("exp", b.input("x", f"f32[{SIDE}, {SIDE}]"))
    program = compiled(b.finish({"h": h, "s": b.op("reduce_sum", h, axes=[0], keep_dims=False)}))
    for x in squares(3):
        found = program.run({"x": x})
        np.testing.assert_allclose(found["s"], found["h"].sum(0), rtol=1e-5)
        found["h"][...] = 0


def test_views_of_inputs_and_constants_are_copied() -> None:
    b = Builder()
    x, k = b.input("x", f"f32[{SIDE}, {SIDE}]"), b.constant(squares(1)[0])
    program = compiled(b.finish({"v": b.op("transpose", x, perm=[1, 0]), "k": b.op("transpose", k, perm=[1, 0])}))
    for given in squares(3):
        before = given.copy()
        found = program.run({"x": given})
        found["v"][...] = 0
        found["k"][...] = 0
        np.testing.assert_array_equal(given, before)
    np.testing.assert_array_equal(program.run({"x": given})["k"], squares(1)[0].T)


def test_padded_results_are_cut_and_kept() -> None:
    b = Builder()
    x = b.input("x", f"f32[B, {SIDE}]")
    program = compiled(b.finish({"y": b.op("relu", x)}), dynamic={"B": (1, SIDE)}, buckets={"B": [SIDE]})
    kept = []
    for count in (SIDE, SIDE - 3, 4, SIDE, SIDE - 1):
        given = rows(count, count, SIDE)
        kept.append((given, program.run({"x": given})["y"]))
    for given, found in kept:
        np.testing.assert_array_equal(found, np.maximum(given, 0))
        assert found.flags.c_contiguous
    assert kept[2][1].base is None, "four rows do not hold the memory of all"


def test_columns_of_a_padded_result_lie_close() -> None:
    b = Builder()
    x = b.input("x", f"f32[{SIDE}, C]")
    program = compiled(b.finish({"y": b.op("relu", x)}), dynamic={"C": (1, SIDE)}, buckets={"C": [SIDE]})
    for count in (SIDE, SIDE - 3):
        given = rows(SIDE, 0, count)
        found = program.run({"x": given})["y"]
        np.testing.assert_array_equal(found, np.maximum(given, 0))
        assert found.flags.c_contiguous


def test_static_outputs_lie_in_the_arena() -> None:
    program = compiled(square("neg"), copy_outputs=False)
    (x,) = squares(1)
    program.run({"x": x})
    first, second = program.run({"x": x})["y"], program.run({"x": x})["y"]
    assert places(program) == [Place.ARENA]
    assert np.shares_memory(first, second)


def test_verification_poisons_results_as_well() -> None:
    program = compiled(square("neg"))
    program.run({"x": squares(1)[0]})
    (report,) = program.stats().buckets
    assert (report.verified, report.refusals) == (True, ())
    bound = bound_plan(square("neg"))
    bound.start()
    bound.load(0, squares(1)[0])
    bound.run(bound.plan.segments[0])
    before = bound.save()
    bound.poison()
    assert np.isnan(bound.result(0)).all()
    bound.restore(before)
    np.testing.assert_array_equal(bound.result(0), -squares(1)[0])


def test_what_is_needed_is_not_poisoned() -> None:
    b = Builder()
    h = b.op("neg", b.input("x", f"f32[{SIDE}, {SIDE}]"))
    bound = bound_plan(b.finish({"h": h, "s": b.op("reduce_sum", h, axes=[0], keep_dims=False)}))
    bound.start()
    bound.load(0, squares(1)[0])
    bound.run(bound.plan.segments[0])
    bound.poison(1)
    np.testing.assert_array_equal(bound.result(0), -squares(1)[0])


def test_a_recording_follows_an_input_that_moves_again_and_again() -> None:
    b = Builder()
    x = b.input("x", f"f32[{SIDE}, {SIDE}]")
    h = b.op("matmul", b.op("transpose", x, perm=[1, 0]), x)
    bound = bound_plan(b.finish({"y": b.op("add", h, x)}))
    bound.start()
    recording = record(bound, bound.plan.segments[0])
    for given in squares(4):
        assert bound.place(0, given)
        assert recording.repoint(0)
        bound.start()
        recording.replay()
        np.testing.assert_allclose(bound.copy_of_result(0), given.T @ given + given, rtol=1e-3, atol=1e-3)
        bound.forget()
    bound.unplace(0)
    recording.repoint(0)
    bound.start()
    bound.load(0, given)
    recording.replay()
    np.testing.assert_allclose(bound.copy_of_result(0), given.T @ given + given, rtol=1e-3, atol=1e-3)


def test_a_second_input_in_the_same_memory_stays_where_it_is() -> None:
    """Both inputs are placed in one array; then one of them moves."""
    b = Builder()
    x, y = b.input("x", "f32[4, 4]"), b.input("y", "f32[4, 4]")
    bound = bound_plan(b.finish({"z": b.op("sub", x, y)}))
    both = np.arange(32, dtype=F32).reshape(2, 4, 4)
    bound.start()
    assert bound.place(0, both[0])
    assert bound.place(1, both[0])
    recording = record(bound, bound.plan.segments[0])
    bound.place(1, both[1])
    recording.repoint(1)
    recording.replay()
    np.testing.assert_array_equal(bound.result(0), both[0] - both[1])


def test_too_little_memory_for_results_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise MemoryError

    bound = bound_plan(square("neg"))
    with monkeypatch.context() as patched:
        patched.setattr(moving.np, "empty", refuse)
        with pytest.raises(ResourceError, match="out of memory for a result of 256"):
            bound.start()
    bound.start()
    bound.load(0, squares(1)[0])
    bound.run(bound.plan.segments[0])
    np.testing.assert_array_equal(bound.copy_of_result(0), -squares(1)[0])


def test_results_of_a_loop_body_are_not_overwritten_by_the_next_iteration() -> None:
    graph = parse(
        dedent("""
        graph @main(%n: i64[], %x: f32[256, 256]) {
          %y: f32[256, 256], %all: f32[u0, 256, 256] = loop(%n, _, %x) {body = @body, carried = 1}
          return %y, %all
        }

        graph @body(%i: i64[], %c: bool[], %h: f32[256, 256]) {
          %p: f32[256, 256] = neg(%h)
          %q: f32[256, 256] = sinh(%p)
          return %c, %q, %p
        }""")
    )
    (plan,) = make_plan(graph, {}, HOST, PlanPolicy(fresh_bytes=FRESH_BYTES)).bodies.values()
    assert [plan.buffer_of(value).place for value in plan.graph.outputs[1:]] == [Place.OUTPUT] * 2
    program = compiled(graph)
    for x in squares(2):
        expected = EagerExecutor().compile(graph).run({"n": np.array(3), "x": x})
        for name, found in program.run({"n": np.array(3), "x": x}).items():
            np.testing.assert_allclose(found, expected[name], rtol=1e-5)


def test_sizes_of_calls_may_alternate() -> None:
    b = Builder()
    x = b.input("x", f"f32[B, {SIDE}]")
    y = b.op("reshape", b.op("exp", x), shape=[symbol("B") * SIDE])
    program = compiled(b.finish({"y": y}), dynamic={"B": (1, 512)}, buckets={"B": [SIDE, 512]})
    kept = [
        (given, program.run({"x": given})["y"]) for given in (rows(n, n, SIDE) for n in (SIDE, 512, SIDE, 512, 300))
    ]
    for given, found in kept:
        np.testing.assert_array_equal(found, np.exp(given).reshape(-1))
