"""Programs with sizes that only running tells: one recording, cut by the host to what was found."""

from typing import Any

import capgraph
import numpy as np
import onnx
import pytest
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph
from onnx import TensorProto, helper

from tests.executors.replay.programs import compiled


def detector(limit: int = 3) -> Any:
    """Post-processing as exported detectors have it: the boxes, scores and classes that non-max suppression selects."""
    make, i64 = helper.make_node, TensorProto.INT64
    nodes = [
        make("Sigmoid", ["logits"], ["scores"]),
        make("NonMaxSuppression", ["boxes", "scores", "limit", "overlap", "least"], ["found"]),
        make("Slice", ["found", "two", "three", "one"], ["box_column"]),
        make("Slice", ["found", "one_", "two", "one"], ["class_column"]),
        make("Squeeze", ["box_column", "one"], ["box_index"]),
        make("Squeeze", ["class_column", "one"], ["labels"]),
        make("Squeeze", ["boxes", "zero"], ["plain_boxes"]),
        make("Gather", ["plain_boxes", "box_index"], ["selected"], axis=0),
        make("GatherND", ["scores", "found"], ["best"]),
        make("ReduceSum", ["best"], ["total"], keepdims=0),
    ]
    constants = [
        helper.make_tensor("limit", i64, [1], [limit]),
        helper.make_tensor("overlap", TensorProto.FLOAT, [1], [0.4]),
        helper.make_tensor("least", TensorProto.FLOAT, [1], [0.6]),
        *(helper.make_tensor(name, i64, [1], [n]) for name, n in (("zero", 0), ("one", 1), ("one_", 1))),
        *(helper.make_tensor(name, i64, [1], [n]) for name, n in (("two", 2), ("three", 3))),
    ]
    inputs = [
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, "N", 4]),
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 3, "N"]),
    ]
    outputs = [
        helper.make_tensor_value_info("selected", TensorProto.FLOAT, ["M", 4]),
        helper.make_tensor_value_info("labels", i64, ["M"]),
        helper.make_tensor_value_info("best", TensorProto.FLOAT, ["M"]),
        helper.make_tensor_value_info("total", TensorProto.FLOAT, []),
    ]
    graph = helper.make_graph(nodes, "detector", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def scene(boxes: int, seed: int, shift: float = 0.0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    corners = random.random((1, boxes, 2), np.float32)
    return {
        "boxes": np.concatenate([corners, corners + 0.3], 2).astype(np.float32),
        "logits": (random.standard_normal((1, 3, boxes)) + shift).astype(np.float32),
    }


def test_a_detector_is_one_recording() -> None:
    model = detector()
    onnx.checker.check_model(model)
    program = capgraph.optimize(model, executor="graph", dynamic={"N": (1, 12)}, buckets={"N": [6, 12]})
    oracle = capgraph.optimize(model, executor="eager")
    counts = set()
    for seed, (boxes, shift) in enumerate([(12, 0), (12, 0), (7, 1), (9, -9), (6, 0), (5, 2), (1, 0), (12, 9)]):
        inputs = scene(boxes, seed, shift)
        given, expected = program.run(inputs), oracle.run(inputs)
        for name, old in expected.items():
            assert given[name].shape == old.shape
            np.testing.assert_allclose(given[name], old, rtol=1e-5)
        counts.add(len(given["labels"]))
    assert {0, 1} < counts
    stats = program.stats()
    assert not stats.refused
    assert [(bucket.segments, bucket.eager_segments, bucket.cuts) for bucket in stats.buckets] == [(1, 0, ())] * 2
    assert stats.counters.size_reads == stats.counters.replayed_calls == 6
    assert stats.counters.padded_calls
    text = program.explain()
    assert "sizes: read by the host after 6 calls" in text
    assert "bounded: non_max_suppression" in text


def chain() -> Graph:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    sums = b.op("reduce_sum", x, axes=[1], keep_dims=False)
    rows = b.op("compress", x, b.op("greater", sums, b.constant(np.float32(0))), axis=0)
    places = b.op("non_zero", b.op("relu", rows))
    return b.finish({"rows": rows, "places": places, "mean": b.op("reduce_mean", rows, axes=[0], keep_dims=False)})


@pytest.mark.parametrize("options", [{}, {"copy_outputs": False}, {"mode": "full"}, {"beyond": "exact"}])
def test_one_size_behind_another_at_every_batch(options: dict[str, Any]) -> None:
    graph, random = chain(), np.random.default_rng(0)
    oracle = EagerExecutor().compile(graph)
    program = compiled(graph, dynamic={"B": (1, 8)}, buckets={"B": [4, 8]}, **options)
    for call, batch in enumerate([4, 8, 3, 5, 1, 8, 8, 2]):
        x = random.standard_normal((batch, 4)).astype(np.float32) - (9 if call == 5 else 0)
        given = program.run({"x": x})
        for name, old in oracle.run({"x": x}).items():
            assert given[name].shape == old.shape
            np.testing.assert_allclose(given[name], old, rtol=1e-5)
    counters = program.stats().counters
    assert (counters.replayed_calls, counters.size_reads) == (6, 6)


def test_a_size_of_the_batch_times_one_that_is_found_is_not_padded() -> None:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    y = b.input("y", "f32[3]")
    kept = b.op("compress", y, b.op("greater", y, b.constant(np.float32(0))), axis=0)
    spread = b.op("mul", b.op("unsqueeze", x, axes=[2]), kept)
    graph = b.finish({"z": b.op("reshape", spread, shape=[spread.shape[0] * 4 * spread.shape[2]])})
    program = compiled(graph, dynamic={"B": (1, 4)}, buckets={"B": [4]})
    for batch in (4, 4, 3):
        inputs = {"x": np.ones((batch, 4), np.float32), "y": np.array([1, 0, 2], np.float32)}
        assert program.run(inputs)["z"].shape == (batch * 8,)
    assert "which only running tells" in program.stats().safety[0]


def experts(layers: int, count: int = 3, width: int = 8) -> Graph:
    """Layers in which each token goes to one expert, which gathers its rows and adds what it makes of them."""
    b, random = Builder(), np.random.default_rng(1)
    x = b.input("x", "f32[B, 8]")
    for _ in range(layers):
        scores = b.op("matmul", x, b.constant(random.standard_normal((width, count)).astype(np.float32)))
        chosen = b.op("argmax", scores, axis=1, keep_dims=False)
        for expert in range(count):
            is_own = b.op("equal", chosen, b.constant(np.array(expert, np.int64)))
            rows = b.op("squeeze", b.op("non_zero", is_own), axes=[0])
            weight = b.constant(random.standard_normal((width, width)).astype(np.float32) / 8)
            made = b.op("relu", b.op("matmul", b.op("gather", x, rows, axis=0), weight))
            x = b.op("scatter_nd", x, b.op("unsqueeze", rows, axes=[1]), made, reduction="add")
    return b.finish({"y": x})


def test_layers_of_experts_are_one_recording() -> None:
    graph, random = experts(layers=2), np.random.default_rng(0)
    oracle = EagerExecutor().compile(graph)
    program = compiled(graph, dynamic={"B": (1, 8)}, buckets={"B": [8]})
    for batch in (8, 8, 5, 1):
        x = random.standard_normal((batch, 8)).astype(np.float32)
        np.testing.assert_allclose(program.run({"x": x})["y"], oracle.run({"x": x})["y"], rtol=1e-4, atol=1e-5)
    (bucket,) = program.stats().buckets
    assert (bucket.segments, bucket.eager_segments, bucket.cuts) == (1, 0, ())
    assert len(bucket.bounded) == 6
    assert not program.stats().counters.size_reads  # no output depends on what was found
