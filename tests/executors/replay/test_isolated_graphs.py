"""Replay beside eager on graphs of one or a few ops, where what a call does besides its kernels shows most."""

from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np
import pytest
from capgraph.executors.replay.strided import TRIALS
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Value

from tests.counted_work import calls_in, most_bytes_in
from tests.executors.replay.programs import F32, compiled

MORE_CALLS = 60
"""How many more functions replay may call than eager: it hands out copies of what it knows the place of."""

MORE_BYTES = 1 << 16
"""What replay may hold besides its results and what eager holds."""

Outputs = Value | Mapping[str, Value]
Made = Callable[..., Outputs]


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


def indices(count: int, below: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, below, count)


def turned(b: Builder, x: Value) -> Value:
    return b.op("transpose", x, perm=[1, 0])


def half(b: Builder, x: Value) -> Value:
    return b.op("slice", x, starts=[0], ends=[256], axes=[0], steps=[1])


def several(b: Builder, x: Value) -> Outputs:
    return {"a": b.op("relu", x), "b": b.op("exp", x), "c": turned(b, b.op("neg", x))}


def shared(b: Builder, x: Value) -> Outputs:
    h = b.op("relu", x)
    return {"whole": h, "half": half(b, h)}


def conv(b: Builder, x: Value, w: Value) -> Outputs:
    return b.op("conv", x, w, None, strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1])


def chain(b: Builder, x: Value) -> Outputs:
    return reduce(lambda h, step: b.op("mul" if step % 2 else "add", h, x), range(12), x)


CASES: dict[str, tuple[Made, tuple[np.ndarray, ...]]] = {
    "tiny": (lambda b, x: b.op("relu", x), (drawn(4),)),
    "tiny sum": (lambda b, x, y: b.op("add", x, y), (drawn(4), drawn(4))),
    "small": (lambda b, x: b.op("exp", x), (drawn(64, 64),)),
    "relu": (lambda b, x: b.op("relu", x), (drawn(1024, 1024),)),
    "gather": (lambda b, x, i: b.op("gather", x, i, axis=0), (drawn(1000, 512), indices(2000, 1000))),
    "concat": (lambda b, x, y: b.op("concat", x, y, axis=1), (drawn(512, 512), drawn(512, 512))),
    "concat of rows": (lambda b, x, y: b.op("concat", x, y, axis=0), (drawn(512, 512), drawn(512, 512))),
    "turned sum": (lambda b, x, y: b.op("add", turned(b, x), turned(b, y)), (drawn(512, 512), drawn(512, 512))),
    "turned relu": (lambda b, x: b.op("relu", turned(b, x)), (drawn(512, 512),)),
    "relu of turned": (lambda b, x: b.op("relu", x), (drawn(512, 512).T,)),
    "image": (lambda b, x: b.op("relu", b.op("transpose", x, perm=[0, 3, 1, 2])), (drawn(4, 64, 64, 16),)),
    "softmax": (lambda b, x: b.op("softmax", x, axis=-1), (drawn(512, 512),)),
    "turned softmax": (lambda b, x: b.op("softmax", turned(b, x), axis=-1), (drawn(512, 512),)),
    "norm": (
        lambda b, *x: b.op("layer_norm", *x, axis=-1, epsilon=1e-5),
        (drawn(512, 512), drawn(512), drawn(512)),
    ),
    "matmul": (lambda b, x, y: b.op("matmul", x, y), (drawn(256, 256), drawn(256, 256))),
    "conv": (conv, (drawn(1, 16, 32, 32), drawn(16, 16, 3, 3))),
    "sum": (lambda b, x: b.op("reduce_sum", x, axes=[0], keep_dims=False), (drawn(1024, 1024),)),
    "largest": (lambda b, x: b.op("reduce_max", x, axes=[1], keep_dims=False), (drawn(1024, 1024),)),
    "slice": (half, (drawn(512, 512),)),
    "slice of relu": (lambda b, x: half(b, b.op("relu", x)), (drawn(512, 512),)),
    "cast": (lambda b, x: b.op("cast", x, to="f64"), (drawn(512, 512),)),
    "where": (lambda b, x, y: b.op("where", b.op("less", x, y), x, y), (drawn(256, 256), drawn(256, 256))),
    "pad": (lambda b, x: b.op("pad", x, None, pads=[1, 1, 1, 1], mode="constant"), (drawn(512, 512),)),
    "several": (several, (drawn(512, 512),)),
    "shared": (shared, (drawn(512, 512),)),
    "chain": (chain, (drawn(256, 256),)),
}


@pytest.mark.parametrize("name", CASES)
def test_replay_copies_nothing_and_calls_and_holds_little_more_than_eager(name: str) -> None:
    make, arrays = CASES[name]
    b = Builder()
    values = [
        b.input(f"x{i}", f"{'i64' if a.dtype.kind == 'i' else 'f32'}{list(a.shape)}") for i, a in enumerate(arrays)
    ]
    made = make(b, *values)
    graph = b.finish(made if isinstance(made, Mapping) else {"y": made})
    inputs = {f"x{index}": array for index, array in enumerate(arrays)}
    program, eager = compiled(graph, inputs={"": "repoint"}), EagerExecutor().compile(graph)
    for _ in range(2 + 2 * TRIALS):  # the first call captures; strided inputs are tried for some calls
        for found, expected in zip(program.run(inputs).values(), eager.run(inputs).values(), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    if all(array.flags.c_contiguous for array in arrays):
        assert program.stats().counters.eager_calls == 1
        assert program.stats().counters.input_copies == 0
    assert calls_in(lambda: program.run(inputs)) <= calls_in(lambda: eager.run(inputs)) + MORE_CALLS
    results = sum(array.nbytes for array in eager.run(inputs).values())
    held = most_bytes_in(lambda: eager.run(inputs)) + results + MORE_BYTES
    assert most_bytes_in(lambda: program.run(inputs)) <= held
