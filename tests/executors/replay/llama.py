"""A small Llama as serving engines run it: the tokens of all requests of a call in one axis, N, without padding.

A call has N tokens of R requests, at most T of one of them: prompts, or parts of them, beside requests that go on by a
single token (a mixed batch), or only the latter (uniform decode, T = 1, N = R). Norms, matmuls, rotary embedding and
the network work on tokens. Attention takes the tokens as they lie and how many there are of each request, whose cache
has got the new keys and values before, and how much of each cache counts.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from capgraph.ir.builder import Builder
from capgraph.ir.dims import symbol
from capgraph.ir.graph import Graph, Value
from capgraph.ir.types import DType

F32 = np.float32
LAYERS, HIDDEN, HEADS, KV_HEADS, DEPTH, INNER, VOCABULARY, CONTEXT = 4, 32, 4, 2, 8, 48, 64, 24


def llama(seed: int = 0) -> Graph:
    """Logits of every token; the caches are states.

    Inputs: `tokens` and `positions` u32[N] (the position of a token in its request), `counts` and `lengths` i64[R] (the
    tokens of a request in this call, and its cached steps with them), `longest` bool[T] (no content: its size says how
    many tokens a request has at most), `sources` u32[R, CONTEXT] (which token a new entry of the cache is of), and the
    caches `keys{layer}` and `values{layer}` f32[R, CONTEXT, KV_HEADS, DEPTH].
    """
    return _Writer(seed).graph()


class _Writer:
    def __init__(self, seed: int) -> None:
        self.b = Builder("llama")
        self.random = np.random.default_rng(seed)

    def graph(self) -> Graph:
        b = self.b
        tokens, positions = self.index("tokens", "N"), self.index("positions", "N")
        counts, lengths = b.input("counts", "i64[R]"), b.input("lengths", "i64[R]")
        sources = self.index("sources", f"R, {CONTEXT}")
        b.input("longest", "bool[T]")
        is_new = self.new_entries(counts, lengths)
        angles = np.outer(np.arange(CONTEXT), 100.0 ** (-np.arange(DEPTH // 2) / (DEPTH // 2)))
        cos, sin = b.constant(np.cos(angles).astype(F32)), b.constant(np.sin(angles).astype(F32))
        at = b.op("unsqueeze", positions, axes=[0])
        x = b.op("gather", self.weight(VOCABULARY, HIDDEN), tokens, axis=0)
        caches: dict[str, Value] = {}
        for layer in range(LAYERS):
            h = self.normed(x)
            query, key = (
                self.rotated(b.op("matmul", h, self.weight(HIDDEN, heads * DEPTH)), cos, sin, at, heads)
                for heads in (HEADS, KV_HEADS)
            )
            value = self.by_head(b.op("matmul", h, self.weight(HIDDEN, KV_HEADS * DEPTH)), KV_HEADS)
            for name, new in (("keys", key), ("values", value)):
                old = b.input(f"{name}{layer}", f"f32[R, {CONTEXT}, {KV_HEADS}, {DEPTH}]")
                caches[f"{name}{layer}"] = b.op("where", is_new, b.op("gather", new, sources, axis=0), old)
            both = (caches[f"keys{layer}"], caches[f"values{layer}"])
            mixed = b.op("varlen_attention", query, *both, counts, lengths, longest=symbol("T"), causal=True)
            flat = b.op("reshape", mixed, shape=[symbol("N"), HEADS * DEPTH])
            x = b.op("add", x, b.op("matmul", flat, self.weight(HEADS * DEPTH, HIDDEN)))
            x = b.op("add", x, self.network(self.normed(x)))
        logits = b.op("matmul", self.normed(x), self.weight(HIDDEN, VOCABULARY))
        graph = b.finish({"logits": logits, **caches})
        at_input = {value.name: index for index, value in enumerate(graph.inputs)}
        graph.set_states([(at_input[name], index) for index, name in enumerate(caches, start=1)])
        return graph

    def index(self, name: str, sizes: str) -> Value:
        """An input of indices, which count from the start only, as the i64 that ops take."""
        return self.b.op("cast", self.b.input(name, f"u32[{sizes}]"), to=DType.I64)

    def weight(self, *shape: int) -> Value:
        return self.b.constant((self.random.standard_normal(shape) / np.sqrt(shape[0])).astype(F32))

    def normed(self, x: Value) -> Value:
        return self.b.op("rms_norm", x, self.weight(HIDDEN), axis=-1)

    def rotated(self, x: Value, cos: Value, sin: Value, at: Value, heads: int) -> Value:
        """[N, heads, DEPTH]: `x` [N, heads * DEPTH], each token by the angle of its position."""
        steps = self.b.op("unsqueeze", x, axes=[0])
        return self.by_head(self.b.op("rotary_embedding", steps, cos, sin, at, heads=heads), heads)

    def by_head(self, x: Value, heads: int) -> Value:
        return self.b.op("reshape", x, shape=[symbol("N"), heads, DEPTH])

    def network(self, x: Value) -> Value:
        gate, up = (self.b.op("matmul", x, self.weight(HIDDEN, INNER)) for _ in range(2))
        return self.b.op("matmul", self.b.op("mul", self.b.op("silu", gate), up), self.weight(INNER, HIDDEN))

    def new_entries(self, counts: Value, lengths: Value) -> Value:
        """bool[R, CONTEXT, 1, 1]: the entries of the caches that this call writes."""
        step = self.b.constant(np.arange(CONTEXT).reshape(1, CONTEXT, 1, 1))
        past = self.b.op("sub", lengths, counts)
        first, end = (self.b.op("unsqueeze", value, axes=[1, 2, 3]) for value in (past, lengths))
        return self.b.op("logical_and", self.b.op("less_equal", first, step), self.b.op("less", step, end))


def batch(random: np.random.Generator, past: Sequence[int], counts: Sequence[int]) -> dict[str, Any]:
    """The inputs of a call in which requests with `past` cached steps go on by `counts` tokens, all drawn."""
    starts = [0, *accumulate(counts)]
    total, requests = starts[-1], len(counts)
    positions, sources = np.zeros(total, np.uint32), np.zeros((requests, CONTEXT), np.uint32)
    for request, (before, count) in enumerate(zip(past, counts, strict=True)):
        tokens = np.arange(starts[request], starts[request] + count)
        positions[tokens] = np.arange(before, before + count)
        sources[request, before : before + count] = tokens
    return {
        "tokens": random.integers(0, VOCABULARY, total).astype(np.uint32),
        "positions": positions,
        "counts": np.array(counts, np.int64),
        "lengths": np.array(past, np.int64) + np.array(counts, np.int64),
        "sources": sources,
        "longest": np.zeros(max(counts), bool),
        **{
            f"{name}{layer}": random.standard_normal((requests, CONTEXT, KV_HEADS, DEPTH)).astype(F32)
            for layer in range(LAYERS)
            for name in ("keys", "values")
        },
    }
