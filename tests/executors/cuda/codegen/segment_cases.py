"""Scatters by rows whose slots are listed: reductions, dtypes, widths, long segments, work before and behind."""

from collections.abc import Iterator

import numpy as np
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Array, Constant
from capgraph.ir.graph import Value
from capgraph.ir.types import DType
from capgraph.passes.cleanup.redundancy import EliminateDeadCode
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse
from capgraph.passes.fuse.list_segments import ListSegments

from tests.executors.cuda.codegen.cases import Case, Drawn, Make, made

REDUCTIONS = ("add", "mul", "max", "min")
LISTED = Pipeline(
    (
        (ListSegments(fewest=1, crowd=1 << 20, width=1), EliminateDeadCode()),
        (Fuse(rows_behind_anchors=False, lookups=True, segments=True),),
    )
)


def segment_cases() -> Iterator[Case]:
    """Each reduction and dtype, odd and wide rows; segments of a warp's size, of a block's, and longer ones."""
    d = Drawn()
    for reduction in REDUCTIONS:
        for dtype in ("f32", "f16", "f64", "bf16"):
            yield _rows(d, reduction, dtype, 23, 150, 8)
        yield _rows(d, reduction, "f32", 40, 300, 1)
        yield _rows(d, reduction, "f16", 9, 60, 600)
        yield _rows(d, reduction, "f32", 2, 700, 3)
        yield _vectors(d, reduction)
    yield _rows(d, "add", "f16", 3, 6000, 4)
    yield _rows(d, "add", "f64", 3, 6000, 4)
    yield _rows(d, "add", "f32", 5000, 300, 4)
    yield _rows(d, "add", "f32", 2, 400, 200)
    yield _in_place(d)
    yield _heads(d)
    yield _network(d)
    yield _mean(d)
    yield _specials()


def listed(name: str, make: Make, *inputs: Array) -> Case:
    """A case whose graph went through the passes."""
    case = made(name, make, *inputs)
    LISTED.run(case.graph)
    assert "segment_slots" in {node.op.name for node in case.graph.nodes}
    return case


def _small(d: Drawn, dtype: str, reduction: str, *shape: int) -> Array:
    """Products of many stay within the dtype."""
    drawn = d.array(dtype, *shape)
    return np.sign(drawn).astype(drawn.dtype) if reduction == "mul" else drawn


def scattered(b: Builder, x: Value, index: Value, updates: Value, reduction: str) -> Value:
    """`index_add` as it is imported."""
    shape = tuple(updates.shape)
    places = b.op("expand", b.op("reshape", index, shape=(shape[0], *(1,) * (len(shape) - 1))), shape=shape)
    return b.op("scatter_elements", x, places, updates, axis=0, reduction=reduction)


def _rows(d: Drawn, reduction: str, dtype: str, slices: int, slots: int, rest: int) -> Case:
    """Some segments are empty."""
    x, updates = _small(d, dtype, reduction, slices, rest), _small(d, dtype, reduction, slots, rest)
    places = d.rng.integers(-slices, max(slices // 2, 1), slots)
    name = f"{reduction} {dtype} {slots} to {slices} x {rest}"
    return listed(name, lambda b, *v: scattered(b, *v, reduction), x, places, updates)


def _vectors(d: Drawn, reduction: str) -> Case:
    """By tuples of one index, and elements that are no rows."""
    x, updates = _small(d, "f32", reduction, 30), _small(d, "f32", reduction, 200)
    places = d.rng.integers(-30, 30, (200, 1))
    return listed(f"vectors {reduction}", lambda b, *v: b.op("scatter_nd", *v, reduction=reduction), x, places, updates)


def _in_place(d: Drawn) -> Case:
    """Written over what it starts from."""

    def graph(b: Builder, x: Value, index: Value, updates: Value) -> Value:
        return scattered(b, b.op("relu", x), index, updates, "add")

    return listed("in place", graph, d.array("f16", 12, 24), d.indices(12, 90), d.array("f16", 90, 24))


def _heads(d: Drawn) -> Case:
    """Rows of two axes, of which a number for each head is multiplied with its part."""

    def graph(b: Builder, x: Value, index: Value, rows: Value, source: Value, weight: Value) -> Value:
        messages = b.op("mul", b.op("gather", rows, source), weight)
        return b.op("relu", scattered(b, x, index, messages, "add"))

    inputs = d.array("f16", 12, 3, 16), d.indices(12, 90), d.array("f16", 20, 3, 16), d.indices(20, 90)
    return listed("heads", graph, *inputs, d.array("f16", 90, 3, 1))


def _network(d: Drawn) -> Case:
    """Layers that share their list, which add to themselves what neighbors are."""

    def graph(b: Builder, x: Value, sources: Value, targets: Value) -> Value:
        zero = b.op("full", shape=(25, 16), value=Constant(np.zeros((), np.float32), DType.F32))
        for _ in range(2):
            x = b.op("add", x, scattered(b, zero, targets, b.op("gather", x, sources), "add"))
        return x

    return listed("network", graph, d.array("f32", 25, 16), d.indices(25, 130), d.indices(25, 130))


def _mean(d: Drawn) -> Case:
    """Sums by counts, as `scatter_reduce` has it."""

    def graph(b: Builder, rows: Value, targets: Value) -> Value:
        zero = b.op("full", shape=(25, 8), value=Constant(np.zeros((), np.int32), DType.I32))
        one = b.constant(np.array(1, np.int32))
        counts = b.op("max", scattered(b, zero, targets, b.op("expand", one, shape=(130, 8)), "add"), one)
        start = b.op("full", shape=(25, 8), value=Constant(np.zeros((), np.float16), DType.F16))
        return b.op("div", scattered(b, start, targets, rows, "add"), b.op("cast", counts, to="f16"))

    return listed("mean", graph, d.array("f16", 130, 8), d.rng.integers(0, 20, 130))


def _specials() -> Case:
    """What the largest number, infinities and NaN do to a sum, among 300 that are ordinary."""
    rng = np.random.default_rng(5)
    updates = rng.standard_normal((300, 1)).astype(np.float32)
    places = np.arange(300) % 8
    for place, value in ((0, np.inf), (1, -np.inf), (2, np.nan), (3, 1e38), (4, 1e-42), (8, -np.inf)):
        updates[place] = value
    x = np.array([0, 0, 0, 0, 1e-40, 0, np.nan, -0.0], np.float32)[:, None]
    return listed("specials", lambda b, *v: scattered(b, *v, "add"), x, places, updates)
