"""Times of calls on a device, in microseconds of host time."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """Medians: `one_us` a call that is waited for, `many_us` one of many back to back, `enqueue_us` before the wait.

    `one_p99_us` is the 99th percentile of the first.
    """

    one_us: float
    many_us: float
    enqueue_us: float
    one_p99_us: float


def timed(call: Call, wait: Call, seconds: float = 0.3, warm_up: int = 5, calls: int = 10) -> Times:
    """Times `call`, which only enqueues, and `wait`, which waits until all that was enqueued is done.

    At least so many calls are waited for, one by one.
    """
    for _ in range(warm_up):
        call()
    wait()
    ones, enqueued = _one_by_one(call, wait, seconds, calls)
    count = max(5, min(500, int(seconds / 5 / statistics.median(ones))))
    return Times(
        statistics.median(ones) * 1e6,
        statistics.median(_back_to_back(call, wait, count) for _ in range(5)) * 1e6,
        statistics.median(enqueued) * 1e6,
        sorted(ones)[int(0.99 * len(ones))] * 1e6,
    )


def paired(calls: Mapping[str, Call], wait: Call, rounds: int = 9, seconds: float = 0.05) -> dict[str, list[float]]:
    """Microseconds of a call back to back, a run of each in every round, so that a slow moment meets all of them."""
    counts = {}
    for name, call in calls.items():
        call()
        wait()
        counts[name] = max(5, min(500, int(seconds / max(1e-6, _back_to_back(call, wait, 5)))))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(1e6 * _back_to_back(call, wait, counts[name]))
    return found


def in_pairs(found: Mapping[str, list[float]], first: str) -> dict[str, dict[str, float]]:
    """Of what `paired` gave: each call's median, and the median over rounds of the time of `first` over its time."""
    return {
        name: {
            "us": round(statistics.median(times), 1),
            f"{first} / this": round(statistics.median(a / b for a, b in zip(found[first], times, strict=True)), 3),
        }
        for name, times in found.items()
    }


def _one_by_one(call: Call, wait: Call, seconds: float, calls: int) -> tuple[list[float], list[float]]:
    ones: list[float] = []
    enqueued: list[float] = []
    end = time.perf_counter() + seconds
    while len(ones) < calls or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        middle = time.perf_counter()
        wait()
        ones.append(time.perf_counter() - start)
        enqueued.append(middle - start)
    return ones, enqueued


def _back_to_back(call: Call, wait: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - start) / count
