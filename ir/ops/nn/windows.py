"""Sliding windows over the spatial axes of `[N, C, D1, D2, ...]` tensors: sizes, and how to read and write them.

Convolutions and pools share the attributes strides, pads (all begins, then all ends), dilations, one entry per spatial
axis, and the kernel, which for pools is an attribute and for convolutions stands in the weight's shape.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product as cartesian
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...attrs import Attribute, AttrKind
from ...constant import Array
from ...dims import Dim, dim_max, dim_min, upper_bound
from ...errors import ShapeError, TypeRuleError
from ...types import TensorType

STRIDES = Attribute("strides", AttrKind.INTS)
PADS = Attribute("pads", AttrKind.DIMS)
DILATIONS = Attribute("dilations", AttrKind.INTS)

TILE_BYTES = 16 << 20
"""How much memory the unfolded windows of one matmul may take; from 2 MiB on, more is not faster."""


def check_windows(
    x: TensorType, strides: Sequence[int], pads: Sequence[Dim], dilations: Sequence[int], kernel: Sequence[Dim]
) -> None:
    """Raises `TypeRuleError` unless `x` is `[N, C, D1, ...]` and the attributes have an entry for each spatial axis."""
    spatial = x.rank - 2
    if spatial < 1:
        raise TypeRuleError(f"windows need a tensor [N, C, D1, ...], not {x}")
    lengths = {"strides": (strides, spatial), "pads": (pads, 2 * spatial), "dilations": (dilations, spatial)}
    lengths["kernel"] = (kernel, spatial)
    for name, (given, wanted) in lengths.items():
        if len(given) != wanted:
            raise TypeRuleError(f"{name} has {len(given)} entries for {spatial} spatial axes, not {wanted}")
    for name, sizes in {"strides": strides, "dilations": dilations, "kernel": kernel}.items():
        if any(isinstance(size, int) and size < 1 for size in sizes):
            raise TypeRuleError(f"{name} must be positive, not {list(sizes)}")


def window_counts(
    sizes: Sequence[Dim], kernel: Sequence[Dim], strides: Sequence[int], pads: Sequence[Dim], dilations: Sequence[int]
) -> tuple[Dim, ...]:
    """How many windows fit along each spatial axis. Raises `ShapeError` when not even one does."""
    reach = _reaches(sizes, kernel, pads, dilations)
    for last in reach:
        _require_fit(last)
    return tuple(last // stride + 1 for last, stride in zip(reach, strides, strict=True))


def pool_window_counts(
    sizes: Sequence[Dim], kernel: Sequence[Dim], strides: Sequence[int], pads: Sequence[Dim], dilations: Sequence[int]
) -> tuple[Dim, ...]:
    """As `window_counts`, but none where not even one fits: pools of ONNX are empty then."""
    reach = _reaches(sizes, kernel, pads, dilations)
    return tuple(dim_max(0, last // stride + 1) for last, stride in zip(reach, strides, strict=True))


def covering_window_counts(
    sizes: Sequence[Dim], kernel: Sequence[Dim], strides: Sequence[int], pads: Sequence[Dim], dilations: Sequence[int]
) -> tuple[Dim, ...]:
    """As `window_counts`, with a last window that sticks out where the stride leaves a rest (ONNX's `ceil_mode`).

    A window that would start in the padding at the end is left out. There is none where a whole stride is missing for
    even one: one that is larger than the tensor by less than that sticks out, and is there.
    """
    reach = _reaches(sizes, kernel, pads, dilations)
    return tuple(
        dim_max(0, dim_min(-(-last // stride), (size + begin - 1) // stride) + 1)
        for last, stride, size, begin in zip(reach, strides, sizes, pads[: len(sizes)], strict=True)
    )


def _reaches(
    sizes: Sequence[Dim], kernel: Sequence[Dim], pads: Sequence[Dim], dilations: Sequence[int]
) -> tuple[Dim, ...]:
    """The greatest position at which a window may start, along each axis of the padded tensor."""
    axes = zip(sizes, kernel, pads[: len(sizes)], pads[len(sizes) :], dilations, strict=True)
    return tuple(_reach(*axis) for axis in axes)


def _reach(size: Dim, kernel: Dim, begin: Dim, end: Dim, dilation: int) -> Dim:
    return size + begin + end - (dilation * (kernel - 1) + 1)


def _require_fit(reach: Dim) -> None:
    """Raises `ShapeError` when elements are lacking for one window, for all sizes."""
    greatest = upper_bound(reach)
    if greatest is not None and greatest < 0:
        raise ShapeError(f"a window is {-greatest} elements larger than the padded tensor that it slides over")


def padded(x: Array, pads: Sequence[int]) -> Array:
    """`x` with zeros around its spatial axes; `x` itself when there are none to add. Negative pads cut off."""
    if not any(pads):
        return x
    spatial = x.ndim - 2
    begins, ends = pads[:spatial], pads[spatial:]
    sizes = [size + begin + end for size, begin, end in zip(x.shape[2:], begins, ends, strict=True)]
    result = np.zeros((*x.shape[:2], *sizes), dtype=x.dtype)
    inner = [slice(max(begin, 0), size - max(end, 0)) for begin, end, size in zip(begins, ends, sizes, strict=True)]
    source = [
        slice(max(-begin, 0), size - max(-end, 0)) for begin, end, size in zip(begins, ends, x.shape[2:], strict=True)
    ]
    result[spatial_index(inner)] = x[spatial_index(source)]
    return result


def spatial_index(parts: Sequence[Any]) -> tuple[Any, ...]:
    """The index that picks `parts` of the last axes."""
    return (..., *parts)


def windows_view(
    x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], counts: Sequence[int]
) -> Array:
    """All windows of the padded `x` `[N, C, ...]` as a read-only view `[N, C, *kernel, *counts]`."""
    steps = x.strides[2:]
    inner = [step * dilation for step, dilation in zip(steps, dilations, strict=True)]
    outer = [step * stride for step, stride in zip(steps, strides, strict=True)]
    shape = (*x.shape[:2], *kernel, *counts)
    return as_strided(x, shape, (*x.strides[:2], *inner, *outer), writeable=False)


def windows_of_positions(
    kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], counts: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
    """For each position in the kernel, the index that picks that element out of every window of the padded tensor."""
    for position in cartesian(*map(range, kernel)):
        starts = [offset * dilation for offset, dilation in zip(position, dilations, strict=True)]
        picked = [
            slice(start, start + stride * (count - 1) + 1, stride) if count else slice(0, 0)
            for start, stride, count in zip(starts, strides, counts, strict=True)
        ]
        yield position, spatial_index(picked)


def add_windows(
    columns: Array,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> Array:
    """The tensor `[N, C, *sizes]` whose windows overlap-add to `columns` `[N, C, *kernel, *counts]`; pads are cut off.

    The adjoint of reading windows: what transposed convolution and `col2im` need.
    """
    spatial = len(sizes)
    counts = columns.shape[2 + spatial :]
    begins = pads[:spatial]
    shifts = [max(-begin, 0) for begin in begins]
    spans = [
        shift + max(size + max(begin, 0), dilation * (width - 1) + stride * (count - 1) + 1)
        for shift, size, begin, dilation, width, stride, count in zip(
            shifts, sizes, begins, dilations, kernel, strides, counts, strict=True
        )
    ]
    total = np.zeros((*columns.shape[:2], *spans), columns.dtype)
    shifted = total[spatial_index([slice(shift, None) for shift in shifts])]
    for position, index in windows_of_positions(kernel, strides, dilations, counts):
        element: tuple[Any, ...] = (slice(None), slice(None), *position)
        shifted[index] += columns[element]
    kept = [
        slice(shift + begin, shift + begin + size) for shift, begin, size in zip(shifts, begins, sizes, strict=True)
    ]
    return np.asarray(total[spatial_index(kept)])


def images_per_tile(bytes_per_image: int) -> int:
    """How many images' unfolded windows fit in `TILE_BYTES`, at least one."""
    return max(1, TILE_BYTES // max(bytes_per_image, 1))


def as_ints(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Sizes that are bound and not negative by the time a meaning runs. Raises `ShapeError` otherwise."""
    sizes = tuple(dim for dim in dims if isinstance(dim, int))
    if any(size < 0 for size in sizes):
        raise ShapeError(f"a size would be negative: {list(sizes)}")
    return sizes


def volume(sizes: Sequence[int]) -> int:
    """Product of plain sizes."""
    return math.prod(sizes)
