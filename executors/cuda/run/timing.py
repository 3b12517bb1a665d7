"""Times of what is enqueued: recorded as a graph, so that the host's own time is no part of them, or as it is."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..driver.protocol import Enqueue

if TYPE_CHECKING:
    from .device import CudaDevice

REPLAYS = 5


def graph_seconds(
    device: "CudaDevice", calls: Sequence[Enqueue], repetitions: int, prepare: Callable[[], None] | None = None
) -> float:
    """What all `calls` take once: recorded `repetitions` times in a row, the best of some replays.

    `prepare` is done in front of each replay, and is no part of it.
    """
    driver, stream = device.driver, device.capture_stream
    driver.begin_capture(stream)
    try:
        for _ in range(repetitions):
            for call in calls:
                call(stream)
        graph = driver.end_capture(stream)
    finally:
        driver.abort_capture(stream)
    begin, end, elapsed = driver.timer()
    found: list[float] = []
    for _ in range(REPLAYS):
        if prepare is not None:
            prepare()
        begin(stream)
        graph.launch(stream)
        end(stream)
        found.append(elapsed())
    graph.close()
    return min(found) / repetitions


def seconds_alone(device: "CudaDevice", calls: Sequence[Enqueue]) -> float:
    """What all `calls` take once, launched one by one: with the host's time, where that is longer."""
    begin, end, elapsed = device.driver.timer()
    begin(device.capture_stream)
    for call in calls:
        call(device.capture_stream)
    end(device.capture_stream)
    return elapsed()
