"""Copies within the graph: what a replay asks of the driver, results that stay, and what is refused."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from capgraph.executors.cuda.arrays.protocol import DeviceArray
from capgraph.executors.cuda.driver.protocol import Driver
from capgraph.executors.cuda.kernel_ir.launch import KernelLaunch, ScalarArgument
from capgraph.executors.cuda.run import device, graph_with_copies
from capgraph.executors.cuda.run.bound_plan import CudaPlan
from capgraph.executors.cuda.run.executable import CudaExecutable
from capgraph.executors.cuda.run.graph_with_copies import copy_arguments, copy_kernel, copy_launch
from capgraph.executors.host.memory import address_of
from capgraph.executors.replay.states import StateStore
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.errors import CapgraphError
from capgraph.ir.graph import Graph
from capgraph.ir.philox import fresh_state

from tests.executors.cuda import emulator
from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.fake import (
    FakeArrays,
    FakeDriver,
    FakeFailure,
    FakeGraphWithCopies,
    GpuArray,
    fake_device,
    gpu_arrays,
    meanings,
)
from tests.executors.cuda.test_executable import recorded
from tests.executors.cuda.test_states import FakeState
from tests.executors.replay.programs import block, rows

COPIED = {"inputs": {"": "copy"}}
FIRST = 4
"""After so many calls by the fast path the copies are in the graph; two calls are before."""

WARM = FIRST + 2


class CountingDriver(FakeDriver):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in vars(Driver) and not name.startswith("_") and callable(vars(Driver)[name]):
            super().__getattribute__("asked")[name] += 1
        return super().__getattribute__(name)


@contextmanager
def patience() -> Iterator[None]:
    with patch.object(device, "FIRST_COPIES", FIRST), meanings(), gpu_arrays():
        yield


def program_on(driver: FakeDriver, folder: Path, graph: Graph | None = None, **options: Any) -> CudaExecutable:
    sizes = {"dynamic": {"B": (1, 8)}, "buckets": {"B": [4]}} if graph is None else {}
    return recorded(graph or block(), fake_device(folder, driver), mode="full", **sizes, **(options or COPIED))


def graphs_with_copies(driver: FakeDriver) -> list[FakeGraphWithCopies]:
    return [each for each in driver.graphs if isinstance(each, FakeGraphWithCopies)]


def test_a_replay_is_one_launch_and_asks_nothing_else_of_the_driver(tmp_path: Path) -> None:
    with patience():
        driver = CountingDriver()
        program = program_on(driver, tmp_path)
        x = GpuArray(rows(4))
        for _ in range(WARM):
            program.run({"x": x})
        assert [line for line in program.remarks if "within one graph: 0 B more" in line]
        driver.asked.clear()
        before = driver.launches, driver.copies
        for _ in range(10):
            program.run({"x": x})
        assert (driver.launches, driver.copies) == (before[0] + 10, before[1])
        assert driver.asked == {"is_active": 10}


def test_only_what_moved_is_exchanged(tmp_path: Path) -> None:
    with patience():
        driver = FakeDriver()
        program = program_on(driver, tmp_path, inputs={"": "copy"}, copy_outputs=False)
        inputs = [GpuArray(rows(4, seed)) for seed in range(2)]
        for _ in range(WARM):
            program.run({"x": inputs[0]})
        (graph,) = graphs_with_copies(driver)
        graph.exchanged.clear()
        for index in (0, 0, 1, 1, 1, 0):
            program.run({"x": inputs[index]})
        assert graph.exchanged == [("in", [inputs[1].address]), ("in", [inputs[0].address])]


@pytest.mark.parametrize(
    "options",
    [COPIED, {"inputs": {"": "copy"}, "copy_outputs": False}, {"inputs": {"": "refuse"}}],
    ids=["both", "inputs", "outputs"],
)
def test_results_are_right_and_stay(options: dict[str, Any], tmp_path: Path) -> None:
    with patience():
        driver = FakeDriver()
        program = program_on(driver, tmp_path, **options)
        oracle = EagerExecutor().compile(block())
        placed, kept = GpuArray(rows(4)), []
        for call in range(WARM + 6):
            content = rows(4, call)
            placed.content[...] = content
            given = placed if options["inputs"][""] == "refuse" else GpuArray(content)
            result = program.run({"x": given})["y"]
            kept.append((content, result))
            np.testing.assert_allclose(result.content, oracle.run({"x": content})["y"], rtol=1e-5)
        assert len(graphs_with_copies(driver)) == 1
        if program.options is not None and program.options.copy_outputs:
            assert len({result.address for _content, result in kept}) == len(kept)
            for content, result in kept:
                np.testing.assert_allclose(result.content, oracle.run({"x": content})["y"], rtol=1e-5)
        assert program.stats().counters.calls == WARM + 6


def test_several_inputs_and_outputs_go_where_they_belong(tmp_path: Path) -> None:
    b = Builder()
    x, y = b.input("x", "f32[3, 5]"), b.input("y", "f32[5]")
    h = b.op("softmax", b.op("add", x, y))
    graph = b.finish({"h": h, "s": b.op("exp", h), "m": b.op("mul", h, y)})
    oracle = EagerExecutor().compile(graph)
    with patience():
        driver = FakeDriver()
        program = program_on(driver, tmp_path, graph, **COPIED)
        for call in range(WARM + 4):
            arrays = {"x": rows(3, call, 5), "y": rows(1, call + 50, 5)[0]}
            given = program.run({name: GpuArray(each) for name, each in arrays.items()})
            expected = oracle.run(arrays)
            assert list(given) == list(expected)
            for name, each in expected.items():
                np.testing.assert_allclose(given[name].content, each, rtol=1e-5)
        assert len(graphs_with_copies(driver)) == 1


# ---- large results


@contextmanager
def in_turn(count: int, shape: tuple[int, ...] = (4, 4)) -> Iterator[list[GpuArray]]:
    """New arrays lie in `count` places in turn, and every result is large."""
    places = [GpuArray(np.zeros(shape, np.float32)) for _ in range(count)]
    following = cycle(places)

    def fresh(_self: FakeArrays, _like: DeviceArray) -> tuple[GpuArray, int]:
        made = next(following)
        made.content[...] = 77
        return made, made.address

    with patience(), patch.object(graph_with_copies, "LEAST_PLACED", 1), patch.object(FakeArrays, "fresh", fresh):
        yield places


def run_in_turn(program: CudaExecutable, calls: int) -> None:
    oracle = EagerExecutor().compile(block())
    for call in range(calls):
        content = rows(4, call)
        given = program.run({"x": GpuArray(content)})["y"]
        np.testing.assert_allclose(given.content, oracle.run({"x": content})["y"], rtol=1e-5)


def test_large_results_are_computed_in_places_that_come_again(tmp_path: Path) -> None:
    driver = FakeDriver()
    with in_turn(2) as places:
        program = program_on(driver, tmp_path)
        run_in_turn(program, WARM + 8)
        copying, *placed = graphs_with_copies(driver)
        assert [each._after for each in placed] == [[], []]
        copying.exchanged.clear()
        before = driver.launches, driver.copies
        run_in_turn(program, 6)
        assert (driver.launches, driver.copies) == (before[0] + 6, before[1])
        assert copying.exchanged == []
        program.close()
        assert all(each._calls is None for each in (copying, *placed))
    assert len(places) == len(placed)


def test_places_that_do_not_come_again_get_no_graph(tmp_path: Path) -> None:
    driver = FakeDriver()
    with in_turn(40):
        run_in_turn(program_on(driver, tmp_path), 60)
    assert len(graphs_with_copies(driver)) == 1


def test_graphs_for_more_places_than_are_kept_come_ever_more_seldom(tmp_path: Path) -> None:
    driver = FakeDriver()
    with in_turn(graph_with_copies.MOST_PLACES + 1):
        run_in_turn(program_on(driver, tmp_path), 200)
    copying, *placed = graphs_with_copies(driver)
    assert copying._calls is not None
    assert sum(each._calls is not None for each in placed) == graph_with_copies.MOST_PLACES
    assert len(placed) < 10


def test_a_large_result_that_comes_out_otherwise_is_copied_on(tmp_path: Path) -> None:
    driver = FakeDriver()
    with in_turn(2), patch.object(CudaPlan, "calls_at", lambda self, step, _moved: self.calls_of(step)):
        program = program_on(driver, tmp_path)
        run_in_turn(program, WARM + 12)
        assert len(graphs_with_copies(driver)) == 2
        assert any("copies within the graph: output 'y' is another" in each for each in program.remarks)


def test_results_that_share_memory_are_copied(tmp_path: Path) -> None:
    b = Builder()
    h = b.op("exp", b.input("x", "f32[4, 16]"))
    graph = b.finish({"y": h, "z": b.op("reshape", h, shape=[64])})
    driver = FakeDriver()
    with patience(), patch.object(graph_with_copies, "LEAST_PLACED", 1):
        program = program_on(driver, tmp_path, graph, **COPIED)
        for _ in range(WARM + 12):
            program.run({"x": GpuArray(rows(4, 0, 16))})
        assert len(graphs_with_copies(driver)) == 1


# ---- what is refused


def test_a_graph_that_gives_other_results_is_not_used(tmp_path: Path) -> None:
    with patience(), patch.object(FakeGraphWithCopies, "read_from", lambda _self, _addresses: None):
        driver = FakeDriver()
        program = program_on(driver, tmp_path)
        oracle = EagerExecutor().compile(block())
        for call in range(WARM + 4):
            given = program.run({"x": GpuArray(rows(4, call))})["y"].content
            np.testing.assert_allclose(given, oracle.run({"x": rows(4, call)})["y"], rtol=1e-5)
        assert driver.copies > 2 * (WARM + 4)  # all calls copy
        assert any("copies within the graph: output 'y' is another" in each for each in program.remarks)


@pytest.mark.parametrize("text", ["refused", "lost"])
def test_a_driver_that_refuses_leaves_calls_as_they_were(text: str, tmp_path: Path) -> None:
    with patience(), patch.object(FakeDriver, "frame", side_effect=FakeFailure(text)) as frame:
        program = program_on(FakeDriver(), tmp_path)
        x = GpuArray(rows(4))
        for _ in range(WARM - 1):
            program.run({"x": x})
        if text == "lost":
            with pytest.raises(CapgraphError, match="lost"):
                program.run({"x": x})
        else:
            for _ in range(4):
                program.run({"x": x})
            assert any("copies within the graph: " in each for each in program.remarks)
        assert frame.call_count == 1
        program.close()


@pytest.mark.parametrize("is_right", [True, False], ids=["right", "wrong"])
@pytest.mark.parametrize("options", [{}, {"copy_outputs": False}], ids=["both", "inputs"])
def test_looking_at_a_graph_with_states_leaves_them_as_they_are(
    is_right: bool, options: dict[str, Any], tmp_path: Path
) -> None:
    b = Builder()
    sums, x = b.input("sums", "f32[1, 2, 4]"), b.input("x", "f32[1, 1, 4]")
    told = b.op("add", b.op("slice", sums, axes=[1], starts=[0], ends=[1], steps=[1]), x)
    written = b.op("tensor_scatter", sums, told, b.constant(np.zeros(1), "i64"), axis=1)
    graph = b.finish({"y": b.op("exp", written), "next": written})
    graph.set_states([(0, 1)])
    state, driver = FakeState(np.zeros((1, 2, 4), np.float32)), FakeDriver()
    store = StateStore.over({"sums": state})
    reads = FakeGraphWithCopies.read_from if is_right else lambda _self, _addresses: None
    with patience(), patch.object(FakeGraphWithCopies, "read_from", reads):
        program = program_on(driver, tmp_path, graph, states=store, **COPIED, **options)
        expected = np.zeros(4, np.float32)
        for call in range(WARM + 4):
            content = rows(1, call, 4)
            expected = expected + content[0]
            given = program.run({"x": GpuArray(content[None])})["y"].content
            np.testing.assert_allclose(given[0, 0], np.exp(expected), rtol=1e-5)
            np.testing.assert_allclose(state.native.content[0, 0], expected, rtol=1e-5)
        assert len(graphs_with_copies(driver)) == 1
        assert program._fast_path is not None
        assert (program._fast_path._with_copies is not None) == is_right


def test_a_graph_with_chance_draws_on_where_its_copies_are_looked_at(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", "f32[4]")
    graph = b.finish({"y": b.op("add", x, b.op("random_uniform", shape=[4], dtype="f32"))})
    drawn = []
    for first in (FIRST, 1000):
        with patience(), patch.object(device, "FIRST_COPIES", first):
            driver = FakeDriver()
            program = program_on(driver, tmp_path, graph, **COPIED)
            program.set_random_state(fresh_state(3))
            drawn.append([program.run({"x": GpuArray(rows(1)[0])})["y"].content.tolist() for _ in range(WARM + 4)])
            assert len(graphs_with_copies(driver)) == (first == FIRST)
    assert drawn[0] == drawn[1]


def test_a_kernel_that_does_not_compile_leaves_calls_as_they_were(tmp_path: Path) -> None:
    with patience(), patch.object(graph_with_copies, "copy_kernel", lambda _parts, _moving: "broken"):
        program = program_on(FakeDriver(), tmp_path)
        for _ in range(WARM + 2):
            program.run({"x": GpuArray(rows(4))})
        assert any("copies within the graph: the kernel that copies" in each for each in program.remarks)


# ---- how long it lives


def test_calls_of_other_kinds_in_between_wait_longer_for_the_next(tmp_path: Path) -> None:
    with patience():
        driver = FakeDriver()
        program = program_on(driver, tmp_path)
        made = []
        for calls in (WARM, FIRST, FIRST, 2 * FIRST + 1):
            program.run({"x": rows(4)})  # of NumPy
            for _ in range(calls):
                program.run({"x": GpuArray(rows(4))})
            made.append(len(graphs_with_copies(driver)))
        assert made == [1, 1, 1, 2]
        assert [each._calls is None for each in graphs_with_copies(driver)] == [True, False]
        program.close()
        assert graphs_with_copies(driver)[1]._calls is None


# ---- the kernel


SHAPES = [(1, 0), (15, 0), (16, 0), (4096, 0), (70_000, 0), (300_007, 0), (4099, 4), (33, 1)]
"""Bytes, and how far from a multiple of 16 the array starts."""


@pytest.mark.skipif(not emulator.HAS_COMPILER, reason="kernels run on the host by g++")
@pytest.mark.parametrize("moving", ["source", "target"])
def test_the_kernel_copies_every_byte_and_no_other(moving: str, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    sources = [random.integers(0, 256, nbytes + 64, dtype=np.uint8) for nbytes, _start in SHAPES]
    targets = [np.zeros(nbytes + 64, dtype=np.uint8) for nbytes, _start in SHAPES]
    starts = [-address_of(each) % 16 + start for each, (_nbytes, start) in zip(targets, SHAPES, strict=True)]
    parts = [(address_of(each), nbytes) for each, (nbytes, _start) in zip(targets, SHAPES, strict=True)]
    froms = [address_of(each) + -address_of(each) % 16 for each in sources]
    intos = [address_of(each) + start for each, start in zip(targets, starts, strict=True)]
    exchanged, others = (froms, intos) if moving == "source" else (intos, froms)
    numbers = [*exchanged, *others, *(nbytes for nbytes, _start in SHAPES)]
    launch = copy_launch(parts, moving, 2)
    bound = KernelLaunch(launch.kernel, tuple(ScalarArgument("long long", each) for each in numbers), 0)
    emulator.launched(emulator.compiled([launch.kernel], tmp_path), bound, lambda _buffer: 0)
    for source, target, start, (nbytes, _start) in zip(sources, targets, starts, SHAPES, strict=True):
        offset = -address_of(source) % 16
        np.testing.assert_array_equal(target[start : start + nbytes], source[offset : offset + nbytes])
        assert not target[:start].any()
        assert not target[start + nbytes :].any()


def test_arguments_are_of_8_bytes_and_begin_with_what_is_exchanged() -> None:
    given = copy_arguments([(256, 7), (512, 9)])
    assert given == [256, 512, 256, 512, ScalarArgument("long long", 7), ScalarArgument("long long", 9)]
    for moving, other in (("source", "target"), ("target", "source")):
        head = copy_kernel(2, moving).partition("{")[0]
        names = [f"{moving}_0", f"{moving}_1", f"{other}_0", f"{other}_1", "bytes_0", "bytes_1"]
        assert ", ".join(f"u64 {name}" for name in names) in head


def test_the_kernel_compiles_for_every_architecture() -> None:
    parts = [(0, 100), (0, 1 << 20)]
    kernels = [copy_launch(parts[:count], moving, 132).kernel for count in (1, 2) for moving in ("source", "target")]
    assert compile_problems(kernels) == []
