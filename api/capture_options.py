"""What a user says of recording, as options that were checked."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .executors.replay.modes import CaptureMode
from .executors.replay.options import CaptureOptions, ReplayOptions, check_choice, check_kind
from .ir.errors import UnsupportedError


def replay_options(
    *,
    mode: str,
    dynamic: Mapping[str, int | tuple[int, int]] | None,
    buckets: Mapping[Any, int | Sequence[Any]] | None,
    strict: bool,
    capture: CaptureOptions | Mapping[str, Any] | None,
    check: str = "none",
) -> ReplayOptions:
    """The options of `optimize` as the executor takes them. Raises `UnsupportedError` for what is no such option."""
    check_choice("mode", mode, [each.value for each in CaptureMode])
    check_kind("dynamic", dynamic, None | Mapping)
    check_kind("buckets", buckets, None | Mapping)
    return ReplayOptions(
        **vars(CaptureOptions.of(capture)),
        mode=CaptureMode(mode),
        strict=strict,
        check=check,
        **_sizes(dynamic or {}, buckets or {}),
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
