"""What lies in front of library calls does not let them start early.

Our kernels let the next launch start right away, as it waits itself. A library may launch its kernels in the same way
(programmatic dependent launch) and count on predecessors that do not: cuDNN's convolutions on Hopper read results of
such a predecessor before these were written. Kernels of libraries let others start early, too: what a convolution adds
is read too soon if one of the calls right before wrote it. A kernel that does nothing but wait comes between them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..kernel_ir.launch import BufferPlace, Candidate, Kernel, KernelLaunch, Launch, LibraryCall

_RESULTS = ("y", "d", "o")
"""Roles of what convolutions, matmuls and attention make."""

_FENCE = KernelLaunch(
    Kernel('extern "C" __global__ void NAME() { begin(); }', (1, 1, 1), (32, 1, 1), triggers=False),
    (),
    0,
    may_overlap=True,
)


def with_safe_triggers(chosen: Sequence[Candidate | None]) -> tuple[Candidate | None, ...]:
    """The candidates of steps, in order. Kernels in front of a library's call let nothing start before they end."""
    return _fenced(_held_back(chosen))


def _held_back(chosen: Sequence[Candidate | None]) -> tuple[Candidate | None, ...]:
    found: list[Candidate | None] = []
    is_before_call = False
    for candidate in reversed(chosen):
        if candidate is None or not candidate.launches:
            found.append(candidate)
            continue
        launches: list[Launch] = []
        for launch in reversed(candidate.launches):
            if is_before_call and isinstance(launch, KernelLaunch):
                launches.append(replace(launch, kernel=replace(launch.kernel, triggers=False)))
            else:
                launches.append(launch)
            is_before_call = isinstance(launch, LibraryCall)
        found.append(replace(candidate, launches=tuple(reversed(launches))))
    return tuple(reversed(found))


def _fenced(chosen: Sequence[Candidate | None]) -> tuple[Candidate | None, ...]:
    found: list[Candidate | None] = []
    written: set[int] | None = None  # by calls behind the latest kernel of ours, which may all run yet; at first by any
    for candidate in chosen:
        launches: list[Launch] = []
        for launch in () if candidate is None else candidate.launches:
            launches.append(launch)
            if not isinstance(launch, LibraryCall):
                written = set()
                continue
            added = _buffers(launch, _is_addend)
            if added and (written is None or not written.isdisjoint(added)):
                launches.insert(-1, _FENCE)
                written = set()
            if written is not None:
                written |= _buffers(launch, _RESULTS.__contains__)
        has_more = candidate is not None and len(launches) > len(candidate.launches)
        found.append(replace(candidate, launches=tuple(launches)) if candidate is not None and has_more else candidate)
    return tuple(found)


def _is_addend(role: str) -> bool:
    """Whether it is an operand of what follows a convolution."""
    return role.startswith("step")


def _buffers(call: LibraryCall, has_part: Callable[[str], bool]) -> set[int]:
    places = [place for role, place in call.arguments.items() if has_part(role)]
    return {place.buffer for place in places if isinstance(place, BufferPlace)}
