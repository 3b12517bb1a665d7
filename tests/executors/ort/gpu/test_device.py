"""Programs in pieces: recorded, padded, replayed, with host steps between, all equal to the host."""

from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.eager import EagerExecutor
from capgraph.ir.graph import Graph
from capgraph.ir.parser import parse

from tests.executors.ort.gpu.on_host import played, program

WHOLE = """
graph @whole(%x: f32[B, 8], %w: f32[8, 8], %scale: f32[8], %bias: f32[8]) {
  %m: f32[B, 8] = matmul(%x, %w)
  %s: f32[B, 8] = add(%m, %bias)
  %g: f32[B, 8] = gelu(%s)
  %r: f32[B, 8] = add(%g, %x)
  %y: f32[B, 8] = layer_norm(%r, %scale, %bias)
  return %y
}
"""
LOOPED = """
graph @looped(%x: f32[B, 8], %n: i64[]) {
  %a: f32[B, 8] = tanh(%x)
  %b: f32[B, 8] = mul(%a, %a)
  %l: f32[B, 8] = loop(%n, _, %b) {body = @step, carried = 1}
  %d: f32[B, 8] = sub(%l, %x)
  %y: f32[B, 8] = sigmoid(%d)
  return %y
}
graph @step(%i: i64[], %c: bool[], %v: f32[B, 8]) {
  %t: f32[B, 8] = add(%v, %v)
  return %c, %t
}
"""
SPARSE = """
graph @sparse(%x: f32[B, 8]) {
  %a: f32[B, 8] = relu(%x)
  %b: f32[B, 8] = sub(%a, %x)
  %i: i64[2, N] = non_zero(%a)
  %s: i64[2] = reduce_sum(%i) {axes = [1], keep_dims = false}
  %f: f32[2] = cast(%s) {to = f32}
  %t: f32[] = reduce_sum(%f) {axes = [0], keep_dims = false}
  %c: f32[B, 8] = exp(%b)
  %y: f32[B, 8] = add(%c, %t)
  return %y
}
"""


def inputs(graph: Graph, rows: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    found = {}
    for value in graph.inputs:
        shape = [dim if isinstance(dim, int) else rows for dim in value.shape]
        array = np.asarray(random.standard_normal(shape))
        found[value.name] = np.asarray(3) if not shape else array.astype(value.tensor.dtype.numpy)
    return found


def check(graph: Graph, folder: Path, sizes: list[int], **options: object):
    """Holds a program to the host on calls of these sizes; gives it."""
    oracle = EagerExecutor().compile(graph)
    with played():
        made = program(graph, folder, **options)
        for call, rows in enumerate(sizes):
            given = inputs(graph, rows, call)
            expected = oracle.run(given)
            found = made.run(given)
            for name, value in expected.items():
                np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)
    return made


def test_a_graph_that_the_provider_takes_whole_is_one_recording(tmp_path: Path):
    made = check(parse(WHOLE), tmp_path, [4, 4, 3, 8, 5, 1], dynamic={"B": (1, 8)}, buckets={"B": [4, 8]})
    stats = made.stats()
    assert stats.refused == ()
    assert stats.counters.replayed_calls == 4
    assert [bucket.pieces for bucket in stats.buckets] == [1, 1]
    assert "1 piece in sessions of ONNX Runtime; 0 nodes outside" in made.remarks


@pytest.mark.parametrize("text", [LOOPED, SPARSE])
def test_what_it_does_not_record_runs_between_pieces(text: str, tmp_path: Path):
    made = check(parse(text), tmp_path, [4, 4, 4], dynamic={"B": (1, 8)}, buckets={"B": [4]})
    bucket = made.stats().buckets[0]
    assert bucket.pieces >= 1
    assert bucket.eager_segments >= 1
    assert bucket.refusals == ()
    assert made.stats().counters.replayed_calls == 2
