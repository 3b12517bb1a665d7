"""Reading at indices."""

from collections.abc import Sequence
from typing import Any

from ....ir.dims import product
from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering, axis_of

_INDICES = (DType.I32, DType.I64)


def as_index(c: Call, index: Value) -> Value:
    """Indices in a dtype that native ops read."""
    return index if index.tensor.dtype in _INDICES else c.cast(index, DType.I64)


def _index_select(c: Call, x: Value, dim: int, index: Value) -> Value:
    flat = c.reshape(as_index(c, index), (product(index.shape),))
    if not x.tensor.rank:
        return c.reshape(x, ())
    return c.op("gather", x, flat, axis=axis_of(dim, x.tensor.rank))


def _gather(c: Call, x: Value, dim: int, index: Value, *_: Any) -> Value:
    """Element by element; only the part of `x` beside the indices counts. Indices of nothing may have any rank."""
    if 0 in index.shape:
        return c.full(index.shape, 0, x.tensor.dtype)
    if not x.tensor.rank or not index.tensor.rank:
        vector, places = c.reshape(x, (product(x.shape),)), c.reshape(as_index(c, index), (product(index.shape),))
        return c.reshape(c.op("gather", vector, places, axis=0), index.shape)
    axis = axis_of(dim, x.tensor.rank)
    return c.op("gather_elements", cut_to(c, x, index, axis), as_index(c, index), axis=axis)


def cut_to(c: Call, x: Value, index: Value, axis: int | None = None) -> Value:
    """The part of `x` that stands beside the elements of `index`; `axis` is left whole."""
    for other in range(x.tensor.rank):
        if other != axis and x.shape[other] != index.shape[other]:
            x = c.slice(x, other, 0, index.shape[other])
    return x


# ---- advanced indexing


def plain_indices(c: Call, indices: Sequence[Value | None]) -> list[Value | None]:
    """Index tensors of integers: a mask of bools becomes the places where it is true, one tensor for each axis."""
    plain: list[Value | None] = []
    for index in indices:
        if index is None or index.tensor.dtype not in (DType.BOOL, DType.U8):
            plain.append(None if index is None else as_index(c, index))
            continue
        places = c.op("non_zero", index)
        plain += [c.select(places, 0, axis) for axis in range(index.tensor.rank)]
    return plain


def broadcast_together(c: Call, indices: Sequence[Value]) -> list[Value]:
    """Index tensors expanded to their common shape, as i64."""
    wide = [c.cast(index, DType.I64) for index in indices]
    rank = max(index.tensor.rank for index in wide)
    shape = _broadcast_shape([index.shape for index in wide], rank)
    return [c.expand(index, shape) for index in wide]


def _broadcast_shape(shapes: Sequence[Sequence[Any]], rank: int) -> tuple[Any, ...]:
    sizes: list[Any] = []
    for place in range(-rank, 0):
        found = [shape[place] for shape in shapes if len(shape) >= -place and shape[place] != 1]
        sizes.append(found[0] if found else 1)
    return tuple(sizes)


def index_axes(indices: Sequence[Value | None]) -> tuple[list[int], int]:
    """The indexed axes, and where those of the indices stand in the result: at the first, if all are side by side."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    together = axes == list(range(axes[0], axes[-1] + 1))
    return axes, axes[0] if together else 0


def _index(c: Call, x: Value, indices: Sequence[Value | None]) -> Value:
    """x[indices] as NumPy means it; None stands for a whole axis."""
    given = plain_indices(c, indices)
    axes, place = index_axes(given)
    used = [index for index in given if index is not None]
    if len(axes) == 1:
        return c.op("gather", x, used[0], axis=axes[0])
    common = broadcast_together(c, used)
    rest = [axis for axis in range(x.tensor.rank) if axis not in axes]
    places = c.op("concat", *(c.unsqueeze(index, index.tensor.rank) for index in common), axis=common[0].tensor.rank)
    found = c.op("gather_nd", c.transpose(x, [*axes, *rest]), places)
    width = common[0].tensor.rank
    order = [*range(width, width + place), *range(width), *range(width + place, found.tensor.rank)]
    return c.transpose(found, order)


def _masked_select(c: Call, x: Value, mask: Value) -> Value:
    shape = _broadcast_shape([x.shape, mask.shape], max(x.tensor.rank, mask.tensor.rank))
    flat = [c.reshape(c.expand(each, shape), (product(shape),)) for each in (x, mask)]
    return c.op("compress", flat[0], flat[1], axis=0)


def _where_true(c: Call, condition: Value) -> list[Value]:
    """The places where a tensor is not 0, an index tensor for each axis."""
    if not condition.tensor.rank:
        raise NoLowering("places in a scalar")
    places = c.op("non_zero", condition)
    return [c.select(places, 0, axis) for axis in range(condition.tensor.rank)]


def _one_hot(c: Call, x: Value, classes: int = -1) -> Value:
    if classes < 0:
        raise NoLowering("a number of classes that running tells")
    return c.op("one_hot", x, c.constant([0, 1], DType.I64), depth=classes)


TABLE: dict[str, Lowering] = {
    "aten.embedding": lambda c, weight, indices, *_: c.op("gather", weight, as_index(c, indices), axis=0),
    "aten.index_select": _index_select,
    "aten.gather": _gather,
    "aten.take": lambda c, x, index: c.op("gather", c.reshape(x, (product(x.shape),)), as_index(c, index), axis=0),
    "aten.index.Tensor": _index,
    "aten._unsafe_index.Tensor": _index,
    "aten.masked_select": _masked_select,
    "aten.nonzero": lambda c, x: c.swap(c.op("non_zero", x), 0, 1),
    "aten.where.default": _where_true,
    "aten.one_hot": _one_hot,
}
