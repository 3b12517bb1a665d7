"""Reductions, the places of extremes, and running sums."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.graph import Value
from ....ir.types import DType, Kind
from ..call import Call, Lowering, NoLowering, Scalar, axes_of, axis_of

_Axes = Sequence[int] | int | None


def _reduced(c: Call, native: str, x: Value, axes: _Axes, keep: bool) -> Value:
    """A native reduction over axes; of a scalar, over an axis that is added."""
    if not x.tensor.rank:
        return _from_zero(c, native, c.op(native, c.unsqueeze(x, 0), axes=(0,), keep_dims=False))
    return _from_zero(c, native, c.op(native, x, axes=axes_of(axes, x.tensor.rank), keep_dims=keep))


def _from_zero(c: Call, native: str, x: Value) -> Value:
    """A result of sums; where bits are read, what PyTorch has: it begins at 0, so that no sum of -0.0 is -0.0."""
    is_sum = native in ("reduce_sum", "reduce_mean", "cumsum")
    return c.op("add", x, c.full_like(x, 0)) if is_sum and c.reads_bits and x.tensor.dtype.is_float else x


def _fold(native: str) -> Lowering:
    """A reduction in the dtype of the result."""
    return lambda c, x, axes=None, keep=False, *_: _reduced(c, native, c.cast(x, c.dtype), axes, keep)


def _fold_all(native: str) -> Lowering:
    """A reduction over all axes, whose further arguments only say a dtype."""
    return lambda c, x, *_: _reduced(c, native, c.cast(x, c.dtype), None, False)


def _extreme(native: str) -> Lowering:
    def lower(c: Call, x: Value, axes: _Axes = None, keep: bool = False) -> Value:
        dtype = x.tensor.dtype
        if axes is None and x.tensor.size == 0:
            raise NoLowering("the extreme of nothing, which PyTorch refuses")
        if dtype.is_integer and dtype.bits == 16:
            return c.cast(_reduced(c, native, c.cast(x, DType.I32), axes, keep), dtype)
        return _reduced(c, native, x, axes, keep)

    return lower


def _extreme_with_index(kind: str) -> Lowering:
    """max.dim and min.dim: the extreme and its place."""

    def lower(c: Call, x: Value, dim: int, keep: bool = False) -> tuple[Value, Value]:
        return _extreme(f"reduce_{kind}")(c, x, [dim], keep), _place(c, f"arg{kind}", x, dim, keep)  # type: ignore[return-value]

    return lower


def _arg(native: str) -> Lowering:
    def lower(c: Call, x: Value, dim: int | None = None, keep: bool = False) -> Value:
        if x.tensor.dtype is DType.BOOL:
            raise NoLowering("the place of an extreme boolean, which PyTorch refuses")
        if dim is not None:
            return _place(c, native, x, dim, keep)
        size = x.tensor.size
        place = _place(c, native, c.reshape(x, (size,)), 0, False)
        return c.reshape(place, (1,) * x.tensor.rank if keep else ())

    return lower


def _place(c: Call, native: str, x: Value, dim: int, keep: bool) -> Value:
    plain = c.cast(x, DType.U8) if x.tensor.dtype is DType.BOOL else x
    if not x.tensor.rank:
        return c.op(native, c.unsqueeze(plain, 0), axis=0, keep_dims=False)
    return c.op(native, plain, axis=axis_of(dim, x.tensor.rank), keep_dims=keep)


def _both_extremes(c: Call, x: Value, dim: int | None, keep: bool) -> tuple[Any, Any]:
    axes = None if dim is None else [dim]
    return tuple(_extreme(name)(c, x, axes, keep) for name in ("reduce_min", "reduce_max"))  # type: ignore[return-value]


def _any(c: Call, x: Value, axes: _Axes = None, keep: bool = False) -> Value:
    return c.cast(_reduced(c, "reduce_max", c.cast(x, DType.BOOL), axes, keep), c.dtype)


def _all(c: Call, x: Value, axes: _Axes = None, keep: bool = False) -> Value:
    return c.cast(_reduced(c, "reduce_min", c.cast(x, DType.BOOL), axes, keep), c.dtype)


def _count_nonzero(c: Call, x: Value, axes: _Axes = None) -> Value:
    return _reduced(c, "reduce_sum", c.cast(c.cast(x, DType.BOOL), DType.I64), axes, False)


def _correction(c: Call, x: Value, axes: _Axes, correction: Scalar | None, keep: bool) -> tuple[Value, Value]:
    """Variance and mean; the sum of squares is divided by the count less `correction` (1 if None), at least 0."""
    wide = c.cast(x, DType.F32) if x.tensor.dtype.is_small_float else x
    over = axes_of(axes, x.tensor.rank) if x.tensor.rank else ()
    mean = _reduced(c, "reduce_mean", wide, axes, True) if over else wide
    gap = c.op("sub", wide, mean)
    total = _reduced(c, "reduce_sum", c.op("mul", gap, gap), axes, keep)
    count = c.value(1, wide.tensor.dtype)
    for axis in over:
        count = c.op("mul", count, c.value(x.shape[axis], wide.tensor.dtype))
    less = c.op("sub", count, c.value(1 if correction is None else correction, wide.tensor.dtype))
    divisor = c.op("max", less, c.full_like(less, 0.0))
    kept_mean = mean if keep or not over else c.squeeze(mean, *over)
    return c.cast(c.op("div", total, divisor), x.tensor.dtype), c.cast(kept_mean, x.tensor.dtype)


def _no_complex(x: Value) -> Value:
    if x.tensor.dtype.kind is Kind.COMPLEX:
        raise NoLowering("complex numbers")
    return x


def _variance(c: Call, x: Value, axes: Any = None, correction: Any = None, keep: bool = False) -> Value:
    if isinstance(axes, bool):  # var(x, unbiased)
        return _correction(c, _no_complex(x), None, int(axes), False)[0]
    if isinstance(correction, bool):  # var(x, dim, unbiased, keepdim)
        correction = int(correction)
    return _correction(c, _no_complex(x), axes, correction, keep)[0]


def _std(c: Call, x: Value, axes: Any = None, correction: Any = None, keep: bool = False) -> Value:
    return c.op("sqrt", _variance(c, x, axes, correction, keep))


def _variance_and_mean(c: Call, x: Value, axes: Any = None, correction: Any = None, keep: bool = False) -> Any:
    if isinstance(axes, bool):
        return _correction(c, x, None, int(axes), False)
    return _correction(c, x, axes, int(correction) if isinstance(correction, bool) else correction, keep)


def _std_and_mean(c: Call, x: Value, axes: Any = None, correction: Any = None, keep: bool = False) -> Any:
    variance, mean = _variance_and_mean(c, x, axes, correction, keep)
    return c.op("sqrt", variance), mean


def _vector_norm(c: Call, x: Value, order: Any = 2, axes: _Axes = None, keep: bool = False, *_: Any) -> Value:
    """The `order`-norm of magnitudes: 0 counts, infinities take the extreme."""
    wide = c.cast(_no_complex(x), c.dtype)
    known = {1: "reduce_l1", 2: "reduce_l2"}
    if order in known:
        return _reduced(c, known[order], wide, axes, keep)
    size = c.op("abs", wide)
    if order == float("inf") or order == float("-inf"):
        return _reduced(c, "reduce_max" if order > 0 else "reduce_min", size, axes, keep)
    if order == 0:
        present = c.cast(c.op("not_equal", wide, c.full_like(wide, 0.0)), c.dtype)
        return _reduced(c, "reduce_sum", present, axes, keep)
    total = _reduced(c, "reduce_sum", c.op("pow", size, c.full_like(wide, float(order))), axes, keep)
    return c.op("pow", total, c.full_like(wide, 1.0 / float(order)))


def _norm(c: Call, x: Value, order: Any = 2, axes: _Axes = None, keep: bool = False, *_: Any) -> Value:
    return _vector_norm(c, x, 2 if order is None else order, axes, keep)


def _distances(c: Call, a: Value, b: Value, order: float = 2.0, *_: Any) -> Value:
    """Between all rows of [..., M, K] and [..., N, K]."""
    gaps = c.op("sub", c.unsqueeze(a, a.tensor.rank - 1), c.unsqueeze(b, b.tensor.rank - 2))
    return _vector_norm(c, gaps, order, [-1])


def _distances_of_pairs(c: Call, x: Value, order: float = 2.0) -> Value:
    """Between the rows of [N, K], each pair once."""
    if not isinstance(x.shape[0], int):
        raise NoLowering("pairs of as many rows as running tells")
    firsts, seconds = np.triu_indices(x.shape[0], 1)
    rows = [c.op("gather", x, c.constant(places, DType.I64), axis=0) for places in (firsts, seconds)]
    return _vector_norm(c, c.op("sub", *rows), order, [-1])


def _running(native: str) -> Lowering:
    def lower(c: Call, x: Value, dim: int, *_: Any) -> Value:
        wide = c.cast(x, c.dtype)
        if not x.tensor.rank:
            return wide
        return _from_zero(c, native, c.op(native, wide, axis=axis_of(dim, x.tensor.rank)))

    return lower


MOST_COMPARED = 1 << 24
"""Up to so many pairs of elements and bins are compared by a histogram; beyond, ones are added at indices."""


def _histogram(c: Call, x: Value, bins: int = 100, low: Scalar = 0, high: Scalar = 0) -> Value:
    """How many elements lie in each of `bins` equal parts of [low, high]; those outside, and NaN, in none."""
    if not isinstance(low, int | float) or not isinstance(high, int | float) or not low < high:
        raise NoLowering("a range that the elements tell")
    wide = DType.F64 if x.tensor.dtype is DType.F64 else DType.F32 if x.tensor.dtype.is_float else DType.I64
    if wide is DType.I64 and not (float(low).is_integer() and float(high).is_integer()):
        raise NoLowering("integers between bounds that are none")
    flat = c.cast(c.reshape(x, (x.tensor.size,)), wide)
    start, span = (c.full_like(flat, int(each) if wide is DType.I64 else each) for each in (low, high - low))
    part = c.op("div", c.op("mul", c.op("sub", flat, start), c.full_like(flat, bins)), span)
    last = c.op("min", c.cast(part, DType.I64), c.value(bins - 1, DType.I64))
    above = c.op("greater_equal", flat, start)
    is_inside = c.op("logical_and", above, c.op("less_equal", flat, c.op("add", start, span)))
    return c.cast(_counts(c, c.op("where", is_inside, last, c.value(bins, DType.I64)), bins), c.dtype)


def _counts(c: Call, numbers: Value, count: int) -> Value:
    """How often each number below `count` is among those of a vector, in i32; those above are not counted."""
    size = numbers.shape[0]
    if isinstance(size, int) and size * count > MOST_COMPARED:
        ones = c.full((size,), 1, DType.I32)
        zeros = c.full((count + 1,), 0, DType.I32)
        return c.slice(c.op("scatter_elements", zeros, numbers, ones, axis=0, reduction="add"), 0, 0, count)
    equal = c.op("equal", c.unsqueeze(numbers, 0), c.unsqueeze(c.op("arange", limit=count), 1))
    return c.op("reduce_sum", c.cast(equal, DType.I32), axes=(1,), keep_dims=False)


TABLE: dict[str, Lowering] = {
    "aten.histc.default": _histogram,
    "aten.sum.default": _fold_all("reduce_sum"),
    "aten.sum.dim_IntList": _fold("reduce_sum"),
    "aten.mean.default": _fold_all("reduce_mean"),
    "aten.mean.dim": _fold("reduce_mean"),
    "aten.prod.default": _fold_all("reduce_prod"),
    "aten.prod.dim_int": _fold("reduce_prod"),
    "aten.amax": _extreme("reduce_max"),
    "aten.amin": _extreme("reduce_min"),
    "aten.max.default": _extreme("reduce_max"),
    "aten.min.default": _extreme("reduce_min"),
    "aten.max.dim": _extreme_with_index("max"),
    "aten.min.dim": _extreme_with_index("min"),
    "aten.argmax": _arg("argmax"),
    "aten.argmin": _arg("argmin"),
    "aten.aminmax": _both_extremes,
    "aten.any": _any,
    "aten.all": _all,
    "aten.count_nonzero": _count_nonzero,
    "aten.var": _variance,
    "aten.std": _std,
    "aten.var_mean": _variance_and_mean,
    "aten.std_mean": _std_and_mean,
    "aten.logsumexp": lambda c, x, axes, keep=False: _reduced(c, "reduce_log_sum_exp", c.cast(x, c.dtype), axes, keep),
    "aten.linalg_vector_norm": _vector_norm,
    "aten.norm.Scalar": _norm,
    "aten.norm.ScalarOpt_dim": _norm,
    "aten.norm.ScalarOpt_dim_dtype": _norm,
    "aten.dist": lambda c, a, b, order=2: _vector_norm(c, c.op("sub", c.cast(a, c.dtype), c.cast(b, c.dtype)), order),
    "aten.cdist": _distances,
    "aten._cdist_forward": _distances,
    "aten._pdist_forward": _distances_of_pairs,
    "aten.cumsum": _running("cumsum"),
    "aten.cumprod": _running("cumprod"),
}
