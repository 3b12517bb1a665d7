"""Reductions, the index of the greatest or least element, and cumulative sums and products.

Meanings follow the ONNX operators, with the axes as an attribute: `axes = []` reduces over no axis (ONNX's
`noop_with_empty_axes`), so that only what the reduction does to each element remains. Over no elements a reduction
gives its identity: 0 for sums, 1 for products, the lowest value for max. Floats below 32 bits are accumulated in f32
and rounded once; integers wrap around.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind, Attrs
from ..constant import Array
from ..dims import Dim, dim_max, dim_min
from ..errors import TypeRuleError
from ..op import FLOATS, FRESH, I64, INDICES, NUMBERS, DTypes, Op, Symbolic, Trait, op
from ..types import DType, TensorType, Type
from .arithmetic import div
from .cast import cast
from .elementwise import all_fit, in_f32
from .rules import normal_axes, normal_axis, require_rank

Axes = tuple[int, ...]
Reduction = Callable[[Array, Axes, bool], Any]

# ---- what each reduction computes; keyword `axes` and `keep_dims` as in NumPy


_BLOCKED = 128
"""Longer sums of f32 along axes that are not innermost in memory are made of sums of parts."""


def summed(x: Array, axes: Axes, keep_dims: bool, out: Array | None = None) -> Array:
    """The sum over `axes`, into `out` if it is given.

    NumPy adds pairs of pairs along the innermost axis, and row after row along any other: there the errors of long sums
    in f32 add up, so that these are sums of about as many parts as each part has rows.
    """
    axis = max(axes, key=x.shape.__getitem__, default=0)
    if x.dtype != np.float32 or not axes or x.shape[axis] <= _BLOCKED or _innermost(x) in axes:
        into: dict[str, Array] = {} if out is None else {"out": out}
        return np.asarray(np.add.reduce(x, axis=axes, keepdims=keep_dims, dtype=x.dtype, **into))
    rows = np.moveaxis(x, axis, 0)
    step = math.isqrt(len(rows))
    parts = [np.add.reduce(rows[start : start + step], axis=0) for start in range(0, len(rows), step)]
    whole = np.moveaxis(np.add.reduce(parts, axis=0, keepdims=True), 0, axis)
    return summed(whole, axes, keep_dims, out)


def _innermost(x: Array) -> int:
    """The axis whose elements lie closest in memory."""
    return min((axis for axis in range(x.ndim) if x.shape[axis] > 1), key=lambda axis: (abs(x.strides[axis]), -axis))


def _sum(x: Array, axes: Axes, keep_dims: bool) -> Array:
    return summed(x, axes, keep_dims)


def _mean(x: Array, axes: Axes, keep_dims: bool) -> Array:
    total = _sum(x, axes, keep_dims)
    count = math.prod(x.shape[axis] for axis in axes)
    return div(total, np.asarray(count, dtype=x.dtype))


def _max(x: Array, axes: Axes, keep_dims: bool) -> Array:
    return _folded(np.maximum, x, axes, keep_dims, initial=_lowest(x.dtype))


def _folded(function: Any, x: Array, axes: Axes, keep_dims: bool, **initial: Any) -> Array:
    return np.asarray(function.reduce(x, axis=axes, keepdims=keep_dims, dtype=x.dtype, **initial))


def _lowest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return -math.inf
    return False if dtype.kind == "b" else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return math.inf
    return True if dtype.kind == "b" else np.iinfo(dtype).max


def _sum_square(x: Array, axes: Axes, keep_dims: bool) -> Array:
    return _sum(np.square(x), axes, keep_dims)


def _as_dtype_of(x: Array, result: Any) -> Array:
    """A float result for integers as `cast` makes it one: also out of range, as the logarithm of 0 is."""
    return cast(np.asarray(result), to=DType.of(x.dtype), saturate=True, round_mode="up")


def _log_sum_exp(x: Array, axes: Axes, keep_dims: bool) -> Array:
    greatest = _max(x, axes, keep_dims=True)
    # An infinite maximum would give inf - inf: 0 in its place leaves exp and log to say 0 or infinity.
    shift = np.where(np.isfinite(greatest), greatest, x.dtype.type(0))
    logarithm = np.log(_sum(np.exp(x - shift), axes, keep_dims=True)) + shift
    return logarithm if keep_dims else np.squeeze(logarithm, axis=axes)


_REDUCTIONS: dict[str, Reduction] = {
    "sum": _sum,
    "mean": _mean,
    "max": _max,
    "min": lambda x, axes, keep_dims: _folded(np.minimum, x, axes, keep_dims, initial=_highest(x.dtype)),
    "prod": lambda x, axes, keep_dims: _folded(np.multiply, x, axes, keep_dims),
    "l1": lambda x, axes, keep_dims: _sum(np.abs(x), axes, keep_dims),
    "l2": lambda x, axes, keep_dims: _as_dtype_of(x, np.sqrt(_sum_square(x, axes, keep_dims))),
    "log_sum": lambda x, axes, keep_dims: _as_dtype_of(x, np.log(_sum(x, axes, keep_dims))),
    "log_sum_exp": _log_sum_exp,
    "sum_square": _sum_square,
}


def reduction(function: Reduction) -> Callable[..., Array]:
    """The meaning of the op that reduces `axes` by `function`."""

    def meaning(x: Array, *, axes: Axes, keep_dims: bool) -> Array:
        return np.asarray(function(x, normal_axes(axes, x.ndim), keep_dims))

    return in_f32(meaning)


# ---- type rules


def reduced_shape(shape: Sequence[Dim], axes: Sequence[int], keep_dims: bool) -> tuple[Dim, ...]:
    """`shape` with the sizes of `axes` (any sign, no repeats) made 1, or left out."""
    reduced = set(normal_axes(axes, len(shape)))
    if keep_dims:
        return tuple(1 if axis in reduced else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in reduced)


def reduce_type(x: TensorType, *, axes: Axes, keep_dims: bool) -> TensorType:
    """The dtype of the operand; reduced axes have size 1 or are gone."""
    return x.with_shape(reduced_shape(x.dims, axes, keep_dims))


def _flops(inputs: Sequence[Type | None], _outputs: Sequence[Type], _attrs: Attrs) -> Dim:
    first = inputs[0]
    return first.size if isinstance(first, TensorType) else 0


def _static(shape: Sequence[Dim]) -> tuple[int, ...]:
    return tuple(dim for dim in shape if isinstance(dim, int))


def symbolic_reduction(function: Callable[..., Any], identity: Dim | None) -> Symbolic:
    """The symbolic meaning of a reduction; without an identity nothing is known of one of no dims."""

    def rule(types: Sequence[Type | None], operands: Sequence[Any], attrs: Attrs) -> Array | None:
        elements = operands[0]
        if elements is None:
            return None
        axes = normal_axes(attrs["axes"], elements.ndim)
        result = np.empty(_static(reduced_shape(elements.shape, axes, keep_dims=True)), dtype=object)
        for index in np.ndindex(result.shape):
            window = tuple(slice(None) if axis in axes else slice(place, place + 1) for axis, place in enumerate(index))
            dims = elements[(..., *window)].reshape(-1).tolist()
            if not dims and identity is None:
                return None
            result[index] = reduce(function, dims) if dims else identity
        if not all_fit(result, types[0]):
            return None
        return result if attrs["keep_dims"] else result.reshape(_static(reduced_shape(elements.shape, axes, False)))

    return rule


# ---- axes known only at run time


def dynamic_reduce(x: Array, axes: Array, *, kind: str, keep_dims: bool, noop_with_empty_axes: bool) -> Array:
    """The reduction `kind` over the axes in an operand; over all when it is empty, unless `noop_with_empty_axes`."""
    given = tuple(int(axis) for axis in axes.reshape(-1).tolist())
    chosen = given if given or noop_with_empty_axes else tuple(range(x.ndim))
    return reduction(_REDUCTIONS[kind])(x, axes=chosen, keep_dims=keep_dims)


def dynamic_reduce_type(
    x: TensorType, axes: TensorType, *, kind: str, keep_dims: bool, noop_with_empty_axes: bool
) -> TensorType:
    """Sizes are unknown; the rank follows from the number of axes, which must be known unless `keep_dims`."""
    require_rank(axes, 1, "the axes")
    if x.dtype not in _DTYPES[kind]:
        raise TypeRuleError(f"dynamic_reduce: {kind} is not defined for {x.dtype}")
    count = axes.dims[0]
    if not x.rank:
        return x
    if count == 0:
        every = () if noop_with_empty_axes else range(x.rank)
        return x.with_shape(reduced_shape(x.dims, tuple(every), keep_dims))
    if keep_dims:
        return x.with_shape(tuple(1 if dim == 1 or count == x.rank else FRESH for dim in x.dims))
    if not isinstance(count, int) or count > x.rank:
        raise TypeRuleError(f"dynamic_reduce: the rank of a reduction of {x} over {count} axes is not known")
    return x.with_shape((FRESH,) * (x.rank - count))


# ---- indices of extrema


def argmax(x: Array, *, axis: int, keep_dims: bool, select_last: bool) -> Array:
    """The index (i64) of the greatest element along `axis`, the first or last of several. NaN counts as greatest."""
    return _arg(np.argmax, x, axis, keep_dims, select_last)


def argmin(x: Array, *, axis: int, keep_dims: bool, select_last: bool) -> Array:
    """The index (i64) of the least element along `axis`, the first or last of several. NaN counts as least."""
    return _arg(np.argmin, x, axis, keep_dims, select_last)


def _arg(function: Callable[..., Any], x: Array, axis: int, keep_dims: bool, select_last: bool) -> Array:
    if not select_last:
        return np.asarray(function(x, axis=axis, keepdims=keep_dims), dtype=np.int64)
    from_the_end = function(np.flip(x, axis), axis=axis, keepdims=keep_dims)
    return np.asarray(x.shape[axis] - 1 - from_the_end, dtype=np.int64)


def arg_type(x: TensorType, *, axis: int, keep_dims: bool, select_last: bool) -> TensorType:
    """i64; the axis has size 1 or is gone."""
    return TensorType(DType.I64, reduced_shape(x.dims, (axis,), keep_dims))


# ---- cumulative


def cumsum(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Sums of the elements up to each along `axis`; without itself if `exclusive`, from the end if `reverse`."""
    # Long sums of f32 are added up in f64, as PyTorch does: the errors of one after another would add up.
    if x.dtype != np.float32 or x.shape[axis] <= _BLOCKED:
        return _accumulated(np.add, 0, x, axis, exclusive, reverse)
    return _accumulated(np.add, 0, x.astype(np.float64), axis, exclusive, reverse).astype(np.float32)


def cumprod(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Products of the elements up to each along `axis`; without itself if `exclusive`, from the end if `reverse`."""
    return _accumulated(np.multiply, 1, x, axis, exclusive, reverse)


def with_axis_operand(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` along the axis that an operand of one element holds."""

    def meaning(x: Array, axis: Array, *, exclusive: bool, reverse: bool) -> Array:
        return function(x, axis=int(axis.item()), exclusive=exclusive, reverse=reverse)

    return meaning


def _accumulated(function: np.ufunc, identity: int, x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    along = np.moveaxis(x, axis, 0)
    ordered = along[::-1] if reverse else along
    result = np.empty_like(ordered)
    if not exclusive:
        function.accumulate(ordered, axis=0, out=result)
    elif len(ordered):
        result[0] = identity
        function.accumulate(ordered[:-1], axis=0, out=result[1:])
    return np.moveaxis(result[::-1] if reverse else result, 0, axis)


def cumulative_type(x: TensorType, *, axis: int, **_attrs: Any) -> TensorType:
    """The type of the operand."""
    normal_axis(axis, x.rank)
    return x


def dynamic_cumulative_type(x: TensorType, axis: TensorType, **_attrs: Any) -> TensorType:
    """The type of the operand."""
    if axis.size != 1:
        raise TypeRuleError(f"one axis is needed, not {axis}")
    return x


# ---- the table

_SUMMABLE: DTypes = FLOATS | {DType.U32, DType.U64, DType.I32, DType.I64}
_ORDERED: DTypes = _SUMMABLE | {DType.BOOL, DType.U8, DType.I8}
_DTYPES: dict[str, DTypes] = dict.fromkeys(_REDUCTIONS, _SUMMABLE) | {
    "max": _ORDERED,
    "min": _ORDERED,
    "log_sum_exp": FLOATS,
}

_AXIS = Attribute("axis", AttrKind.INT)
_KEEP_DIMS = Attribute("keep_dims", AttrKind.BOOL, default=True)


def _reduce(kind: str, doc: str, symbolic: Symbolic | None = None) -> Op:
    return op(
        f"reduce_{kind}",
        "x: T",
        T=_DTYPES[kind],
        attrs=(Attribute("axes", AttrKind.INTS), _KEEP_DIMS),
        infer=reduce_type,
        meaning=reduction(_REDUCTIONS[kind]),
        traits=Trait.REDUCTION,
        flops=_flops,
        symbolic=symbolic,
        doc=doc,
    )


def _arg_op(name: str, meaning: Callable[..., Array]) -> Op:
    return op(
        name,
        "x: T",
        T=NUMBERS,
        attrs=(_AXIS, _KEEP_DIMS, Attribute("select_last", AttrKind.BOOL, default=False)),
        infer=arg_type,
        meaning=meaning,
        traits=Trait.REDUCTION | Trait.REFUSES_EMPTY,
        flops=_flops,
    )


_DIRECTION = (
    Attribute("exclusive", AttrKind.BOOL, default=False),
    Attribute("reverse", AttrKind.BOOL, default=False),
)


def _cumulative(name: str, meaning: Callable[..., Array]) -> Op:
    return op(
        name,
        "x: T",
        T=_SUMMABLE,
        attrs=(_AXIS, *_DIRECTION),
        infer=cumulative_type,
        meaning=in_f32(meaning),
        traits=Trait.SEQUENTIAL,
        flops=_flops,
    )


def _dynamic_cumulative(name: str, meaning: Callable[..., Array]) -> Op:
    return op(
        name,
        "x: T, axis: I!",
        T=_SUMMABLE,
        I=INDICES,
        attrs=_DIRECTION,
        infer=dynamic_cumulative_type,
        meaning=with_axis_operand(in_f32(meaning)),
        traits=Trait.SEQUENTIAL | Trait.READS_HOST,
        flops=_flops,
        doc=f"{meaning.__doc__} The axis is an operand of one element.",
    )


OPS: tuple[Op, ...] = (
    _reduce("sum", "Sum.", symbolic_reduction(operator.add, 0)),
    _reduce("mean", "Sum over count; of integers rounded toward zero."),
    _reduce("max", "Greatest element; NaN if there is one.", symbolic_reduction(dim_max, None)),
    _reduce("min", "Least element; NaN if there is one.", symbolic_reduction(dim_min, None)),
    _reduce("prod", "Product.", symbolic_reduction(operator.mul, 1)),
    _reduce("l1", "Sum of magnitudes."),
    _reduce("l2", "Square root of the sum of squares; of integers rounded toward zero."),
    _reduce("log_sum", "Logarithm of the sum; of integers rounded toward zero."),
    _reduce("log_sum_exp", "Logarithm of the sum of exponentials, without overflow on the way."),
    _reduce("sum_square", "Sum of squares."),
    op(
        "dynamic_reduce",
        "x: T, axes: I!",
        T=_ORDERED,
        I=I64,
        attrs=(
            Attribute("kind", AttrKind.STRING, choices=tuple(_REDUCTIONS)),
            _KEEP_DIMS,
            Attribute("noop_with_empty_axes", AttrKind.BOOL, default=False),
        ),
        infer=dynamic_reduce_type,
        meaning=dynamic_reduce,
        traits=Trait.REDUCTION | Trait.DATA_DEPENDENT | Trait.READS_HOST,
        flops=_flops,
    ),
    _arg_op("argmax", argmax),
    _arg_op("argmin", argmin),
    _cumulative("cumsum", cumsum),
    _cumulative("cumprod", cumprod),
    _dynamic_cumulative("dynamic_cumsum", cumsum),
    _dynamic_cumulative("dynamic_cumprod", cumprod),
)
