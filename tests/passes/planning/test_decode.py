import numpy as np
import pytest
from capgraph.ir.plan import CutReason, Plan
from capgraph.ir.text.parser import parse

from tests.executors.host.running import host_plan, run_plan
from tests.passes.planning.planned import planned

TEXT = """
    graph @main(%q: f32[N, 2, 4], %k: f32[R, 5, 1, 4], %c: i64[R], %l: i64[R], %t: bool[T]) {
      %p: f32[N, 2, 4] = exp(%q)
      %s: f32[N, 2, 4] = add(%p, %q)
      %a: f32[N, 2, 4] = varlen_attention(%s, %k, %k, %c, %l) {longest = T, causal = true}
      %b: f32[N, 2, 4] = varlen_attention(%a, %k, %k, %c, %l) {longest = T, causal = true}
      %m: f32[N, 2, 4] = mul(%b, %q)
      %y: f32[N, 2, 4] = exp(%m)
      return %y
    }"""


def plan_at(longest: int) -> Plan:
    return planned(TEXT, {"N": 6, "R": 3, "T": longest})


def ops(plan: Plan) -> list[str]:
    return [step.node.op.name for step in plan.steps]


def reasons(plan: Plan) -> list[CutReason]:
    return [cut.reason for segment in plan.segments for cut in segment.cuts]


def test_one_query_a_sequence_is_captured_whole() -> None:
    plan = plan_at(1)
    assert "varlen_attention" not in ops(plan)
    assert ops(plan).count("attention") == 2
    assert ops(plan).count("cumsum") == 1  # what depends on lengths alone is made once
    assert [segment.is_captured for segment in plan.segments] == [True]


def test_more_queries_are_launched_by_the_host() -> None:
    plan = plan_at(2)
    assert ops(plan).count("varlen_attention") == 2
    assert reasons(plan) == [CutReason.READS_ON_HOST] * 2
    assert [segment.is_captured for segment in plan.segments] == [True, False, True]


@pytest.mark.parametrize("counts", [[1, 1, 1], [0, 1, 1], [0, 0, 0], [1, 0, 0]])
def test_both_give_the_same(counts: list[int]) -> None:
    random = np.random.default_rng(0)
    q, k = (random.standard_normal(shape).astype(np.float32) for shape in ((6, 2, 4), (3, 5, 1, 4)))
    inputs = [q, k, np.array(counts), np.array([5, 1, 3])]
    found, expected = (
        run_plan(host_plan(parse(TEXT), {"N": 6, "R": 3, "T": longest}), [*inputs, np.zeros(longest, bool)])[0]
        for longest in (1, 2)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
