"""Operands of resampling: resize, grids, deformable windows, regions of interest; and of spectra."""

from typing import Any

from capgraph.ir.dims import Dim, product
from capgraph.ir.graph import Value
from capgraph.ir.op import FLOATS, Op
from capgraph.ir.types import DType

from tests.strategies.draw import GraphDraw, Sample, Sampler, positive, sample
from tests.strategies.ops.windows import conv_operands, image
from tests.strategies.sizes import at_home

NOT_SCALAR = (3, 2, 4, 1)


def _known(shape: tuple[Dim, ...]) -> bool:
    return all(map(positive, shape))


# ---- resize


def _region(d: GraphDraw, dtype: DType, count: int, mode: str) -> Value | None:
    return d.shaped(dtype, (2 * count,)) if mode == "tf_crop_and_resize" or d.choose.chance(20) else None


def resize(d: GraphDraw, op: Op) -> Sample:
    """To sizes, or to sizes that come with the scales that they were made from."""
    dtypes, modes = d.dtypes(op), d.options(op)
    if dtypes["x"] is DType.STRING:
        modes["mode"] = "nearest"
    x = d.value(dtypes["x"], NOT_SCALAR, _known)
    axes = d.axes(len(x.shape), d.choose.integer(1, min(2, len(x.shape))))
    before = [x.shape[axis] for axis in axes]
    sizes: tuple[Dim, ...] = tuple(_some_size(d) for _ in axes)
    scales = None
    if all(isinstance(dim, int) for dim in before) and d.choose.chance(40):
        modes["policy"] = "stretch"
        scales = tuple(d.choose.pick((0.5, 1.0, 2.0, 1.5)) for _ in axes)
        sizes = tuple(int(dim * scale) for dim, scale in zip(before, scales, strict=True) if isinstance(dim, int))
    roi = _region(d, dtypes["roi"], len(axes), modes["coordinate_mode"])
    return sample(x, roi, axes=axes, sizes=sizes, scales=scales, **modes)


def _some_size(d: GraphDraw) -> Dim:
    dim = d.known_dim()
    return dim if positive(dim) and (at_home(dim) or 0) <= 8 else 3


def dynamic_resize(d: GraphDraw, op: Op) -> Sample:
    dtypes, modes = d.dtypes(op), d.options(op)
    if dtypes["x"] is DType.STRING:
        modes["mode"] = "nearest"
    x = d.value(dtypes["x"], NOT_SCALAR, _known)
    axes = d.axes(len(x.shape), 1)
    roi = _region(d, dtypes["roi"], 1, modes["coordinate_mode"])
    if (d.subject is not None and d.subject.operand == "scales") or d.choose.chance(50):
        modes["policy"] = "stretch"
        return sample(x, roi, d.constant([d.choose.pick((0.5, 1.0, 2.0, 1.5))], DType.F32), None, axes=axes, **modes)
    return sample(x, roi, None, d.steering(DType.I64, (1,), 1, 5), axes=axes, **modes)


# ---- grids


def grid_sample(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x = image(d, dtypes["x"], d.choose.integer(1, 2))
    outer = d.ints(len(x.shape) - 2, 1, 3)
    return sample(x, d.shaped(dtypes["grid"], (x.shape[0], *outer, len(outer))), **d.options(op))


def affine_grid(d: GraphDraw, op: Op) -> Sample:
    rank = d.choose.pick((2, 3, 1))
    theta = d.shaped(d.dtypes(op)["theta"], (d.known_dim(), rank, rank + 1))
    return sample(theta, size=tuple(_some_size(d) for _ in range(rank)), **d.options(op))


def deform_conv(d: GraphDraw, op: Op) -> Sample:
    dtype = d.dtypes(op)["x"]
    x, weight, attrs = conv_operands(d, dtype, dtype)
    counts = d.counts("conv", (x, weight, None), attrs)
    per_window = product(weight.shape[2:])
    offset = d.shaped(dtype, (x.shape[0], per_window * len(counts), *counts))
    mask = d.maybe(dtype, (x.shape[0], per_window, *counts))
    return sample(x, weight, offset, d.maybe(dtype, weight.shape[:1]), mask, **attrs)


# ---- regions of interest


def _feature_map(d: GraphDraw, dtype: DType) -> Value:
    return d.value(dtype, (4,), _known)


def roi_align(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x, count = _feature_map(d, dtypes["x"]), d.known_dim()
    regions = d.steering(dtypes["regions"], (count, 4), 0, 5)
    return sample(x, regions, d.steering(DType.I64, (count,), 0, x.shape[0]), **_output(d, op, d.choose.integer(0, 2)))


def _output(d: GraphDraw, op: Op, ratio: int | None = None) -> dict[str, Any]:
    sampling = {} if ratio is None else {"sampling_ratio": ratio}
    return {"output_size": d.ints(2, 1, 2), **sampling, **d.options(op)}


def max_roi_pool(d: GraphDraw, op: Op) -> Sample:
    """The first number of a region is its image, so all are indices into the batch."""
    dtypes = d.dtypes(op)
    x = _feature_map(d, dtypes["x"])
    return sample(x, d.steering(dtypes["regions"], (d.known_dim(), 5), 0, x.shape[0]), **_output(d, op))


# ---- spectra


def _signal(d: GraphDraw, dtype: DType, ranks: tuple[int, ...], parts: tuple[int, ...]) -> Value:
    found = [v for v in d.values if v.tensor.dtype is dtype and len(v.shape) in ranks and v.shape[-1] in parts]
    found = [v for v in found if _known(v.shape)]
    if found and d.choose.chance(60):
        return d.choose.pick(found)
    leading = [_some_size(d) for _ in range(d.choose.pick(ranks) - 1)]
    return d.source(dtype, (*leading, d.choose.pick(parts)))


def dft(d: GraphDraw, op: Op) -> Sample:
    x = _signal(d, d.dtypes(op)["x"], (3, 2), (1, 2))
    axis = d.choose.integer(0, len(x.shape) - 2)
    length = d.choose.pick((None, 1, 4, 5))
    return sample(x, axis=axis, length=length, **d.options(op))


def stft(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x = _signal(d, dtypes["x"], (3,), (1, 2))
    length = d.choose.integer(1, min(4, at_home(x.shape[1]) or 1))
    onesided = x.shape[2] == 1 and d.choose.chance(50)
    window = d.maybe(dtypes["window"], (length,))
    return sample(x, window, frame_step=d.choose.integer(1, 3), frame_length=length, onesided=onesided)


def mel_weight_matrix(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    rate = d.steering(dtypes["sample_rate"], (), 8, 99)
    low, high = d.steering(dtypes["low"], (), 0, 2), d.steering(dtypes["high"], (), 3, 5)
    dtype = d.choose.pick([dtype for dtype in DType if dtype in FLOATS])
    return sample(rate, low, high, bands=_some_size(d), dft_length=_some_size(d), dtype=dtype)


SAMPLERS: dict[str, Sampler] = {
    "resize": resize,
    "dynamic_resize": dynamic_resize,
    "grid_sample": grid_sample,
    "affine_grid": affine_grid,
    "deform_conv": deform_conv,
    "roi_align": roi_align,
    "max_roi_pool": max_roi_pool,
    "dft": dft,
    "stft": stft,
    "mel_weight_matrix": mel_weight_matrix,
}
