import threading
from collections.abc import Mapping
from typing import Any

import pytest
from capgraph.executors.ort.gpu.executable import OneThread, OneThreadExecutor
from capgraph.ir.errors import CapgraphError, ExecutionError, InputError
from capgraph.ir.target import Target
from capgraph.ir.text.parser import parse

GRAPH = parse("graph @g(%x: f32[2]) { %y: f32[2] = relu(%x) return %y }")


class Inner:
    """An executable and its executor at once."""

    remarks = ("of the inner one",)

    def __init__(self) -> None:
        self.calls = 0
        self.is_closed = False

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if "wrong" in inputs:
            raise InputError("there is no input 'wrong'")
        self.calls += 1
        return dict(inputs)

    def close(self) -> None:
        self.is_closed = True

    def target(self) -> Target:
        return Target("inner", "host")

    def compile(self, _graph: object) -> "Inner":
        return self


def elsewhere(program: OneThread, inputs: Mapping[str, Any] | None = None) -> BaseException | None:
    """What a call raises in a thread called `elsewhere`."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            program.run(inputs or {})
        except CapgraphError as error:
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


def test_a_call_with_wrong_inputs_decides_nothing():
    program = OneThread(Inner(), [])
    assert isinstance(elsewhere(program, {"wrong": 1}), InputError)
    program.run({})
    assert isinstance(elsewhere(program), ExecutionError)


def test_of_calls_that_come_first_at_once_one_decides():
    entered, goes_on, raised = threading.Event(), threading.Event(), []

    class Slow(Inner):
        def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
            entered.set()
            goes_on.wait(60)
            return super().run(inputs)

    inner = Slow()
    program = OneThread(inner, [])
    first = threading.Thread(target=program.run, args=({},))
    first.start()
    entered.wait(60)
    second = threading.Thread(target=lambda: raised.append(elsewhere(program)))
    second.start()
    goes_on.set()
    first.join()
    second.join()
    assert isinstance(raised[0], ExecutionError)
    assert inner.calls == 1


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
