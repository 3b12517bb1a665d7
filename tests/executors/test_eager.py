from typing import Any

import numpy as np
import pytest
from capgraph.executors.base import Executable, Executor
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.errors import ExecutionError, InputError
from capgraph.ir.graph import Graph

from tests.counted_work import calls_in

F32 = np.float32


def compiled(graph: Graph) -> Executable:
    executor: Executor = EagerExecutor()
    return executor.compile(graph)


def test_the_host_is_always_available() -> None:
    target = EagerExecutor().target()
    assert (target.executor, target.device, target.captures, target.is_available) == ("eager", "host", False, True)


def test_outputs_have_the_names_and_the_order_of_the_graph() -> None:
    b = Builder()
    x = b.input("x", "f32[N]")
    outputs = compiled(b.finish({"second": b.op("exp", x), "first": b.op("neg", x)})).run({"x": np.zeros(2, F32)})
    assert list(outputs) == ["second", "first"]
    assert outputs["second"].tolist() == [1, 1]


def test_infinities_are_results_like_any_other() -> None:
    b = Builder()
    x, y = b.input("x", "f32[3]"), b.input("y", "f32[3]")
    outputs = compiled(b.finish({"q": b.op("div", x, y)})).run({"x": np.array([1, 0, -1], F32), "y": np.zeros(3, F32)})
    assert np.array_equal(outputs["q"], [np.inf, np.nan, -np.inf], equal_nan=True)


def views(b: Builder) -> dict[str, Any]:
    """Outputs that a naive executor would let share memory: with an input, a weight, a constant, and each other."""
    x, weight = b.input("x", "f32[2, 3]"), b.constant(np.ones((2, 3), F32))
    total = b.op("add", x, weight)
    return {
        "input": x,
        "transposed": b.op("transpose", x, perm=[1, 0]),
        "weight": weight,
        "row": b.op("reshape", weight, shape=[6]),
        "expanded": b.op("expand", total, shape=[4, 2, 3]),
        "total": total,
        "again": total,
        "flat": b.op("reshape", total, shape=[6]),
    }


def test_outputs_belong_to_the_caller() -> None:
    b = Builder()
    graph = b.finish(views(b))
    program, x = compiled(graph), np.arange(6, dtype=F32).reshape(2, 3)
    before = x.copy()
    first = program.run({"x": x})
    expected = {name: value.copy() for name, value in first.items()}
    for name, value in first.items():
        value[...] = -1
        others = {other: array for other, array in first.items() if other != name}
        assert not any(np.shares_memory(value, other) for other in others.values()), name
    assert np.array_equal(x, before)
    for name, value in program.run({"x": x}).items():
        assert np.array_equal(value, expected[name]), name


def test_inputs_are_only_read() -> None:
    b = Builder()
    x = b.input("x", "f32[4]")
    graph = b.finish({"y": b.op("relu", b.op("neg", x))})
    given = np.array([1, -2, 3, -4], F32)
    given.flags.writeable = False
    assert compiled(graph).run({"x": given})["y"].tolist() == [0, 2, 0, 4]


def test_a_refused_call_leaves_the_program_usable() -> None:
    b = Builder()
    program = compiled(b.finish({"y": b.op("exp", b.input("x", "f32[2]"))}))
    with pytest.raises(InputError):
        program.run({"x": np.zeros(3, F32)})
    assert program.run({"x": np.zeros(2, F32)})["y"].tolist() == [1, 1]


def test_a_closed_program_says_so() -> None:
    b = Builder()
    program = compiled(b.finish({"y": b.op("exp", b.input("x", "f32[2]"))}))
    program.close()
    program.close()
    with pytest.raises(ExecutionError, match="closed"):
        program.run({"x": np.zeros(2, F32)})


def test_callers_may_overwrite_results_that_do_not_depend_on_inputs() -> None:
    """Such results are computed once and kept."""
    b = Builder()
    counted = b.op("arange", limit=4)
    program = EagerExecutor().compile(b.finish({"y": counted, "z": b.op("reverse", counted, axes=[0])}))
    for _ in range(2):
        found = program.run({})
        assert found["y"].tolist() == [0, 1, 2, 3]
        assert found["z"].tolist() == [3, 2, 1, 0]
        found["y"][...] = 9
        found["z"][...] = 9


def test_the_calls_of_a_convolution_do_not_grow_with_its_picture() -> None:
    b = Builder()
    x, weight = b.input("x", "f32[1, 3, S, S]"), b.constant(np.ones((8, 3, 3, 3), F32))
    y = b.op("relu", b.op("conv", x, weight, None, strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1]))
    pooled = b.op("max_pool", y, kernel=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], dilations=[1, 1])
    eager, calls = compiled(b.finish({"y": pooled})), []
    for size in (8, 128):
        picture = np.ones((1, 3, size, size), F32)
        eager.run({"x": picture})
        calls.append(calls_in(lambda picture=picture: eager.run({"x": picture})))
    assert calls[0] == calls[1]
