"""Resampling to other sizes: `resize` and `dynamic_resize`, with every mode of ONNX Resize 19.

Resampling is separable: one axis after the other, each by a few gathers along it with weights that depend on the output
index alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...attrs import Attribute, AttrKind, Attrs
from ...constant import Array
from ...dims import Dim, dim_max, dim_min
from ...dims.constraints import require_equal
from ...errors import ShapeError, TypeRuleError
from ...op import ANY, FLOATS, FRESH, I64, SUB_BYTE, Op, Trait, op
from ...types import DType, TensorType, Type
from ..elementwise import by_component, is_small_float
from ..rules import normal_axes, require_rank
from ..sampling import cubic_kernel

_CROP = "tf_crop_and_resize"
_COORDINATE_MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    _CROP,
)
_NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_POLICIES = ("stretch", "not_larger", "not_smaller")
_MODE_ATTRS = (
    Attribute("mode", AttrKind.STRING, "nearest", ("nearest", "linear", "cubic")),
    Attribute("coordinate_mode", AttrKind.STRING, "half_pixel", _COORDINATE_MODES),
    Attribute("nearest_mode", AttrKind.STRING, "round_prefer_floor", _NEAREST_MODES),
    Attribute("policy", AttrKind.STRING, "stretch", _POLICIES),
    Attribute("cubic_coefficient", AttrKind.FLOAT, -0.75),
    Attribute("exclude_outside", AttrKind.BOOL, False),
    Attribute("antialias", AttrKind.BOOL, False),
    Attribute("extrapolation_value", AttrKind.FLOAT, 0.0),
)
_AXES = Attribute("axes", AttrKind.INTS)


# ---- sizes


def resized_sizes(sizes: Sequence[Dim], wanted: Sequence[Dim], policy: str) -> tuple[Dim, ...]:
    """The sizes after resizing `sizes` to `wanted` under an aspect policy (ONNX's keep_aspect_ratio_policy).

    With `not_larger` every axis is scaled by the least of the ratios wanted / size, and halves are rounded up; with
    `not_smaller` by the greatest.
    """
    if policy == "stretch":
        return tuple(wanted)
    if any(isinstance(size, int) and not size for size in sizes):
        raise ShapeError(f"an aspect policy cannot scale an axis of size 0: {list(sizes)}")
    pick = dim_min if policy == "not_larger" else dim_max
    return tuple(
        pick(*((2 * target * size + other) // (2 * other) for target, other in zip(wanted, sizes, strict=True)))
        for size in sizes
    )


def _with_sizes(x: TensorType, axes: Sequence[int], sizes: Sequence[Dim]) -> TensorType:
    found = dict(zip(axes, sizes, strict=True))
    return x.with_shape(tuple(found.get(axis, dim) for axis, dim in enumerate(x.dims)))


def _check_region(roi: TensorType | None, count: int, coordinate_mode: str) -> None:
    if roi is None:
        if coordinate_mode == _CROP:
            raise TypeRuleError(f"coordinate mode {_CROP} needs the operand roi")
        return
    require_rank(roi, 1, "the region of resize")
    require_equal(roi.dims[0], 2 * count, "the region of resize has a begin and an end for each axis")


def _resize_type(
    x: TensorType,
    roi: TensorType | None,
    *,
    axes: Sequence[int],
    sizes: Sequence[Dim],
    scales: Sequence[float] | None,
    coordinate_mode: str,
    policy: str,
    **_modes: Any,
) -> TensorType:
    at = normal_axes(axes, x.rank)
    if len(sizes) != len(at) or (scales is not None and len(scales) != len(at)):
        raise TypeRuleError(f"resize needs a size and a scale for each of {len(at)} axes")
    if scales is not None and policy != "stretch":
        raise TypeRuleError("an aspect policy goes with sizes, not with scales")
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise ShapeError(f"resize cannot make sizes {list(sizes)}")
    _check_region(roi, len(at), coordinate_mode)
    return _with_sizes(x, at, resized_sizes([x.dims[axis] for axis in at], sizes, policy))


# ---- one axis


@dataclass(frozen=True)
class ResampledAxis:
    """How one axis is resampled: `scale` may differ from `after / before`, and [start, end] is the region."""

    before: int
    after: int
    scale: float | Fraction
    start: float = 0.0
    end: float = 1.0

    @property
    def ratio(self) -> tuple[float, float]:
        """Two numbers whose quotient is the scale, whole ones where sizes make it: no rounding of it moves elements."""
        if isinstance(self.scale, Fraction):
            return float(self.scale.numerator), float(self.scale.denominator)
        return (self.after, self.before) if self.scale == self.after / self.before else (self.scale, 1.0)

    @property
    def length(self) -> float:
        """The output length before it was rounded: that of a scale made of sizes is the size, exactly."""
        by, of = self.ratio
        return by * self.before / of

    @property
    def is_single(self) -> bool:
        """Whether the length is 1, but for the rounding of a scale to f32: 3 times 0.333333343 is 1, too."""
        return bool(np.float32(self.length) == 1)


def positions(axis: ResampledAxis, mode: str) -> Array:
    """Where each output element lies in the input, in elements; on one, or between two, exactly where it lies there."""
    index = np.arange(axis.after, dtype=np.float64)
    last, (by, of) = axis.before - 1, axis.ratio
    if mode == "align_corners":
        return index * (last * of) / (axis.before * by - of) if not axis.is_single else np.zeros_like(index)
    if mode == "asymmetric":
        return index * of / by
    if mode == _CROP:
        if axis.is_single:
            return np.full_like(index, (axis.start + axis.end) * last / 2)
        # both ends of the region are met exactly: one that is an edge of the input is not outside of it
        return ((axis.length - 1 - index) * axis.start + index * axis.end) * last / (axis.length - 1)
    if mode == "pytorch_half_pixel" and axis.is_single:
        return np.zeros_like(index)
    if mode == "half_pixel_symmetric":  # the middle of the output lies on that of the input
        return (2 * index + 1 - axis.after) * of / (2 * by) + last / 2
    return (2 * index + 1) * of / (2 * by) - 0.5


def _nearest(position: Array, mode: str) -> Array:
    if mode == "floor":
        return np.floor(position)
    if mode == "ceil":
        return np.ceil(position)
    return np.ceil(position - 0.5) if mode == "round_prefer_floor" else np.floor(position + 0.5)


def _taps(position: Array, scale: float, mode: str, cubic: float, antialias: bool) -> tuple[Array, Array]:
    """Indices (not yet held inside) and weights of the input elements that make each output element, `[outputs, taps]`.

    With antialiasing the kernel is stretched when shrinking, and its weights are normalized.
    """
    stretch = min(scale, 1.0) if antialias else 1.0
    radius = 1 if mode == "linear" else 2
    first = int(np.floor(-radius / stretch)) + 1
    before = np.ceil(position) - 1
    offsets = np.arange(first, 2 - first)
    distance = np.abs(offsets - (position - before)[:, None]) * stretch
    weights = np.maximum(1 - distance, 0) if mode == "linear" else cubic_kernel(distance, cubic)
    if antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return before.astype(np.int64)[:, None] + offsets, weights


def _gathered(x: Array, axis: int, indices: Array, weights: Array) -> Array:
    """The weighted sum of elements along `axis`, one gather for each tap."""
    held = np.clip(indices, 0, x.shape[axis] - 1)
    shape = [1] * x.ndim
    shape[axis] = -1
    total: Array = np.zeros(1, dtype=x.dtype)
    for tap in range(indices.shape[1]):
        weight = weights[:, tap].astype(x.dtype).reshape(shape)
        term = np.take(x, held[:, tap], axis=axis) * weight
        total = term if tap == 0 else np.add(total, term, out=term)
    return total


def _samples(position: Array, how: ResampledAxis, modes: Mapping[str, Any]) -> tuple[Array, Array]:
    """Indices (not yet held inside) and weights for the output elements at these positions, `[outputs, taps]`."""
    if modes["mode"] == "nearest":
        index = _nearest(position, modes["nearest_mode"]).astype(np.int64)[:, None]
        return index, np.ones(index.shape)
    indices, weights = _taps(position, float(how.scale), modes["mode"], modes["cubic_coefficient"], modes["antialias"])
    if modes["exclude_outside"]:
        weights = np.where((indices >= 0) & (indices < how.before), weights, 0.0)
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    return indices, weights


def _resample(x: Array, axis: int, how: ResampledAxis, modes: dict[str, Any]) -> Array:
    position = positions(how, modes["coordinate_mode"])
    indices, weights = _samples(position, how, modes)
    return _extrapolated(_gathered(x, axis, indices, weights), axis, position, how, modes)


def _pick_nearest(x: Array, axis: int, how: ResampledAxis, modes: dict[str, Any]) -> Array:
    position = positions(how, modes["coordinate_mode"])
    index = np.clip(_samples(position, how, modes)[0][:, 0], 0, how.before - 1)
    return _extrapolated(np.take(x, index, axis=axis), axis, position, how, modes)


def _extrapolated(x: Array, axis: int, position: Array, how: ResampledAxis, modes: dict[str, Any]) -> Array:
    """`x` with the extrapolation value where a cropped region reaches outside."""
    is_outside = (position < 0) | (position > how.before - 1)
    if modes["coordinate_mode"] != _CROP or not is_outside.any():
        return x
    index: list[Any] = [slice(None)] * x.ndim
    index[axis] = is_outside
    x[tuple(index)] = as_elements(np.array(modes["extrapolation_value"]), x.dtype)
    return x


# ---- resize


def resize(
    x: Array,
    roi: Array | None,
    *,
    axes: Sequence[int],
    sizes: Sequence[int],
    scales: Sequence[float] | None,
    **modes: Any,
) -> Array:
    """Resamples `axes` of x to `sizes`, as ONNX Resize 19.

    `scales` (one for each axis, default: output size / input size) place the samples; they may be more exact than the
    sizes, which are rounded down. `roi` `[2 * len(axes)]`, all begins and then all ends as parts of the input, counts
    for coordinate mode tf_crop_and_resize alone. f16 and bf16 are computed in f32, integers in f64 and truncated.
    """
    at, after, ratios = resize_targets(x.shape, axes, sizes, scales, modes)
    return _resize_axes(x, roi, at, after, ratios, modes)


def resize_samples(
    shape: Sequence[int],
    *,
    axes: Sequence[int],
    sizes: Sequence[int],
    scales: Sequence[float] | None,
    **modes: Any,
) -> list[tuple[int, Array, Array]]:
    """What `resize` of a tensor of `shape` sums up: each axis that it changes, in order, with indices and weights.

    Output index i along the axis is the sum over t of weights[i, t] (f64) times the element at indices[i, t] (i64).
    Without a region: coordinate mode tf_crop_and_resize depends on an operand.
    """
    at, after, ratios = resize_targets(shape, axes, sizes, scales, modes)
    found: list[tuple[int, Array, Array]] = []
    for axis, size, scale in zip(at, after, ratios, strict=True):
        how = ResampledAxis(shape[axis], size, scale)
        if size == how.before and scale == 1:
            continue
        indices, weights = _samples(positions(how, modes["coordinate_mode"]), how, modes)
        found.append((axis, np.clip(indices, 0, how.before - 1), weights))
    return found


def resize_targets(
    shape: Sequence[int],
    axes: Sequence[int],
    sizes: Sequence[int],
    scales: Sequence[float] | None,
    modes: Mapping[str, Any],
) -> tuple[tuple[int, ...], list[int], list[float | Fraction]]:
    """The axes that are resized, their sizes afterwards, and the scales that place the samples, exact if of sizes."""
    at = normal_axes(axes, len(shape))
    before = [shape[axis] for axis in at]
    after = [size for size in resized_sizes(before, sizes, modes["policy"]) if isinstance(size, int)]
    ratios: list[float | Fraction] = [*scales] if scales is not None else _ratios(before, sizes, modes["policy"])
    return at, after, ratios


def _ratios(before: Sequence[int], wanted: Sequence[int], policy: str) -> list[float | Fraction]:
    ratios: list[float | Fraction] = [
        Fraction(target, size) if size else 1.0 for target, size in zip(wanted, before, strict=True)
    ]
    if policy == "stretch" or not ratios:
        return ratios
    common = min(ratios) if policy == "not_larger" else max(ratios)
    return [common] * len(ratios)


def _resize_axes(
    x: Array,
    roi: Array | None,
    axes: Sequence[int],
    sizes: Sequence[int],
    scales: Sequence[float | Fraction],
    modes: dict[str, Any],
) -> Array:
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    if 0 in shape or 0 in x.shape:
        if 0 in x.shape and 0 not in shape:
            raise ShapeError(f"resize cannot make {shape} of nothing: the input is {list(x.shape)}")
        return np.zeros(shape, dtype=x.dtype)
    region = [0.0] * len(axes) + [1.0] * len(axes) if roi is None else roi.astype(np.float64).tolist()
    begins, ends = region[: len(axes)], region[len(axes) :]
    is_nearest = modes["mode"] == "nearest"
    hows = {
        axis: ResampledAxis(x.shape[axis], size, scale, begin, end)
        for axis, size, scale, begin, end in zip(axes, sizes, scales, begins, ends, strict=True)
        # At scale 1 every mode takes each element to itself.
        if size != x.shape[axis] or scale != 1 or modes["coordinate_mode"] == _CROP
    }

    def resample(part: Array, modes: dict[str, Any] = modes) -> Array:
        for axis, how in hows.items():
            part = _pick_nearest(part, axis, how, modes) if is_nearest else _resample(part, axis, how, modes)
        return part

    def imaginary(part: Array) -> Array:
        return resample(part, {**modes, "extrapolation_value": 0.0})

    wide = x if is_nearest or not hows else _resampled_dtype(x)
    return as_elements(by_component(resample, wide, imaginary), x.dtype)


def element_range(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The least and the greatest f64 that an integer type holds."""
    limits = np.iinfo(dtype)
    greatest = float(limits.max)
    return float(limits.min), greatest if int(greatest) <= limits.max else float(np.nextafter(greatest, 0.0))


def as_elements(x: Array, dtype: np.dtype[Any]) -> Array:
    """Resampled elements as their own type: integers are cut off, and those that it does not hold are held in range."""
    if dtype.kind in "iu" and x.dtype.kind == "f":
        least, greatest = element_range(dtype)
        x = np.fmin(np.fmax(x, least), greatest)
    return x.astype(dtype, copy=False)


def _resampled_dtype(x: Array) -> Array:
    if is_small_float(x):
        return x.astype(np.float32)
    return x.astype(np.float64) if x.dtype.kind in "biuO" else x


# ---- dynamic


def _dynamic_resize_type(
    x: TensorType,
    roi: TensorType | None,
    scales: TensorType | None,
    sizes: TensorType | None,
    *,
    axes: Sequence[int],
    coordinate_mode: str,
    **_modes: Any,
) -> TensorType:
    at = normal_axes(axes, x.rank)
    if (scales is None) == (sizes is None):
        raise TypeRuleError("dynamic_resize takes either scales or sizes")
    for operand in (scales, sizes):
        if operand is not None:
            require_rank(operand, 1, "scales and sizes")
            require_equal(operand.dims[0], len(at), "there is a scale or size for each axis")
    _check_region(roi, len(at), coordinate_mode)
    return _with_sizes(x, at, [FRESH] * len(at))


def dynamic_resize(
    x: Array, roi: Array | None, scales: Array | None, sizes: Array | None, *, axes: Sequence[int], **modes: Any
) -> Array:
    """`resize` with scales f32 `[len(axes)]` or sizes i64 `[len(axes)]` known only at run time.

    A size that follows from a scale is input size * scale, computed in f32 and rounded down.
    """
    at = normal_axes(axes, x.ndim)
    if sizes is not None:
        return resize(x, roi, axes=at, sizes=[int(size) for size in sizes], scales=None, **modes)
    assert scales is not None  # the type rule wants one of them
    found = [
        int(np.floor(np.float32(x.shape[axis]) * np.float32(scale))) for axis, scale in zip(at, scales, strict=True)
    ]
    return resize(x, roi, axes=at, sizes=found, scales=[float(scale) for scale in scales], **modes)


def _flops(_inputs: Sequence[Type | None], outputs: Sequence[Type], attrs: Attrs) -> Dim:
    result = outputs[0]
    assert isinstance(result, TensorType)
    taps = {"nearest": 0, "linear": 2, "cubic": 4}[attrs["mode"]]
    return result.size * (2 * taps * len(attrs["axes"]))


_RESIZED = ANY - SUB_BYTE

OPS: tuple[Op, ...] = (
    op(
        "resize",
        "x: T, roi: R?",
        T=_RESIZED,
        R=FLOATS - {DType.BF16},
        attrs=(_AXES, Attribute("sizes", AttrKind.DIMS), Attribute("scales", AttrKind.FLOATS, None), *_MODE_ATTRS),
        infer=_resize_type,
        meaning=resize,
        traits=Trait.KEEPS_AXES,
        flops=_flops,
    ),
    op(
        "dynamic_resize",
        "x: T, roi: R!?, scales: S!?, sizes: I!?",
        T=_RESIZED,
        R=FLOATS - {DType.BF16},
        S=frozenset({DType.F32}),
        I=I64,
        attrs=(_AXES, *_MODE_ATTRS),
        infer=_dynamic_resize_type,
        meaning=dynamic_resize,
        traits=Trait.DATA_DEPENDENT | Trait.READS_HOST,
        flops=_flops,
    ),
)
