"""Profiles: how long each launch of a program takes, against what its work would take at the device's rates."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device can do at most: bytes a second from memory, operations a second of products in 16-bit floats.

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
