"""Copies of images and weights to another layout, with channels filled up with zeros, and room for them."""

import math

from .....ir.plan import element_bytes
from ...kernel_ir.copies import copied
from ...kernel_ir.launch import Chip, Kernel, KernelLaunch, Launch, Task
from ...kernel_ir.sources import Source, index_type, offset_code, split_index_code, view_of
from ...kernel_ir.types import computed, stored, word
from ..gemm.regions import aligned, scratch_behind
from .images import channels_last, is_channels_last, packed_weight, settled

_THREADS = 256


class ImageScratch:
    """The scratch of a task behind its first `used` bytes, and the copies into it, in order."""

    def __init__(self, task: Task, used: int) -> None:
        self.task = task
        self.used = used
        self.launches: list[Launch] = []

    def channels_last(self, source: Source, channels: int = 0) -> Source | None:
        """A tensor with its channels side by side, `channels` of them at least: a copy where it is none.

        None without room for that.
        """
        if is_channels_last(source) and channels <= source.shape[1]:
            return settled(source)
        target = self.like(source, channels)
        if target is not None:
            self.launches += copied_between(source, target, self.task.chip)
        return target

    def weight(self, source: Source, channels: int = 0) -> Source | None:
        """A weight [M, C, ...] in the same way; one that is constant is packed once."""
        packed = packed_weight(source, channels)
        return packed if source.constant is not None else self.channels_last(packed, channels)

    def like(self, source: Source, channels: int = 0) -> Source | None:
        """Room for a tensor of that shape, channels side by side."""
        shape = (source.shape[0], max(channels, source.shape[1]), *source.shape[2:])
        nbytes = aligned(math.prod(shape) * element_bytes(source.dtype))
        place, room = scratch_behind(self.task, self.used)
        if place is None or nbytes > room:
            return None
        self.used += nbytes
        return Source(source.dtype, shape, channels_last(shape), place)


def copied_between(source: Source, target: Source, chip: Chip) -> tuple[KernelLaunch, ...]:
    """Copies a tensor to one of another layout; channels that the target has more become zero."""
    views = view_of(source), view_of(target)
    if source.shape == target.shape and views[0] is not None and views[1] is not None:
        return copied(views[0], views[1], chip)
    return (copied_image(source, target),)


def copied_image(source: Source, target: Source) -> KernelLaunch:
    """Copies [N, C, ...] to a channels-last image of as many channels or more; what is more becomes zero.

    A thread goes through the channels of a place, so that both sides are walked without gaps where channels are few.
    """
    count, _, *sizes = source.shape
    places = count * math.prod(sizes)
    per_place = target.shape[1] if target.shape[1] in (2, 4, 8) else 1
    threads = places * target.shape[1] // per_place
    return KernelLaunch(
        Kernel(_text(source, target, per_place), (-(-threads // _THREADS), 1, 1), (_THREADS, 1, 1)),
        (source.argument, target.argument),
        nbytes=source.nbytes + target.nbytes,
        may_overlap=True,
    )


def _text(source: Source, target: Source, per_place: int) -> str:
    kind = word(source.dtype)
    index = index_type(source, target)
    count, channels, *sizes = source.shape
    filled = target.shape[1]
    groups = filled // per_place
    names = ["n", *(f"d{axis}" for axis in range(len(sizes)))]
    axes = (0, *range(2, len(source.shape)))
    from_ = offset_code(names, [source.strides[axis] for axis in axes])
    to = offset_code(names, [target.strides[axis] for axis in axes])
    return f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME(const {kind}* source, {kind}* target) {{
  begin();
  {index} place = ({index})blockIdx.x * {_THREADS} + threadIdx.x;
  if (place >= ({index}){count * math.prod(sizes) * groups}) return;
  const {index} first = place % {groups} * {per_place}; place /= {groups};
  {split_index_code("place", names, (count, *sizes), index)}
  pack<{kind}, {per_place}> moved;
#pragma unroll
  for (int i = 0; i < {per_place}; i++)
    moved.v[i] = first + i < {channels} ? source[{from_} + (first + i) * {source.strides[1]}] : ({kind})0;
  *(pack<{kind}, {per_place}>*)(target + {to} + first) = moved;
}}
"""


def with_bias(image: Source, bias: Source) -> KernelLaunch:
    """Adds a number for each channel to an image without gaps, in place: one channels-last, or [N, C, places]."""
    channels, places = image.shape[1], math.prod(image.shape[2:])
    is_last = is_channels_last(image)
    line = channels if is_last else places
    width = next(width for width in (8, 4, 2, 1) if line % width == 0 and width * element_bytes(image.dtype) <= 16)
    width = width if image.starts_a_piece else 1
    kind, ctype = stored(image.dtype), index_type(image)
    threads = image.size // width
    first, step = (f"at * {width} % {channels}", 1) if is_last else (f"at * {width} / {places} % {channels}", 0)
    text = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({kind}* image, const {stored(bias.dtype)}* bias) {{
  begin();
  const {ctype} at = ({ctype})blockIdx.x * {_THREADS} + threadIdx.x;
  if (at >= {threads}) return;
  pack<{kind}, {width}>* const place = (pack<{kind}, {width}>*)(image + at * {width});
  pack<{kind}, {width}> made = *place;
  const int first = {first};
#pragma unroll
  for (int i = 0; i < {width}; i++)
    put(made.v[i], ({computed(image.dtype)})(get(made.v[i]) + get(bias[(first + i * {step}) * {bias.strides[0]}])));
  *place = made;
}}
"""
    kernel = Kernel(text, (-(-threads // _THREADS), 1, 1), (_THREADS, 1, 1))
    return KernelLaunch(kernel, (image.argument, bias.argument), 2 * image.nbytes + bias.nbytes, may_overlap=True)
