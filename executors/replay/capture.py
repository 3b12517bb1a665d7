"""Recording one segment: between `begin` and `end` nothing is collected, and whatever fails is undone."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ...ir.plan import Segment
from .recorder import BoundPlan, Recording


def record(bound: BoundPlan, segment: Segment) -> Recording:
    """A recording of `segment`. Raises `CaptureError`; the bound plan can then be run and recorded as before."""
    recorder = bound.recorder()
    with collector_frozen():
        try:
            recorder.begin(segment)
            for step in bound.plan.steps_of(segment):
                recorder.record(step)
            return recorder.end()
        finally:
            recorder.abort()


@contextmanager
def collector_frozen() -> Iterator[None]:
    """Keeps Python's garbage collector from running: a finalizer may free device memory, which ends a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
