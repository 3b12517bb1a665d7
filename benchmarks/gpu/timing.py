"""Times of calls on a device, in microseconds of host time."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """Medians: `one_us` a call that is waited for, `many_us` one of many back to back, `enqueue_us` before the wait."""

    one_us: float
    many_us: float
    enqueue_us: float


def timed(call: Call, wait: Call, seconds: float = 0.3, warm_up: int = 5) -> Times:
    """Times `call`, which only enqueues, and `wait`, which waits until all that was enqueued is done."""
    for _ in range(warm_up):
        call()
    wait()
    ones, enqueued = _one_by_one(call, wait, seconds)
    count = max(5, min(500, int(seconds / 5 / statistics.median(ones))))
    return Times(
        statistics.median(ones) * 1e6, _back_to_back(call, wait, count) * 1e6, statistics.median(enqueued) * 1e6
    )


def _one_by_one(call: Call, wait: Call, seconds: float) -> tuple[list[float], list[float]]:
    ones: list[float] = []
    enqueued: list[float] = []
    end = time.perf_counter() + seconds
    while len(ones) < 10 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        middle = time.perf_counter()
        wait()
        ones.append(time.perf_counter() - start)
        enqueued.append(middle - start)
    return ones, enqueued


def _back_to_back(call: Call, wait: Call, count: int) -> float:
    runs: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        runs.append((time.perf_counter() - start) / count)
    return statistics.median(runs)
