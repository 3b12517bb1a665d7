"""Results whose size depends on the data, in memory of a size that is known: twins of the ops in `selection.py`.

Plans have them, graphs do not. Each gives what its twin does in the first `count` of `size` entries, zeros behind them,
and `count` itself as one more result: a scalar in device memory, so that a recording serves whatever is found.
"""

import numpy as np

from ..attrs import Attribute, AttrKind
from ..constant import Array
from ..dims import Dim
from ..op import ANY, BOOLS, FRESH, I64, NUMBERS, Op, op
from ..types import DType, TensorType
from . import selection
from .rules import normal_axis
from .selection import F32

COUNT = TensorType(DType.I64, ())


def _of_size(ty: TensorType, size: Dim) -> TensorType:
    """A result of the twin, with `size` where only running tells."""
    return ty.with_shape(tuple(size if dim == FRESH else dim for dim in ty.dims))


def _padded(found: Array, axis: int, size: int) -> Array:
    """`found` with zeros behind it, up to `size` along `axis`."""
    shape = (*found.shape[:axis], size, *found.shape[axis + 1 :])
    result = np.zeros(shape, dtype=found.dtype)
    result[(*(slice(None),) * axis, slice(found.shape[axis]))] = found
    return result


def _count(found: Array, axis: int) -> Array:
    return np.asarray(found.shape[axis], dtype=np.int64)


# ---- type rules and meanings


def non_zero_type(x: TensorType, *, size: Dim) -> list[TensorType]:
    """i64[rank, size] and i64[]."""
    return [_of_size(selection.non_zero_type(x), size), COUNT]


def non_zero(x: Array, *, size: int) -> tuple[Array, Array]:
    """`non_zero`: indices [rank, size], zeros behind the found ones, and how many were found."""
    found = selection.non_zero(x)
    return _padded(found, 1, size), _count(found, 1)


def compress_type(x: TensorType, condition: TensorType, *, axis: int | None, size: Dim) -> list[TensorType]:
    """`size` slices and i64[]."""
    return [_of_size(selection.compress_type(x, condition, axis=axis), size), COUNT]


def compress(x: Array, condition: Array, *, axis: int | None, size: int) -> tuple[Array, Array]:
    """`compress`: `size` slices, zeros behind the chosen ones, and how many were chosen."""
    found = selection.compress(x, condition, axis=axis)
    where = 0 if axis is None else normal_axis(axis, x.ndim)
    return _padded(found, where, size), _count(found, where)


def unique_type(x: TensorType, *, axis: int | None, sorted: bool, size: Dim) -> list[TensorType]:
    """The results of `unique`, of `size`, and i64[]."""
    return [*(_of_size(ty, size) for ty in selection.unique_type(x, axis=axis, sorted=sorted)), COUNT]


def unique(x: Array, *, axis: int | None, sorted: bool, size: int) -> tuple[Array, Array, Array, Array, Array]:
    """`unique`: zeros behind distinct slices, first indices and counts, and how many slices are distinct."""
    distinct, first, inverse, counts = selection.unique(x, axis=axis, sorted=sorted)
    where = 0 if axis is None else normal_axis(axis, x.ndim)
    padded = _padded(distinct, where, size), _padded(first, 0, size), inverse, _padded(counts, 0, size)
    return (*padded, _count(first, 0))


def non_max_suppression_type(
    boxes: TensorType,
    scores: TensorType,
    max_per_class: TensorType | None,
    iou_threshold: TensorType | None,
    score_threshold: TensorType | None,
    *,
    center_point_box: bool,
    size: Dim,
) -> list[TensorType]:
    """i64[size, 3] and i64[]."""
    limits = max_per_class, iou_threshold, score_threshold
    rows = selection.non_max_suppression_type(boxes, scores, *limits, center_point_box=center_point_box)
    return [_of_size(rows, size), COUNT]


def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_per_class: Array | None,
    iou_threshold: Array | None,
    score_threshold: Array | None,
    *,
    center_point_box: bool,
    size: int,
) -> tuple[Array, Array]:
    """`non_max_suppression`: `size` rows, zeros behind the selected ones, and how many were selected."""
    limits = max_per_class, iou_threshold, score_threshold
    found = selection.non_max_suppression(boxes, scores, *limits, center_point_box=center_point_box)
    return _padded(found, 0, size), _count(found, 0)


PREFIX = "bounded_"
"""What the name of a twin begins with."""

_SIZE = Attribute("size", AttrKind.DIM)
_AXIS = Attribute("axis", AttrKind.INT, None)

OPS: tuple[Op, ...] = (
    op(
        "bounded_compress",
        "x: T, condition: C",
        T=ANY,
        C=BOOLS,
        attrs=(_AXIS, _SIZE),
        infer=compress_type,
        meaning=compress,
    ),
    op("bounded_non_zero", "x: T", T=NUMBERS | BOOLS, attrs=(_SIZE,), infer=non_zero_type, meaning=non_zero),
    op(
        "bounded_unique",
        "x: T",
        T=ANY,
        attrs=(_AXIS, Attribute("sorted", AttrKind.BOOL, True), _SIZE),
        infer=unique_type,
        meaning=unique,
    ),
    op(
        "bounded_non_max_suppression",
        "boxes: F, scores: F, max_per_class: I?, iou_threshold: F?, score_threshold: F?",
        F=F32,
        I=I64,
        attrs=(Attribute("center_point_box", AttrKind.BOOL, False), _SIZE),
        infer=non_max_suppression_type,
        meaning=non_max_suppression,
    ),
)
