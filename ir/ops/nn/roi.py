"""Pools over regions of interest of a feature map `[N, C, H, W]`: `roi_align` and `max_roi_pool`."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from ...attrs import Attribute, AttrKind
from ...constant import Array
from ...dims.constraints import require_equal
from ...errors import TypeRuleError
from ...op import FLOATS, I64, Op, Trait, op
from ...types import TensorType
from ..rules import require_rank
from .linear import accumulated

_OUTPUT_SIZE = Attribute("output_size", AttrKind.INTS)
_SPATIAL_SCALE = Attribute("spatial_scale", AttrKind.FLOAT, 1.0)


def _regions_type(x: TensorType, regions: TensorType, output_size: Sequence[int], columns: int) -> TensorType:
    require_rank(x, 4, "a feature map")
    require_rank(regions, 2, "the regions")
    require_equal(regions.dims[1], columns, f"a region has {columns} numbers")
    if len(output_size) != 2 or min(output_size) < 1:
        raise TypeRuleError(f"output_size must be a positive height and width, not {list(output_size)}")
    return x.with_shape((regions.dims[0], x.dims[1], *output_size))


# ---- roi_align


def _roi_align_type(
    x: TensorType, regions: TensorType, images: TensorType, *, output_size: Sequence[int], **_attrs: Any
) -> TensorType:
    require_rank(images, 1, "the image indices")
    require_equal(images.dims[0], regions.dims[0], "each region has an image")
    return _regions_type(x, regions, output_size, 4)


def roi_align(
    x: Array,
    regions: Array,
    images: Array,
    *,
    output_size: Sequence[int],
    sampling_ratio: int,
    spatial_scale: float,
    mode: str,
    coordinate_mode: str,
) -> Array:
    """Averages (or greatest terms) of interpolated samples in each bin of each region, as ONNX RoiAlign 22.

    x `[N, C, H, W]`; regions `[R, 4]` as x1, y1, x2, y2 in the coordinates of the input image; images `[R]` says whose
    feature map. Gives `[R, C, *output_size]`. A bin has `sampling_ratio` samples along each axis, or with 0 as many as
    it spans elements. With mode "max" a bin is the greatest of all terms weight * element of its samples (not of the
    interpolated values): so the operator defines it. `half_pixel` moves coordinates by half an element.
    """
    wide = accumulated(x)
    result = np.zeros((regions.shape[0], x.shape[1], *output_size), dtype=wide.dtype)
    offset = 0.5 if coordinate_mode == "half_pixel" else 0.0
    corners = regions.astype(wide.dtype) * wide.dtype.type(spatial_scale) - wide.dtype.type(offset)
    for index, (left, top, right, bottom) in enumerate(corners):
        width, height = right - left, bottom - top
        if coordinate_mode != "half_pixel":
            width, height = np.maximum(width, 1), np.maximum(height, 1)
        rows = _samples(top, height, output_size[0], sampling_ratio, x.shape[2])
        columns = _samples(left, width, output_size[1], sampling_ratio, x.shape[3])
        if rows[0].size and columns[0].size and x.size:
            result[index] = _pool_samples(wide[int(images[index])], rows, columns, mode)
    return result.astype(x.dtype, copy=False)


_Samples = tuple[Array, Array, Array, Array]


def _samples(start: Any, length: Any, bins: int, ratio: int, size: int) -> _Samples:
    """Sample positions along an axis, `[bins, samples]`: element before, element after, and the weight of each.

    `start` and `length` are scalars of f32 or f64. Their precision and the order of operations are those of ONNX's
    reference: the number of samples, and which lie outside, hang on the last bit.
    """
    step = length / bins
    count = ratio if ratio > 0 else max(int(np.ceil(step)), 0)
    order, within = np.arange(bins, dtype=step.dtype), np.arange(count, dtype=step.dtype)
    position = (start + order * step)[:, None] + (within + step.dtype.type(0.5)) * step / max(count, 1)
    is_inside = (position >= -1.0) & (position <= size)
    position = np.clip(position, 0, max(size - 1, 0))
    before = np.floor(position).astype(np.int64)
    fraction = position - before
    return before, np.minimum(before + 1, size - 1), (1 - fraction) * is_inside, fraction * is_inside


def _pool_samples(image: Array, rows: _Samples, columns: _Samples, mode: str) -> Array:
    terms = [_terms(image, rows, columns, low, left) for low in (0, 1) for left in (0, 1)]
    if mode == "max":
        return np.asarray(np.maximum.reduce(terms).max(axis=(2, 4)))
    return np.asarray(reduce(np.add, terms).mean(axis=(2, 4)))


def _terms(image: Array, rows: _Samples, columns: _Samples, low: int, left: int) -> Array:
    """Weight times element for one corner of every sample: `[C, bins, samples, bins, samples]`."""
    row_weight, column_weight = (axis[2 + side].astype(image.dtype) for axis, side in ((rows, low), (columns, left)))
    values = image[:, rows[low].reshape(-1)[:, None], columns[left].reshape(-1)]
    weights = row_weight[:, :, None, None] * column_weight
    return np.asarray(values.reshape(image.shape[0], *weights.shape) * weights)


# ---- max_roi_pool


def _max_roi_pool_type(x: TensorType, regions: TensorType, *, output_size: Sequence[int], **_attrs: Any) -> TensorType:
    return _regions_type(x, regions, output_size, 5)


def max_roi_pool(x: Array, regions: Array, *, output_size: Sequence[int], spatial_scale: float) -> Array:
    """The greatest element in each bin of each region, as ONNX MaxRoiPool (Fast R-CNN, arXiv 1504.08083).

    x `[N, C, H, W]`; regions `[R, 5]` as image, x1, y1, x2, y2. Gives `[R, C, *output_size]`. Corners are rounded to
    whole elements, halves away from zero; an empty bin is 0.
    """
    result = np.zeros((regions.shape[0], x.shape[1], *output_size), dtype=x.dtype)
    scaled = regions[:, 1:].astype(np.float64) * spatial_scale
    corners = np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int64)
    for index, (left, top, right, bottom) in enumerate(corners.tolist()):
        image = x[int(regions[index, 0])]
        for row, rows in enumerate(_bins(top, bottom, output_size[0], x.shape[2])):
            for column, columns in enumerate(_bins(left, right, output_size[1], x.shape[3])):
                part = image[:, rows, columns]
                if part.size:
                    result[index, :, row, column] = part.max(axis=(1, 2))
    return result


def _bins(first: int, last: int, bins: int, size: int) -> list[slice]:
    """The elements of each bin, held inside; neighbors share an element where a boundary cuts it."""
    length = max(last - first + 1, 1)
    edges = [(first + index * length // bins, first - (-(index + 1) * length // bins)) for index in range(bins)]
    return [slice(min(max(start, 0), size), min(max(end, 0), size)) for start, end in edges]


OPS: tuple[Op, ...] = (
    op(
        "roi_align",
        "x: T, regions: T, images: I",
        T=FLOATS,
        I=I64,
        attrs=(
            _OUTPUT_SIZE,
            Attribute("sampling_ratio", AttrKind.INT, 0),
            _SPATIAL_SCALE,
            Attribute("mode", AttrKind.STRING, "avg", ("avg", "max")),
            Attribute("coordinate_mode", AttrKind.STRING, "half_pixel", ("half_pixel", "output_half_pixel")),
        ),
        infer=_roi_align_type,
        meaning=roi_align,
        traits=Trait.REFUSES_EMPTY,
    ),
    op(
        "max_roi_pool",
        "x: T, regions: T",
        T=FLOATS,
        attrs=(_OUTPUT_SIZE, _SPATIAL_SCALE),
        infer=_max_roi_pool_type,
        meaning=max_roi_pool,
        traits=Trait.REFUSES_EMPTY,
    ),
)
