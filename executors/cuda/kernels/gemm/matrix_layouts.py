"""Matrices with their axes in another order, in memory or by strides alone."""

from collections.abc import Sequence
from dataclasses import replace

from ...kernel_ir.launch import Packed
from ...kernel_ir.sources import Source


def permuted(source: Source, order: Sequence[int]) -> Source:
    """The same tensor with its axes in another order."""
    shape, strides = (tuple(sizes[axis] for axis in order) for sizes in (source.shape, source.strides))
    return replace(source, shape=shape, strides=strides)


def transposed(source: Source) -> Source:
    """The last two axes exchanged."""
    return replace(
        source,
        shape=(*source.shape[:-2], source.shape[-1], source.shape[-2]),
        strides=(*source.strides[:-2], source.strides[-1], source.strides[-2]),
    )


def packed_weight(source: Source) -> Source:
    """A constant matrix [K, N], as [N, K] in memory and seen as [K, N]; anything else as it is."""
    constant = source.constant
    if constant is None or len(source.shape) != 2 or source.shape != constant.shape:
        return source
    if source.strides != (source.shape[1], 1) or 1 in source.shape:
        return source
    return replace(source, strides=(1, source.shape[0]), argument=Packed(constant, "transposed", (1, 0)))
