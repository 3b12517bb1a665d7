"""What is asked of CuPy, on a module that is played: streams and events are given back."""

import gc
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from weakref import WeakSet

import pytest
from capgraph.executors.cuda.driver.cupy import CupyDriver


class Handle:
    """A stream or an event of CuPy's, which CUDA has as long as somebody holds it."""

    def __init__(self, alive: "WeakSet[Handle]", **_named: Any) -> None:
        alive.add(self)
        self.ptr = id(self)


class Played(CupyDriver):
    """A driver without a GPU."""

    def __init__(self) -> None:
        self.streams, self.timers = WeakSet[Handle](), WeakSet[Handle]()
        self._runtime = Mock(eventElapsedTime=Mock(return_value=2.0))
        self._cupy = SimpleNamespace(
            cuda=SimpleNamespace(
                Stream=lambda **named: Handle(self.streams, **named), Event=lambda: Handle(self.timers)
            )
        )
        self._streams = {}
        self._events = {}
        self._lost = ""


@pytest.fixture
def driver() -> Played:
    return Played()


def test_the_events_of_a_timer_live_as_long_as_it(driver: Played) -> None:
    begin, end, seconds = driver.timer()
    assert len(driver.timers) == 2
    begin(5)
    end(5)
    (first, _), (last, _) = (each.args for each in driver._runtime.eventRecord.call_args_list)
    assert seconds() == pytest.approx(2e-3)
    driver._runtime.eventElapsedTime.assert_called_once_with(first, last)
    del begin, end
    gc.collect()
    assert len(driver.timers) == 2, "the time may still be asked for"
    del seconds
    gc.collect()
    assert not driver.timers


def test_a_stream_is_given_back_with_its_event(driver: Played) -> None:
    kept, released = driver.make_stream(), driver.make_stream()
    event = driver._runtime.eventCreateWithFlags.return_value
    driver.order(released, kept)
    driver.release_stream(released)
    assert [each.ptr for each in driver.streams] == [kept]
    driver._runtime.eventDestroy.assert_called_once_with(event)
    driver.order(released, kept)  # another stream has its address
    assert driver._runtime.eventCreateWithFlags.call_count == 2


def test_a_lost_device_is_asked_for_nothing(driver: Played) -> None:
    stream = driver.make_stream()
    driver._lost = "an illegal memory access"
    driver.release_stream(stream)
    assert len(driver.streams) == 1
