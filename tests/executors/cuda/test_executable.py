"""Programs on a GPU that the host plays: recording, dispatch, padding, memory."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.cuda_programs import eager_on, graphs_on
from capgraph.executors.cuda.device import CudaDevice
from capgraph.executors.cuda.executable import CudaExecutable
from capgraph.executors.eager import EagerExecutor
from capgraph.executors.replay.routing import input_symbols
from capgraph.ir.errors import CapgraphError
from capgraph.ir.graph import Graph
from capgraph.ir.op import Trait
from capgraph.passes.exactness import Exactness
from capgraph.passes.numeric import difference
from capgraph.recording import capture_policy, replay_options

from tests.executors.cuda.fake import FakeDriver, fake_device, meanings
from tests.executors.replay.programs import block, column_sums, rows
from tests.strategies.graphs import random_graph, random_inputs

LARGEST = 8


def recorded(graph: Graph, gpu: CudaDevice, **options: Any) -> CudaExecutable:
    named = {name: options.pop(name, None) for name in ("dynamic", "buckets")}
    mode = options.pop("mode", "full_and_piecewise")
    chosen = replay_options(mode=mode, strict=options.pop("strict", False), capture=options, **named)
    return graphs_on(gpu, "cuda", chosen, partial(capture_policy, chosen), 2).compile(graph)  # type: ignore[return-value]


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
        program = eager_on(fake_device(tmp_path), "cuda", 2).compile(block())
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
