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
    """Options of recorded programs; those of `capture` are explained below them.

    `mode`, `dynamic`, `buckets` and `strict` are options of `optimize` by themselves; `check` is what its `verify` asks
    to be checked after each pass to a plan.
    """

    mode: CaptureMode = CaptureMode.FULL_AND_PIECEWISE
    dynamic: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    buckets: Mapping[str | tuple[str, ...], Sequence[int | tuple[int, ...]]] = field(
        default_factory=dict[str | tuple[str, ...], Sequence[int | tuple[int, ...]]]
    )
    beyond: Beyond = Beyond.EAGER
    """What happens to calls that no bucket serves: "eager", or "exact", which captures at exactly their sizes."""

    budget: int | None = None
    """Bytes for the arena and all recordings together. The least recently used bucket goes first; a bucket that never
    fits is refused.
    """

    up_front: bool = False
    """Capture every bucket when the program is made, the largest first."""

    inputs: Mapping[str, InputPolicy] = field(default_factory=dict[str, InputPolicy])
    """Policies by input name ("" for all others): "copy", "repoint", "rerecord", "refuse", "auto" (it measures)."""

    copy_outputs: bool = True
    """False hands out the static buffers. They are valid until the next call, which may have them as inputs."""

    debug: bool = False
    """With static outputs: reading one too late raises instead of giving other numbers."""

    strict: bool = False
    warm_ups: int = 1
    """Eager runs of the plan before each capture."""

    keep_outside: Mapping[str, SizeCondition] | None = None
    """Ops that are not captured: names, or names with a function of the sizes of a bucket, in any mode. None keeps
    attention outside in mode "piecewise", and nothing in other modes.
    """

    progress: Progress | None = None
    """A function that `up_front` calls with the buckets done, their number, and a text."""

    states: StateStore | None = None
    """A `capgraph.StateStore`: its states are neither given to calls nor handed out by them."""

    check: str = "none"

    def policy_of(self, name: str) -> InputPolicy:
        """The policy of the input called `name`."""
        return self.inputs.get(name, self.inputs.get("", InputPolicy.AUTO))
