"""How much work a call does, counted in the interpreter: the same on every machine, however busy it is.

What one call into C does is not seen, as little as which call takes long: seconds are for benchmarks.
"""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any


class TooMuchWorkError(Exception):
    """A call did more than it may."""


def calls_in(call: Callable[[], object], at_most: int | None = None) -> int:
    """How many functions and methods were called, of Python and of C. Raises `TooMuchWorkError` above `at_most`."""
    count = -1  # switching off is a call as well

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")
        if at_most is not None and count > at_most:
            raise TooMuchWorkError(f"more than {at_most} calls")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count


def lines_in(call: Callable[[], object]) -> int:
    """How many lines of the package ran; a loop within one line counts each time round."""
    count = 0

    def line(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
        return line if frame.f_globals.get("__name__", "").startswith("capgraph.") else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def most_bytes_in(call: Callable[[], object]) -> int:
    """How many bytes of Python and NumPy were held at once in addition."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        result = call()
        _, most = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return most - before
