"""Constants in another layout or dtype: made once per device on the host, and shared by all plans.

A packing is a NumPy function of the content and the options of a `Packed`; what it gives is uploaded as it lies. A
family of kernels that wants another layout adds a row.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....ir.constant import Array
from ....ir.types import DType
from ..kernel_ir.launch import Packed


def contiguous(content: Array) -> Array:
    """As it is."""
    return content


def transposed(content: Array, *permutation: int) -> Array:
    """Axes permuted, such as convolution weights from [K, C, R, S] to [K, R, S, C]."""
    return content.transpose(permutation)


def channels_last(content: Array, channels: int) -> Array:
    """Weights [M, C, ...] as [M, ..., channels], with zeros behind the C that there are; [M, C, L] as [M, 1, L, C]."""
    image = content[:, :, np.newaxis] if content.ndim == 3 else content
    moved = np.moveaxis(image, 1, -1)
    filled = np.zeros((*moved.shape[:-1], channels), content.dtype)
    filled[..., : moved.shape[-1]] = moved
    return filled


def cast(content: Array, dtype: str) -> Array:
    """In the dtype of that name, such as "f32"."""
    with np.errstate(all="ignore"):
        return content.astype(DType(dtype).numpy)


def nibbles(content: Array, *permutation: int) -> Array:
    """Axes permuted, and integers of 4 bits two to a byte along the last one, the first in the low half."""
    halves = content.view(np.uint8).transpose(permutation) & 15
    return np.asarray(halves[..., ::2] | halves[..., 1::2] << 4)


def column_sums(content: Array) -> Array:
    """The sum of each column of a matrix of integers, in i32."""
    return np.asarray(content.astype(np.int32).sum(axis=0, dtype=np.int32))


PACKINGS: Mapping[str, Callable[..., Array]] = {
    "contiguous": contiguous,
    "transposed": transposed,
    "channels_last": channels_last,
    "cast": cast,
    "nibbles": nibbles,
    "column_sums": column_sums,
}
"""Packings by name."""


def packed_bytes(packed: Packed) -> Array:
    """What a packed constant is on the device, u8[n]."""
    content: Any = PACKINGS[packed.packing](packed.constant.array, *packed.options)
    return np.ascontiguousarray(content).reshape(-1).view(np.uint8)
