"""Padding rules of reductions, cumulative sums, softmax, norms, pools, sorts: ops that mix elements along some axes.

Along its other axes an op works on every row by itself. `RULES` says which axes each op mixes. Operands other than the
first (scales, biases, bounds) must not carry the dim. What a rule asks for by `Unsafe(replace=...)` is done in
`repair.py`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from .....ir.ops.rules import normal_axes, normal_axis
from .....ir.types import DType, Kind, TensorType
from .facts import Case, Fact, Mask, Number, Rules, Tail, Unsafe

Axes = Callable[[Case], Sequence[int]]


def rows(case: Case, mixed: Axes) -> list[Fact]:
    """Results have the axes of the first operand; `mixed` may not carry the dim."""
    _require_rows(case, set(mixed(case)))
    case.require_unpadded(*range(1, len(case.facts)))
    return [Fact(_unfilled(case)) for _ in case.node.outputs]


def _require_rows(case: Case, mixed: set[int]) -> None:
    for axis, tail in enumerate(case.tails(0)):
        if tail is not None and axis in mixed:
            raise Unsafe(f"it mixes the elements along axis {axis}, which carries {case.symbol}")


def _unfilled(case: Case) -> tuple[Tail | None, ...]:
    return tuple(tail.filled(None) if tail is not None else None for tail in case.tails(0))


def batch_only(case: Case) -> list[Fact]:
    """Only the first axis of the first operand may carry the dim, which the results have too."""
    if case.optional(0) is None or not case.tails(0):
        raise Unsafe("it has no batch axis")
    return _led(case, 1)


def max_pool_with_indices(case: Case) -> list[Fact]:
    """As other pools, but the indices count from the first sample on."""
    lead = case.tails(0)[0]
    if lead is not None and not lead.is_prefix:
        raise Unsafe("its indices depend on where the real samples are")
    pooled, indices = batch_only(case)
    counted = tuple(
        tail and replace(tail, is_free=False, inner=1, outer=1, extent=case.shape(0)[0]) for tail in indices.tails
    )
    return [pooled, Fact(counted)]


def batch_and_channels_only(case: Case) -> list[Fact]:
    """Only the first two axes may carry the dim, which the results have too."""
    return _led(case, 2)


def _led(case: Case, count: int) -> list[Fact]:
    _require_rows(case, set(range(count, len(case.tails(0)))))
    case.require_unpadded(*range(1, len(case.facts)))
    lead = _unfilled(case)[:count]
    return [Fact((*lead, *(None,) * (value.tensor.rank - count))) for value in case.node.outputs]


def _one_axis(case: Case) -> list[int]:
    return [normal_axis(case.node.attrs["axis"], len(case.tails(0)))]


def _from_axis(case: Case) -> range:
    rank = len(case.tails(0))
    return range(normal_axis(case.node.attrs["axis"], rank), rank)


def _named_axes(case: Case) -> Sequence[int]:
    return normal_axes(case.node.attrs["axes"], len(case.tails(0)))


def _channels(_case: Case) -> list[int]:
    return [1]


def _spatial(case: Case) -> list[int]:
    return list(range(1, len(case.tails(0))))


def _scaled_axes(case: Case) -> list[int]:
    """The axes whose elements have scales of their own."""
    scale = case.value(1).tensor
    if scale.rank == 0 or scale.dims == (1,):
        return []
    return [normal_axis(case.node.attrs["axis"], len(case.tails(0)))]


def _transformed(case: Case) -> list[int]:
    rank = len(case.tails(0))
    return [normal_axis(case.node.attrs["axis"], rank), rank - 1]


def _matrices(case: Case) -> list[Fact]:
    """One number for each matrix."""
    rank = len(case.tails(0))
    _require_rows(case, {rank - 2, rank - 1})
    return [Fact(_unfilled(case)[:-2])]


# ---- softmax and norms along the dim: what is behind the real elements may be neutral


def neutral(case: Case, axis: int, fill: Number, result_fill: Number | None) -> list[Fact]:
    """An op along `axis` that `fill` leaves alone; behind the real elements it then gives `result_fill`."""
    tail = case.tails(0)[axis]
    case.require_unpadded(*range(1, len(case.facts)))
    tails = list(_unfilled(case))
    if tail is not None:
        _require_fill(case, axis, tail, fill)
        tails[axis] = tail.filled(result_fill)
    return [Fact(tuple(tails)) for _ in case.node.outputs]


def _require_fill(case: Case, axis: int, tail: Tail, fill: Number) -> None:
    if tail.number != fill:
        reason = f"what stands behind the real elements of axis {axis} counts"
        raise Unsafe(reason, [Mask(0, axis, fill)])


def _softmax(case: Case, result_fill: Number) -> list[Fact]:
    """The rest of a row is 0 beside real elements, beside NaN it is NaN, and so it is in a row without any."""
    (axis,) = _one_axis(case)
    tail = case.tails(0)[axis]
    is_empty = tail is not None and case.can_be_empty(tail.extent)
    others = [other for place, other in enumerate(case.tails(0)) if place != axis and other is not None]
    is_finite = all(other.is_free or (other.number is not None and math.isfinite(other.number)) for other in others)
    return neutral(case, axis, -math.inf, result_fill if is_finite and not is_empty else None)


def lp_norm(case: Case) -> list[Fact]:
    """Zeros add nothing to a norm."""
    return neutral(case, _one_axis(case)[0], 0, None)


def cumulative(case: Case, identity: Number) -> list[Fact]:
    """Running forward, real elements only see real ones before them; otherwise padding has to be the identity."""
    (axis,) = _one_axis(case)
    tail = case.tails(0)[axis]
    if tail is None or (tail.is_prefix and not tail.is_free and not case.node.attrs["reverse"]):
        return [Fact(_unfilled(case))]
    return neutral(case, axis, identity, None)


def top_k(case: Case) -> list[Fact]:
    """As rows; the number of elements taken does not carry the dim."""
    if case.mentions(case.node.attrs["k"]):
        raise Unsafe(f"how many elements it takes depends on {case.symbol}")
    return rows(case, _one_axis)


# ---- reductions


def lowest(ty: TensorType) -> Number:
    """The least number of a dtype."""
    return _extreme(ty.dtype, -1)


def highest(ty: TensorType) -> Number:
    """The greatest number of a dtype."""
    return _extreme(ty.dtype, 1)


def _extreme(dtype: DType, sign: int) -> Number:
    if dtype is DType.BOOL:
        return sign > 0
    if not dtype.is_integer:
        return math.inf if sign > 0 else -math.inf
    span = 1 << dtype.bits
    low = 0 if dtype.kind is Kind.UINT else -(span // 2)
    return low + span - 1 if sign > 0 else low


def dynamic_quantize(case: Case) -> list[Fact]:
    """One scale for all elements; its range always holds 0, so that zeros do not change it."""
    masks = [Mask(0, i, 0) for i, tail in enumerate(case.tails(0)) if tail is not None and tail.number != 0]
    if masks:
        raise Unsafe(f"its scale depends on all elements of {case.symbol}", masks)
    return [Fact(_unfilled(case)), Fact(()), Fact(())]


def reduction(case: Case, identity: Callable[[TensorType], Number]) -> list[Fact]:
    """Reduced axes may carry the dim when the identity of the reduction stands behind their real elements."""
    rank = len(case.tails(0))
    axes = normal_axes(case.node.attrs["axes"], rank)
    fill = identity(case.value(0).tensor)
    masks = [Mask(0, axis, fill) for axis in axes if (tail := case.tails(0)[axis]) is not None and tail.number != fill]
    if masks:
        raise Unsafe(f"it reduces axis {masks[0].axis}, which carries {case.symbol}", masks)
    return [Fact(_kept(case, axes))]


def _kept(case: Case, axes: Sequence[int]) -> tuple[Tail | None, ...]:
    tails = _unfilled(case)
    if case.node.attrs["keep_dims"]:
        return tuple(None if axis in axes else tail for axis, tail in enumerate(tails))
    return tuple(tail for axis, tail in enumerate(tails) if axis not in axes)


def mean(case: Case) -> list[Fact]:
    """A mean divides by the padded size; a sum and the real size take its place."""
    axes = normal_axes(case.node.attrs["axes"], len(case.tails(0)))
    padded = [axis for axis in axes if case.tails(0)[axis] is not None]
    if padded:
        reason = f"it takes the mean along axis {padded[0]}, which carries {case.symbol}"
        raise Unsafe(reason, replace=lambda insertion, node: insertion.split_mean(node))
    return [Fact(_kept(case, axes))]


def arg_extreme(case: Case, fill_of: Callable[[TensorType], Number]) -> list[Fact]:
    """The first extreme element is a real one if nothing behind the real elements is more extreme."""
    (axis,) = _one_axis(case)
    tail = case.tails(0)[axis]
    if tail is not None and (case.node.attrs["select_last"] or not tail.is_prefix or tail.inner != 1):
        raise Unsafe(f"padding moves the indices along axis {axis}")
    if tail is not None and case.can_be_empty(tail.extent):
        raise Unsafe(f"over 0 real elements of axis {axis} it fails, and over padding it does not")
    if tail is not None:
        _require_fill(case, axis, tail, fill_of(case.value(0).tensor))
    return [Fact(_kept(case, [axis]), natural=True)]


def _zero(_ty: TensorType) -> Number:
    return 0


def _rows(mixed: Axes) -> Callable[[Case], list[Fact]]:
    return partial(rows, mixed=mixed)


def _reduction(identity: Callable[[TensorType], Number]) -> Callable[[Case], list[Fact]]:
    return partial(reduction, identity=identity)


RULES: Rules = {
    "softmax": partial(_softmax, result_fill=0),
    "log_softmax": partial(_softmax, result_fill=-math.inf),
    "hardmax": partial(_softmax, result_fill=0),
    "lp_norm": lp_norm,
    "layer_norm": _rows(_from_axis),
    "rms_norm": _rows(_from_axis),
    "batch_norm": _rows(_channels),
    "instance_norm": _rows(_spatial),
    "group_norm": _rows(_spatial),
    "lrn": _rows(_channels),
    "reverse": _rows(_named_axes),
    "roll": _rows(_named_axes),
    "sort": _rows(_one_axis),
    "top_k": top_k,
    "dft": _rows(_transformed),
    "quantize_linear": _rows(_scaled_axes),
    "dequantize_linear": _rows(_scaled_axes),
    "dynamic_quantize_linear": dynamic_quantize,
    "resize": _rows(_named_axes),
    "cumsum": partial(cumulative, identity=0),
    "cumprod": partial(cumulative, identity=1),
    "det": _matrices,
    "depth_to_space": batch_only,
    "space_to_depth": batch_only,
    "col2im": batch_only,
    "stft": batch_only,
    "affine_grid": batch_only,
    "max_pool": batch_and_channels_only,
    "average_pool": batch_and_channels_only,
    "lp_pool": batch_and_channels_only,
    "max_pool_with_indices": max_pool_with_indices,
    "reduce_sum": _reduction(_zero),
    "reduce_l1": _reduction(_zero),
    "reduce_l2": _reduction(_zero),
    "reduce_sum_square": _reduction(_zero),
    "reduce_log_sum": _reduction(_zero),
    "reduce_log_sum_exp": _reduction(lowest),
    "reduce_prod": _reduction(lambda _ty: 1),
    "reduce_max": _reduction(lowest),
    "reduce_min": _reduction(highest),
    "reduce_mean": mean,
    "argmax": partial(arg_extreme, fill_of=lowest),
    "argmin": partial(arg_extreme, fill_of=highest),
}
