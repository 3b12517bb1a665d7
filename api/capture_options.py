"""What a user says of recording, as options that were checked."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .executors.replay.modes import Beyond, CaptureMode, InputPolicy
from .executors.replay.options import ReplayOptions, SizeCondition, at_all_sizes
from .executors.replay.states import StateStore
from .ir.errors import UnsupportedError
from .ir.ops import OPS
from .progress import Progress


def replay_options(
    *,
    mode: str,
    dynamic: Mapping[str, int | tuple[int, int]] | None,
    buckets: Mapping[Any, int | Sequence[Any]] | None,
    strict: bool,
    capture: Mapping[str, Any] | None,
    check: str = "none",
) -> ReplayOptions:
    """The options of `optimize` as the executor takes them. Raises `UnsupportedError` for what is no such option."""
    for name, value in {"dynamic": dynamic, "buckets": buckets, "capture": capture}.items():
        _check(name, value, None | Mapping)
    given = {"progress": CaptureLine(), **(capture or {})}
    for name, value in given.items():
        if name not in _KINDS:
            raise UnsupportedError(
                f"capture has no option {name!r}", remedy=f"its options are: {', '.join(sorted(_KINDS))}"
            )
        _check(name, value, _KINDS[name])
    for name, least in _LEAST.items():
        if given.get(name) is not None and given[name] < least:
            raise UnsupportedError(f"{name}={given[name]} is too little", remedy=f"{least} or more")
    if "beyond" in given:
        given["beyond"] = _member(Beyond, "beyond", given["beyond"])
    if "inputs" in given:
        given["inputs"] = {name: _member(InputPolicy, name, policy) for name, policy in given["inputs"].items()}
    if given.get("keep_outside") is not None:
        given["keep_outside"] = _conditions(given["keep_outside"])
    return ReplayOptions(
        mode=_member(CaptureMode, "mode", mode),
        strict=strict,
        check=check,
        **_sizes(dynamic or {}, buckets or {}),
        **given,
    )


def _sizes(dynamic: Mapping[str, Any], buckets: Mapping[Any, Any]) -> dict[str, Any]:
    """Ranges and ladders; a number is the range up to it, and the ladder of it alone."""
    for option, given, kind, example in (
        ("dynamic", dynamic, Sequence, "(1, 64), the least and the greatest size, or 64"),
        ("buckets", buckets, Iterable, "[1, 8, 64], the sizes that are recorded, or 64"),
    ):
        for name, sizes in given.items():
            if not _is_number(sizes) and (not isinstance(sizes, kind) or isinstance(sizes, str | bytes)):
                raise UnsupportedError(f"{option} gives {sizes!r} for {name!r}", remedy=f"give it {example}")
    ranges = {name: (1, sizes) if _is_number(sizes) else sizes for name, sizes in dynamic.items()}
    ladders = {names: (sizes,) if _is_number(sizes) else tuple(sizes) for names, sizes in buckets.items()}
    return {"dynamic": ranges, "buckets": ladders}


def _is_number(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


_KINDS: Mapping[str, Any] = {
    "beyond": str | Beyond,
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

_LEAST = {"budget": 0, "warm_ups": 0}

_WORDS = {Mapping: "a dict", Iterable: "names", Callable: "a function", str: "a name", int: "an integer", bool: "bool"}


def _check(name: str, value: Any, kind: Any) -> None:
    """Raises `UnsupportedError` where an option is of another kind; bool is no integer."""
    if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
        return
    kinds = [_WORDS.get(each, getattr(each, "__name__", "None")) for each in getattr(kind, "__args__", (kind,))]
    allowed = " or ".join("None" if each == "NoneType" else each for each in kinds)
    raise UnsupportedError(f"{name}={value!r} is not known", remedy=f"it is {allowed}")


def _conditions(given: Any) -> dict[str, SizeCondition]:
    """What `keep_outside` says: names, or names with functions of the sizes."""
    if isinstance(given, str):
        given = [given]
    found: dict[str, SizeCondition] = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given, at_all_sizes)
    for name, holds in found.items():
        if not isinstance(name, str) or name not in OPS:
            raise UnsupportedError(f"keep_outside names {name!r}, which is no op", remedy="name ops, such as attention")
        if not callable(holds):
            raise UnsupportedError(
                f"keep_outside has {holds!r} for {name}", remedy="a function of the sizes: lambda sizes: sizes['T'] > 1"
            )
    return found


class CaptureLine:
    """A line on the terminal that counts the buckets which are captured up front."""

    def __init__(self) -> None:
        self._line: Progress | None = None

    def __call__(self, done: int, total: int, what: str) -> None:
        """See `ReplayOptions.progress`."""
        if self._line is None:
            self._line = Progress("capturing", total)
            self._line.__enter__()
        elif done < total:
            self._line.advance(f"capturing {what}")
        if done == total:
            self._line.__exit__(None, None, None)
            self._line = None


def _member(choices: Any, name: str, value: Any) -> Any:
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(repr(each.value) for each in choices)
        raise UnsupportedError(f"{name}={value!r} is not known", remedy=f"one of {known}") from None
