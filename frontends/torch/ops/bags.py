"""Rows of a table summed, averaged, or their greatest elements taken, bag by bag: `nn.EmbeddingBag`."""

import math

from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering
from .indexing import as_index

_SUM, _MEAN, _GREATEST = range(3)


def _embedding_bag(
    c: Call,
    weight: Value,
    indices: Value,
    offsets: Value,
    _scale: bool = False,
    mode: int = _SUM,
    _sparse: bool = False,
    weights: Value | None = None,
    ends: bool = False,
    padding: int = -1,
) -> list[Value | None]:
    """Each bag begins at its offset among the indices. Indices that are `padding` belong to none."""
    if any(c.wants(index) for index in (1, 2, 3)):
        raise NoLowering("which bag an index is in, and how many a bag has")
    places = as_index(c, indices)
    rows = c.op("gather", weight, places, axis=0)
    if weights is not None:
        rows = c.op("mul", rows, c.unsqueeze(weights, 1))
    counts = None if padding < 0 else c.op("not_equal", places, c.full_like(places, padding))
    size = None if ends else _size_of_bags(indices, offsets)
    if size is not None:
        return [_of_equal_bags(c, rows, counts, size, mode), None, None, None]
    return [_of_any_bags(c, rows, counts, offsets, mode), None, None, None]


def _size_of_bags(indices: Value, offsets: Value) -> int | None:
    """How many indices each bag has, where all have as many: `F.embedding_bag` of a matrix counts offsets up."""
    producer = offsets.producer
    if producer is None or producer.op.name != "arange" or producer.attrs["start"] != 0:
        return None
    step = producer.attrs["step"]
    is_whole = isinstance(step, int) and step > 0 and offsets.shape[0] * step == indices.shape[0]
    return step if is_whole else None


def _of_equal_bags(c: Call, rows: Value, counts: Value | None, size: int, mode: int) -> Value:
    bags = c.shape[0]
    spread = c.reshape(rows, (bags, size, rows.shape[1]))
    if counts is None:
        reduction = {_SUM: "reduce_sum", _MEAN: "reduce_mean", _GREATEST: "reduce_max"}[mode]
        return c.op(reduction, spread, axes=(1,), keep_dims=False)
    is_in = c.reshape(counts, (bags, size, 1))
    count = c.op("reduce_sum", c.cast(is_in, DType.I64), axes=(1,), keep_dims=False)
    kept = c.op("where", is_in, spread, c.full_like(spread, _neutral(mode)))
    if mode == _GREATEST:
        return _or_zero(c, c.op("reduce_max", kept, axes=(1,), keep_dims=False), count)
    return _averaged(c, c.op("reduce_sum", kept, axes=(1,), keep_dims=False), count, mode)


def _of_any_bags(c: Call, rows: Value, counts: Value | None, offsets: Value, mode: int) -> Value:
    """Rows are added to the bags that they are in; sums of small floats are made in f32."""
    dtype, bag = rows.tensor.dtype, _bag_of_each(c, rows, offsets)
    wide = c.cast(rows, DType.F32) if dtype.bits < 32 else rows
    if counts is not None:
        wide = c.op("where", c.unsqueeze(counts, 1), wide, c.full_like(wide, _neutral(mode)))
    index = c.expand(c.unsqueeze(bag, 1), wide.shape)
    start = c.full(c.shape, _neutral(mode), wide.tensor.dtype)
    reduction = "max" if mode == _GREATEST else "add"
    found = c.op("scatter_elements", start, index, wide, axis=0, reduction=reduction)
    if mode != _SUM:
        one = c.expand(c.constant(1, DType.I64), bag.shape) if counts is None else c.cast(counts, DType.I64)
        none = c.full(c.shape[:1], 0, DType.I64)
        count = c.unsqueeze(c.op("scatter_elements", none, bag, one, axis=0, reduction="add"), 1)
        found = _or_zero(c, found, count) if mode == _GREATEST else _averaged(c, found, count, mode)
    return c.cast(found, dtype)


def _bag_of_each(c: Call, rows: Value, offsets: Value) -> Value:
    """How many bags have begun at each index, less one; those that begin behind the last are empty."""
    count = rows.shape[0]
    places = as_index(c, offsets)
    begins = c.full((count + 1,), 0, DType.I64)
    ones = c.expand(c.constant(1, DType.I64), places.shape)
    marks = c.op("scatter_elements", begins, places, ones, axis=0, reduction="add")
    begun = c.slice(c.op("cumsum", marks, axis=0), 0, 0, count)
    return c.op("sub", begun, c.constant(1, DType.I64))


def _neutral(mode: int) -> float:
    return -math.inf if mode == _GREATEST else 0.0


def _or_zero(c: Call, found: Value, count: Value) -> Value:
    """Zeros for a bag with nothing in it."""
    return c.op("where", c.op("greater", count, c.full_like(count, 0)), found, c.full_like(found, 0.0))


def _averaged(c: Call, total: Value, count: Value, mode: int) -> Value:
    if mode == _SUM:
        return total
    least = c.op("max", count, c.full_like(count, 1))
    return c.op("div", total, c.cast(least, total.tensor.dtype))


TABLE: dict[str, Lowering] = {
    "aten._embedding_bag": _embedding_bag,
    "aten._embedding_bag_forward_only": _embedding_bag,
}
