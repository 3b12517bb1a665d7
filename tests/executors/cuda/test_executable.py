"""Programs on a GPU that the host plays: recording, dispatch, padding, memory."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from capgraph.capture_options import replay_options
from capgraph.executors.base import Request
from capgraph.executors.cuda.kernel_ir.launch import Candidate, Kernel, KernelLaunch, Task
from capgraph.executors.cuda.lower import lowering
from capgraph.executors.cuda.programs import eager_on, graphs_on
from capgraph.executors.cuda.run import device
from capgraph.executors.cuda.run.device import CudaDevice
from capgraph.executors.cuda.run.executable import CudaExecutable
from capgraph.executors.replay import planning
from capgraph.executors.replay.routing import input_symbols
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.errors import CapgraphError, ExecutionError
from capgraph.ir.graph import Graph
from capgraph.ir.op import Trait
from capgraph.ir.philox import fresh_state
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import difference

from tests.executors.cuda.fake import (
    FakeArrays,
    FakeDriver,
    FakeFailure,
    GpuArray,
    fake_device,
    gpu_arrays,
    meanings,
    through_meaning,
)
from tests.executors.replay.programs import block, column_sums, rows
from tests.strategies.graphs import random_graph, random_inputs

LARGEST = 8


def recorded(graph: Graph, gpu: CudaDevice, **options: Any) -> CudaExecutable:
    named = {name: options.pop(name, None) for name in ("dynamic", "buckets")}
    mode = options.pop("mode", "full_and_piecewise")
    chosen = replay_options(mode=mode, strict=options.pop("strict", False), capture=options, **named)
    return graphs_on(gpu, Request(device="cuda", replay=chosen)).compile(graph)  # type: ignore[return-value]


def test_a_first_call_brings_its_graph_to_kernels_once(tmp_path: Path) -> None:
    with meanings(), patch.object(planning, "lowered", side_effect=planning.lowered) as once:
        program = recorded(block(), fake_device(tmp_path), mode="full", beyond="exact")
        oracle = EagerExecutor().compile(block())
        for sizes, count in enumerate((3, 4, 5), start=1):
            for call in range(3):
                found = program.run({"x": rows(count, call)})["y"]
                np.testing.assert_allclose(found, oracle.run({"x": rows(count, call)})["y"], rtol=1e-5)
            assert once.call_count == sizes


@pytest.mark.parametrize("graph", [block(), column_sums()])
@pytest.mark.parametrize("mode", ["none", "full", "piecewise"])
def test_programs_give_what_the_host_gives(graph: Graph, mode: str, tmp_path: Path) -> None:
    with meanings():
        program = recorded(graph, fake_device(tmp_path), mode=mode, dynamic={"B": (1, 8)}, buckets={"B": [4, 8]})
        oracle = EagerExecutor().compile(graph)
        for call, count in enumerate((3, 4, 8, 5, 3, 1)):
            x = rows(count, call)
            np.testing.assert_allclose(program.run({"x": x})["y"], oracle.run({"x": x})["y"], rtol=1e-5)
        stats = program.stats()
    assert stats.refused == ()
    if mode != "piecewise":  # one kernel, which is not worth a recording by itself
        assert stats.counters.replayed_calls == (4 if mode == "full" else 0)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_graphs_are_served_right(first: int, tmp_path: Path) -> None:
    replayed = 0
    for seed in range(first, first + 20):
        graph = random_graph(seed)
        if any(node.op.has(Trait.IMPURE) for node in graph.nodes):
            continue
        dynamic = dict.fromkeys(input_symbols(graph), (0, LARGEST))
        with meanings():
            gpu = fake_device(tmp_path)
            program = recorded(graph, gpu, dynamic=dynamic, buckets=dict.fromkeys(dynamic, (4, LARGEST)))
            oracle = EagerExecutor().compile(graph)
            for call in range(4):
                _sizes, arrays = random_inputs(graph, 1000 * call + seed)
                inputs = {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}
                try:
                    expected = oracle.run(inputs)
                except CapgraphError:
                    continue
                for name, given in program.run(inputs).items():
                    problem = difference(expected[name], given, Exactness.ROUNDING, 512)
                    assert problem == "", f"seed {seed}, call {call}, output {name} {problem}\n{graph}"
            stats = program.stats()
        assert stats.refused == (), f"seed {seed}"
        replayed += stats.counters.replayed_calls
    assert replayed > 5


def test_eager_programs_plan_once_a_size(tmp_path: Path) -> None:
    with meanings():
        program = eager_on(fake_device(tmp_path), Request(device="cuda")).compile(block())
        for count in (3, 5, 3):
            x = rows(count, count)
            expected = EagerExecutor().compile(block()).run({"x": x})["y"]
            np.testing.assert_allclose(program.run({"x": x})["y"], expected, rtol=1e-5)
    program.close()
    with pytest.raises(CapgraphError, match="closed"):
        program.run({"x": rows(3)})


def test_all_buckets_and_eager_runs_share_one_arena(tmp_path: Path) -> None:
    with meanings():
        gpu = fake_device(tmp_path)
        program = recorded(block(), gpu, dynamic={"B": (1, 64)}, buckets={"B": [8, 64]})
        for count in (8, 64, 8, 64):
            program.run({"x": rows(count)})
        assert program.stats().arena_bytes == gpu.arenas.nbytes


def test_too_little_memory_is_told_before_anything_runs(tmp_path: Path) -> None:
    with meanings():
        program = recorded(block(), fake_device(tmp_path, FakeDriver(limit=4096)), dynamic={"B": (1, 4096)})
        with pytest.raises(CapgraphError, match="the arena takes"):
            program.run({"x": rows(4096)})
        assert program.run({"x": rows(2)})["y"].shape == (2, 4)


# ---- arrays on the device


def test_arrays_on_the_device_come_back_as_such(tmp_path: Path) -> None:
    with meanings(), gpu_arrays():
        program = recorded(block(), fake_device(tmp_path), dynamic={"B": (1, 8)}, buckets={"B": [4, 8]})
        oracle = EagerExecutor().compile(block())
        for call, count in enumerate((4, 4, 4, 3, 3, 4, 8, 8)):
            x = rows(count, call)
            given = program.run({"x": GpuArray(x)})["y"]
            assert isinstance(given, GpuArray)
            np.testing.assert_allclose(given.content, oracle.run({"x": x})["y"], rtol=1e-5)
        assert program.stats().refused == ()
        assert program.stats().counters.calls == 8
        assert program.stats().counters.replayed_calls == 6


def test_an_input_in_place_is_read_where_it_lies(tmp_path: Path) -> None:
    with meanings(), gpu_arrays():
        options = {"inputs": {"": "refuse"}, "copy_outputs": False}
        program = recorded(block(), fake_device(tmp_path), dynamic={"B": (1, 8)}, buckets={"B": [4]}, **options)
        oracle = EagerExecutor().compile(block())
        x = GpuArray(rows(4))
        program.run({"x": x})
        first = program.run({"x": x})["y"]
        for call in range(4):
            x.content[...] = rows(4, call)
            assert program.run({"x": x})["y"].address == first.address
            np.testing.assert_allclose(first.content, oracle.run({"x": rows(4, call)})["y"], rtol=1e-5)
        with pytest.raises(CapgraphError, match="another address"):
            program.run({"x": GpuArray(rows(4))})
        with pytest.raises(CapgraphError, match="got shape"):
            program.run({"x": GpuArray(rows(4, width=5))})
        np.testing.assert_allclose(program.run({"x": x})["y"].content, oracle.run({"x": x.content})["y"], rtol=1e-5)


def test_a_moved_input_needs_no_new_recording(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", "f32[4]")
    graph = b.finish({"y": b.op("relu", b.op("matmul", b.op("exp", x), b.constant(np.eye(4, dtype=np.float32) * 2)))})
    with meanings(), gpu_arrays():
        gpu = fake_device(tmp_path)
        program = recorded(graph, gpu, inputs={"": "repoint"}, mode="full")
        kept = []
        for call in range(5):
            content = rows(1, call)[0]
            kept.append(GpuArray(content))
            np.testing.assert_allclose(program.run({"x": kept[-1]})["y"].content, 2 * np.exp(content), rtol=1e-5)
        (graph_of_kernels,) = gpu.driver.graphs
        assert graph_of_kernels.updates >= 3


def test_work_goes_to_the_stream_of_the_caller_behind_what_was_before(tmp_path: Path) -> None:
    with meanings(), gpu_arrays():
        gpu = fake_device(tmp_path)
        program = recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]})
        x = GpuArray(rows(4))
        for stream in (7, 7, 9, 9, 7):
            FakeArrays.current = stream
            program.run({"x": x})
        FakeArrays.current = 7
        program.run({"x": rows(4)})
        assert gpu.driver.ordered == [(gpu.own_stream, 7), (7, 9), (9, 7), (7, gpu.own_stream)]


def test_a_kernel_that_does_not_compile_gives_way_to_the_next(tmp_path: Path) -> None:
    def candidates(task: Task) -> Iterator[Candidate]:
        (good,) = through_meaning(task)
        yield Candidate("bad", (KernelLaunch(Kernel("broken", (1, 1, 1), (1, 1, 1)), (), 0),))
        yield good

    with patch.object(lowering, "families_of", lambda _op: (candidates,)):
        program = recorded(block(), fake_device(tmp_path), dynamic={"B": (1, 8)}, buckets={"B": [4]})
        for _ in range(2):
            program.run({"x": rows(4)})
        assert program.stats().counters.replayed_calls == 1
        assert any("bad: error: broken" in remark for remark in program.remarks)


def test_what_has_no_kernel_runs_on_the_host_between_segments(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", "f32[4, 4]")
    h = b.op("softmax", b.op("matmul", b.op("exp", x), x))
    y = b.op("matmul", b.op("cumsum", h, axis=0), h)
    graph = b.finish({"y": b.op("matmul", y, x)})
    with meanings():
        all_families = lowering.families_of
        with patch.object(lowering, "families_of", lambda op: () if op == "cumsum" else all_families(op)):
            program = recorded(graph, fake_device(tmp_path))
            given = [program.run({"x": rows(4)})["y"] for _ in range(3)][-1]
            np.testing.assert_allclose(given, EagerExecutor().compile(graph).run({"x": rows(4)})["y"], rtol=1e-4)
            stats = program.stats()
    assert stats.refused == ()
    assert program.coverage() == (stats.buckets[0].segments, stats.buckets[0].eager_steps) == (2, 1)
    assert any("runs on the host: cumsum" in remark for remark in program.remarks)


def test_steps_on_the_host_are_counted_where_they_are_called_alike(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    for _ in range(3):
        x = b.op("cumsum", x, axis=1)
    graph = b.finish({"y": x})
    with meanings(), patch.object(lowering, "families_of", lambda _op: ()):
        program = recorded(graph, fake_device(tmp_path), dynamic={"B": (1, 8)}, buckets={"B": [4, 8]})
        for count in (4, 8, 4):
            program.run({"x": rows(count)})
        (line,) = [line for line in program.remarks if line.startswith("runs on the host")]
        eager = eager_on(fake_device(tmp_path), Request(device="cuda")).compile(graph)
        eager.run({"x": rows(4)})
    assert line == "runs on the host: cumsum, 3 steps: there is no kernel for this op"
    assert eager.coverage() == (0, 3)


@pytest.mark.parametrize("close_after", [1, 3, 30])
def test_a_program_that_is_closed_while_others_replay_is_right_or_says_so(close_after: int, tmp_path: Path) -> None:
    with meanings(), gpu_arrays(), patch.object(device, "FIRST_COPIES", 8):
        program = recorded(block(), fake_device(tmp_path), mode="full", dynamic={"B": (1, 8)}, buckets={"B": [4]})
        expected = EagerExecutor().compile(block()).run({"x": rows(4)})["y"]
        served, ends = Counter[str](), list[str]()

        def replay(name: str) -> None:
            try:
                while True:
                    np.testing.assert_allclose(program.run({"x": GpuArray(rows(4))})["y"].content, expected, rtol=1e-5)
                    served[name] += 1
            except ExecutionError as error:
                ends.append(error.message)

        threads = [Thread(target=replay, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        while min(served["a"], served["b"]) < close_after and not ends:
            sleep(0.001)
        program.close()
        for thread in threads:
            thread.join()
    assert ends == ["the program is closed"] * 2
    assert min(served.values()) >= close_after


def test_a_lost_device_is_told_again_and_again(tmp_path: Path) -> None:
    with meanings():
        gpu = fake_device(tmp_path)
        program = recorded(block(), gpu, dynamic={"B": (1, 8)}, buckets={"B": [4]})
        for _ in range(2):
            program.run({"x": rows(4)})

        def lose() -> None:
            raise FakeFailure("lost")

        gpu.driver.graphs[-1]._calls = [lose]
        for _ in range(2):
            with pytest.raises(CapgraphError):
                program.run({"x": rows(4)})
        program.close()


@pytest.mark.parametrize("is_eager", [False, True])
def test_random_numbers_follow_from_a_state(tmp_path: Path, is_eager: bool) -> None:
    b = Builder()
    x = b.input("x", "f32[B, 4]")
    noisy = b.op("add", x, b.op("random_normal", shape=x.shape, dtype="f32"))
    graph = b.finish({"y": noisy, "u": b.op("random_uniform", shape=(3,), dtype="f64")})
    oracle = EagerExecutor().compile(graph)
    with gpu_arrays(), meanings():
        gpu = fake_device(tmp_path)
        program = (
            eager_on(gpu, Request(device="cuda")).compile(graph)
            if is_eager
            else recorded(graph, gpu, dynamic={"B": (1, 8)}, buckets={"B": [4, 8]})
        )
        seen: set[bytes] = set()
        for executable in (oracle, program):
            executable.set_random_state(fresh_state(1))
        for call, count in enumerate((4, 4, 3, 8, 8, 8, 8, 4)):
            given = rows(count, call)
            if call in (0, 5):
                program.profile({"x": given})  # which draws from nothing that a call draws from
            results = program.run({"x": GpuArray(given) if call % 3 else given})
            expected = oracle.run({"x": given})
            assert results.keys() == expected.keys()
            for name in expected:
                np.testing.assert_array_equal(getattr(results[name], "content", results[name]), expected[name])
            seen.add(expected["u"].tobytes())
        assert len(seen) == 8
        if not is_eager:
            stats = program.stats()
            assert all(bucket.verified for bucket in stats.buckets)
            assert stats.counters.replayed_calls == 6
