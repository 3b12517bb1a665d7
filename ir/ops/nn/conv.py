"""Convolutions: `conv`, `conv_transpose`, `col2im`. Tensors are `[N, C, D1, D2, ...]` with any number of spatial axes.

Every matmul goes through BLAS: the windows are unfolded into a matrix `[C/groups * kernel, positions]` for each group.
Copying them in one go is as fast as any other order of copies, and a batched matmul of unfolded windows also beats
shifted multiply-adds for depthwise kernels (1.5 to 2 times, at MobileNet's shapes). A 1x1 kernel with stride 1 needs
no copy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...attrs import Attribute, AttrKind, Attrs
from ...constant import Array
from ...dims import Dim, product, upper_bound
from ...dims.constraints import require_equal
from ...errors import ShapeError, TypeRuleError
from ...op import FLOATS, NUMBERS, Op, Trait, op
from ...types import TensorType, Type
from ..rules import require_rank
from .linear import accumulated
from .windows import (
    DILATIONS,
    PADS,
    STRIDES,
    add_windows,
    as_ints,
    check_windows,
    images_per_tile,
    padded,
    volume,
    window_counts,
    windows_view,
)

GROUPS = Attribute("groups", AttrKind.INT, 1)
CONV_ATTRS = (STRIDES, PADS, DILATIONS, GROUPS)


def conv_shape(
    x: TensorType,
    weight: TensorType,
    *,
    strides: Sequence[int],
    pads: Sequence[Dim],
    dilations: Sequence[int],
    groups: int,
) -> tuple[Dim, ...]:
    """The shape of a convolution of `x` `[N, C, ...]` with `weight` `[M, C/groups, ...]`, checked."""
    kernel = weight.dims[2:]
    require_rank(weight, x.rank, "the weight of a convolution")
    check_windows(x, strides, pads, dilations, kernel)
    _check_groups(groups, weight.dims[0], "output channels")
    require_equal(
        x.dims[1], weight.dims[1] * groups, "a convolution's input channels are those of its weight times groups"
    )
    return x.dims[0], weight.dims[0], *window_counts(x.dims[2:], kernel, strides, pads, dilations)


def _check_groups(groups: int, channels: Dim, what: str) -> None:
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise TypeRuleError(f"{channels} {what} cannot be split into {groups} groups")


def check_bias(bias: TensorType | None, channels: Dim) -> None:
    """Raises unless the bias, where there is one, has one entry for each output channel."""
    if bias is not None:
        require_rank(bias, 1, "a bias")
        require_equal(bias.dims[0], channels, "a bias has one entry for each output channel")


def _conv_type(x: TensorType, weight: TensorType, bias: TensorType | None, **attrs: Any) -> TensorType:
    shape = conv_shape(x, weight, **attrs)
    check_bias(bias, shape[1])
    return x.with_shape(shape)


def convolve(
    x: Array,
    weight: Array,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Array:
    """The convolution of arrays of one float dtype, computed in that dtype."""
    counts = as_ints(window_counts(x.shape[2:], weight.shape[2:], strides, pads, dilations))
    result = np.empty((x.shape[0], weight.shape[0], *counts), dtype=x.dtype)
    convolve_into(x, weight, result, strides=strides, pads=pads, dilations=dilations, groups=groups)
    return result


def convolve_into(
    x: Array,
    weight: Array,
    result: Array,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    columns: Array | None = None,
) -> None:
    """`convolve`, written into `result`: contiguous, of its shape and dtype, and apart from the operands.

    `columns` is memory for unfolded windows, a vector of at least `unfolded_size` elements; None allocates it.
    """
    if not result.size or not weight.size:
        result[...] = 0  # sums of no products
        return
    kernel = weight.shape[2:]
    x = padded(x, pads)
    count, channels = x.shape[:2]
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1)
    if volume(kernel) == 1 and max(strides) == 1:
        columns = x.reshape(count, groups, channels // groups, -1)
        np.matmul(matrix, columns, out=result.reshape(count, groups, matrix.shape[1], -1))
        return
    _multiply_windows(matrix, windows_view(x, kernel, strides, dilations, result.shape[2:]), result, columns)


def unfolded_size(
    weight: Sequence[int], result: Sequence[int], strides: Sequence[int], groups: int, itemsize: int
) -> int:
    """How many elements `convolve_into` copies at a time, for shapes of weight and result; 0 when it copies nothing."""
    kernel, counts = weight[2:], result[2:]
    if not volume(result) or not volume(weight) or (volume(kernel) == 1 and max(strides) == 1):
        return 0
    inner = volume(weight[1:])
    images, rows = _tile(groups * inner, counts, itemsize)
    return min(images, result[0]) * groups * inner * rows * volume(counts[1:])


def _tile(inner: int, counts: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Images, and rows of the first spatial axis, that are unfolded at a time."""
    bytes_per_row = inner * volume(counts[1:]) * itemsize
    images = images_per_tile(bytes_per_row * counts[0])
    return images, counts[0] if images > 1 else min(counts[0], images_per_tile(bytes_per_row))


def _multiply_windows(matrix: Array, windows: Array, result: Array, columns: Array | None) -> None:
    """Writes `matrix` `[groups, M/groups, K]` times the unfolded `windows` `[N, C, *kernel, *counts]` to `result`.

    A tile is some whole images, or some rows of the first spatial axis of one image: the unfolded windows of a large
    image would not fit in memory.
    """
    groups, rows_per_group, inner = matrix.shape
    counts = result.shape[2:]
    row = volume(counts[1:])
    images, rows = _tile(groups * inner, counts, result.itemsize)
    flat = result.reshape(result.shape[0], groups, rows_per_group, -1)
    for first in range(0, result.shape[0], images):
        for start in range(0, counts[0], rows):
            tile = windows[
                (slice(first, first + images), *[slice(None)] * (1 + len(counts)), slice(start, start + rows))
            ]
            unfolded = np.ascontiguousarray(tile) if columns is None else _copied(tile, columns)
            operand = unfolded.reshape(tile.shape[0], groups, inner, -1)
            np.matmul(matrix, operand, out=flat[first : first + images, :, :, start * row : (start + rows) * row])


def _copied(array: Array, memory: Array) -> Array:
    copy = memory[: array.size].reshape(array.shape)
    copy[...] = array
    return copy


def _with_bias(y: Array, bias: Array | None) -> Array:
    if bias is not None:
        y += bias.astype(y.dtype, copy=False).reshape(-1, *[1] * (y.ndim - 2))
    return y


def conv(x: Array, weight: Array, bias: Array | None, **attrs: Any) -> Array:
    """Convolution of x `[N, C, D1, ...]` with weight `[M, C/groups, K1, ...]`, plus bias `[M]`.

    As ONNX Conv (which is cross-correlation); `pads` are all begins, then all ends. Sums are taken in twice the width
    (f32 in f64), so that each result is the rounded sum: BLAS adds up different rows in different orders.
    """
    wide = np.float64 if x.dtype.itemsize >= 4 else np.float32
    y = _with_bias(convolve(x.astype(wide, copy=False), weight.astype(wide, copy=False), **attrs), bias)
    return y.astype(x.dtype, copy=False)


def conv_in_own_width(x: Array, weight: Array, bias: Array | None, **attrs: Any) -> Array:
    """`conv` with f32 summed in f32, at twice the speed; f16 and bf16 sum in f32."""
    y = _with_bias(convolve(accumulated(x), accumulated(weight), **attrs), bias)
    return y.astype(x.dtype, copy=False)


def conv_flops(inputs: Sequence[Type | None], outputs: Sequence[Type], _attrs: Attrs) -> Dim:
    """A multiply-add for each output element and each weight of its output channel."""
    weight, result = inputs[1], outputs[0]
    assert isinstance(weight, TensorType)
    assert isinstance(result, TensorType)
    return 2 * result.size * product(weight.dims[1:])


# ---- transposed


def _conv_transpose_type(
    x: TensorType,
    weight: TensorType,
    bias: TensorType | None,
    *,
    strides: Sequence[int],
    pads: Sequence[Dim],
    output_padding: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> TensorType:
    kernel = weight.dims[2:]
    require_rank(weight, x.rank, "the weight of a convolution")
    check_windows(x, strides, pads, dilations, kernel)
    if len(output_padding) != len(kernel):
        raise TypeRuleError(f"output_padding has {len(output_padding)} entries for {len(kernel)} spatial axes")
    _check_groups(groups, x.dims[1], "input channels")
    require_equal(
        x.dims[1], weight.dims[0], "a transposed convolution's input channels are the first size of its weight"
    )
    channels = weight.dims[1] * groups
    check_bias(bias, channels)
    spatial = _transposed_sizes(x.dims[2:], kernel, strides, pads, output_padding, dilations)
    return x.with_shape((x.dims[0], channels, *spatial))


def _transposed_sizes(
    sizes: Sequence[Dim],
    kernel: Sequence[Dim],
    strides: Sequence[int],
    pads: Sequence[Dim],
    output_padding: Sequence[int],
    dilations: Sequence[int],
) -> tuple[Dim, ...]:
    spatial = len(sizes)
    cut = [begin + end for begin, end in zip(pads[:spatial], pads[spatial:], strict=True)]
    axes = zip(sizes, kernel, strides, cut, output_padding, dilations, strict=True)
    found = tuple(
        stride * (size - 1) + dilation * (width - 1) + 1 + extra - both
        for size, width, stride, both, extra, dilation in axes
    )
    for size in found:
        greatest = upper_bound(size)
        if greatest is not None and greatest < 0:
            raise ShapeError(f"pads {list(pads)} cut off more than a transposed convolution makes")
    return found


def conv_transpose(
    x: Array,
    weight: Array,
    bias: Array | None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    output_padding: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Array:
    """Transposed convolution of x `[N, C, D1, ...]` with weight `[C, M/groups, K1, ...]`, plus bias `[M]`.

    As ONNX ConvTranspose: the adjoint of `conv` with the same attributes; `pads` cut off the result (negative ones add
    zeros), `output_padding` adds to its ends. f16 and bf16 sum in f32.
    """
    kernel = weight.shape[2:]
    sizes = as_ints(_transposed_sizes(x.shape[2:], kernel, strides, pads, output_padding, dilations))
    count, channels = x.shape[:2]
    matrix = accumulated(weight).reshape(groups, channels // groups, -1).swapaxes(1, 2)
    flat = accumulated(x).reshape(count, groups, channels // groups, volume(x.shape[2:]))
    result = np.empty((count, weight.shape[1] * groups, *sizes), dtype=flat.dtype)
    step = images_per_tile(groups * matrix.shape[1] * flat.shape[3] * flat.itemsize)
    for first in range(0, count, step):
        matmuls = np.matmul(matrix, flat[first : first + step])
        columns = matmuls.reshape(matmuls.shape[0], result.shape[1], *kernel, *x.shape[2:])
        result[first : first + step] = add_windows(columns, sizes, kernel, strides, pads, dilations)
    return _with_bias(result, bias).astype(x.dtype, copy=False)


def _conv_transpose_flops(inputs: Sequence[Type | None], _outputs: Sequence[Type], _attrs: Attrs) -> Dim:
    x, weight = inputs[0], inputs[1]
    assert isinstance(x, TensorType)
    assert isinstance(weight, TensorType)
    return 2 * x.size * product(weight.dims[1:])


# ---- col2im


def _col2im_type(
    x: TensorType,
    *,
    image: Sequence[Dim],
    block: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[Dim],
    dilations: Sequence[int],
) -> TensorType:
    require_rank(x, 3, "the columns")
    channels = x.dims[1] // volume(block)
    require_equal(channels * volume(block), x.dims[1], "columns hold whole blocks")
    result = x.with_shape((x.dims[0], channels, *image))
    check_windows(result, strides, pads, dilations, block)
    counts = window_counts(image, block, strides, pads, dilations)
    require_equal(product(counts), x.dims[2], "there is one column for each block of the image")
    return result


def col2im(
    x: Array,
    *,
    image: Sequence[int],
    block: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> Array:
    """Sums blocks `[N, C * prod(block), L]` where they overlap in an image `[N, C, *image]`, as ONNX Col2Im."""
    counts = as_ints(window_counts(image, block, strides, pads, dilations))
    columns = accumulated(x).reshape(x.shape[0], x.shape[1] // volume(block), *block, *counts)
    return add_windows(columns, image, block, strides, pads, dilations).astype(x.dtype, copy=False)


OPS: tuple[Op, ...] = (
    op(
        "conv",
        "x: T, weight: T, bias: T?",
        T=FLOATS,
        attrs=CONV_ATTRS,
        infer=_conv_type,
        meaning=conv,
        traits=Trait.ANCHOR | Trait.CONVOLUTION,
        flops=conv_flops,
    ),
    op(
        "conv_transpose",
        "x: T, weight: T, bias: T?",
        T=FLOATS,
        attrs=(STRIDES, PADS, Attribute("output_padding", AttrKind.INTS), DILATIONS, GROUPS),
        infer=_conv_transpose_type,
        meaning=conv_transpose,
        traits=Trait.ANCHOR | Trait.CONVOLUTION,
        flops=_conv_transpose_flops,
    ),
    op(
        "col2im",
        "x: T",
        T=NUMBERS,
        attrs=(Attribute("image", AttrKind.DIMS), Attribute("block", AttrKind.INTS), STRIDES, PADS, DILATIONS),
        infer=_col2im_type,
        meaning=col2im,
    ),
)
