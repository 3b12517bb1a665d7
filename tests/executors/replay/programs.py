"""Programs that record on the host, for tests."""

from typing import Any

import numpy as np
from capgraph.capture_options import replay_options
from capgraph.executors.base import Request
from capgraph.executors.host.device import graphs as host_graphs
from capgraph.executors.replay.executable import ReplayExecutable
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph

F32 = np.float32


def block() -> Graph:
    """f32[B, 4] to f32[B, 4], row by row: padding B is safe."""
    b = Builder()
    x, weight = b.input("x", "f32[B, 4]"), b.constant(np.random.default_rng(7).standard_normal((4, 4)).astype(F32))
    h = b.op("relu", b.op("matmul", x, weight))
    return b.finish({"y": b.op("softmax", b.op("add", h, x))})


def column_sums() -> Graph:
    """Sums over B: padding it is safe only with a mask."""
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    return b.finish({"y": b.op("reduce_sum", b.op("exp", x), axes=[0], keep_dims=False)})


def picks() -> Graph:
    """Rows of a table at indices: an index out of range fails while running."""
    b = Builder()
    indices, table = b.input("i", "i64[B]"), b.constant(np.arange(12, dtype=F32).reshape(3, 4))
    return b.finish({"y": b.op("exp", b.op("gather", table, indices, axis=0))})


def compiled(graph: Graph, **options: Any) -> ReplayExecutable:
    """`graph` recorded on the host; `options` are those of `optimize` and of its `capture`."""
    named = {name: options.pop(name, None) for name in ("dynamic", "buckets")}
    mode, strict = options.pop("mode", "full_and_piecewise"), options.pop("strict", False)
    return host_graphs(Request(replay=replay_options(mode=mode, strict=strict, capture=options, **named))).compile(
        graph
    )


def rows(count: int, seed: int = 0, width: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(F32)
