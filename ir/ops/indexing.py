"""Reading at indices: gather, gather_elements, gather_nd, one_hot, trilu; and the write of a cache, tensor_scatter.

Negative indices count from the end. An index out of range is an `ExecutionError` when the node runs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind, Attrs
from ..constant import Array
from ..dims import Dim, SymDim, Truth, is_at_least
from ..dims.constraints import require_equal
from ..errors import ExecutionError, ShapeError, TypeRuleError
from ..op import ANY, I64, INDICES, NUMBERS, Op, Trait, op
from ..types import TensorType, Type
from .layout import shape_text
from .rules import normal_axis, reading, require_rank
from .slicing import fill_value


def checked_indices(indices: Array, size: int, what: str) -> Array:
    """`indices` into an axis of `size`, counted from the front. Raises `ExecutionError` when one is out of range."""
    if indices.size and (indices.min() < -size or indices.max() >= size):
        worst = indices[(indices < -size) | (indices >= size)].reshape(-1)[0]
        raise ExecutionError(f"{what}: index {worst} is out of range for an axis of size {size}")
    return np.where(indices < 0, indices + size, indices)


def at_most(inner: Dim, outer: Dim, what: str) -> None:
    """Raises `ShapeError` when `inner` exceeds `outer` whatever the symbols are."""
    if is_at_least(outer, inner) is Truth.NO:
        raise ShapeError(f"{what}: {inner} is more than {outer}")


# ---- gather


def gather_type(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    """The shape of `x` with `axis` replaced by the shape of `indices`."""
    where = normal_axis(axis, x.rank)
    if not x.rank:
        raise TypeRuleError("gather needs an operand of rank 1 or more")
    return x.with_shape((*x.dims[:where], *indices.dims, *x.dims[where + 1 :]))


def gather(x: Array, indices: Array, *, axis: int) -> Array:
    """The slices of `x` at `indices` along `axis` (ONNX Gather)."""
    return np.take(x, checked_indices(indices, x.shape[axis], "gather"), axis)


def _gather_symbolic(_types: Sequence[Type | None], operands: Sequence[Any], attrs: Attrs) -> Any:
    x, indices = operands
    if x is None or indices is None or any(isinstance(index, SymDim) for index in indices.reshape(-1)):
        return None
    return gather(x, indices.astype(np.int64), axis=attrs["axis"])


def gather_elements_type(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    """The shape of `indices`, which other than along `axis` may not exceed that of `x`."""
    check_element_indices(x, indices, axis, "gather_elements")
    return x.with_shape(indices.dims)


def check_element_indices(x: TensorType, indices: TensorType, axis: int, what: str) -> None:
    """Raises unless `indices` names one element of `x` each: same rank, and no larger other than along `axis`."""
    along = normal_axis(axis, x.rank)
    require_rank(indices, x.rank, f"the indices of {what}")
    for other in range(x.rank):
        if other != along:
            at_most(indices.dims[other], x.dims[other], f"{what} indexes axis {other} of {x} by {indices}")


def gather_elements(x: Array, indices: Array, *, axis: int) -> Array:
    """For each element of `indices` the element of `x` at its own position, but at that index along `axis`."""
    return np.asarray(x[element_positions(x, indices, axis, "gather_elements")])


def element_positions(x: Array, indices: Array, axis: int, what: str) -> tuple[Array, ...]:
    """The index tuple into `x` that element-wise `indices` along `axis` mean."""
    positions: list[Array] = list(np.indices(indices.shape, sparse=True))
    positions[axis] = checked_indices(indices, x.shape[axis], what)
    return tuple(positions)


def gather_nd_type(x: TensorType, indices: TensorType, *, batch_dims: int) -> TensorType:
    """Batch sizes, then the leading sizes of `indices`, then what index tuples leave of `x`."""
    if not 0 <= batch_dims < min(x.rank, indices.rank):
        raise TypeRuleError(f"batch_dims {batch_dims} does not fit {x} and {indices}")
    for axis in range(batch_dims):
        require_equal(x.dims[axis], indices.dims[axis], f"gather_nd needs equal batch sizes at axis {axis}")
    depth = index_depth(indices, x.rank - batch_dims, "gather_nd")
    return x.with_shape((*indices.dims[:-1], *x.dims[batch_dims + depth :]))


def index_depth(indices: TensorType, most: int, what: str) -> int:
    """The static length of the index tuples in the last axis. Raises `TypeRuleError` unless it is in [1, most]."""
    depth = indices.dims[-1] if indices.dims else None
    if not isinstance(depth, int) or not 1 <= depth <= most:
        raise TypeRuleError(f"the index tuples of {what} must have a static length from 1 to {most}, not {indices}")
    return depth


def gather_nd(x: Array, indices: Array, *, batch_dims: int) -> Array:
    """The slices of `x` at index tuples, the last axis of `indices` (ONNX GatherND); batch axes are walked together."""
    batch = indices.shape[:batch_dims]
    count = int(np.prod(batch, dtype=np.int64))
    inner, tuples = x.shape[batch_dims:], indices.shape[batch_dims:]
    rows = indices.reshape(count, *tuples)
    first = np.arange(count, dtype=np.int64).reshape(count, *(1,) * (len(tuples) - 1))
    positions = (first, *(checked_indices(rows[..., i], inner[i], "gather_nd") for i in range(tuples[-1])))
    found = x.reshape(count, *inner)[positions]
    return np.asarray(found).reshape((*indices.shape[:-1], *inner[tuples[-1] :]))


# ---- one_hot


def one_hot_type(indices: TensorType, values: TensorType, *, depth: Dim, axis: int) -> TensorType:
    """The shape of `indices` with a new axis of size `depth` at `axis`."""
    where = _one_hot_axis(indices, values, axis)
    if is_at_least(depth, 0) is Truth.NO:
        raise ShapeError(f"the depth of one_hot is {depth}")
    return values.with_shape((*indices.dims[:where], depth, *indices.dims[where:]))


def _one_hot_axis(indices: TensorType, values: TensorType, axis: int) -> int:
    require_rank(values, 1, "the values of one_hot")
    require_equal(values.dims[0], 2, "one_hot needs an off and an on value")
    return normal_axis(axis, indices.rank + 1)


def one_hot(indices: Array, values: Array, *, depth: int, axis: int) -> Array:
    """values[1] where the new axis is at the index, else values[0]; indices outside [-depth, depth) are off everywhere.

    Indices that are no integers are cut towards zero.
    """
    where = normal_axis(axis, indices.ndim + 1)
    whole = np.expand_dims(indices.astype(np.int64), where)
    counted = np.where((whole < 0) & (whole >= -depth), whole + depth, whole)
    steps = np.arange(depth, dtype=np.int64).reshape(-1, *(1,) * (indices.ndim - where))
    return np.asarray(np.where(counted == steps, values[1], values[0]), dtype=values.dtype)


# ---- trilu


def trilu_type(x: TensorType, *, upper: bool, diagonal: int) -> TensorType:
    """The type of `x`. Raises `TypeRuleError` below rank 2."""
    if x.rank < 2:
        raise TypeRuleError(f"trilu needs matrices, not {x}")
    return x


def trilu(x: Array, *, upper: bool, diagonal: int) -> Array:
    """The upper or lower triangle of the last two axes, else zero or empty strings; `diagonal` as in `numpy.triu`."""
    rows, columns = x.shape[-2:]
    offset = np.arange(columns, dtype=np.int64)[None, :] - np.arange(rows, dtype=np.int64)[:, None]
    kept = offset >= diagonal if upper else offset <= diagonal
    return np.where(kept, x, fill_value(x, None))


# ---- tensor_scatter


def tensor_scatter_type(
    cache: TensorType, update: TensorType, positions: TensorType | None, *, axis: int, mode: str
) -> TensorType:
    """The type of `cache`. `update` may be shorter along `axis`, which cannot be the batch axis 0."""
    along = normal_axis(axis, cache.rank)
    if not along:
        raise ShapeError("tensor_scatter cannot write along axis 0, the batch")
    require_rank(update, cache.rank, "the update of tensor_scatter")
    for other in range(cache.rank):
        if other != along:
            require_equal(cache.dims[other], update.dims[other], f"cache and update must agree along axis {other}")
    at_most(
        update.dims[along], cache.dims[along], f"tensor_scatter writes {shape_text(update.dims)} along axis {along}"
    )
    if positions is not None:
        require_rank(positions, 1, "the positions of tensor_scatter")
        require_equal(positions.dims[0], cache.dims[0], "tensor_scatter needs one position for each batch entry")
    return cache


def tensor_scatter(cache: Array, update: Array, positions: Array | None, *, axis: int, mode: str) -> Array:
    """`cache` with `update` written along `axis`, for each batch entry from its position on (default 0).

    This is ONNX TensorScatter. In mode `linear` the update must fit behind the position; in mode `circular` it wraps
    round the end of the cache.
    """
    size, length = cache.shape[axis], update.shape[axis]
    first = np.zeros(cache.shape[0], dtype=np.int64) if positions is None else positions
    if first.shape != cache.shape[:1]:
        raise ExecutionError(f"tensor_scatter needs one position for each batch entry: {first.size} for {len(cache)}")
    places = first[:, None] + np.arange(length, dtype=np.int64)
    if mode == "circular":
        places = places % max(size, 1)
    elif places.size and (places.min() < 0 or places.max() >= size):
        raise ExecutionError(f"tensor_scatter writes {length} steps at {first.tolist()} into a cache of {size}")
    result = cache.copy()
    steps = np.moveaxis(result, axis, 1)
    steps[np.arange(cache.shape[0], dtype=np.int64)[:, None], places] = np.moveaxis(update, axis, 1)
    return result


_AXIS = Attribute("axis", AttrKind.INT)
_ONE_HOT = op(
    "one_hot",
    "indices: I, values: T",
    T=ANY,
    I=NUMBERS,
    attrs=(Attribute("depth", AttrKind.DIM), Attribute("axis", AttrKind.INT, -1)),
    infer=one_hot_type,
    meaning=one_hot,
)
_TRILU = op(
    "trilu",
    "x: T",
    T=ANY,
    attrs=(Attribute("upper", AttrKind.BOOL, True), Attribute("diagonal", AttrKind.INT, 0)),
    infer=trilu_type,
    meaning=trilu,
    aliases=((0, 0),),
)

OPS: tuple[Op, ...] = (
    op(
        "gather",
        "x: T, indices: I",
        T=ANY,
        I=INDICES,
        attrs=(Attribute("axis", AttrKind.INT, 0),),
        infer=gather_type,
        meaning=gather,
        traits=Trait.LOOKUP | Trait.GATHERS | Trait.REFUSES_EMPTY,
        symbolic=_gather_symbolic,
    ),
    op(
        "gather_elements",
        "x: T, indices: I",
        T=ANY,
        I=INDICES,
        attrs=(Attribute("axis", AttrKind.INT, 0),),
        infer=gather_elements_type,
        meaning=gather_elements,
        traits=Trait.GATHERS | Trait.REFUSES_EMPTY,
    ),
    op(
        "gather_nd",
        "x: T, indices: I",
        T=ANY,
        I=I64,
        attrs=(Attribute("batch_dims", AttrKind.INT, 0),),
        infer=gather_nd_type,
        meaning=gather_nd,
        traits=Trait.GATHERS | Trait.REFUSES_EMPTY,
    ),
    _ONE_HOT,
    reading(_ONE_HOT, "depth", NUMBERS, Trait.DATA_DEPENDENT | Trait.READS_HOST),
    _TRILU,
    reading(_TRILU, "diagonal", I64),
    op(
        "tensor_scatter",
        "cache: T, update: T, positions: I?",
        T=ANY,
        I=I64,
        attrs=(
            Attribute("axis", AttrKind.INT, -2),
            Attribute("mode", AttrKind.STRING, "linear", choices=("linear", "circular")),
        ),
        infer=tensor_scatter_type,
        meaning=tensor_scatter,
        traits=Trait.WRITES,
        aliases=((0, 0),),
    ),
)
