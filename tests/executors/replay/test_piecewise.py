"""Graphs that cannot be captured whole: the number of segments, the reasons, and the numbers of eager."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from capgraph.executors.replay.counters import BucketReport
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Constant
from capgraph.ir.dims import symbol
from capgraph.ir.errors import CaptureError
from capgraph.ir.foreign import register_meaning
from capgraph.ir.graph import Graph, Node, Value
from capgraph.ir.notices import CapgraphWarning
from capgraph.ir.op import foreign
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from tests.executors.replay.programs import F32, compiled, rows

CALLS = 4


def served(graph: Graph, **options: Any) -> BucketReport:
    """The report after calls that were all equal to eager."""
    program = compiled(graph, dynamic={"B": (1, 4)}, buckets={"B": [1, 2, 3, 4]}, **options)
    oracle = EagerExecutor().compile(graph)
    for call in range(CALLS):
        inputs = {"x": rows(3, call)}
        for given, expected in zip(program.run(inputs).values(), oracle.run(inputs).values(), strict=True):
            np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)
    stats = program.stats()
    assert stats.counters.replayed_calls == CALLS - 1
    (bucket,) = stats.buckets
    assert stats.counters.replays == (CALLS - 1) * bucket.segments
    assert bucket.verified
    return bucket


def dense(b: Builder, x: Value) -> Value:
    """Two kernels: enough for a segment."""
    return b.op("relu", b.op("exp", x))


NO_BOUNDS = {"keep_outside": "non_zero"}


def test_non_zero_without_a_bound_cuts_a_graph_in_two() -> None:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    h = dense(b, x)
    found = b.op("non_zero", h)
    bucket = served(b.finish({"where": found, "y": dense(b, b.op("neg", h))}), **NO_BOUNDS)
    assert (bucket.segments, bucket.eager_segments) == (1, 1)  # what does not need the cut runs before it
    assert bucket.cuts == ("non_zero: the sizes of its results depend on values",)


def test_what_follows_values_of_unknown_size_is_eager() -> None:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    found = b.op("cast", b.op("non_zero", dense(b, x)), to=DType.F32)
    total = b.op("reduce_sum", found, axes=[0, 1], keep_dims=False)
    bucket = served(b.finish({"y": b.op("neg", b.op("exp", total))}), **NO_BOUNDS)
    assert (bucket.segments, bucket.eager_segments) == (2, 1)


def test_non_zero_with_a_bound_is_recorded_with_what_follows() -> None:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    found = b.op("cast", b.op("non_zero", dense(b, x)), to=DType.F32)
    total = b.op("reduce_sum", found, axes=[0, 1], keep_dims=False)
    bucket = served(b.finish({"where": found, "y": b.op("neg", total)}))
    assert (bucket.segments, bucket.eager_segments, bucket.cuts) == (1, 0, ())
    assert "room for" in bucket.bounded[0]


def test_a_proof_that_fails_leaves_non_zero_outside_and_says_why() -> None:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    found = b.op("cast", b.op("non_zero", dense(b, x)), to=DType.F32)
    bucket = served(b.finish({"y": b.op("reverse", found, axes=[1])}))
    assert (bucket.segments, bucket.eager_segments) == (1, 1)
    assert bucket.cuts[0].startswith("non_zero: the sizes of its results depend on values; it has no bound: it mixes")


def counting_loop(b: Builder, trips: Value, start: Value) -> Value:
    """`start` doubled as often as `trips` says."""
    body = Graph("body", symbols=b.graph.symbols)
    body.add_input("i", TensorType(DType.I64, ()))
    body.add_input("go", TensorType(DType.BOOL, ()))
    carried = body.add_input("h", start.type)
    go = body.append(native("constant"), [], {"value": Constant(np.asarray(True))}).output
    body.set_outputs([go, body.append(native("add"), [carried, carried]).output])
    node = b.graph.append(native("loop"), [trips, None, start], {"body": body, "carried": 1})
    return node.outputs[0]


def test_a_loop_whose_count_depends_on_data_stands_between_two_segments() -> None:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    h = dense(b, x)
    total = b.op("reduce_sum", b.op("clip", h, None, b.constant(np.asarray(1, F32))), axes=[0, 1], keep_dims=False)
    trips = b.op("cast", total, to=DType.I64)
    bucket = served(b.finish({"y": dense(b, counting_loop(b, trips, h))}))
    assert (bucket.segments, bucket.eager_segments) == (2, 1)
    assert bucket.cuts == ("loop: it runs regions as often as values say",)


def _halve(_node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    return (operands[0] / 2,)


def middle(b: Builder, x: Value) -> Value:
    register_meaning("elsewhere", _halve)
    return b.graph.append(foreign("elsewhere.Halve"), [x], types=[x.type]).output


def test_a_foreign_op_in_the_middle() -> None:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    graph = b.finish({"y": dense(b, middle(b, dense(b, x)))})
    with pytest.warns(CapgraphWarning, match=r"not everything is recorded: elsewhere\.Halve: it runs through") as told:
        bucket = served(graph)
    assert len(told) == 1
    for mode in ("full_and_piecewise", "full"):
        with pytest.raises(CaptureError, match=r"not everything is recorded: elsewhere\.Halve"):
            compiled(graph, dynamic={"B": (3, 3)}, mode=mode, strict=True)
    compiled(graph, dynamic={"B": (3, 3)}, mode="piecewise", strict=True).run({"x": np.ones((3, 4), F32)})
    assert (bucket.segments, bucket.eager_segments) == (2, 1)
    assert bucket.cuts == ("elsewhere.Halve: it runs through another framework",)
    assert bucket.eager_steps == 1
    program = compiled(graph, dynamic={"B": (3, 3)}, mode="full")
    for call in range(2):
        program.run({"x": rows(3, call)})
    stats = program.stats()
    assert stats.counters.replayed_calls == 0
    assert "cannot be captured whole: it runs through another framework" in stats.refused[0]
    assert program.coverage() == (0, sum(bool(node.inputs) for node in graph.nodes))


def test_two_independent_branches_share_their_cuts() -> None:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    left, right = (dense(b, middle(b, dense(b, b.op(name, x)))) for name in ("neg", "abs"))
    bucket = served(b.finish({"y": b.op("add", left, right)}))
    assert (bucket.segments, bucket.eager_segments) == (2, 1)
    assert len(bucket.cuts) == 2


def attention() -> Graph:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    heads = b.op("reshape", b.op("exp", x), shape=[1, 1, symbol("B"), 4])
    node = b.graph.append(native("attention"), [heads, heads, heads, *[None] * (_operands("attention") - 3)])
    out = b.op("reshape", node.outputs[0], shape=[symbol("B"), 4])
    return b.finish({"y": dense(b, out)})


def _operands(name: str) -> int:
    return len(native(name).operands)


def test_attention_is_captured_whole_where_that_is_possible_and_else_stays_outside() -> None:
    whole = served(attention())
    assert (whole.segments, whole.eager_segments) == (1, 0)
    segments = served(attention(), mode="piecewise")
    assert "attention: the policy keeps it outside of recorded graphs" in segments.cuts
    assert segments.eager_segments == 1
