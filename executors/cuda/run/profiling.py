"""Takes profiles of bound plans.

A launch is timed by itself: recorded many times in a row as a graph, between two events, on the memory of the plan.
Weights and inputs are thus found in the cache where they fit into it, which a whole call may not find; the time of the
whole call stands beside the sum.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ....ir.plan import Plan, Segment, Step
from ..kernel_ir.launch import HostCall, Launch
from .bound_plan import CudaPlan
from .profile import LaunchTime, Profile, Rates
from .timing import graph_seconds

REPETITIONS = 20
"""How many times in a row a launch is recorded to be timed."""


def profile(bound: CudaPlan, load: Callable[[], None], rates: Rates | None = None) -> Profile:
    """The launches of a bound plan, timed on what its memory holds in a call, for which `load` brings the inputs.

    A step is timed right after it was run, as later ones write over what it reads: indices would lie anywhere. One that
    writes over its own operand comes when all have run. What memory holds afterwards is of no use.
    """

    def begin() -> None:
        bound.start()
        load()
        bound.device.driver.synchronize(bound.device.stream)

    begin()
    found: dict[int, list[LaunchTime]] = {}
    late: list[Step] = []
    for step in bound.plan.steps:
        with _named_range(step.node.where()):
            bound.run(Segment(step.index, step.index + 1, False))
        bound.device.driver.synchronize(bound.device.stream)
        if _is_in_place(bound.plan, step):
            late.append(step)
        else:
            found[step.index] = list(_timed_step(bound, step))
    found |= {step.index: list(_timed_step(bound, step)) for step in late}
    times = tuple(each for step in bound.plan.steps for each in found[step.index])
    return Profile(times, _call_seconds(bound, begin), rates or Rates())


def _is_in_place(plan: Plan, step: Step) -> bool:
    read = {plan.views[value].buffer for value in step.node.operands if value in plan.views}
    return any(value in plan.views and plan.views[value].buffer in read for value in step.node.outputs)


def _timed_step(bound: CudaPlan, step: Step) -> Iterator[LaunchTime]:
    candidate, node, calls = bound.chosen[step.index], step.node, list(bound.calls_of(step))
    for index, (launch, call) in enumerate(zip(bound.launches_of(step), calls, strict=True)):
        for before in calls[:index]:  # what counts, say, has counted many times
            before(bound.device.stream)
        assert candidate is not None  # it has launches
        origin = "" if node.origin is None else str(node.origin)
        seconds = None if isinstance(launch, HostCall) else graph_seconds(bound.device, [call], REPETITIONS)
        yield LaunchTime(step.index, node.op.name, origin, candidate.name, seconds, *_work(launch))


def _work(launch: Launch) -> tuple[int, int]:
    return (0, 0) if isinstance(launch, HostCall) else (launch.nbytes, launch.flops)


def _call_seconds(bound: CudaPlan, begin: Callable[[], None]) -> float:
    """All launches in order as one graph; those on the host left out."""
    calls = [
        call
        for step in bound.plan.steps
        for launch, call in zip(bound.launches_of(step), bound.calls_of(step), strict=True)
        if not isinstance(launch, HostCall)
    ]
    return graph_seconds(bound.device, calls, 1, begin) if calls else 0.0


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
