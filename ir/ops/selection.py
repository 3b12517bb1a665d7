"""Results whose size depends on the data: compress, non_zero, unique, non_max_suppression."""

import numpy as np

from ..attrs import Attribute, AttrKind
from ..constant import Array
from ..dims.constraints import require_equal
from ..op import ANY, BOOLS, FRESH, I64, NUMBERS, Op, Trait, op
from ..types import DType, TensorType
from .rules import normal_axis, require_one_element, require_rank

F32 = frozenset({DType.F32})


# ---- compress, non_zero


def compress_type(x: TensorType, condition: TensorType, *, axis: int | None) -> TensorType:
    """A new size along `axis`; without one a vector of a new size."""
    require_rank(condition, 1, "the condition of compress")
    if axis is None:
        return x.with_shape((FRESH,))
    where = normal_axis(axis, x.rank)
    return x.with_shape((*x.dims[:where], FRESH, *x.dims[where + 1 :]))


def compress(x: Array, condition: Array, *, axis: int | None) -> Array:
    """The slices of `x` along `axis` (elements in row-major order without one) where `condition` holds.

    A condition shorter than the axis leaves out the rest, what is longer has to be false (ONNX Compress).
    """
    chosen = np.flatnonzero(condition)
    return np.take(x.reshape(-1), chosen) if axis is None else np.take(x, chosen, axis)


def non_zero_type(x: TensorType) -> TensorType:
    """i64[rank, n] for n elements that are not zero."""
    return TensorType(DType.I64, (x.rank, FRESH))


def non_zero(x: Array) -> Array:
    """The indices of the elements that are not zero, one column each, in row-major order (ONNX NonZero)."""
    if not x.ndim:
        return np.zeros((0, int(bool(x))), dtype=np.int64)
    return np.array(np.nonzero(x), dtype=np.int64).reshape(x.ndim, -1)


# ---- unique


def unique_type(x: TensorType, *, axis: int | None, sorted: bool) -> list[TensorType]:
    """The distinct slices; their first indices; for each slice of `x` where it went; and how often each occurs."""
    vector = TensorType(DType.I64, (FRESH,))
    if axis is None:
        return [x.with_shape((FRESH,)), vector, TensorType(DType.I64, (x.size,)), vector]
    where = normal_axis(axis, x.rank)
    distinct = x.with_shape((*x.dims[:where], FRESH, *x.dims[where + 1 :]))
    return [distinct, vector, TensorType(DType.I64, (x.dims[where],)), vector]


def unique(x: Array, *, axis: int | None, sorted: bool) -> tuple[Array, Array, Array, Array]:
    """The distinct slices along `axis` (elements without one), in ascending order or in that of their first occurrence.

    Also i64: the index of each one's first occurrence, for each slice of `x` its place among the distinct ones, and the
    counts (ONNX Unique). NaN is equal to NaN.
    """
    rows = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    first, inverse, counts = _distinct_rows(rows)
    if not sorted:
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        first, inverse, counts = first[order], place[inverse], counts[order]
    distinct = rows[first]
    if axis is not None:
        distinct = np.moveaxis(distinct, 0, axis)
    return distinct, first, inverse, counts


def _distinct_rows(rows: Array) -> tuple[Array, Array, Array]:
    """First index, inverse and count of the distinct rows in ascending (lexicographic) order."""
    keys = _sort_keys(rows.reshape(len(rows), -1)) if rows.size else np.zeros((len(rows), 1), dtype=np.int64)
    order = np.lexsort(keys.T[::-1])
    ordered = keys[order]
    starts = np.ones(len(rows), dtype=np.bool_)
    starts[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
    group = np.cumsum(starts, dtype=np.int64) - 1
    inverse = np.empty(len(rows), dtype=np.int64)
    inverse[order] = group
    return order[starts].astype(np.int64), inverse, np.bincount(group, minlength=int(starts.sum())).astype(np.int64)


def _sort_keys(rows: Array) -> Array:
    """Each element's rank among all elements: integers that order and compare as the elements do, NaN last."""
    flat = rows.reshape(-1)
    if flat.dtype.hasobject:
        flat = flat.astype(str)
    elif DType.of(flat.dtype).is_small_float:
        flat = flat.astype(np.float32)
    elif DType.of(flat.dtype).bits < 8:
        flat = flat.astype(np.int32)
    return np.asarray(np.unique(flat, return_inverse=True)[1], dtype=np.int64).reshape(rows.shape)


# ---- non_max_suppression


def non_max_suppression_type(
    boxes: TensorType,
    scores: TensorType,
    max_per_class: TensorType | None,
    iou_threshold: TensorType | None,
    score_threshold: TensorType | None,
    *,
    center_point_box: bool,
) -> TensorType:
    """i64[n, 3] for n selected boxes. Raises unless boxes is [batch, N, 4] and scores [batch, classes, N]."""
    require_rank(boxes, 3, "the boxes of non_max_suppression")
    require_rank(scores, 3, "the scores of non_max_suppression")
    require_equal(boxes.dims[2], 4, "a box has four coordinates")
    require_equal(boxes.dims[0], scores.dims[0], "boxes and scores must have equal batch sizes")
    require_equal(boxes.dims[1], scores.dims[2], "each box needs a score per class")
    for limit in (max_per_class, iou_threshold, score_threshold):
        if limit is not None:
            require_one_element(limit, "a limit of non_max_suppression")
    return TensorType(DType.I64, (FRESH, 3))


def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_per_class: Array | None,
    iou_threshold: Array | None,
    score_threshold: Array | None,
    *,
    center_point_box: bool,
) -> Array:
    """Greedy selection of boxes per batch entry and class: rows (batch, class, box), best score first.

    A box is left out when its score does not exceed `score_threshold`, or when it overlaps a selected one by more than
    `iou_threshold` (default 0), and at most `max_per_class` (default 0: none) are kept. Boxes are two opposite corners
    (y1, x1, y2, x2), or with `center_point_box` (x center, y center, width, height). Source: ONNX NonMaxSuppression.
    """
    most = 0 if max_per_class is None else int(max_per_class.item())
    overlap = 0.0 if iou_threshold is None else float(iou_threshold.item())
    rows: list[tuple[int, int, int]] = []
    entries = zip(_corners(boxes, center_point_box), scores, strict=True) if most > 0 else ()
    for batch, (entry, entry_scores) in enumerate(entries):
        for label, of_class in enumerate(entry_scores):
            candidates = np.argsort(-of_class, kind="stable")
            if score_threshold is not None:
                candidates = candidates[of_class[candidates] > score_threshold.item()]
            rows.extend((batch, label, box) for box in _suppressed(entry, candidates, most, overlap))
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _suppressed(boxes: Array, candidates: Array, most: int, overlap: float) -> list[int]:
    chosen: list[int] = []
    while candidates.size and len(chosen) < most:
        best, candidates = candidates[0], candidates[1:]
        chosen.append(int(best))
        if candidates.size and len(chosen) < most:
            candidates = candidates[_overlaps(boxes[best], boxes[candidates]) <= overlap]
    return chosen


def _corners(boxes: Array, center_point_box: bool) -> Array:
    """Boxes as (least, least, greatest, greatest) corners."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if center_point_box:
        first, second = first - second / 2, first + second / 2
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1)


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of one box with others; 0 where a box is empty."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common, areas = _areas(np.maximum(sides, 0)), _areas(others[:, 2:] - others[:, :2])
    own = _areas(box[2:] - box[:2])
    union = own + areas - common
    is_proper = (own > 0) & (areas > 0) & (union > 0)
    return np.where(is_proper, common / np.where(is_proper, union, 1), 0)


def _areas(sides: Array) -> Array:
    return np.asarray(sides[..., 0] * sides[..., 1])


_AXIS = Attribute("axis", AttrKind.INT, None)
_DATA_DEPENDENT = Trait.DATA_DEPENDENT

OPS: tuple[Op, ...] = (
    op(
        "compress",
        "x: T, condition: C",
        T=ANY,
        C=BOOLS,
        attrs=(_AXIS,),
        infer=compress_type,
        meaning=compress,
        traits=_DATA_DEPENDENT,
    ),
    op("non_zero", "x: T", T=NUMBERS | BOOLS, infer=non_zero_type, meaning=non_zero, traits=_DATA_DEPENDENT),
    op(
        "unique",
        "x: T",
        T=ANY,
        attrs=(_AXIS, Attribute("sorted", AttrKind.BOOL, True)),
        infer=unique_type,
        meaning=unique,
        traits=_DATA_DEPENDENT,
    ),
    op(
        "non_max_suppression",
        "boxes: F, scores: F, max_per_class: I!?, iou_threshold: F?, score_threshold: F?",
        F=F32,
        I=I64,
        attrs=(Attribute("center_point_box", AttrKind.BOOL, False),),
        infer=non_max_suppression_type,
        meaning=non_max_suppression,
        traits=_DATA_DEPENDENT,
    ),
)
