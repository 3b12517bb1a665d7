"""Order: sorting, the greatest elements, places in sorted rows."""

from typing import Any

import numpy as np
import torch

from ....ir.dims import SymDim, product
from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering, axis_of
from ..dtypes import dtype_of, torch_dtype_of


def _sorted(c: Call, x: Value, dim: int, descending: bool) -> tuple[Value, Value]:
    if not x.tensor.rank:
        return x, c.value(0, DType.I64)
    values, places = c.ops("sort", x, axis=axis_of(dim, x.tensor.rank), descending=descending)
    return values, places


def _stable_sort(c: Call, x: Value, _stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    return _sorted(c, x, dim, descending)


def _topk(c: Call, x: Value, k: Any, dim: int = -1, largest: bool = True, is_sorted: bool = True) -> Any:
    if not x.tensor.rank:
        return x, c.value(0, DType.I64)
    return c.ops("top_k", x, k=k, axis=axis_of(dim, x.tensor.rank), largest=largest, sorted=is_sorted)


def _kth_value(c: Call, x: Value, k: int, dim: int = -1, keep: bool = False) -> Any:
    if not x.tensor.rank:
        return x, c.value(0, DType.I64)
    axis = axis_of(dim, x.tensor.rank)
    parts = [c.slice(each, axis, k - 1, k) for each in _sorted(c, x, dim, False)]
    return parts if keep else [c.squeeze(part, axis) for part in parts]


def _median(c: Call, x: Value, dim: int = -1, keep: bool = False) -> Any:
    """The lower of the two middle elements; the first NaN of a row that has one."""
    axis = axis_of(dim, x.tensor.rank)
    if not x.tensor.rank:
        return x, c.value(0, DType.I64)
    middle = (x.shape[axis] - 1) // 2
    if x.tensor.dtype.is_float:
        size = c.value(x.shape[axis], DType.I64)
        count = _count_of_numbers(c, x, axis)
        place = c.op("where", c.op("equal", count, size), c.value(middle, DType.I64), count)
        return _sorted_at(c, x, axis, place, keep=keep)
    parts = [c.slice(each, axis, middle, middle + 1) for each in _sorted(c, x, dim, False)]
    return parts if keep else [c.squeeze(part, axis) for part in parts]


def _some(c: Call, x: Value) -> Value:
    """All elements in a row, of which there is one."""
    flat = c.reshape(x, (product(x.shape),))
    if flat.shape[0] == 0:
        raise NoLowering("the middle of nothing")
    return flat


def _middle(c: Call, x: Value) -> Value:
    """The lower of the two middle elements of all; NaN, which sorts last, if there is one."""
    flat = _some(c, x)
    ordered = c.ops("sort", flat, axis=0)[0]
    middle = c.select(ordered, 0, (flat.shape[0] - 1) // 2)
    if not x.tensor.dtype.is_float:
        return middle
    last = c.select(ordered, 0, flat.shape[0] - 1)
    return c.op("where", c.op("is_nan", last), last, middle)


def _middle_number(c: Call, x: Value) -> Value:
    """The lower of the two middle elements that are numbers; NaN where there is none."""
    flat = _some(c, x)
    return _number_in_the_middle(c, flat, 0)[0]


def _middle_numbers(c: Call, x: Value, dim: int = -1, keep: bool = False) -> Any:
    if not x.tensor.rank:
        return x, c.value(0, DType.I64)
    axis = axis_of(dim, x.tensor.rank)
    return _number_in_the_middle(c, x, axis, keep=keep)


def _count_of_numbers(c: Call, x: Value, axis: int) -> Value:
    """How many elements of each row are not NaN; the axis is kept."""
    missing = c.op("reduce_sum", c.cast(c.op("is_nan", x), DType.I64), axes=(axis,), keep_dims=True)
    return c.op("sub", c.value(x.shape[axis], DType.I64), missing)


def _number_in_the_middle(c: Call, x: Value, axis: int, *, keep: bool = False) -> list[Value]:
    is_float = x.tensor.dtype.is_float
    count = _count_of_numbers(c, x, axis) if is_float else c.value(x.shape[axis], DType.I64)
    one, two = c.value(1, DType.I64), c.value(2, DType.I64)
    middle = c.op("max", c.op("div", c.op("sub", count, one), two), c.value(0, DType.I64))
    return _sorted_at(c, x, axis, middle, keep=keep)


def _sorted_at(c: Call, x: Value, axis: int, place: Value, *, keep: bool) -> list[Value]:
    """The elements, and where they were, that stand at `place` of each sorted row."""
    index = c.expand(place, [1 if dim == axis else size for dim, size in enumerate(x.shape)])
    parts = [c.op("gather_elements", each, index, axis=axis) for each in _sorted(c, x, axis, False)]
    return parts if keep else [c.squeeze(part, axis) for part in parts]


def _like(x: Any) -> Any:
    """What promotes as an operand does."""
    if isinstance(x, Value):
        return torch.empty((1,) * x.tensor.rank, dtype=torch_dtype_of(x.tensor.dtype), device="meta")
    return 0 if isinstance(x, SymDim) else x


def _searchsorted(c: Call, rows: Value, x: Any, int32: bool = False, right: bool = False, *more: Any) -> Value:
    """How many elements of a sorted row are less than each value (or equal to it, from the right); all than NaN."""
    side, sorter = (*more, None, None)[:2]
    dtype = dtype_of(torch.result_type(_like(rows), _like(x)))
    rows, value = c.cast(rows, dtype), c.value(x, dtype)
    if sorter is not None:
        rows = c.op("gather_elements", rows, sorter, axis=-1)
    spread = rows if rows.tensor.rank == 1 else c.unsqueeze(rows, rows.tensor.rank - 1)
    native = "less_equal" if right or side == "right" else "less"
    sought = c.unsqueeze(value, value.tensor.rank)
    before = c.op(native, spread, sought)
    if value.tensor.dtype.is_float:
        before = c.op("logical_or", before, c.op("is_nan", sought))
    # With its axis kept the sum is one kernel with the comparisons, which would take far more memory than operands.
    count = c.op("reduce_sum", c.cast(before, DType.I64), axes=(-1,), keep_dims=True)
    count = c.squeeze(count, value.tensor.rank)
    return c.cast(count, DType.I32) if int32 else count


def _unique(c: Call, x: Value, _sorted: bool = True, inverse: bool = False, counts: bool = False) -> list[Value]:
    if x.tensor.dtype.is_float and product(x.shape) != 0:
        return _distinct_floats(c, x, inverse=inverse, counts=counts)
    return _distinct(c, x, None, inverse=inverse, counts=counts)


def _unique_along(
    c: Call, x: Value, dim: int, _sorted: bool = True, inverse: bool = False, counts: bool = False
) -> list[Value]:
    if x.tensor.dtype.is_float:
        raise NoLowering("slices with NaN, which PyTorch's order leaves where its sort has them")
    if 0 in x.shape:
        raise NoLowering("slices without elements, which PyTorch refuses unless there are none")
    everything = c.fake("self").device.type == "cpu"  # PyTorch gives all there
    axis = axis_of(dim, x.tensor.rank)
    return _distinct(c, x, axis, inverse=inverse or everything, counts=counts or everything)


def _distinct(c: Call, x: Value, axis: int | None, *, inverse: bool, counts: bool) -> list[Value]:
    """Distinct elements in ascending order, for each element its place among them, and how often each occurs."""
    distinct, _first, places, occurrences = c.ops("unique", x, axis=axis, sorted=True)
    nothing = c.constant(np.empty(0, np.int64))
    places = c.reshape(places, x.shape) if axis is None else places
    return [distinct, places if inverse else nothing, occurrences if counts else nothing]


def _distinct_floats(c: Call, x: Value, *, inverse: bool, counts: bool) -> list[Value]:
    """The same where no NaN is equal to another, as all are for `unique`: elements that differ from the one before."""
    ordered, order = c.ops("sort", c.reshape(x, (product(x.shape),)), axis=0)
    place = c.op("arange", limit=ordered.shape[0])
    zero, one = c.value(0, DType.I64), c.value(1, DType.I64)
    before = c.op("gather", ordered, c.op("max", c.op("sub", place, one), zero), axis=0)
    is_new = c.op("logical_or", c.op("logical_not", c.op("equal", ordered, before)), c.op("equal", place, zero))
    starts = c.squeeze(c.op("non_zero", is_new), 0)
    number = c.op("sub", c.op("cumsum", c.cast(is_new, DType.I64), axis=0), one)
    found = [c.op("gather", ordered, starts, axis=0), *[c.constant(np.empty(0, np.int64))] * 2]
    if inverse:
        found[1] = c.reshape(c.op("gather", number, c.ops("sort", order, axis=0)[1], axis=0), x.shape)
    if counts:
        none, ones = c.op("mul", starts, zero), c.expand(one, number.shape)
        found[2] = c.op("scatter_elements", none, number, ones, axis=0, reduction="add")
    return found


TABLE: dict[str, Lowering] = {
    "aten._unique2": _unique,
    "aten.unique_dim": _unique_along,
    "aten.sort.default": lambda c, x, dim=-1, descending=False: _sorted(c, x, dim, descending),
    "aten.sort.stable": _stable_sort,
    "aten.argsort.default": lambda c, x, dim=-1, descending=False: _sorted(c, x, dim, descending)[1],
    "aten.argsort.stable": lambda c, x, _stable, dim=-1, descending=False: _sorted(c, x, dim, descending)[1],
    "aten.topk": _topk,
    "aten.kthvalue": _kth_value,
    "aten.median.dim": _median,
    "aten.median.default": _middle,
    "aten.nanmedian.default": _middle_number,
    "aten.nanmedian.dim": _middle_numbers,
    "aten.searchsorted": _searchsorted,
    "aten.bucketize": lambda c, x, boundaries, int32=False, right=False: _searchsorted(c, boundaries, x, int32, right),
}
