"""How images and weights of convolutions lie: channels-last, [N, C, L] as [N, C, 1, L], constants packed."""

from collections.abc import Sequence
from dataclasses import replace

from ...kernel_ir.launch import Packed
from ...kernel_ir.sources import Source


def as_image(source: Source) -> Source:
    """A tensor [N, C, L] as [N, C, 1, L]; more axes as they are."""
    if len(source.shape) != 3:
        return source
    (count, channels, length), strides = source.shape, source.strides
    return replace(
        source,
        shape=(count, channels, 1, length),
        strides=(*strides[:2], strides[2] * length, strides[2]),
    )


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of [N, C, ...] in memory as [N, ..., C]."""
    strides = [0] * len(shape)
    strides[1], step = 1, shape[1]
    for axis in reversed(range(2, len(shape))):
        strides[axis], step = step, step * shape[axis]
    strides[0] = step
    return tuple(strides)


def is_channels_last(source: Source) -> bool:
    """Whether it lies as [N, ..., C] without gaps; strides of axes of size 1 do not count."""
    wanted = channels_last(source.shape)
    each = zip(source.shape, source.strides, wanted, strict=True)
    return all(size == 1 or stride == want for size, stride, want in each)


def settled(source: Source) -> Source:
    """A channels-last image with the strides that say so on axes of size 1, too."""
    return replace(source, strides=channels_last(source.shape)) if is_channels_last(source) else source


def packed_weight(w: Source, channels: int = 0) -> Source:
    """A weight as [M, ..., C] in memory, with zeros up to `channels` channels if given; one not constant as it is."""
    image = as_image(w)
    if w.constant is None or w.shape != w.constant.shape:
        return settled(image)
    shape = image.shape if not channels else (image.shape[0], channels, *image.shape[2:])
    packed = Packed(w.constant, "channels_last", (shape[1],))
    return Source(w.dtype, shape, channels_last(shape), packed, w.constant)


def image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a result with two spatial axes at least."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape
