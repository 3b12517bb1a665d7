"""Whose arrays they are, and programs that are given what DLPack hands over, or arrays of several frameworks."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from capgraph.executors.cuda.arrays import frameworks
from capgraph.executors.cuda.arrays.frameworks import framework_of, framework_of_call
from capgraph.executors.cuda.arrays.protocol import DeviceArray
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.errors import InputError
from capgraph.ir.graph import Graph

from tests.executors.cuda.exchange import CPU, CUDA, MANAGED, ROCM, Exchanged
from tests.executors.cuda.fake import FakeArrays, GpuArray, fake_device, meanings
from tests.executors.cuda.test_executable import recorded
from tests.executors.replay.programs import block, rows


def test_an_array_belongs_to_whom_its_class_or_its_place_says() -> None:
    class Interfaced:
        __cuda_array_interface__: Any = None

    tensor = type("Tensor", (), {"__module__": "torch.nn"})
    for given, expected in (
        (np.zeros(3), "numpy"),
        ([1.0], "numpy"),
        (tensor(), "torch"),
        (Interfaced(), "cupy"),
        (Exchanged(CPU), "numpy"),
        (Exchanged(CUDA), "cupy"),
        (Exchanged(ROCM), "cupy"),
        (Exchanged(MANAGED), "cupy"),
    ):
        assert framework_of(given) == expected


class Exchanging(FakeArrays):
    """A framework that reads what is exchanged."""

    def wrap(self, given: Any) -> DeviceArray:
        return super().wrap(given.content if isinstance(given, Exchanged) else given)


def test_a_program_takes_what_is_exchanged_and_gives_arrays_on_the_device(tmp_path: Path) -> None:
    oracle = EagerExecutor().compile(block())
    with meanings(), patch.object(frameworks, "_FRAMEWORKS", {"cupy": Exchanging}):
        gpu = fake_device(tmp_path)
        program = recorded(block(), gpu, mode="full", dynamic={"B": (1, 8)}, buckets={"B": [4]})
        for call in range(4):
            content = rows(4, call)
            given = program.run({"x": Exchanged(CUDA, GpuArray(content))})["y"]
            assert isinstance(given, GpuArray)
            np.testing.assert_allclose(given.content, oracle.run({"x": content})["y"], rtol=1e-5)
        assert gpu.stream == FakeArrays.current
        assert program.stats().counters.replayed_calls == 3


# ---- several frameworks in one call


class Tensor(GpuArray):
    """An array of a second framework on the fake GPU, by its module torch."""


Tensor.__module__ = "torch"


class TensorsOfTorch(FakeArrays):
    """The second framework, on a stream of its own."""

    own = 9

    def stream(self) -> int:
        return self.own


def total() -> Graph:
    b = Builder()
    return b.finish({"z": b.op("exp", b.op("add", b.input("x", "f32[4]"), b.input("y", "f32[4]")))})


def test_a_call_speaks_the_framework_of_its_first_array_on_a_device() -> None:
    class InMainMemory(Tensor):
        is_cpu = True

    content = np.zeros(2, np.float32)
    tensor, on_host, array = Tensor(content), InMainMemory(content), GpuArray(content)
    for given, expected in (
        ([content, tensor, array], "torch"),
        ([on_host, array], "cupy"),
        ([content, on_host], "torch"),
        ([content], "numpy"),
    ):
        assert framework_of_call(dict(enumerate(given))) == expected
    assert framework_of_call(None) == "numpy"


@pytest.mark.parametrize("stream", [9, FakeArrays.current])
def test_frameworks_of_one_call_wait_for_each_other(stream: int, tmp_path: Path) -> None:
    content = np.ones(4, np.float32)
    with (
        meanings(),
        patch.object(frameworks, "_FRAMEWORKS", {"torch": TensorsOfTorch, "cupy": FakeArrays}),
        patch.object(TensorsOfTorch, "own", stream),
    ):
        gpu = fake_device(tmp_path)
        program = recorded(total(), gpu, mode="full")
        begins = [(gpu.own_stream, stream)]
        around = [(FakeArrays.current, stream), (stream, FakeArrays.current)] if stream != FakeArrays.current else []
        for calls in range(1, 4):
            given = program.run({"x": Tensor(content), "y": GpuArray(content)})["z"]
            np.testing.assert_allclose(given.content, np.exp(2 * content), rtol=1e-6)
            assert gpu.driver.ordered == begins + calls * around
            assert program._fast_path is None
        program.run({"x": Tensor(content), "y": Tensor(content)})
        assert gpu.driver.ordered == begins + 3 * around
        assert program._fast_path is not None


class Refusing(FakeArrays):
    """A framework that cannot read an array after all."""

    def wrap(self, given: Any) -> DeviceArray:
        raise InputError("it cannot be read")


class Spread(Exchanged):
    """An array that cannot say where it lies."""

    def __dlpack_device__(self) -> tuple[int, int]:
        raise BufferError("it lies on several devices")


@pytest.mark.parametrize("given", [Exchanged(CUDA), Spread(CUDA)], ids=["content", "place"])
def test_an_array_that_cannot_be_read_is_named(given: Exchanged, tmp_path: Path) -> None:
    with meanings(), patch.object(frameworks, "_FRAMEWORKS", {"cupy": Refusing}):
        program = recorded(total(), fake_device(tmp_path))
        for call in (program.run, program.profile):
            with pytest.raises(InputError, match="cannot be read") as told:
                call({"x": np.zeros(4, np.float32), "y": given})
            assert told.value.where == "input 'y'"


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_torch_without_cuda_gets_tensors_in_main_memory(dtype: str, tmp_path: Path) -> None:
    b = Builder()
    graph = b.finish({"y": b.op("neg", b.input("x", f"{dtype}[4]"))})
    given = torch.ones(4, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[dtype])
    with meanings(), patch.object(torch.cuda, "is_available", lambda: False):
        gpu = fake_device(tmp_path)
        program = recorded(graph, gpu, mode="full")
        for _ in range(3):
            assert torch.equal(program.run({"x": given})["y"], -given)
        assert gpu.stream == gpu.own_stream
        assert program.stats().counters.replayed_calls == 2
        assert len(program.profile({"x": given}).launches) == 1
        assert type(program.run({"x": np.ones(4, graph.inputs[0].tensor.dtype.numpy)})["y"]) is np.ndarray
