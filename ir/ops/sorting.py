"""Order: top_k and sort. Equal elements keep their order (the lower index first), and NaN counts as the greatest value.

ONNX says nothing of NaN; this is the order of NumPy and torch: ascending ends with NaN, descending begins with it.
"""

import numpy as np

from ..attrs import Attribute, AttrKind
from ..constant import Array
from ..dims import Dim, Truth, is_at_least
from ..errors import ExecutionError, ShapeError
from ..op import BOOLS, I64, NUMBERS, Op, Trait, op
from ..types import DType, TensorType
from .indexing import at_most
from .rules import normal_axis, reading


def sorted_positions(x: Array, axis: int, descending: bool) -> Array:
    """The indices i64 along `axis` that bring `x` into order; stable."""
    keys = x.astype(np.float32) if x.dtype.kind not in "biuf" else x
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable")
    # Sorting the reversed axis and reversing the result keeps equal elements in order, which negating would for numbers
    # only: NaN, the least integer and unsigned integers have no negative.
    backward = np.flip(np.argsort(np.flip(keys, axis), axis=axis, kind="stable"), axis)
    return np.asarray(x.shape[axis] - 1 - backward)


# ---- sort


def sort_type(x: TensorType, *, axis: int, descending: bool) -> list[TensorType]:
    """The type of `x`, and i64 of its shape."""
    normal_axis(axis, x.rank)
    return [x, x.with_dtype(DType.I64)]


def sort(x: Array, *, axis: int, descending: bool) -> tuple[Array, Array]:
    """`x` in stable order along `axis`, and for each element its index i64 before."""
    order = sorted_positions(x, axis, descending)
    return np.take_along_axis(x, order, axis), order


# ---- top_k


def top_k_type(x: TensorType, *, k: Dim, axis: int, largest: bool, sorted: bool) -> list[TensorType]:
    """Values and i64 indices, both of size `k` along `axis`. Raises `ShapeError` when there are fewer elements."""
    where = normal_axis(axis, x.rank)
    if is_at_least(k, 0) is Truth.NO:
        raise ShapeError(f"top_k cannot take {k} elements")
    at_most(k, x.dims[where], f"top_k along axis {where} of {x}")
    values = x.with_shape((*x.dims[:where], k, *x.dims[where + 1 :]))
    return [values, values.with_dtype(DType.I64)]


def top_k(x: Array, *, k: int, axis: int, largest: bool, sorted: bool) -> tuple[Array, Array]:
    """The `k` largest or smallest elements along `axis` and their indices, the lower of equal ones first (ONNX TopK).

    They come in order also when `sorted` is false, where any order would do.
    """
    if k > x.shape[axis]:
        raise ExecutionError(f"top_k takes {k} elements of an axis of size {x.shape[axis]}")
    chosen = np.take(sorted_positions(x, axis, descending=largest), range(k), axis)
    return np.take_along_axis(x, chosen, axis), chosen


_AXIS = Attribute("axis", AttrKind.INT, -1)
_TOP_K = op(
    "top_k",
    "x: T",
    T=NUMBERS,
    attrs=(
        Attribute("k", AttrKind.DIM),
        _AXIS,
        Attribute("largest", AttrKind.BOOL, True),
        Attribute("sorted", AttrKind.BOOL, True),
    ),
    infer=top_k_type,
    meaning=top_k,
)

OPS: tuple[Op, ...] = (
    op(
        "sort",
        "x: T",
        T=NUMBERS | BOOLS,
        attrs=(_AXIS, Attribute("descending", AttrKind.BOOL, False)),
        infer=sort_type,
        meaning=sort,
    ),
    _TOP_K,
    reading(_TOP_K, "k", I64, Trait.DATA_DEPENDENT | Trait.READS_HOST),
)
