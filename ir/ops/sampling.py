"""Sampling at fractional positions: `grid_sample`, `affine_grid`, `deform_conv`. Any number of spatial axes.

A position has one coordinate for each spatial axis, in elements: 0 is the center of the first. Its value is a sum over
the corners (or the 4 x 4 neighborhood, cubic) around it, each corner one vectorized gather.
"""

from collections.abc import Callable, Sequence
from itertools import product as cartesian
from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind, Attrs
from ..constant import Array
from ..dims import Dim, product
from ..dims.constraints import require_equal
from ..errors import TypeRuleError
from ..op import BOOLS, COMPLEX, FLOATS, INTEGERS, Flops, Op, op
from ..types import TensorType, Type
from .elementwise import by_component, is_small_float
from .nn.conv import GROUPS, check_bias, conv_flops, conv_shape
from .nn.linear import accumulated, multiply
from .nn.windows import DILATIONS, PADS, STRIDES, volume
from .rules import require_rank

CUBIC_COEFFICIENT = -0.75
"""`a` of Keys' cubic kernel, as PyTorch and ONNX GridSample fix it."""

_FAR = -100.0
"""Where a coordinate that is not a number is taken to lie: outside, as in PyTorch."""


def cubic_weights(ratio: Array, a: float = CUBIC_COEFFICIENT) -> list[Array]:
    """Weights of the elements at -1, 0, 1, 2 for a position `ratio` after 0 (Keys, doi 10.1109/TASSP.1981.1163711)."""
    return [cubic_kernel(distance, a) for distance in (ratio + 1, ratio, 1 - ratio, 2 - ratio)]


def cubic_kernel(distance: Array, a: float) -> Array:
    """Keys' cubic convolution kernel at absolute distances."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def linear_weights(ratio: Array) -> list[Array]:
    """Weights of the elements at 0 and 1 for a position `ratio` after 0."""
    return [1 - ratio, ratio]


# ---- gathering


Outside = Callable[[Array, int], tuple[Array, Array | None]]
"""From indices along an axis of a size to indices inside, and where they count (None: everywhere)."""


def _zeros_outside(index: Array, size: int) -> tuple[Array, Array | None]:
    return np.clip(index, 0, size - 1), (index >= 0) & (index < size)


def _border_outside(index: Array, size: int) -> tuple[Array, Array | None]:
    return np.clip(index, 0, size - 1), None


def _reflection_outside(low: float, high_offset: float) -> Outside:
    def reflected(index: Array, size: int) -> tuple[Array, Array | None]:
        inside = reflect(index.astype(np.float64), low, size + high_offset)
        return np.clip(inside.astype(np.int64), 0, size - 1), None

    return reflected


def reflect(position: Array, low: float, high: float) -> Array:
    """Positions mirrored at `low` and `high` until they lie between them."""
    span = high - low
    if span <= 0:
        return np.full_like(position, low)
    distance = np.abs(position - low) % (2 * span)
    return np.asarray(low + np.where(distance > span, 2 * span - distance, distance))


def interpolate(
    x: Array, positions: Sequence[Array], first: int, weigh: Callable[[Array], list[Array]], outside: Outside
) -> Array:
    """Values `[N, G, C, P]` of `x` `[N, G, C, D1, ...]` at `positions`, one array `[N, G, P]` for each spatial axis.

    Along each axis, `weigh` gives the weights of consecutive elements for the fraction of a position; the first of them
    stands `first` before the position's floor.
    """
    sizes = x.shape[3:]
    flat = x.reshape(*x.shape[:3], volume(sizes))
    per_axis = [
        _weighted_indices(position, size, first, weigh, outside, x.dtype)
        for position, size in zip(positions, sizes, strict=True)
    ]
    result = np.zeros((*x.shape[:3], positions[0].shape[-1]), dtype=x.dtype)
    if not flat.size:
        return result
    for corner in cartesian(*per_axis):
        index = np.zeros(positions[0].shape, dtype=np.int64)
        weight = np.ones(positions[0].shape, dtype=x.dtype)
        for (along, factor), size in zip(corner, sizes, strict=True):
            index = index * size + along
            weight = weight * factor
        result += np.take_along_axis(flat, index[:, :, None], axis=3) * weight[:, :, None]
    return result


def _weighted_indices(
    position: Array, size: int, first: int, weigh: Callable[[Array], list[Array]], outside: Outside, dtype: Any
) -> list[tuple[Array, Array]]:
    floor = np.floor(position)
    found: list[tuple[Array, Array]] = []
    for offset, weight in enumerate(weigh(position - floor), start=first):
        index, counts = outside(floor.astype(np.int64) + offset, size)
        found.append((index, (weight if counts is None else weight * counts).astype(dtype)))
    return found


# ---- grid_sample


def _grid_sample_type(x: TensorType, grid: TensorType, **_attrs: Any) -> TensorType:
    spatial = x.rank - 2
    if spatial < 1:
        raise TypeRuleError(f"grid_sample takes a tensor [N, C, D1, ...], not {x}")
    require_rank(grid, x.rank, "the grid")
    require_equal(grid.dims[0], x.dims[0], "the grid has the batch size of the tensor that it samples")
    require_equal(grid.dims[-1], spatial, "the last axis of the grid has a coordinate for each spatial axis")
    return x.with_shape((*x.dims[:2], *grid.dims[1:-1]))


def grid_sample(x: Array, grid: Array, *, mode: str, padding: str, align_corners: bool) -> Array:
    """Samples x `[N, C, D1, ..., Dr]` at grid `[N, O1, ..., Or, r]`, giving `[N, C, O1, ..., Or]`; ONNX GridSample 22.

    Coordinates lie in [-1, 1], the last spatial axis first. -1 and 1 are the centers of the outermost elements with
    `align_corners`, else their outer edges. Modes: linear, nearest (halves to even), cubic; paddings: zeros, border,
    reflection. By border each neighbor outside is the nearest element, as in PyTorch and ONNX Runtime; onnx's reference
    moves the place, which for cubic samples is something else. Integers are sampled in f64 and truncated.
    """
    sizes = x.shape[2:]
    wide = _sampled_dtype(x)
    outer = grid.shape[1:-1]
    precision = np.float64 if grid.dtype.itemsize == 8 else np.float32
    coordinates = grid.reshape(grid.shape[0], 1, volume(outer), len(sizes)).astype(precision)
    positions = [
        _position(coordinates[..., -1 - axis], size, mode, padding, align_corners) for axis, size in enumerate(sizes)
    ]
    first, weigh = _KERNELS[mode]
    outside = _outside(padding, align_corners)

    def sample(part: Array) -> Array:
        return interpolate(part[:, None], positions, first, weigh, outside)

    sampled = by_component(sample, wide, sample)
    return sampled.reshape(*x.shape[:2], *outer).astype(x.dtype, copy=False)


def _sampled_dtype(x: Array) -> Array:
    if is_small_float(x):
        return x.astype(np.float32)
    return x.astype(np.float64) if x.dtype.kind in "biu" else x


_KERNELS: dict[str, tuple[int, Callable[[Array], list[Array]]]] = {
    "nearest": (0, lambda ratio: [np.ones_like(ratio)]),
    "linear": (0, linear_weights),
    "cubic": (-1, cubic_weights),
}


def _outside(padding: str, align_corners: bool) -> Outside:
    if padding == "zeros":
        return _zeros_outside
    if padding == "border":
        return _border_outside
    return _reflection_outside(0.0, -1.0) if align_corners else _reflection_outside(-0.5, -0.5)


def _position(coordinate: Array, size: int, mode: str, padding: str, align_corners: bool) -> Array:
    """Positions in elements from coordinates in [-1, 1], brought near enough to the tensor to be integers safely."""
    if align_corners:
        position = (coordinate + 1) / 2 * (size - 1)
    else:
        position = ((coordinate + 1) * size - 1) / 2
    position = np.where(np.isfinite(position), position, position.dtype.type(_FAR))
    if mode == "nearest":
        position = np.rint(position)
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    if padding == "reflection":
        is_outside = (position < low) | (position > high)
        return np.where(is_outside, reflect(position, low, high), position)
    if padding == "border" and mode != "cubic":
        return np.where((position < low) | (position > high), np.clip(position, 0, size - 1), position)
    return np.clip(position, -4, size + 3)  # all that is further outside is 0, or for cubic ones the border


def _corner_flops(taps: dict[str, int]) -> Flops:
    def rule(inputs: Sequence[Type | None], outputs: Sequence[Type], attrs: Attrs) -> Dim:
        result = outputs[0]
        assert isinstance(result, TensorType)
        corners: int = taps[attrs["mode"]] ** (result.rank - 2)
        return result.size * (2 * corners)

    return rule


# ---- affine_grid


def _affine_grid_type(theta: TensorType, *, size: Sequence[Dim], align_corners: bool) -> TensorType:
    require_rank(theta, 3, "the matrices of affine_grid")
    rank = len(size)
    require_equal(theta.dims[1], rank, "an affine matrix has a row for each spatial axis")
    require_equal(theta.dims[2], rank + 1, "an affine matrix has a column for each spatial axis and one more")
    return theta.with_shape((theta.dims[0], *size, rank))


def affine_grid(theta: Array, *, size: Sequence[int], align_corners: bool) -> Array:
    """The grid `[N, *size, r]` for `grid_sample` that affine matrices `[N, r, r + 1]` make, as ONNX AffineGrid.

    `size` is the spatial size of what will be sampled. An axis of size 1 lies at 0.
    """
    wide = accumulated(theta)
    axes = [_axis_coordinates(length, align_corners) for length in size]
    homogeneous = np.ones((*size, len(size) + 1), dtype=wide.dtype)
    for index, coordinates in enumerate(_mesh(axes)):
        homogeneous[..., len(size) - 1 - index] = coordinates
    flat = homogeneous.reshape(volume(size), len(size) + 1)
    grid = np.matmul(flat, wide.swapaxes(1, 2))
    return np.asarray(grid).reshape(theta.shape[0], *size, len(size)).astype(theta.dtype, copy=False)


def _axis_coordinates(length: int, align_corners: bool) -> Array:
    centered = 2 * np.arange(length) - (length - 1)
    return np.asarray(centered / max(length - 1, 1) if align_corners else centered / max(length, 1))


# ---- deform_conv


def _deform_conv_type(
    x: TensorType,
    weight: TensorType,
    offset: TensorType,
    bias: TensorType | None,
    mask: TensorType | None,
    *,
    offset_groups: int,
    **attrs: Any,
) -> TensorType:
    shape = conv_shape(x, weight, **attrs)
    check_bias(bias, shape[1])
    positions = product(weight.dims[2:]) * offset_groups
    spatial = x.rank - 2
    for operand, channels, what in ((offset, positions * spatial, "offset"), (mask, positions, "mask")):
        if operand is None:
            continue
        require_rank(operand, x.rank, f"the {what} of deform_conv")
        for found, wanted in zip(operand.dims, (shape[0], channels, *shape[2:]), strict=True):
            require_equal(found, wanted, f"the {what} of deform_conv has values for each position of each window")
    return x.with_shape(shape)


def deform_conv(
    x: Array,
    weight: Array,
    offset: Array,
    bias: Array | None,
    mask: Array | None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    offset_groups: int,
) -> Array:
    """Convolution that reads each window element at an offset and scales it by a mask, as ONNX DeformConv 22.

    x `[N, C, D1, ..., Dr]`; weight `[M, C/groups, K1, ...]`; offset `[N, offset_groups * prod(K) * r, O1, ...]`; bias
    `[M]`; mask `[N, offset_groups * prod(K), O1, ...]`. Interpolates linearly; outside is 0.
    """
    images, counts = x.shape[0], offset.shape[2:]
    taps, windows = volume(weight.shape[2:]), volume(counts)
    shifts = accumulated(offset).reshape(images, offset_groups, taps, x.ndim - 2, windows)
    positions = [
        (shifts[:, :, :, axis] + whole).reshape(images, offset_groups, taps * windows)
        for axis, whole in enumerate(_undeformed(weight.shape[2:], counts, strides, pads, dilations))
    ]
    held = [np.clip(position, -2, size + 1) for position, size in zip(positions, x.shape[2:], strict=True)]
    grouped = accumulated(x).reshape(images, offset_groups, x.shape[1] // offset_groups, *x.shape[2:])
    columns = interpolate(grouped, held, 0, linear_weights, _zeros_outside)
    if mask is not None:
        columns = columns * accumulated(mask).reshape(images, offset_groups, 1, taps * windows)
    matrix = accumulated(weight).reshape(groups, weight.shape[0] // groups, -1)
    y = multiply(matrix, columns.reshape(images, groups, matrix.shape[2], windows))
    if bias is not None:
        y = y + accumulated(bias).reshape(groups, -1, 1)
    return y.reshape(images, weight.shape[0], *counts).astype(x.dtype, copy=False)


def _undeformed(
    kernel: Sequence[int], counts: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> list[Array]:
    """For each spatial axis, where the elements of the windows lie before they are moved: `[taps, windows]`."""
    starts = [np.arange(n) * s - p for n, s, p in zip(counts, strides, pads[: len(counts)], strict=True)]
    steps = [np.arange(k) * d for k, d in zip(kernel, dilations, strict=True)]
    first, within = _mesh(starts), _mesh(steps)
    return [step.reshape(-1, 1) + start.reshape(-1) for step, start in zip(within, first, strict=True)]


def _mesh(axes: Sequence[Array]) -> list[Array]:
    return [np.asarray(grid) for grid in np.meshgrid(*axes, indexing="ij")]


OPS: tuple[Op, ...] = (
    op(
        "grid_sample",
        "x: T, grid: G",
        T=BOOLS | INTEGERS | FLOATS | COMPLEX,
        G=FLOATS,
        attrs=(
            Attribute("mode", AttrKind.STRING, "linear", ("linear", "nearest", "cubic")),
            Attribute("padding", AttrKind.STRING, "zeros", ("zeros", "border", "reflection")),
            Attribute("align_corners", AttrKind.BOOL, False),
        ),
        infer=_grid_sample_type,
        meaning=grid_sample,
        flops=_corner_flops({"nearest": 1, "linear": 2, "cubic": 4}),
    ),
    op(
        "affine_grid",
        "theta: T",
        T=FLOATS,
        attrs=(Attribute("size", AttrKind.DIMS), Attribute("align_corners", AttrKind.BOOL, False)),
        infer=_affine_grid_type,
        meaning=affine_grid,
    ),
    op(
        "deform_conv",
        "x: T, weight: T, offset: T, bias: T?, mask: T?",
        T=FLOATS,
        attrs=(STRIDES, PADS, DILATIONS, GROUPS, Attribute("offset_groups", AttrKind.INT, 1)),
        infer=_deform_conv_type,
        meaning=deform_conv,
        flops=conv_flops,
    ),
)
