"""What a user chooses of recording and dispatch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from ...ir.errors import InputError, UnsupportedError
from ...ir.ops import OPS
from ..progress import CaptureLine
from .modes import CaptureMode, InputPolicy
from .states import StateStore

Progress = Callable[[int, int, str], None]
"""Told of buckets captured up front: how many are done, how many there are, and the one at hand (empty at the end)."""

SizeCondition = Callable[[Mapping[str, int]], bool]
"""Holds for the sizes of some buckets, given by name."""

Beyond = Literal["eager", "exact"]


@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """Options of recording, for `optimize(capture=...)`. Raises `UnsupportedError` for a value of another kind."""

    beyond: Beyond = "eager"
    """What happens to calls that no bucket serves: "eager", or "exact", which captures at exactly their sizes."""

    budget: int | None = None
    """Bytes for the arena and all recordings together. The least recently used bucket goes first; a bucket that never
    fits is refused.
    """

    up_front: bool = False
    """Capture every bucket when the program is made, the largest first."""

    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Policies by input name ("" for all others): "copy", "repoint", "rerecord", "refuse", "auto" (it measures)."""

    copy_outputs: bool = True
    """False hands out the static buffers. They are valid until the next call, which may have them as inputs."""

    debug: bool = False
    """With static outputs: reading one too late raises instead of giving other numbers."""

    warm_ups: int = 1
    """Eager runs of the plan before each capture."""

    keep_outside: str | Iterable[str] | Mapping[str, SizeCondition] | None = None
    """Ops that are not captured: names, or names with a function of the sizes of a bucket, in any mode. None keeps
    attention outside in mode "piecewise", and nothing in other modes.
    """

    progress: Progress | None = field(default_factory=CaptureLine)
    """A function that `up_front` calls with the buckets done, their number, and a text. By default it is a line on the
    terminal, with None nothing is shown.
    """

    states: StateStore | None = None
    """A `capgraph.StateStore`: its states are neither given to calls nor handed out by them."""

    @classmethod
    def of(cls, given: Any) -> "CaptureOptions":
        """`given`, which may be a dict of the options. Raises `UnsupportedError` for what is neither, or no option."""
        if isinstance(given, CaptureOptions):
            return given
        check_kind("capture", given, None | CaptureOptions | Mapping)
        known = sorted(each.name for each in fields(CaptureOptions))
        for name in given or {}:
            if name not in known:
                raise UnsupportedError(f"capture has no option {name!r}", remedy=f"its options are: {', '.join(known)}")
        return CaptureOptions(**(given or {}))

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            check_kind(name, getattr(self, name), kind)
        for name, number in {"budget": self.budget, "warm_ups": self.warm_ups}.items():
            if number is not None and number < 0:
                raise UnsupportedError(f"{name}={number} is too little", remedy="0 or more")
        check_choice("beyond", self.beyond, get_args(Beyond))
        for name, policy in self.inputs.items():
            check_choice(name, policy, [each.value for each in InputPolicy])
        if self.keep_outside is not None:
            object.__setattr__(self, "keep_outside", _conditions(self.keep_outside))

    @property
    def policies(self) -> dict[str, InputPolicy]:
        """The policies of `inputs`."""
        return {name: InputPolicy(policy) for name, policy in self.inputs.items()}

    def policy_of(self, name: str) -> InputPolicy:
        """The policy of the input called `name`."""
        return InputPolicy(self.inputs.get(name, self.inputs.get("", InputPolicy.AUTO)))

    def kept_outside(self, sizes: Mapping[str, int]) -> frozenset[str] | None:
        """The ops of `keep_outside` at these sizes. Raises `InputError` when a condition asks for an unknown one."""
        if self.keep_outside is None:
            return None
        assert isinstance(self.keep_outside, Mapping)  # see `__post_init__`
        try:
            return frozenset(name for name, holds in self.keep_outside.items() if holds(sizes))
        except KeyError as error:
            known = ", ".join(sizes) or "none"
            raise InputError(f"keep_outside asks for the size {error}", remedy=f"the dims are: {known}") from None


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(CaptureOptions):
    """Options of recorded programs: those of `capture`, and options of `optimize` by themselves.

    `check` is what its `verify` asks to be checked after each pass to a plan.
    """

    mode: CaptureMode = CaptureMode.FULL_AND_PIECEWISE
    dynamic: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    buckets: Mapping[str | tuple[str, ...], Sequence[int | tuple[int, ...]]] = field(
        default_factory=dict[str | tuple[str, ...], Sequence[int | tuple[int, ...]]]
    )
    strict: bool = False
    check: str = "none"


_KINDS: Mapping[str, Any] = {
    "budget": None | int,
    "up_front": bool,
    "inputs": Mapping,
    "copy_outputs": bool,
    "debug": bool,
    "warm_ups": int,
    "keep_outside": None | str | Iterable,
    "progress": None | Callable,
    "states": None | StateStore,
}
"""What the options of `capture` are, as `isinstance` takes it."""

_WORDS = {Mapping: "a dict", Iterable: "names", Callable: "a function", str: "a name", int: "an integer", bool: "bool"}


def check_kind(name: str, value: Any, kind: Any) -> None:
    """Raises `UnsupportedError` where an option is of another kind; bool is no integer."""
    if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
        return
    kinds = [_WORDS.get(each, getattr(each, "__name__", "None")) for each in getattr(kind, "__args__", (kind,))]
    allowed = " or ".join("None" if each == "NoneType" else each for each in kinds)
    raise UnsupportedError(f"{name}={value!r} is not known", remedy=f"it is {allowed}")


def check_choice(name: str, value: Any, known: Sequence[str]) -> None:
    """Raises `UnsupportedError` for a name that is none of those that are known."""
    if value not in known:
        raise UnsupportedError(f"{name}={value!r} is not known", remedy=f"one of {', '.join(known)}")


def _conditions(given: Any) -> dict[str, SizeCondition]:
    """What `keep_outside` says: names, or names with functions of the sizes."""
    if isinstance(given, str):
        given = [given]
    found: dict[str, SizeCondition] = (
        dict(given) if isinstance(given, Mapping) else dict.fromkeys(given, lambda _sizes: True)
    )
    for name, holds in found.items():
        if not isinstance(name, str) or name not in OPS:
            raise UnsupportedError(f"keep_outside names {name!r}, which is no op", remedy="name ops, such as attention")
        if not callable(holds):
            raise UnsupportedError(
                f"keep_outside has {holds!r} for {name}", remedy="a function of the sizes: lambda sizes: sizes['T'] > 1"
            )
    return found
