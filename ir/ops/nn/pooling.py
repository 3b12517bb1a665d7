"""Pools over sliding windows of `[N, C, D1, D2, ...]`: `max_pool`, `average_pool`, `lp_pool`, `max_unpool`.

A maximum or sum over a window is taken one axis after the other, by one vectorized pass for each position in the kernel
along that axis, reading slices of the unpadded tensor.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ...attrs import Attribute, AttrKind, Attrs
from ...constant import Array
from ...dims import Dim
from ...dims.constraints import require_equal
from ...errors import ShapeError, TypeRuleError
from ...op import FLOATS, I64, Flops, Op, Trait, op
from ...types import DType, TensorType, Type
from .linear import accumulated
from .windows import (
    DILATIONS,
    PADS,
    STRIDES,
    as_ints,
    check_windows,
    covering_window_counts,
    pool_window_counts,
    volume,
)

_KERNEL = Attribute("kernel", AttrKind.INTS)
_POOL_ATTRS = (_KERNEL, STRIDES, PADS, DILATIONS, Attribute("ceil_mode", AttrKind.BOOL, False))
_MAX_DTYPES = FLOATS | {DType.I8, DType.U8}


def _counts(
    sizes: Sequence[Dim],
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[Dim],
    dilations: Sequence[int],
    ceil_mode: bool,
) -> tuple[Dim, ...]:
    count = covering_window_counts if ceil_mode else pool_window_counts
    return count(sizes, kernel, strides, pads, dilations)


def _pool_type(
    x: TensorType,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[Dim],
    dilations: Sequence[int],
    ceil_mode: bool,
    **_rest: Any,
) -> TensorType:
    check_windows(x, strides, pads, dilations, kernel)
    counts = _counts(x.dims[2:], kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil_mode=ceil_mode)
    return x.with_shape((*x.dims[:2], *counts))


def _pool_with_indices_type(x: TensorType, **attrs: Any) -> tuple[TensorType, TensorType]:
    pooled = _pool_type(x, **attrs)
    return pooled, pooled.with_dtype(DType.I64)


# ---- one axis at a time


class _AxisWindows:
    """The windows along one axis: where position `k` of each window lies in the unpadded tensor."""

    def __init__(self, size: int, count: int, kernel: int, stride: int, begin: int, dilation: int) -> None:
        self.size, self.count, self.kernel, self.stride = size, count, kernel, stride
        self.begin, self.dilation = begin, dilation

    def slices(self, position: int) -> tuple[slice, slice]:
        """The windows whose element `position` is not padding, and where these elements stand."""
        shift = position * self.dilation - self.begin
        first = max(0, -(shift // self.stride))
        last = min(self.count, (self.size - 1 - shift) // self.stride + 1)
        if last <= first:
            return slice(0, 0), slice(0, 0)
        start = first * self.stride + shift
        return slice(first, last), slice(start, start + (last - first - 1) * self.stride + 1, self.stride)

    def elements(self, limit_begin: int, limit_end: int) -> Array:
        """For each window, how many of its elements lie in `[limit_begin, limit_end)`."""
        starts = np.arange(self.count)[:, None] * self.stride - self.begin
        positions = starts + np.arange(self.kernel) * self.dilation
        return np.asarray(np.sum((positions >= limit_begin) & (positions < limit_end), axis=1))


def _axis_windows(
    sizes: Sequence[int],
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool,
) -> list[_AxisWindows]:
    counts = as_ints(
        _counts(sizes, kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil_mode=ceil_mode)
    )
    begins = pads[: len(sizes)]
    return [_AxisWindows(*axis) for axis in zip(sizes, counts, kernel, strides, begins, dilations, strict=True)]


def _along(axis: int, rank: int, part: slice) -> tuple[slice, ...]:
    return tuple(part if index == axis else slice(None) for index in range(rank))


def _reduce_axis(x: Array, axis: int, windows: _AxisWindows, function: Callable[..., Any], start: Any) -> Array:
    """Reduces each window along `axis` by the binary ufunc `function`, from `start`."""
    shape = (*x.shape[:axis], windows.count, *x.shape[axis + 1 :])
    result = np.full(shape, start, dtype=x.dtype)
    for position in range(windows.kernel):
        target, source = windows.slices(position)
        into = result[_along(axis, x.ndim, target)]
        function(into, x[_along(axis, x.ndim, source)], out=into)
    return result


def _reduce_windows(x: Array, axes: Sequence[_AxisWindows], function: Callable[..., Any], start: Any) -> Array:
    # The first axes come first: their passes run along whole rows, and leave fewer of them for the strided last one.
    for axis, windows in enumerate(axes, start=2):
        x = _reduce_axis(x, axis, windows, function, start)
    return x


def _least(dtype: Any) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


# ---- maximum


def max_pool(x: Array, **attrs: Any) -> Array:
    """The greatest element of each window, as ONNX MaxPool; NaN wins. Padding never does."""
    wide = accumulated(x)
    pooled = _reduce_windows(wide, _axis_windows(x.shape[2:], **attrs), np.maximum, _least(wide.dtype))
    return pooled.astype(x.dtype, copy=False)


def max_pool_with_indices(x: Array, *, column_major: bool, **attrs: Any) -> tuple[Array, Array]:
    """`max_pool`, and the flat index in `x` of the first (in row-major order) element that is the greatest.

    With `column_major`, the index within an image counts its spatial axes from the first to the last.
    """
    sizes = x.shape[2:]
    values, indices = accumulated(x), np.broadcast_to(np.arange(volume(sizes)).reshape(sizes), x.shape)
    axes = _axis_windows(sizes, **attrs)
    # The last axis first: of equal elements, the first row then wins over the first column.
    for axis in reversed(range(2, x.ndim)):
        values, indices = _greatest_along(values, indices, axis, axes[axis - 2])
    if column_major and volume(sizes):  # over an empty image every index is 0
        indices = np.ravel_multi_index(np.unravel_index(indices, sizes), sizes, order="F")
    images = np.arange(volume(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(sizes))
    return values.astype(x.dtype, copy=False), np.asarray(indices + images * volume(sizes), dtype=np.int64)


def _greatest_along(values: Array, indices: Array, axis: int, windows: _AxisWindows) -> tuple[Array, Array]:
    shape = (*values.shape[:axis], windows.count, *values.shape[axis + 1 :])
    best = np.full(shape, _least(values.dtype), dtype=values.dtype)
    where = np.full(shape, -1, dtype=np.int64)
    for position in range(windows.kernel):
        target, source = (_along(axis, values.ndim, part) for part in windows.slices(position))
        candidate, current = values[source], best[target]
        is_better = (where[target] < 0) | (~(candidate <= current) & ~np.isnan(current))
        np.copyto(current, candidate, where=is_better)
        np.copyto(where[target], indices[source], where=is_better)
    return best, np.maximum(where, 0)


# ---- sums


def average_pool(x: Array, *, count_include_pad: bool, pads: Sequence[int], **attrs: Any) -> Array:
    """The mean of each window, as ONNX AveragePool 22; f16 and bf16 sum in f32.

    Divides by the number of elements that are not padding or, with `count_include_pad`, by those inside the padded
    tensor: what sticks out beyond it because of `ceil_mode` is never counted.
    """
    axes = _axis_windows(x.shape[2:], pads=pads, **attrs)
    sums = _reduce_windows(accumulated(x), axes, np.add, 0)
    ends = pads[len(axes) :]
    numbers = [
        windows.elements(-windows.begin, windows.size + end) if count_include_pad else windows.elements(0, windows.size)
        for windows, end in zip(axes, ends, strict=True)
    ]
    divisor = reduce(np.multiply.outer, numbers)
    return np.asarray(sums / divisor.astype(sums.dtype)).astype(x.dtype, copy=False)


def lp_pool(x: Array, *, p: int, **attrs: Any) -> Array:
    """The p-norm of each window, as ONNX LpPool; f16 and bf16 are computed in f32."""
    powers = np.abs(accumulated(x)) ** p
    sums = _reduce_windows(powers, _axis_windows(x.shape[2:], **attrs), np.add, 0)
    return np.asarray(sums ** (1.0 / p)).astype(x.dtype, copy=False)


# ---- unpooling


def _unpooled_sizes(
    sizes: Sequence[Dim], kernel: Sequence[int], strides: Sequence[int], pads: Sequence[Dim]
) -> tuple[Dim, ...]:
    spatial = len(sizes)
    return tuple(
        (size - 1) * stride + width - begin - end
        for size, stride, width, begin, end in zip(sizes, strides, kernel, pads[:spatial], pads[spatial:], strict=True)
    )


def _max_unpool_type(
    x: TensorType,
    indices: TensorType,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[Dim],
    sizes: Sequence[Dim] | None,
) -> TensorType:
    check_windows(x, strides, pads, [1] * len(kernel), kernel)
    if indices.rank != x.rank:
        raise TypeRuleError(f"the indices {indices} do not have the shape of {x}")
    for given, wanted in zip(indices.dims, x.dims, strict=True):
        require_equal(given, wanted, "max_unpool has one index for each element")
    if sizes is not None and len(sizes) != len(kernel):
        raise TypeRuleError(f"sizes has {len(sizes)} entries for {len(kernel)} spatial axes")
    natural = _unpooled_sizes(x.dims[2:], kernel, strides, pads)
    return x.with_shape((*x.dims[:2], *(natural if sizes is None else sizes)))


def max_unpool(
    x: Array,
    indices: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    sizes: Sequence[int] | None,
) -> Array:
    """Puts each element where its index says, zeros elsewhere, as ONNX MaxUnpool.

    Indices count in the shape that the pool's attributes imply. Larger spatial `sizes` are filled up with zeros.
    Raises `ShapeError` when an index is out of range.
    """
    natural = (*x.shape[:2], *as_ints(_unpooled_sizes(x.shape[2:], kernel, strides, pads)))
    flat = np.zeros(volume(natural), dtype=x.dtype)
    if x.size and not 0 <= int(indices.min()) <= int(indices.max()) < flat.size:
        raise ShapeError(f"an index of max_unpool is outside of {list(natural)}")
    flat[indices.reshape(-1)] = x.reshape(-1)
    image = flat.reshape(natural)
    if sizes is None:
        return image
    result = np.zeros((*x.shape[:2], *sizes), dtype=x.dtype)
    common = tuple(slice(0, min(pair)) for pair in zip(natural, result.shape, strict=True))
    result[common] = image[common]
    return result


def _window_flops(per_element: int) -> Flops:
    def rule(_inputs: Sequence[Type | None], outputs: Sequence[Type], attrs: Attrs) -> Dim:
        result = outputs[0]
        assert isinstance(result, TensorType)
        return result.size * (volume(attrs["kernel"]) * per_element)

    return rule


_POOL = Trait.POOLING | Trait.KEEPS_AXES

OPS: tuple[Op, ...] = (
    op(
        "max_pool",
        "x: T",
        T=_MAX_DTYPES,
        attrs=_POOL_ATTRS,
        infer=_pool_type,
        meaning=max_pool,
        traits=_POOL,
        flops=_window_flops(1),
    ),
    op(
        "max_pool_with_indices",
        "x: T",
        T=_MAX_DTYPES,
        attrs=(*_POOL_ATTRS, Attribute("column_major", AttrKind.BOOL, False)),
        infer=_pool_with_indices_type,
        meaning=max_pool_with_indices,
        traits=_POOL,
        flops=_window_flops(1),
    ),
    op(
        "average_pool",
        "x: T",
        T=FLOATS,
        attrs=(*_POOL_ATTRS, Attribute("count_include_pad", AttrKind.BOOL, False)),
        infer=_pool_type,
        meaning=average_pool,
        traits=_POOL,
        flops=_window_flops(1),
    ),
    op(
        "lp_pool",
        "x: T",
        T=FLOATS,
        attrs=(*_POOL_ATTRS, Attribute("p", AttrKind.INT, 2)),
        infer=_pool_type,
        meaning=lp_pool,
        traits=_POOL,
        flops=_window_flops(2),
    ),
    op(
        "max_unpool",
        "x: T, indices: I",
        T=FLOATS,
        I=I64,
        attrs=(_KERNEL, STRIDES, PADS, Attribute("sizes", AttrKind.DIMS, None)),
        infer=_max_unpool_type,
        meaning=max_unpool,
    ),
)
