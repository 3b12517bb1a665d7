"""Writing at indices. A result is the first operand with other content, so that a state is updated in place."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from ....ir.dims import Dim, product
from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering, Operand, axis_of
from ..dtypes import torch_dtype_of
from .indexing import as_index, broadcast_together, cut_to, index_axes, plain_indices
from .pointwise import floor_quotient
from .strided import written_for_all


def _scatter(c: Call, x: Value, dim: int, index: Value, source: Operand, reduce: str | None = None) -> Value:
    """Each element of `source` at its own place, but at its index along `dim`."""
    kinds = {None: "none", "add": "add", "multiply": "mul"}
    return _scattered(c, x, dim, index, source, kinds[reduce])


def _scattered(c: Call, x: Value, dim: int, index: Value, source: Operand, reduction: str) -> Value:
    places = as_index(c, index)
    value = c.value(source, x.tensor.dtype)
    if not x.tensor.rank or not places.tensor.rank:  # a scalar stands for a vector of one
        count = product(places.shape)
        vectors = (c.reshape(x, (product(x.shape),)), c.reshape(places, (count,)))
        updates = c.reshape(value, (count,)) if isinstance(source, Value) else c.expand(value, (count,))
        return c.reshape(c.op("scatter_elements", *vectors, updates, axis=0, reduction=reduction), x.shape)
    updates = cut_to(c, value, places) if isinstance(source, Value) and value.tensor.rank else value
    attrs = {"axis": axis_of(dim, x.tensor.rank), "reduction": reduction}
    return c.op("scatter_elements", x, places, c.expand(updates, places.shape), **attrs)


def _scatter_reduce(
    c: Call, x: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    kinds = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}
    if include_self and reduce != "mean":
        return _scattered(c, x, dim, index, source, kinds[reduce])
    counts = _scattered(c, c.full(x.shape, int(include_self), DType.I32), dim, index, 1, "add")
    zero, one = (c.value(number, DType.I32) for number in (0, 1))
    neutral = c.full_like(x, _neutral(x.tensor.dtype, reduce))
    start = x if include_self else c.op("where", c.op("greater", counts, zero), neutral, x)
    total = _scattered(c, start, dim, index, source, kinds[reduce])
    if reduce != "mean":
        return total
    counts = c.cast(c.op("max", counts, one), x.tensor.dtype)
    if x.tensor.dtype.is_float:
        return c.op("div", total, counts)
    return floor_quotient(c, total, counts, is_positive=True)


def _neutral(dtype: DType, reduce: str) -> Any:
    """What a reduction may start from."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype.is_float:
        return -math.inf if reduce == "amax" else math.inf
    limits = torch.iinfo(torch_dtype_of(dtype))
    return limits.min if reduce == "amax" else limits.max


def _index_reduce(
    c: Call, x: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    """`scatter_reduce` of whole slices."""
    kinds = {"prod": "prod", "mean": "mean", "amax": "amax", "amin": "amin"}
    if not x.tensor.rank:
        raise NoLowering("slices of a scalar")
    axis = axis_of(dim, x.tensor.rank)
    places = _spread(c, c.reshape(as_index(c, index), (source.shape[axis],)), source, axis)
    return _scatter_reduce(c, x, axis, places, source, kinds[reduce], include_self)


def _put(c: Call, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """Elements written at places in the order of memory."""
    count = product(index.shape)
    flat = (c.reshape(x, (product(x.shape),)), c.reshape(as_index(c, index), (count,)), c.reshape(source, (count,)))
    return c.reshape(c.op("scatter_elements", *flat, axis=0, reduction="add" if accumulate else "none"), x.shape)


# ---- slices along an axis


def _index_copy(c: Call, x: Value, dim: int, index: Value, source: Value) -> Value:
    """Slices of `source` at the indices along `dim`; of one index, as the write of a cache."""
    if not x.tensor.rank:
        return source
    axis = axis_of(dim, x.tensor.rank)
    source = source if source.tensor.rank else c.unsqueeze(source, 0)
    places = c.reshape(as_index(c, index), (source.shape[axis],))
    if source.shape[axis] == 1 and _is_not_negative(index):
        return _written(c, x, source, axis, c.cast(c.reshape(places, ()), DType.I64))
    return c.op("scatter_elements", x, _spread(c, places, source, axis), source, axis=axis)


def _is_not_negative(index: Value) -> bool:
    """Indices of PyTorch's index_copy may not be negative."""
    return index.tensor.rank <= 1


def _spread(c: Call, places: Value, source: Value, axis: int) -> Value:
    """Indices along an axis, repeated along all others."""
    behind = range(1, source.tensor.rank - axis)
    return c.expand(c.unsqueeze(places, *behind), source.shape)


def _written(c: Call, x: Value, source: Value, axis: int, start: Value) -> Value:
    """`x` with `source` written from `start` on along an axis: for all entries of the first axis alike."""
    if axis == 0:
        return c.squeeze(_written(c, c.unsqueeze(x, 0), c.unsqueeze(source, 0), 1, start), 0)
    starts = c.expand(start, (x.shape[0],))
    return c.op("tensor_scatter", x, source, starts, axis=axis)


def _index_add(c: Call, x: Value, dim: int, index: Value, source: Value, alpha: Any = 1) -> Value:
    if not x.tensor.rank:
        scalars = [c.unsqueeze(each, 0) if not each.tensor.rank else each for each in (x, source)]
        return c.squeeze(_index_add(c, scalars[0], 0, index, scalars[1], alpha), 0)
    axis = axis_of(dim, x.tensor.rank)
    scaled = source if alpha == 1 else c.op("mul", source, c.full_like(source, alpha))
    places = _spread(c, c.reshape(as_index(c, index), (source.shape[axis],)), source, axis)
    return c.op("scatter_elements", x, places, scaled, axis=axis, reduction="add")


def _index_fill(c: Call, x: Value, dim: int, index: Value, number: Operand) -> Value:
    if not x.tensor.rank:
        return c.value(number, x.tensor.dtype)
    axis = axis_of(dim, x.tensor.rank)
    count = index.shape[0] if index.tensor.rank else 1
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    source = c.expand(c.value(number, x.tensor.dtype), shape)
    places = _spread(c, c.reshape(as_index(c, index), (count,)), source, axis)
    return c.op("scatter_elements", x, places, source, axis=axis)


def _slice_scatter(
    c: Call, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    if isinstance(start, Value) or isinstance(end, Value):
        raise NoLowering("bounds that running tells")
    axis = axis_of(dim, x.tensor.rank)
    size = x.shape[axis]
    first = _from_front(0 if start is None else start, size)
    for_all = written_for_all(c, x, source, lambda fake: fake[(*[slice(None)] * axis, slice(start, end, step))])
    if for_all is not None:
        return for_all
    if source.shape == x.shape:
        return c.cast(source, x.tensor.dtype)
    updates = c.cast(source, x.tensor.dtype)
    if step == 1:
        return _written(c, x, updates, axis, c.value(first, DType.I64))
    count = updates.shape[axis]
    steps = c.op("mul", c.op("arange", limit=count), c.value(step, DType.I64))
    places = c.op("add", steps, c.value(first, DType.I64))
    return c.op("scatter_elements", x, _spread(c, places, updates, axis), updates, axis=axis)


def _from_front(start: Dim, size: Dim) -> Dim:
    return size + start if isinstance(start, int) and start < 0 else start


def _select_scatter(c: Call, x: Value, source: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, x.tensor.rank)
    updates = c.unsqueeze(c.cast(source, x.tensor.dtype), axis)
    if isinstance(index, Value):
        return _written(c, x, updates, axis, c.cast(c.reshape(index, ()), DType.I64))
    for_all = written_for_all(c, x, source, lambda fake: fake.select(axis, index))
    if for_all is not None:
        return for_all
    return _written(c, x, updates, axis, c.value(_from_front(index, x.shape[axis]), DType.I64))


# ---- advanced indexing


def _index_put(c: Call, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    """`x` with `values`, broadcast, written at x[indices]."""
    updates = c.cast(values, x.tensor.dtype)
    masked = _masked_write(c, x, indices, updates, accumulate)
    if masked is not None:
        return masked
    given = plain_indices(c, indices)
    axes, place = index_axes(given)
    common = broadcast_together(c, [index for index in given if index is not None])
    rest = [axis for axis in range(x.tensor.rank) if axis not in axes]
    width = common[0].tensor.rank
    shape = [x.shape[axis] for axis in rest]
    wide = c.expand(updates, (*shape[:place], *common[0].shape, *shape[place:]))
    rank = wide.tensor.rank
    front = c.transpose(wide, [*range(place, place + width), *range(place), *range(place + width, rank)])
    places = c.op("concat", *(c.unsqueeze(index, width) for index in common), axis=width)
    order = [*axes, *rest]
    reduction = "add" if accumulate else "none"
    written = c.op("scatter_nd", c.transpose(x, order), places, front, reduction=reduction)
    return c.transpose(written, [order.index(axis) for axis in range(x.tensor.rank)])


def _masked_write(c: Call, x: Value, indices: Sequence[Value | None], updates: Value, accumulate: bool) -> Value | None:
    """The same for all places of a mask: a selection."""
    mask = indices[0]
    if len(indices) != 1 or mask is None or mask.tensor.dtype is not DType.BOOL:
        return None
    behind = x.tensor.rank - mask.tensor.rank
    if updates.tensor.rank > behind + 1 or (updates.tensor.rank == behind + 1 and updates.shape[0] != 1):
        return None
    same = c.squeeze(updates, 0) if updates.tensor.rank == behind + 1 else updates
    new = c.op("add", x, same) if accumulate else same
    return c.op("where", c.unsqueeze(mask, *range(mask.tensor.rank, x.tensor.rank)), new, x)


def _masked_scatter(c: Call, x: Value, mask: Value, source: Value) -> Value:
    """Elements of `source` in order at the places of a mask: each place reads at its number among them."""
    shape = c.shape
    x, wide = c.expand(x, shape), c.expand(mask, shape)
    flat = c.reshape(wide, (x.tensor.size,))
    number = c.op("cumsum", c.cast(flat, DType.I64), axis=0, exclusive=True)
    size = source.tensor.size
    last = c.op("min", number, c.value(size - 1, DType.I64))
    chosen = c.op("gather", c.reshape(source, (size,)), last, axis=0)
    return c.op("where", wide, c.reshape(c.cast(chosen, x.tensor.dtype), shape), x)


TABLE: dict[str, Lowering] = {
    "aten.scatter": _scatter,
    "aten.scatter_add": lambda c, x, dim, index, source: _scattered(c, x, dim, index, source, "add"),
    "aten.scatter_reduce": _scatter_reduce,
    "aten.index_copy": _index_copy,
    "aten.index_add": _index_add,
    "aten.index_reduce": _index_reduce,
    "aten.put": _put,
    "aten.index_fill": _index_fill,
    "aten.slice_scatter": _slice_scatter,
    "aten.select_scatter": _select_scatter,
    "aten.index_put": _index_put,
    "aten._unsafe_index_put": _index_put,
    "aten.masked_scatter": _masked_scatter,
}
