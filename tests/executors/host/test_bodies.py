from textwrap import dedent

import numpy as np
import pytest
from capgraph.executors.host import bodies
from capgraph.ir.errors import ExecutionError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse

from tests.executors.host.running import host_plan, run_plan
from tests.passes.planning.test_bodies import BRANCHES, LOOP

F32 = np.float32


def loop() -> Graph:
    return parse(dedent(LOOP))


def drawn(count: int, rows: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(count)
    return [np.array(count), random.standard_normal((rows, 8)).astype(F32), random.standard_normal((8, 8)).astype(F32)]


@pytest.mark.parametrize("limit", [0, 1 << 14])
def test_a_loop_runs_its_planned_body(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of the body are copied, or read where they are until they are found to move."""
    monkeypatch.setattr(bodies, "COPIED_BYTES", limit)
    bound = host_plan(loop(), {"B": 3})
    assert len(bound.plan.bodies) == 1
    for count in (4, 0, 1, 7):
        inputs = drawn(count)
        (expected,) = evaluate_graph(loop(), inputs)
        bound.poison()
        np.testing.assert_allclose(run_plan(bound, inputs)[0], expected, rtol=1e-5, atol=1e-6)


def test_what_an_iteration_gave_is_not_overwritten_by_the_next() -> None:
    graph = parse(
        dedent("""
        graph @main(%n: i64[], %x: f32[4]) {
          %y: f32[4], %all: f32[u0, 4] = loop(%n, _, %x) {body = @body, carried = 1}
          return %y, %all
        }

        graph @body(%i: i64[], %c: bool[], %h: f32[4]) {
          %p: f32[4] = add(%h, %h)
          %q: f32[4] = neg(%p)
          return %c, %p, %q
        }""")
    )
    inputs = [np.array(5), np.arange(4, dtype=F32)]
    for given, expected in zip(run_plan(host_plan(graph), inputs), evaluate_graph(graph, inputs), strict=True):
        np.testing.assert_array_equal(given, expected)


@pytest.mark.parametrize("branch", [True, False])
def test_branches_share_their_scratch(branch: bool) -> None:
    graph = parse(dedent(BRANCHES))
    bound = host_plan(graph)
    for chosen in (branch, not branch, branch):
        inputs = [np.array(chosen), np.linspace(0, 1, 64, dtype=F32)]
        np.testing.assert_array_equal(run_plan(bound, inputs)[0], evaluate_graph(graph, inputs)[0])


def test_a_kernel_that_fails_in_a_body_is_named_and_the_next_run_works() -> None:
    graph = parse(
        dedent("""
        graph @main(%n: i64[], %x: f32[3], %k: i64[1]) {
          %y: f32[3] = loop(%n, _, %x, %k) {body = @body, carried = 1}
          return %y
        }

        graph @body(%i: i64[], %c: bool[], %h: f32[3], %j: i64[1]) {
          %p: f32[1] = gather(%h, %j) {axis = 0}
          %q: f32[3] = add(%h, %p)
          return %c, %q
        }""")
    )
    bound = host_plan(graph)
    x = np.ones(3, F32)
    with pytest.raises(ExecutionError, match="index 7 is out of range") as caught:
        run_plan(bound, [np.array(2), x, np.array([7])])
    assert "gather" in str(caught.value)
    assert run_plan(bound, [np.array(2), x, np.array([1])])[0].tolist() == [4, 4, 4]
