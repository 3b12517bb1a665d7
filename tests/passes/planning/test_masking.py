"""Masking as a pass: what it repairs counts as rewrites, and its calls are tried with garbage behind the real rows."""

from textwrap import dedent

import numpy as np
import pytest
from capgraph.ir.text.parser import parse
from capgraph.ir.verify import verify
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import Samples
from capgraph.passes.framework.pipeline import PassRun, Pipeline
from capgraph.passes.planning.masking import MaskPadding, PadCalls

SUMS = """
graph @main(%x: f32[B, 4]) {
  %a: f32[4] = reduce_sum(%x) {axes = [0], keep_dims = false}
  %b: f32[4] = reduce_max(%x) {axes = [0], keep_dims = false}
  %c: f32[4] = mul(%a, %b)
  return %c
}
"""


def test_calls_bring_their_real_size_and_garbage() -> None:
    graph = parse(dedent(SUMS))
    samples = Samples.drawn(graph, count=1, sizes={"B": 4})
    run = PassRun(MaskPadding("B", 4, 1))
    masked = graph.clone()
    run.on(masked)
    verify(masked)
    assert run.rewrites == {"mask": 2}
    called = samples.called(run.calls, graph)
    assert [int(size) for _, size in called.inputs] == [4, 1, 3]
    assert [int(np.isnan(x).any(axis=1).sum()) for x, _ in called.inputs] == [0, 3, 1]
    assert called.first_difference(masked, Exactness.EXACT) == ""


def test_matmuls_of_fewer_rows_round_otherwise() -> None:
    graph = parse(
        dedent("""
    graph @main(%x: f32[B, 1000], %w: f32[1000, 300]) {
      %y: f32[B, 300] = matmul(%x, %w)
      return %y
    }
    """)
    )
    samples = Samples.drawn(graph, count=1, sizes={"B": 4})
    report = Pipeline(((MaskPadding("B", 4, 1),),)).run(graph, check="numeric", samples=samples)
    (calls,) = report.calls
    called = samples.called(calls, graph)
    assert [sample.is_resized for sample in called.samples] == [False, True, True]
    problem, after = called.compared(graph, Exactness.EXACT)
    assert problem == ""
    assert not any(sample.is_resized for sample in after.samples)
    assert after.first_difference(graph, Exactness.EXACT) == ""


@pytest.mark.parametrize("budget", [0, 1])
def test_some_masks_mean_the_same_where_nothing_is_padded(budget: int) -> None:
    graph = parse(dedent(SUMS))
    samples = Samples.drawn(graph, count=1, sizes={"B": 4})
    run = PassRun(MaskPadding("B", 4, 1), budget)
    masked = graph.clone()
    run.on(masked)
    verify(masked)
    assert (run.rewrites.total(), run.changed) == (budget, budget > 0)
    called = samples.called(run.calls, graph)
    assert len(called.inputs) == 1
    assert called.first_difference(masked, Exactness.EXACT) == ""


def test_what_cannot_be_masked_stays() -> None:
    graph = parse("graph @main(%x: f32[B, 4]) {\n  %y: f32[B, 4], %i: i64[B, 4] = sort(%x) {axis = 0}\n  return %y\n}")
    report = Pipeline(((MaskPadding("B", 4),),)).run(graph, check="numeric", samples=Samples.drawn(graph))
    (calls,) = report.calls
    assert isinstance(calls, PadCalls)
    assert (report.changed, report.rewrites, calls.report.is_safe) == (False, 0, False)
