"""Calls like the one before: served by the fast path, counted, and declined as soon as anything differs."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from capgraph.executors.cuda.run import device
from capgraph.executors.cuda.run.executable import CudaExecutable
from capgraph.executors.cuda.run.fast_path import FastPath
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Array

from tests.executors.cuda.fake import FakeDriver, GpuArray, fake_device, gpu_arrays, meanings
from tests.executors.cuda.test_executable import recorded
from tests.executors.replay.programs import block, rows

IN_PLACE = {"inputs": {"": "refuse"}, "copy_outputs": False}
COPIED = {"inputs": {"": "copy"}}


def seen(content: Array, address: int) -> GpuArray:
    """Memory of the fake GPU as an array."""
    made = GpuArray.__new__(GpuArray)
    made.content, made.address = content, address
    return made


@pytest.fixture(params=[IN_PLACE, COPIED], ids=["in place", "copied"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CudaExecutable]:
    with meanings(), gpu_arrays():
        gpu = fake_device(tmp_path)
        yield recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]}, mode="full", **request.param)


def test_calls_that_take_it_are_counted(program: CudaExecutable) -> None:
    x = GpuArray(rows(4))
    served = 0
    with patch.object(FastPath, "run", autospec=True, side_effect=FastPath.run) as run:
        for _ in range(6):
            program.run({"x": x})
        served = run.call_count
    assert served == 4
    assert program.stats().counters.calls == 6
    assert program.stats().counters.replayed_calls == 5
    program.run({"x": rows(3)} if program.options.copy_outputs else {"x": x})
    assert program.stats().counters.calls == 7


def test_what_it_serves_is_right(program: CudaExecutable) -> None:
    oracle, x = EagerExecutor().compile(block()), GpuArray(rows(4))
    for call in range(6):
        x.content[...] = rows(4, call)
        expected = oracle.run({"x": rows(4, call)})["y"]
        np.testing.assert_allclose(program.run({"x": x})["y"].content, expected, rtol=1e-5)


def test_results_that_are_copied_stay_as_they_are(tmp_path: Path) -> None:
    with meanings(), gpu_arrays():
        program = recorded(block(), fake_device(tmp_path), dynamic={"B": (1, 8)}, buckets={"B": [4]}, **COPIED)
        kept = [program.run({"x": GpuArray(rows(4, call))})["y"] for call in range(6)]
        oracle = EagerExecutor().compile(block())
        for call, each in enumerate(kept):
            np.testing.assert_allclose(each.content, oracle.run({"x": rows(4, call)})["y"], rtol=1e-5)


def test_results_that_are_known_or_lie_in_another_order_are_copied_too(tmp_path: Path) -> None:
    b = Builder()
    h = b.op("exp", b.input("x", "f32[4, 3]"))
    outputs = {"t": b.op("transpose", h, perm=[1, 0]), "k": b.constant(np.arange(3.0)), "h": b.op("relu", h)}
    graph = b.finish(outputs)
    oracle = EagerExecutor().compile(graph)
    with meanings(), gpu_arrays(), patch.object(device, "FIRST_COPIES", 4):
        driver = FakeDriver()
        program = recorded(graph, fake_device(tmp_path, driver), mode="full", **COPIED)
        kept = []
        for call in range(12):
            content = rows(4, call, 3)
            given = program.run({"x": GpuArray(content)})
            assert list(given) == list(outputs)
            kept.append((oracle.run({"x": content}), given))
            given["k"].content[...] = given["k"].content + call
        assert program._fast_path is not None
        assert program._fast_path._with_copies is not None
        before = driver.strided_copies
        program.run({"x": GpuArray(rows(4, 0, 3))})
        assert driver.strided_copies == before, "the graph makes them"
        for call, (expected, given) in enumerate(kept):
            np.testing.assert_allclose(given["t"].content, expected["t"], rtol=1e-5)
            np.testing.assert_allclose(given["h"].content, expected["h"], rtol=1e-5)
            np.testing.assert_array_equal(given["k"].content, expected["k"] + call)


def test_other_sizes_go_the_long_way_and_come_back(tmp_path: Path) -> None:
    with meanings(), gpu_arrays():
        program = recorded(block(), fake_device(tmp_path), dynamic={"B": (1, 8)}, buckets={"B": [4]}, **COPIED)
        oracle = EagerExecutor().compile(block())
        for call, count in enumerate((4, 4, 4, 3, 4, 4, 2, 4)):
            x = rows(count, call)
            given = program.run({"x": GpuArray(x)})["y"].content
            np.testing.assert_allclose(given, oracle.run({"x": x})["y"], rtol=1e-5)
        assert program.stats().counters.calls == 8


@pytest.mark.parametrize("policy", ["copy", "auto"])
@pytest.mark.parametrize("turned", [False, True], ids=["as it is", "turned"])
@pytest.mark.parametrize("fed", ["x", "y"])
def test_a_result_in_place_may_be_an_input_of_the_next_call(
    fed: str, turned: bool, policy: str, tmp_path: Path
) -> None:
    b = Builder()
    x, y = b.input("x", "f32[4, 4]"), b.input("y", "f32[4, 4]")
    h = b.op("softmax", b.op("matmul", x, y))
    graph = b.finish({"h": b.op("softmax", b.op("matmul", h, y))})  # may lie where x was
    oracle = EagerExecutor().compile(graph)
    with meanings(), gpu_arrays(), patch.object(device, "FIRST_COPIES", 4):
        program = recorded(graph, fake_device(tmp_path), mode="full", inputs={"": policy}, copy_outputs=False)
        content, back = rows(4, 0, 4), GpuArray(rows(4, 0, 4))
        for call in range(10):
            drawn = {name: rows(4, call + 10, 4) for name in ("x", "y") if name != fed}
            expected = oracle.run({fed: content, **drawn})["h"]
            result = program.run({fed: back, **{name: GpuArray(each) for name, each in drawn.items()}})["h"]
            np.testing.assert_allclose(result.content, expected, rtol=1e-5)
            content = np.array(result.content.T if turned else result.content)
            back = seen(result.content.T, result.address) if turned else result
        assert not any("copies within the graph" in line for line in program.remarks)


def test_a_profile_may_move_the_memory_that_it_refers_to(program: CudaExecutable) -> None:
    x = GpuArray(rows(4))
    for _ in range(3):
        program.run({"x": x})
    assert program._fast_path is not None
    program.profile({"x": x})
    assert program._fast_path is None


def test_where_another_gpu_is_active_this_one_is_for_the_call(program: CudaExecutable) -> None:
    x = GpuArray(rows(4))
    with patch.object(FakeDriver, "is_active", lambda _self: False), patch.object(FakeDriver, "active") as active:
        program.run({"x": x})
    assert active.__enter__.call_count == 1
