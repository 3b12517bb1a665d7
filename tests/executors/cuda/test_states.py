"""States on a GPU: caches of somebody else, updated where they lie, by recordings and by eager calls."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.capture_options import replay_options
from capgraph.executors.base import Request
from capgraph.executors.cuda.arrays.protocol import DeviceArray
from capgraph.executors.cuda.programs import graphs_on
from capgraph.executors.cuda.run.executable import CudaExecutable
from capgraph.executors.replay.states import StateStore
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Array
from capgraph.ir.errors import InputError
from capgraph.ir.graph import Graph

from tests.executors.cuda.fake import FakeDriver, GpuArray, fake_device, gpu_arrays, meanings

SLOTS = 8


class FakeState(DeviceArray):
    """A cache on the fake GPU."""

    __slots__ = ()

    def __init__(self, content: Array) -> None:
        held = GpuArray(content)
        strides = held.content.strides
        super().__init__(held.address, content.dtype, content.shape, strides, held, lambda each: each.native.content)

    def copy(self) -> "FakeState":
        return FakeState(self.native.content)

    def __setitem__(self, _everything: Any, content: Any) -> None:
        self.native.content[...] = np.asarray(content)


def step() -> Graph:
    """One step of decoding: a row goes into the cache at a position, and the cache is read up to it."""
    b = Builder()
    cache, row = b.input("cache", f"f32[1, 2, {SLOTS}, 4]"), b.input("row", "f32[1, 2, 1, 4]")
    position = b.input("position", "i64[1]")
    written = b.op("tensor_scatter", cache, row, position, axis=2)
    span = b.constant(np.arange(SLOTS), "i64")
    mask = b.op("reshape", b.op("less_equal", span, position), shape=(1, 1, 1, SLOTS))
    mixed = b.op("attention", row, written, written, mask, None)
    graph = b.finish({"y": mixed, "next": written})
    graph.set_states([(0, 1)])
    return graph


def recorded(folder: Path, store: StateStore, driver: FakeDriver) -> CudaExecutable:
    chosen = replay_options(
        mode="full", strict=True, dynamic=None, buckets=None, capture={"states": store, "beyond": "exact"}
    )
    gpu = fake_device(folder, driver)
    return graphs_on(gpu, Request(device="cuda", replay=chosen)).compile(step())  # type: ignore[return-value]


def test_a_cache_is_updated_where_it_lies_and_one_recording_serves_every_position(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    start = rng.standard_normal((1, 2, SLOTS, 4)).astype(np.float32)
    state, expected, driver = FakeState(start), start.copy(), FakeDriver()
    oracle = EagerExecutor().compile(step())
    with meanings(), gpu_arrays():
        program = recorded(tmp_path, StateStore.over({"cache": state}), driver)
        for position in range(SLOTS):
            row = rng.standard_normal((1, 2, 1, 4)).astype(np.float32)
            given = {"row": GpuArray(row), "position": GpuArray(np.array([position]))}
            found = program.run(given)
            told = oracle.run({"cache": expected, "row": row, "position": np.array([position])})
            expected = told["next"]
            assert list(found) == ["y"], "states are not handed out"
            np.testing.assert_allclose(found["y"].content, told["y"], rtol=1e-5)
            np.testing.assert_array_equal(state.native.content, expected)
        stats = program.stats()
        assert stats.counters.captures == 1
        assert stats.counters.refused_buckets == 0
        assert stats.counters.replayed_calls == SLOTS - 1
        assert program._fast_path is not None, "later calls take the short way"


def test_a_state_that_is_given_is_refused(tmp_path: Path) -> None:
    state = FakeState(np.zeros((1, 2, SLOTS, 4), np.float32))
    with meanings(), gpu_arrays():
        program = recorded(tmp_path, StateStore.over({"cache": state}), FakeDriver())
        with pytest.raises(InputError, match="lives in the store"):
            program.run({"cache": GpuArray(np.zeros((1, 2, SLOTS, 4), np.float32))})
