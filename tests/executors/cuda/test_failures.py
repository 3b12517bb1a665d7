"""Whatever fails, whenever it fails: one clear error, and a program that is usable or says that it is not."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from capgraph.executors.base import Executable
from capgraph.executors.cuda.arrays import frameworks
from capgraph.executors.cuda.arrays.protocol import DeviceArray
from capgraph.executors.cuda.driver.cupy import CupyDriver
from capgraph.executors.cuda.driver.failures import explanation, is_loss
from capgraph.executors.cuda.driver.protocol import Driver
from capgraph.executors.cuda.executor import CudaExecutor
from capgraph.executors.cuda.run import device
from capgraph.executors.cuda.run.executable import CudaExecutable
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.errors import CapgraphError, CaptureError, ExecutionError, InputError, ResourceError
from capgraph.ir.graph import Graph

from tests.executors.cuda.fake import (
    FakeArrays,
    FakeChain,
    FakeDriver,
    FakeFailure,
    FakeFrameworkFailure,
    FakeGraph,
    FakeGraphWithCopies,
    FakeMemory,
    GpuArray,
    MeaningLibrary,
    fake_device,
    gpu_arrays,
    meanings,
)
from tests.executors.cuda.test_executable import recorded
from tests.executors.replay.programs import block, rows

CALLS = (4, 4, 4, 4, 4, 4, 3, 8, 8, 4)
"""Rows of each call: replays, copies within the graph, padding, another bucket, and back."""

FALLIBLE = {name for name in vars(Driver) if not name.startswith("_") and callable(vars(Driver)[name])} - {
    "check",
    "explained",
    "is_active",
}

BESIDE_THE_DRIVER = (
    (FakeGraph, "launch"),
    (FakeChain, "update"),
    (FakeGraphWithCopies, "read_from"),
    (FakeGraphWithCopies, "write_to"),
    (MeaningLibrary, "prepare"),
)
"""What is asked of graphs and libraries, which have a driver."""

COPIED = {"inputs": {"": "copy"}}
IN_PLACE = {"inputs": {"": "refuse"}, "copy_outputs": False}
STATIC = {"inputs": {"": "copy"}, "copy_outputs": False}
MOVING = {"inputs": {"": "repoint"}}


class FailingDriver(FakeDriver):
    """Fails the `at`-th time that anything is asked of it; ever after if it is "lost" then."""

    def __init__(self, at: int, how: str) -> None:
        super().__init__()
        self.at, self.how = at, how
        self.asked = 0
        self.failed = ""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in FALLIBLE:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self.tick(name)
            return found(*given, **named)

        return call

    def tick(self, name: str) -> None:
        """One more request: it fails if it is its turn."""
        self.asked += 1
        if self.asked == self.at or (self.failed and self.how == "lost"):
            self.failed = self.failed or name
            raise FakeFailure(f"{self.how}: {name}")


@contextmanager
def all_counted() -> Iterator[None]:
    """Within it, what graphs and libraries are asked counts as asked of their driver."""
    with ExitStack() as stack:
        for owner, name in BESIDE_THE_DRIVER:
            stack.enter_context(patch.object(owner, name, counted(getattr(owner, name))))
        yield


def counted(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *given: Any) -> Any:
        self._driver.tick(method.__name__)
        return method(self, *given)

    return call


def of_kernels() -> Graph:
    """f32[B, 4] to f32[B, 4] without a library's call: its recordings are explicit graphs where inputs move."""
    b = Builder()
    x, weight = b.input("x", "f32[B, 4]"), b.constant(rows(4, 7))
    return b.finish({"y": b.op("tanh", b.op("matmul", x, weight))})


def made(graph: Graph, folder: Path, driver: FailingDriver, options: dict[str, Any]) -> CudaExecutable | None:
    """A program, None where the device fails before there is one."""
    try:
        gpu = fake_device(folder, driver)
    except FakeFailure:
        return None
    return recorded(graph, gpu, mode="full", dynamic={"B": (1, 8)}, buckets={"B": [4, 8]}, **options)


def told_and_wrong(
    program: CudaExecutable, oracle: Executable, is_native: bool, is_placed: bool
) -> tuple[list[bool], list[int]]:
    """For each call whether it was told to have failed; and the calls with other results than those expected."""
    placed = GpuArray(rows(4))
    told, wrong = [], []
    for call, count in enumerate(CALLS):
        content = rows(4 if is_placed else count, call)
        if is_placed:
            placed.content[...] = content
        given = (placed if is_placed else GpuArray(content)) if is_native else content
        try:
            result = program.run({"x": given})["y"]
        except CapgraphError:
            told.append(True)
            continue
        told.append(False)
        found = result.content if is_native else result
        if not np.allclose(found, oracle.run({"x": content})["y"], rtol=1e-5):
            wrong.append(call)
    return told, wrong


@pytest.mark.parametrize("how", ["once", "lost"])
@pytest.mark.parametrize(
    ("graph", "options", "is_native", "beside"),
    [
        (block(), COPIED, True, {"launch", "prepare", "read_from", "write_to"}),
        (block(), STATIC, True, {"launch", "prepare", "read_from"}),
        (block(), IN_PLACE, True, {"launch", "prepare"}),
        (block(), MOVING, True, {"launch", "prepare"}),
        (of_kernels(), MOVING, True, {"launch", "update"}),
        (block(), COPIED, False, {"launch", "prepare"}),
    ],
    ids=["copied", "static", "in place", "moving", "explicit", "numpy"],
)
def test_a_failure_at_any_moment_is_told_and_leaves_the_program_usable_or_says_so(
    graph: Graph, options: dict[str, Any], is_native: bool, beside: set[str], how: str, tmp_path: Path
) -> None:
    failed = set()
    oracle = EagerExecutor().compile(graph)
    with patch.object(device, "FIRST_COPIES", 3), meanings(), gpu_arrays(), all_counted():
        for at in range(1, 1000):
            driver = FailingDriver(at, how)
            program = made(graph, tmp_path, driver, options)
            if program is None:
                continue
            told, wrong = told_and_wrong(program, oracle, is_native, options is IN_PLACE)
            where = f"{driver.failed}, which is request {at}"
            assert not wrong, f"wrong results after {where}: calls {wrong}"
            if how == "once":
                assert sum(told) <= 1, f"later calls fail after {where}: {told}"
            elif True in told:
                assert all(told[told.index(True) :]), f"some call is answered after {where}: {told}"
            program.close()
            failed.add(driver.failed)
            if not driver.failed:
                break
        else:
            pytest.fail("there is no end to it")
    assert at > 30
    assert not any(told)
    assert failed & {name for _, name in BESIDE_THE_DRIVER} == beside


def test_a_closed_program_says_so(tmp_path: Path) -> None:
    with meanings(), gpu_arrays():
        program = recorded(block(), fake_device(tmp_path), mode="full", dynamic={"B": (1, 8)}, buckets={"B": [4]})
        for _ in range(4):
            program.run({"x": GpuArray(rows(4))})
        program.close()
        for given in (GpuArray(rows(4)), rows(4)):
            with pytest.raises(ExecutionError, match="closed"):
                program.run({"x": given})


class FailingArrays(FakeArrays):
    """A framework that has no memory left for what `refused` asks for."""

    refused = ""

    def copy_of(self, array: DeviceArray) -> GpuArray:
        self._refuse("copy_of")
        return super().copy_of(array)

    def fresh(self, like: DeviceArray) -> tuple[GpuArray, int]:
        self._refuse("fresh")
        return super().fresh(like)

    def _refuse(self, asked: str) -> None:
        if asked == FailingArrays.refused:
            raise FakeFrameworkFailure("out of memory")


@pytest.mark.parametrize(("asked", "before"), [("copy_of", 4), ("fresh", 8)])
def test_what_a_framework_raises_is_put_into_words(asked: str, before: int, tmp_path: Path) -> None:
    with (
        patch.object(device, "FIRST_COPIES", 3),
        meanings(),
        patch.object(frameworks, "_FRAMEWORKS", {"cupy": FailingArrays}),
    ):
        gpu = fake_device(tmp_path)
        program = recorded(block(), gpu, mode="full", dynamic={"B": (1, 8)}, buckets={"B": [4]}, **COPIED)
        for _ in range(before):
            program.run({"x": GpuArray(rows(4))})
        with (
            patch.object(FailingArrays, "refused", asked),
            pytest.raises(ExecutionError, match="the fake GPU refused: out of memory"),
        ):
            program.run({"x": GpuArray(rows(4))})
        expected = EagerExecutor().compile(block()).run({"x": rows(4)})["y"]
        np.testing.assert_allclose(program.run({"x": GpuArray(rows(4))})["y"].content, expected, rtol=1e-5)


def test_what_is_captured_up_front_fails_with_a_clear_error(tmp_path: Path) -> None:
    class Inner:
        def compile(self, _graph: Any) -> Any:
            raise FakeFailure("no more memory")

    with meanings():
        gpu = fake_device(tmp_path)
        with pytest.raises(ExecutionError, match="the fake GPU refused: no more memory"):
            CudaExecutor(Inner(), Inner(), gpu).compile(block())  # type: ignore[arg-type]


# ---- words


@pytest.mark.parametrize(
    "text",
    [
        "cudaErrorIllegalAddress: an illegal memory access was encountered",
        "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
        "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be reported later",
        "cudaErrorLaunchFailure: unspecified launch failure",
        "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure",
        "cudaErrorLaunchTimeout: the launch timed out and was terminated",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "cudaErrorECCUncorrectable: uncorrectable ECC error encountered",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "cudaErrorAssert: device-side assert triggered",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "cudaErrorMisalignedAddress: misaligned address",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "cudaErrorInvalidPc",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    ],
)
def test_a_lost_device_is_known_by_what_is_said(text: str) -> None:
    assert is_loss(text)
    assert "start a new process" in str(explanation(RuntimeError(text)))
    driver = object.__new__(CupyDriver)  # without a GPU
    driver._lost = ""
    driver.check()
    assert isinstance(driver.explained(RuntimeError(text)), ExecutionError)
    with pytest.raises(ExecutionError, match="the GPU stopped in the middle of a program"):
        driver.check()
    assert driver.explained(InputError("as it was")).args == InputError("as it was").args


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("cudaErrorMemoryAllocation: out of memory", ResourceError, "out of device memory"),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", ResourceError, "out of device memory"),
        ("CUDA out of memory. Tried to allocate 20.00 GiB.", ResourceError, "Tried to allocate 20.00 GiB"),
        ("cudaErrorStreamCaptureUnsupported: not permitted", CaptureError, "refuses to record"),
        ("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", CaptureError, "refuses to record"),
        ("cudaErrorInvalidValue: invalid argument", ExecutionError, "the GPU refused: cudaErrorInvalidValue"),
        ("", ExecutionError, "RuntimeError"),
    ],
)
def test_other_failures_are_told_apart(text: str, kind: type[CapgraphError], said: str) -> None:
    assert not is_loss(text)
    found = explanation(RuntimeError(text))
    assert type(found) is kind
    assert said in str(found)
    assert found.remedy


def test_an_arena_that_does_not_fit_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with meanings():
        gpu = fake_device(tmp_path, FakeDriver(limit=4096))
        with (
            patch.object(FakeMemory, "__init__", side_effect=AssertionError("memory is taken")),
            pytest.raises(ResourceError, match=r"the arena takes 1\.0 MiB, but 4\.0 KiB are free on the device"),
        ):
            gpu.reserve(1 << 20, 256)
