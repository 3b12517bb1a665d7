"""Verification before admission: recordings are replayed over poison and held against eager execution."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ...ir.constant import Array
from ...ir.plan import Segment
from ...ir.types import DType
from .recorder import BoundPlan, Recording

ROUNDINGS = 1024
"""How many roundings of the largest value an output may differ from eager, which runs other kernels at other sizes."""

LARGEST_ERROR = 0.02
"""The most that may come to, relative to the largest value: for floats with few bits."""


def segment_problem(bound: BoundPlan, segment: Segment, recording: Recording) -> str:
    """How a replay differs from running the same steps eagerly, both from the present state; empty when it does not.

    What the segment does not need is poisoned before the replay. Afterwards the state is that of the eager run. The
    bits must be the same, but for recordings that say they do not keep them (`keeps_bits`): those may round otherwise.
    """
    before = bound.save()
    bound.run(segment)
    after = bound.save()
    expected = bound.live_results(segment)
    bound.restore(before)
    bound.poison(segment.start)
    recording.replay()
    given = bound.live_results(segment)
    bound.restore(after)
    is_same = _same_bits if getattr(recording, "keeps_bits", True) else _is_close
    wrong = [index for index, pair in enumerate(zip(expected, given, strict=True)) if not is_same(*pair)]
    return f"{len(wrong)} of its {len(expected)} results differ from eager when replayed over poison" if wrong else ""


def _same_bits(first: Array, second: Array) -> bool:
    return first.tobytes() == second.tobytes()


def _is_close(first: Array, second: Array) -> bool:
    return not _difference(first, second)


def output_problem(expected: Sequence[Any], given: Sequence[Any], names: Sequence[str]) -> str:
    """Which output differs from eager by more than rounding, and by how much; empty when none does."""
    for name, old, new in zip(names, expected, given, strict=True):
        if not hasattr(old, "__array__"):
            continue
        old, new = np.asarray(old), np.asarray(new)  # noqa: PLW2901  # arrays on a device are looked at here
        if old.shape != new.shape or old.dtype != new.dtype:
            return f"output {name} is {new.dtype}{list(new.shape)} instead of {old.dtype}{list(old.shape)}"
        problem = "" if old.dtype.hasobject else _difference(old, new)
        if problem:
            return f"output {name} {problem}"
    return ""


def _difference(old: Array, new: Array) -> str:
    if _same_bits(old, new):  # as nearly always: caches take seconds to be compared number by number
        return ""
    dtype = DType.of(old.dtype)
    if not dtype.is_float and old.dtype.kind != "c":
        return "" if np.array_equal(old, new) else f"differs in {int(np.sum(old != new))} of {old.size} elements"
    wide = np.complex128 if old.dtype.kind == "c" else np.float64
    first, second = old.astype(wide), new.astype(wide)
    with np.errstate(all="ignore"):
        # Which infinity or NaN comes of infinite terms depends on the order in which they are added.
        same = (first == second) | ~(np.isfinite(first) | np.isfinite(second))
        apart = np.where(same, 0.0, np.abs(first - second))
    finite = np.abs(first[np.isfinite(first)])
    scale = max(float(finite.max()) if finite.size else 0.0, _smallest(dtype))
    worst = float(np.max(apart, initial=0.0))
    return "" if worst <= _tolerance(dtype) * scale else f"differs by {worst:.3g} (largest value {scale:.3g})"


def _smallest(dtype: DType) -> float:
    """The smallest normal number: below it errors are not in proportion."""
    return float(ml_dtypes.finfo(dtype.numpy).smallest_normal) if dtype.is_float else 0.0  # type: ignore[no-untyped-call]


def _tolerance(dtype: DType) -> float:
    epsilon = float(ml_dtypes.finfo(dtype.numpy).eps) if dtype.is_float else float(np.finfo(dtype.numpy).eps)  # type: ignore[no-untyped-call]
    return min(ROUNDINGS * epsilon, max(LARGEST_ERROR, 2 * epsilon))


def tail_poison(given: Array) -> Any:
    """What stands in padded rows while verifying: NaN in floats, elsewhere a value that real rows have too."""
    if given.dtype.kind == "c" or (given.dtype.kind not in "biuO" and DType.of(given.dtype).is_float):
        return np.nan
    return given.max() if given.size and given.dtype.kind in "iu" else given.dtype.type(0)
