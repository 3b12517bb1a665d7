"""Copies of images to another layout, with channels filled up with zeros."""

import math

from .codegen.types import word
from .indexing import index_type, offset_code, split_index_code
from .launch import Kernel, KernelLaunch
from .regions import Source

_THREADS = 256


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
