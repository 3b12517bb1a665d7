"""Kernels in front of library calls: they do not let what follows start early.

Our kernels let the next launch start right away, as it waits itself. A library may launch its kernels in the same way
(programmatic dependent launch) and count on predecessors that do not: cuDNN's convolutions on Hopper read results of
such a predecessor before these were written.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..kernel_ir.early_start import TRIGGER
from ..kernel_ir.launch import Candidate, KernelLaunch, Launch, LibraryCall

_LETS_START = (TRIGGER, "")
_BEGINS = ("begin();", "begin_alone();")


def handed_over(chosen: Sequence[Candidate | None]) -> tuple[Candidate | None, ...]:
    """The ways of steps in order, with kernels in front of a library call that let nothing start before they end."""
    found: list[Candidate | None] = []
    is_before_call = False
    for candidate in reversed(chosen):
        if candidate is None or not candidate.launches:
            found.append(candidate)
            continue
        launches: list[Launch] = []
        for launch in reversed(candidate.launches):
            launches.append(_alone(launch) if is_before_call and isinstance(launch, KernelLaunch) else launch)
            is_before_call = isinstance(launch, LibraryCall)
        found.append(replace(candidate, launches=tuple(reversed(launches))))
    return tuple(reversed(found))


def _alone(launch: KernelLaunch) -> KernelLaunch:
    text = launch.kernel.text
    for old, new in (_LETS_START, _BEGINS):
        text = text.replace(old, new)
    return replace(launch, kernel=replace(launch.kernel, text=text))
