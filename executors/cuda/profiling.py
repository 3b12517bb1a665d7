"""Takes profiles of bound plans.

A launch is timed by itself: recorded many times in a row as a graph, between two events, on the memory of the plan.
Weights and inputs are thus found in the cache where they fit into it, which a whole call may not find; the time of the
whole call stands beside the sum.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ...ir.plan import Segment, Step
from .bound_plan import CudaPlan
from .launch import HostCall, Launch
from .profile import LaunchTime, Profile, Rates
from .timing import graph_seconds

REPETITIONS = 20
"""How many times in a row a launch is recorded to be timed."""


def profile(bound: CudaPlan, rates: Rates | None = None) -> Profile:
    """The launches of a bound plan, timed on whatever its memory holds. What it holds afterwards is of no use."""
    device = bound.device
    bound.start()
    for step in bound.plan.steps:
        with _named_range(step.node.where()):
            bound.run(Segment(step.index, step.index + 1, False))
    device.driver.synchronize(device.stream)
    found = [each for step in bound.plan.steps for each in _timed_step(bound, step)]
    return Profile(tuple(found), _call_seconds(bound), rates or Rates())


def _timed_step(bound: CudaPlan, step: Step) -> Iterator[LaunchTime]:
    candidate, node = bound.chosen[step.index], step.node
    for launch, call in zip(bound.launches_of(step), bound.calls_of(step), strict=True):
        assert candidate is not None  # it has launches
        origin = "" if node.origin is None else str(node.origin)
        seconds = None if isinstance(launch, HostCall) else graph_seconds(bound.device, [call], REPETITIONS)
        yield LaunchTime(step.index, node.op.name, origin, candidate.name, seconds, *_work(launch))


def _work(launch: Launch) -> tuple[int, int]:
    return (0, 0) if isinstance(launch, HostCall) else (launch.nbytes, launch.flops)


def _call_seconds(bound: CudaPlan) -> float:
    """All launches in order as one graph; those on the host left out."""
    calls = [
        call
        for step in bound.plan.steps
        for launch, call in zip(bound.launches_of(step), bound.calls_of(step), strict=True)
        if not isinstance(launch, HostCall)
    ]
    return graph_seconds(bound.device, calls, 1) if calls else 0.0


@contextmanager
def _named_range(text: str) -> Iterator[None]:
    """A range that NVIDIA's profilers show, where the package nvtx is installed."""
    try:
        import nvtx
    except ImportError:
        yield
        return
    with nvtx.annotate(text):
        yield
