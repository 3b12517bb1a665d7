"""What a user chooses of recording and dispatch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .modes import Beyond, CaptureMode, InputPolicy
from .states import StateStore

Progress = Callable[[int, int, str], None]
"""Told of buckets captured up front: how many are done, how many there are, and the one at hand (empty at the end)."""

SizeCondition = Callable[[Mapping[str, int]], bool]
"""Holds for the sizes of some buckets, given by name."""


def at_all_sizes(_sizes: Mapping[str, int]) -> bool:
    """The condition that holds for every bucket."""
    return True


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """Options of recorded programs.

    `dynamic` gives the range of each symbolic dim, `buckets` a ladder for some of them, or under a tuple of names the
    allowed combinations. `beyond` says what happens to calls that no bucket serves. `budget` bounds the bytes of the
    arena and all recordings together. With `up_front` every bucket is captured when the program is made, largest first.
    `inputs` are policies by input name ("" for all others). `copy_outputs=False` hands out static buffers, which the
    next call overwrites; `debug` then detects reading one too late. `strict` raises where a fallback would be taken.
    `warm_ups` eager runs precede each capture. `keep_outside` names ops that are not captured in the buckets for which
    their condition holds, in any mode; None keeps attention outside in mode PIECEWISE, and nothing in other modes.
    `states` is a store that holds states between calls.
    """

    mode: CaptureMode = CaptureMode.FULL_AND_PIECEWISE
    dynamic: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    buckets: Mapping[str | tuple[str, ...], Sequence[int | tuple[int, ...]]] = field(
        default_factory=dict[str | tuple[str, ...], Sequence[int | tuple[int, ...]]]
    )
    beyond: Beyond = Beyond.EAGER
    budget: int | None = None
    up_front: bool = False
    inputs: Mapping[str, InputPolicy] = field(default_factory=dict[str, InputPolicy])
    copy_outputs: bool = True
    debug: bool = False
    strict: bool = False
    warm_ups: int = 1
    keep_outside: Mapping[str, SizeCondition] | None = None
    progress: Progress | None = None
    states: StateStore | None = None

    def policy_of(self, name: str) -> InputPolicy:
        """The policy of the input called `name`."""
        return self.inputs.get(name, self.inputs.get("", InputPolicy.AUTO))
