"""Memory that a later kernel reads, brought into the L2 cache by one that has asked for all that it reads early itself.

Kernels with `AHEAD` in their body can be given such work. It needs next to no registers and nobody waits for it
(cp.async.bulk.prefetch.L2, compute capability 9.0). What is written meanwhile is seen by who reads it later: the L2
cache is one for all.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .launch import BufferPlace, KernelLaunch

AHEAD = "// all of the block's early loads are under way"
"""The line in a kernel's body behind which a block may ask for what others will read."""

_PARAMETERS = re.compile(r"^NAME\(.*(?=\) \{$)", re.MULTILINE)
_AT_ONCE = 4096
"""Bytes of one instruction."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """`counts` pieces of memory that lie `strides` bytes apart, along two axes; each is `nbytes` long.

    All are multiples of 16 bytes.
    """

    place: BufferPlace
    counts: tuple[int, int]
    strides: tuple[int, int]
    nbytes: int


def can_prefetch(launch: KernelLaunch) -> bool:
    """Whether a launch can be given such work."""
    return AHEAD in launch.kernel.body


def prefetching(launch: KernelLaunch, wanted: Sequence[Ahead]) -> KernelLaunch:
    """The launch with its blocks asking for what is wanted, each for a share."""
    names = [f"ahead{index}" for index in range(len(wanted))]
    parameters = "".join(f", const unsigned char* {name}" for name in names)
    body = _PARAMETERS.sub(lambda found: found[0] + parameters, launch.kernel.body, count=1)
    work = "\n".join(_share(name, each) for name, each in zip(names, wanted, strict=True))
    code = f"{AHEAD}\n#if !defined(EMULATED) && __CUDA_ARCH__ >= 900\n  if (threadIdx.x == 0) {{\n{work}\n  }}\n#endif"
    kernel = replace(launch.kernel, body=body.replace(AHEAD, code, 1))
    return replace(launch, kernel=kernel, arguments=(*launch.arguments, *(each.place for each in wanted)))


def _share(name: str, wanted: Ahead) -> str:
    pieces = -(-wanted.nbytes // _AT_ONCE)
    total = wanted.counts[0] * wanted.counts[1] * pieces
    rest = wanted.nbytes - (pieces - 1) * _AT_ONCE
    size = str(rest) if pieces == 1 else f"i % {pieces} == {pieces - 1} ? {rest} : {_AT_ONCE}"
    return f"""    for (int i = blockIdx.x; i < {total}; i += gridDim.x) {{
      const int outer = i / {pieces};
      const unsigned char* const at = {name} + (i64)(outer / {wanted.counts[1]}) * {wanted.strides[0]} +
          (i64)(outer % {wanted.counts[1]}) * {wanted.strides[1]} + i % {pieces} * {_AT_ONCE};
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(at), "r"({size}));
    }}"""
