import threading
from collections.abc import Mapping
from typing import Any

import pytest
from capgraph.executors.ort.gpu.executable import OneThread, OneThreadExecutor
from capgraph.ir.errors import ExecutionError
from capgraph.ir.parser import parse
from capgraph.ir.target import Target

GRAPH = parse("graph @g(%x: f32[2]) { %y: f32[2] = relu(%x) return %y }")


class Inner:
    """An executable and its executor at once."""

    remarks = ("of the inner one",)

    def __init__(self) -> None:
        self.calls = 0
        self.is_closed = False

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        self.calls += 1
        return dict(inputs)

    def close(self) -> None:
        self.is_closed = True

    def target(self) -> Target:
        return Target("inner", "host")

    def compile(self, _graph: object) -> "Inner":
        return self


def elsewhere(program: OneThread) -> BaseException | None:
    """What a call raises in a thread called `elsewhere`."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            program.run({})
        except ExecutionError as error:
            raised.append(error)

    thread = threading.Thread(target=call, name="elsewhere")
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_the_first_call_decides_about_the_thread():
    inner = Inner()
    program = OneThread(inner, [])
    assert program.run({"x": 1}) == {"x": 1}
    error = elsewhere(program)
    assert isinstance(error, ExecutionError)
    assert "'elsewhere'" in str(error)
    assert "'MainThread'" in str(error)
    assert "ThreadPoolExecutor" in (error.remedy or "")
    program.run({})
    assert inner.calls == 2


def test_a_program_that_nobody_has_called_belongs_to_nobody():
    program = OneThread(Inner(), [])
    assert elsewhere(program) is None
    with pytest.raises(ExecutionError):
        program.run({})


@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_recorded_up_front_belongs_to_the_thread_that_does(at_once: bool):
    executor = OneThreadExecutor(Inner(), [], is_bound_at_once=at_once)
    assert executor.target().executor == "inner"
    assert (elsewhere(executor.compile(GRAPH)) is not None) is at_once


def test_the_rest_is_the_inner_programs():
    inner, notes = Inner(), ["of the sessions"]
    program = OneThread(inner, notes)
    notes.append("added later")
    assert program.remarks == ("of the sessions", "added later", "of the inner one")
    program.close()
    assert inner.is_closed
