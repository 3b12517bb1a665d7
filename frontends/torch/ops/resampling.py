"""Resampling to other sizes and at given positions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.dims import Dim, symbols
from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering

_NEAREST = {"mode": "nearest", "coordinate_mode": "asymmetric", "nearest_mode": "floor"}
_NEAREST_EXACT = {"mode": "nearest", "coordinate_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}


def _resize(
    c: Call, x: Value, scales: Sequence[float | None], axes: tuple[int, ...] | None = None, **attrs: Any
) -> Value:
    """Of the spatial axes; `scales` are the caller's, None where the sizes decide."""
    axes = tuple(range(2, x.tensor.rank)) if axes is None else axes
    given = None if not scales or any(scale is None for scale in scales) else tuple(float(s) for s in scales if s)
    return c.op("resize", x, None, axes=axes, sizes=tuple(c.shape[axis] for axis in axes), scales=given, **attrs)


def _is_on_cpu(c: Call) -> bool:
    return bool(c.results[0].device.type == "cpu")


def _kept(c: Call, x: Value, scales: Sequence[float | None], factors: Sequence[int]) -> Sequence[float | None]:
    """The scales without those that the kernels of the CPU pass over: where a size grows by just one of `factors`."""
    if not scales or None in scales or not _is_on_cpu(c):
        return scales
    sizes = zip(x.shape[2:], c.shape[2:], scales, strict=True)
    return [next((float(by) for by in factors if old * by == new), scale) for old, new, scale in sizes]


def _may_pass_over(old: Dim, scale: float | None, by: int) -> bool:
    """Whether an open size may grow by just `by` where its factor is another: floor(n * scale) = n * by, n above 1."""
    return symbols(old) != frozenset() and scale is not None and by < scale < by + 0.5


def _resized(c: Call, x: Value, scales: Sequence[float | None], factors: Sequence[int], **attrs: Any) -> Value:
    """Axis by axis where only running tells whether kernels of the CPU pass over a factor."""
    scales, axes = _kept(c, x, scales, factors), range(2, x.tensor.rank)
    if not _is_on_cpu(c) or not any(
        _may_pass_over(x.shape[axis], scale, by) for axis, scale in zip(axes, scales, strict=False) for by in factors
    ):
        return _resize(c, x, scales, **attrs)
    for axis, scale in zip(axes, scales, strict=True):
        x = _along(c, x, axis, scale, factors, **attrs)
    return x


def _along(c: Call, x: Value, axis: int, scale: float | None, factors: Sequence[int], **attrs: Any) -> Value:
    """One axis, on the CPU; of an open size by what its factor is once the size is known."""
    found = _resize(c, x, [scale], (axis,), **attrs)
    for by in factors:
        if _may_pass_over(x.shape[axis], scale, by):
            sizes = c.value(x.shape[axis] * by, DType.I64), c.value(c.shape[axis], DType.I64)
            found = c.op("where", c.op("equal", *sizes), _resize(c, x, [float(by)], (axis,), **attrs), found)
    return found


def _scales(rest: Sequence[Any]) -> Sequence[float | None]:
    """From `scales_h, scales_w`, or from a list of factors; none where the sizes decide."""
    given = rest[0] if rest and isinstance(rest[0], list) else rest
    return given if any(scale is not None for scale in given) else ()


def _nearest(attrs: dict[str, Any], factors: Sequence[int] = ()) -> Lowering:
    return lambda c, x, _size, *rest: _resized(c, x, _scales(rest), factors, **attrs)


_ANTIALIASED = {False: {}, True: {"antialias": True, "exclude_outside": True}}


def _smooth(mode: str, antialias: bool = False) -> Lowering:
    def lower(c: Call, x: Value, _size: Any, align_corners: bool, *rest: Any) -> Value:
        if antialias and align_corners:
            raise NoLowering("antialiasing between aligned corners")
        coordinates = "align_corners" if align_corners else "half_pixel"  # the corners alone decide
        is_plain = x.tensor.dtype.is_float and mode == "cubic"
        scales, factors = () if align_corners else _scales(rest), () if is_plain else (1,)
        attrs: dict[str, Any] = {"mode": mode, **_ANTIALIASED[antialias], "coordinate_mode": coordinates}
        if x.tensor.dtype.is_float:
            return _resized(c, x, scales, factors, **attrs)
        return _resized_bytes(c, x, scales, **attrs)

    return lower


def _resized_bytes(c: Call, x: Value, scales: Sequence[float | None], **attrs: Any) -> Value:
    """Bytes of pictures, rounded and held in range: on the CPU after each axis, the last first, halves upwards."""
    dtype = x.tensor.dtype
    limits = [c.constant(np.float32(each)) for each in (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)]
    if not _is_on_cpu(c):
        whole = _resize(c, c.cast(x, DType.F32), scales, **attrs)
        return c.cast(c.op("clip", c.op("round", whole), *limits), dtype)
    wide, scales = c.cast(x, DType.F32), _kept(c, x, scales, (1,))
    for axis in reversed(range(2, x.tensor.rank)):
        found = _along(c, wide, axis, scales[axis - 2] if scales else None, (1,), **attrs)
        wide = c.op("clip", c.op("floor", c.op("add", found, c.constant(np.float32(0.5)))), *limits)
    return c.cast(wide, dtype)


_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


def _grid_sample(c: Call, x: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    attrs = {"mode": _MODES[mode], "padding": _PADDINGS[padding], "align_corners": align_corners}
    return c.op("grid_sample", x, grid, **attrs)


def _affine_grid(c: Call, theta: Value, size: Sequence[Any], align_corners: bool) -> Value:
    return c.op("affine_grid", theta, size=tuple(size[2:]), align_corners=align_corners)


TABLE: dict[str, Lowering] = {
    "aten.upsample_nearest1d": _nearest(_NEAREST),
    "aten.upsample_nearest2d": _nearest(_NEAREST, (1, 2)),
    "aten.upsample_nearest3d": _nearest(_NEAREST),
    **{f"aten._upsample_nearest_exact{axes}d": _nearest(_NEAREST_EXACT) for axes in (1, 2, 3)},
    "aten.upsample_linear1d": _smooth("linear"),
    "aten.upsample_bilinear2d": _smooth("linear"),
    "aten.upsample_trilinear3d": _smooth("linear"),
    "aten.upsample_bicubic2d": _smooth("cubic"),
    "aten._upsample_bilinear2d_aa": _smooth("linear", antialias=True),
    "aten.grid_sampler": _grid_sample,
    "aten.grid_sampler_2d": _grid_sample,
    "aten.grid_sampler_3d": _grid_sample,
    "aten.affine_grid_generator": _affine_grid,
}
