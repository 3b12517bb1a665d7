"""Profiles: how long each launch of a program takes, against what its work would take at the device's rates.

A launch is timed by itself: recorded many times in a row as a graph, between two events, on the memory of the plan.
Weights and inputs are thus found in the cache where they fit into it, which a whole call may not find; the time of the
whole call stands beside the sum.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ....ir.plan import Plan, Segment, Step
from ..kernel_ir.launch import HostCall, Launch
from .bound_plan import CudaPlan
from .timing import graph_seconds


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device can do at most: bytes a second from memory, operations a second of matmuls in 16-bit floats.

    The defaults are those of an H200, which launches on other devices are held against as well.
    """

    bandwidth: float = 4.45e12
    flops: float = 790e12


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One launch: its step, op, origin, and candidate; seconds (None: on the host), bytes and FLOPs."""

    step: int
    op: str
    origin: str
    candidate: str
    seconds: float | None
    nbytes: int
    flops: int

    def share(self, rates: Rates) -> float:
        """The least that its work can take over what it takes; 1 is the best there is."""
        if not self.seconds:
            return 0.0
        return max(self.nbytes / rates.bandwidth, self.flops / rates.flops) / self.seconds


@dataclass(frozen=True, slots=True)
class Profile:
    """All launches of a plan in order, and the seconds of a whole call on the device."""

    launches: tuple[LaunchTime, ...]
    call_seconds: float
    rates: Rates

    @property
    def launch_seconds(self) -> float:
        """The sum over launches that were timed."""
        return sum(each.seconds or 0.0 for each in self.launches)

    def slowest(self, count: int = 10) -> list[LaunchTime]:
        """The launches that take the longest."""
        return sorted(self.launches, key=lambda each: -(each.seconds or 0.0))[:count]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{'step':>5} {'us':>8} {'GB/s':>7} {'TFLOP/s':>8} {'of best':>7}  op, candidate, origin"
        for each in self.launches:
            yield self._line(each)
        whole, parts = 1e6 * self.call_seconds, 1e6 * self.launch_seconds
        yield f"{len(self.launches)} launches, {parts:.1f} us one by one; a call takes {whole:.1f} us"
        yield f"best: {self.rates.bandwidth / 1e12:.2f} TB/s, {self.rates.flops / 1e12:.0f} TFLOP/s"

    def _line(self, each: LaunchTime) -> str:
        if each.seconds is None:
            return f"{each.step:>5} {'host':>8} {'':>7} {'':>8} {'':>7}  {each.op}, {each.candidate}, {each.origin}"
        rates = f"{each.nbytes / each.seconds / 1e9:>7.0f} {each.flops / each.seconds / 1e12:>8.2f}"
        share = f"{100 * each.share(self.rates):>6.1f}%"
        return f"{each.step:>5} {1e6 * each.seconds:>8.2f} {rates} {share}  {each.op}, {each.candidate}, {each.origin}"


@runtime_checkable
class Profiling(Protocol):
    """An executable whose launches can be timed."""

    def profile(self, inputs: Mapping[str, Any]) -> Profile:
        """The launches of a call with these inputs."""
        ...


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
