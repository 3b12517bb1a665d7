"""Plans that `simulate` has to predict and that it was never fitted to, nor its form chosen by: written down first.

They were measured for the first time after they had been committed here. Whoever changes the form of the model has to
write down others.
"""

from collections.abc import Callable, Mapping

import numpy as np
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph, Value
from capgraph.ir.plan import Plan
from capgraph.ir.target import CUDA
from capgraph.passes.catalog import level_pipeline
from capgraph.passes.planning.partition import CapturePolicy
from capgraph.passes.planning.planner import PlanPolicy, make_plan


def gpt2(layers: int, width: int, heads: int, tokens: int, dtype: str = "f32", vocabulary: int = 50257) -> Graph:
    """The hidden states of GPT-2 for one prompt."""
    w = _Writer(dtype)
    ids = w.b.input("ids", f"i64[1, {tokens}]")
    x = w.b.op("gather", w.weight(vocabulary, width), ids, axis=0)
    x = w.b.op("add", x, w.weight(tokens, width))
    for _ in range(layers):
        h = w.normed(x, width)
        q, k, v = (w.linear(h, width, width) for _ in range(3))
        mixed = w.b.op("attention", q, k, v, None, None, causal=True, heads=heads, kv_heads=heads)
        x = w.b.op("add", x, w.linear(mixed, width, width))
        h = w.b.op("gelu", w.linear(w.normed(x, width), width, 4 * width), approximate="tanh")
        x = w.b.op("add", x, w.linear(h, 4 * width, width))
    return w.b.finish([w.normed(x, width)])


def bert(layers: int, width: int, heads: int, tokens: int, dtype: str, vocabulary: int = 30522) -> Graph:
    """The hidden states of BERT for one text."""
    w = _Writer(dtype)
    ids = w.b.input("ids", f"i64[1, {tokens}]")
    x = w.b.op("add", w.b.op("gather", w.weight(vocabulary, width), ids, axis=0), w.weight(tokens, width))
    x = w.normed(x, width)
    for _ in range(layers):
        q, k, v = (w.linear(x, width, width) for _ in range(3))
        mixed = w.b.op("attention", q, k, v, None, None, heads=heads, kv_heads=heads)
        x = w.normed(w.b.op("add", x, w.linear(mixed, width, width)), width)
        h = w.linear(w.b.op("gelu", w.linear(x, width, 4 * width)), 4 * width, width)
        x = w.normed(w.b.op("add", x, h), width)
    return w.b.finish([x])


def gates(blocks: int, rows: int, width: int, dtype: str = "f32") -> Graph:
    """No matmuls: sigmoid gates of scaled rows, with a softmax and a layer norm in each block."""
    w = _Writer(dtype)
    x = w.b.input("x", f"{dtype}[{rows}, {width}]")
    for _ in range(blocks):
        h = w.b.op("add", w.b.op("mul", x, w.weight(width)), w.weight(width))
        h = w.b.op("mul", w.b.op("softmax", h, axis=-1), w.b.op("sigmoid", x))
        x = w.normed(w.b.op("add", x, h), width)
    return w.b.finish([x])


class _Writer:
    def __init__(self, dtype: str) -> None:
        self.b = Builder()
        self._random = np.random.default_rng(20261120)
        self._numpy = np.dtype({"f32": np.float32, "f16": np.float16}[dtype])

    def weight(self, *shape: int) -> Value:
        drawn = self._random.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[0]))
        return self.b.constant(drawn.astype(self._numpy))

    def linear(self, x: Value, inner: int, outer: int) -> Value:
        return self.b.op("add", self.b.op("matmul", x, self.weight(inner, outer)), self.weight(outer))

    def normed(self, x: Value, width: int) -> Value:
        return self.b.op("layer_norm", x, self.weight(width), self.weight(width), axis=-1)


def _plan(graph: Graph) -> Plan:
    level_pipeline(2).run(graph)
    return make_plan(graph, {}, CUDA, PlanPolicy(CapturePolicy(min_kernels=0)))


PLANS: Mapping[str, Callable[[], Plan]] = {
    "gpt2-12x768 f32 64 tokens": lambda: _plan(gpt2(12, 768, 12, 64)),
    "bert-6x512 f16 96 tokens": lambda: _plan(bert(6, 512, 8, 96, "f16")),
    "gates-24 f32 [512, 1024]": lambda: _plan(gates(24, 512, 1024)),
}
"""By name; each makes its plan."""
