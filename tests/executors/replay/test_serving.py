"""BERT and GPT-2 in small, and ResNet-50, at random sizes, call after call: equal to eager, and the waste recounted."""

from itertools import groupby, product
from typing import Any

import capgraph
import numpy as np
import pytest
from capgraph.executors.replay.ladder import default_ladder
from capgraph.ir.builder import Builder
from capgraph.ir.dims import symbol
from capgraph.ir.graph import Graph, Value
from capgraph.ir.op import Trait
from onnx import ModelProto, numpy_helper

from examples.light_models import input_name, light_model
from examples.transformer import VOCABULARY, Size, encoder

F32 = np.float32
HIDDEN, HEADS, LENGTH, LARGEST = 32, 2, 12, 64
CALLS = 200


def gpt2(layers: int = 2) -> Graph:
    """Token ids i64[batch, LENGTH] to logits, as GPT-2: pre-norm blocks with causal attention and a GELU network."""
    b, random = Builder(), np.random.default_rng(3)

    def weight(*shape: int) -> Value:
        return b.constant((random.standard_normal(shape) / np.sqrt(shape[0])).astype(F32))

    def normed(x: Value) -> Value:
        return b.op("layer_norm", x, weight(HIDDEN), weight(HIDDEN), axis=-1)

    def dense(x: Value, inner: int, outer: int) -> Value:
        return b.op("add", b.op("matmul", x, weight(inner, outer)), weight(outer))

    def heads(x: Value) -> Value:
        split = b.op("reshape", x, shape=[symbol("batch"), LENGTH, HEADS, HIDDEN // HEADS])
        return b.op("transpose", split, perm=[0, 2, 1, 3])

    ids = b.input("input_ids", f"i64[batch, {LENGTH}]")
    x = b.op("add", b.op("gather", weight(VOCABULARY, HIDDEN), ids, axis=0), weight(LENGTH, HIDDEN))
    causal = b.constant(np.triu(np.full((LENGTH, LENGTH), -np.inf, F32), 1))
    for _ in range(layers):
        query, key, value = (heads(dense(h, HIDDEN, HIDDEN)) for h in [normed(x)] * 3)
        scores = b.op("matmul", query, b.op("transpose", key, perm=[0, 1, 3, 2]))
        chances = b.op("softmax", b.op("add", scores, causal))
        merged = b.op("transpose", b.op("matmul", chances, value), perm=[0, 2, 1, 3])
        merged = b.op("reshape", merged, shape=[symbol("batch"), LENGTH, HIDDEN])
        x = b.op("add", x, dense(merged, HIDDEN, HIDDEN))
        inner = b.op("gelu", dense(normed(x), HIDDEN, 4 * HIDDEN), approximate="tanh")
        x = b.op("add", x, dense(inner, 4 * HIDDEN, HIDDEN))
    return b.finish({"logits": dense(normed(x), HIDDEN, VOCABULARY)})


def tokens(random: np.random.Generator, batch: int, length: int) -> np.ndarray:
    return random.integers(1, VOCABULARY, (batch, length))


class Recount:
    """What the counters must say, found from the calls alone."""

    def __init__(self, ladders: list[tuple[int, ...]]) -> None:
        self.buckets = list(product(*ladders))
        self.seen: set[tuple[int, ...]] = set()
        self.calls = self.replayed = self.rows = self.padded = 0

    def call(self, *sizes: int) -> None:
        fitting = [b for b in self.buckets if all(size >= real for size, real in zip(b, sizes, strict=True))]
        bucket = min(fitting, key=lambda b: (np.prod(b), b))
        self.calls += 1
        if bucket in self.seen:
            self.replayed += 1
            self.rows += int(np.prod(sizes))
            self.padded += int(np.prod(bucket)) - int(np.prod(sizes))
        self.seen.add(bucket)

    def check(self, program: capgraph.Program, oracle: capgraph.Program, inputs: dict[str, Any]) -> None:
        """Runs a call and compares it with eager."""
        found = program.run(inputs)
        expected = oracle.run(inputs)
        assert found.keys() == expected.keys()
        for name, given in found.items():
            assert given.shape == expected[name].shape
            np.testing.assert_allclose(given, expected[name], rtol=1e-3, atol=1e-4 * np.abs(expected[name]).max())


def segments_of(graph: Graph) -> int:
    """Runs of nodes that can be captured, between those that cannot, in the order of the graph."""
    outside = Trait.DATA_DEPENDENT | Trait.READS_HOST | Trait.CONTROL_FLOW | Trait.FOREIGN
    return sum(not is_cut for is_cut, _ in groupby(node.op.has(outside) for node in graph.nodes))


def agree(program: capgraph.Program, recount: Recount) -> None:
    stats = program.stats()
    counters, segments = stats.counters, segments_of(program.graph)
    assert (counters.calls, counters.replayed_calls) == (recount.calls, recount.replayed)
    assert (counters.rows, counters.padded_rows) == (recount.rows, recount.padded)
    assert not stats.refused
    assert {bucket.segments for bucket in stats.buckets} == {segments} == {1}
    assert counters.replays == recount.replayed * segments
    text = program.explain()
    assert f"{100 * recount.padded / (recount.rows + recount.padded):.1f}% waste" in text
    assert f"{segments} segments with" in text


def test_gpt2_at_random_batch_sizes() -> None:
    graph, random = gpt2(), np.random.default_rng(0)
    program = capgraph.optimize(graph, executor="graph", device="host", dynamic={"batch": (1, LARGEST)})
    oracle = capgraph.optimize(graph, executor="eager")
    recount = Recount([default_ladder(1, LARGEST)])
    for _ in range(CALLS):
        batch = int(random.integers(1, LARGEST + 1))
        recount.check(program, oracle, {"input_ids": tokens(random, batch, LENGTH)})
        recount.call(batch)
    agree(program, recount)


@pytest.mark.parametrize("lengths", [(LENGTH, LENGTH), (4, LENGTH)])
def test_bert_at_random_batch_sizes_and_lengths(lengths: tuple[int, int]) -> None:
    model, random = encoder(Size(2, HIDDEN, HEADS, 64, 16)), np.random.default_rng(0)
    dynamic = {"batch": (1, LARGEST), "length": lengths}
    buckets = {"length": sorted({*lengths, 8} - ({8} if lengths[0] == LENGTH else set()))}
    program = capgraph.optimize(model, executor="graph", device="host", dynamic=dynamic, buckets=buckets)
    oracle = capgraph.optimize(model, executor="eager")
    recount = Recount([default_ladder(1, LARGEST), tuple(buckets["length"])])
    for _ in range(CALLS):
        batch, length = int(random.integers(1, LARGEST + 1)), int(random.integers(lengths[0], lengths[1] + 1))
        ids = tokens(random, batch, length)
        recount.check(program, oracle, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        recount.call(batch, length)
    agree(program, recount)


def resnet50() -> ModelProto:
    """The light ResNet-50 with drawn weights, for any number of pictures."""
    model = light_model("resnet50")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]
    (reshape,) = [node for node in model.graph.node if node.op_type == "Reshape"]
    (shape,) = [tensor for tensor in model.graph.initializer if tensor.name == reshape.input[1]]
    shape.CopyFrom(numpy_helper.from_array(np.array([-1, 2048]), shape.name))
    return model


def test_resnet50_at_random_batch_sizes() -> None:
    model, random = resnet50(), np.random.default_rng(0)
    program = capgraph.optimize(model, executor="graph", device="host", dynamic={"batch": (1, 4)})
    oracle = capgraph.optimize(model, executor="eager")
    recount = Recount([default_ladder(1, 4)])
    for batch in (3, 1, 2, 3):
        pictures = random.standard_normal((batch, 3, 224, 224), dtype=np.float32)
        recount.check(program, oracle, {input_name(model): pictures})
        recount.call(batch)
    agree(program, recount)
