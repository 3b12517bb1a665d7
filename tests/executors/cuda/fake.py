"""A GPU that is played by the host: memory is main memory, streams run at once, graphs are lists of calls.

Kernels are the ops' NumPy meanings, as calls of a library that only these tests have.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
from capgraph.executors.cuda.arrays import frameworks
from capgraph.executors.cuda.arrays.protocol import DeviceArray
from capgraph.executors.cuda.driver.cache import KernelCache, Module
from capgraph.executors.cuda.driver.compiler import Compiled, Compiler, Failed
from capgraph.executors.cuda.driver.memory import Constants
from capgraph.executors.cuda.driver.protocol import KernelCall
from capgraph.executors.cuda.kernel_ir.launch import (
    BufferPlace,
    Candidate,
    Chip,
    Kernel,
    KernelLaunch,
    LibraryCall,
    ScalarArgument,
    Task,
)
from capgraph.executors.cuda.lower import lowering
from capgraph.executors.cuda.lower.lowering import Backend
from capgraph.executors.cuda.run.device import CudaDevice
from capgraph.frontends.torch.tensors import array_of, tensor_of
from capgraph.ir.constant import Array
from capgraph.ir.errors import CapgraphError, ExecutionError, ResourceError
from capgraph.ir.evaluate import BoundRegion, as_results, bound_attrs
from capgraph.ir.graph import Node
from capgraph.ir.plan import View

POISON = 0xA5


class FakeFailure(Exception):
    """What the fake GPU raises."""


class FakeFrameworkFailure(Exception):
    """What the framework on it raises."""


class FakeMemory:
    def __init__(self, nbytes: int) -> None:
        self._bytes = np.full(nbytes + 256, POISON, dtype=np.uint8)
        self.nbytes = nbytes
        self.address = int(self._bytes.ctypes.data) + -int(self._bytes.ctypes.data) % 256

    def array(self, address: int, like: Array) -> Array:
        """This memory as an array that begins at an address."""
        return np.ndarray(like.shape, like.dtype, self._bytes, address - int(self._bytes.ctypes.data), like.strides)


class FakeGraph:
    nbytes = 0

    def __init__(self, driver: "FakeDriver", calls: list[Callable[[], None]]) -> None:
        self._driver = driver
        self._calls: list[Callable[[], None]] | None = calls

    def __len__(self) -> int:
        return len(self._calls or [])

    def launch(self, stream: int) -> None:
        assert self._calls is not None, "a graph is launched that was given back"
        self._driver.launches += 1
        for call in self._calls:
            self._driver.submit(stream, call)

    def close(self) -> None:
        self._calls = None


class FakeChain(FakeGraph):
    def __init__(self, driver: "FakeDriver", calls: list[KernelCall]) -> None:
        super().__init__(driver, [KERNELS[call.launch.kernel.body](*call.values) for call in calls])
        self._texts = [call.launch.kernel.body for call in calls]
        driver.graphs.append(self)
        self.updates = 0

    def update(self, index: int, values: Sequence[int | ScalarArgument]) -> None:
        assert self._calls is not None
        self.updates += 1
        self._calls[index] = KERNELS[self._texts[index]](*values)


class FakeGraphWithCopies(FakeGraph):
    """A graph between two kernels that copy."""

    def __init__(
        self, driver: "FakeDriver", before: KernelCall | None, calls: list[Callable[[], None]], after: KernelCall | None
    ) -> None:
        self._before = [] if before is None else list(before.values)
        self._after = [] if after is None else list(after.values)
        super().__init__(driver, [self._fetch, *calls, self._hand_out])
        self.exchanged: list[tuple[str, list[int]]] = []

    def _fetch(self) -> None:
        for source, target, nbytes in _thirds(self._before):
            ctypes.memmove(target, source, nbytes)

    def _hand_out(self) -> None:
        for target, source, nbytes in _thirds(self._after):
            ctypes.memmove(target, source, nbytes)

    def read_from(self, addresses: list[int]) -> None:
        self.exchanged.append(("in", addresses))
        self._before[: len(addresses)] = addresses

    def write_to(self, addresses: list[int]) -> None:
        self.exchanged.append(("out", addresses))
        self._after[: len(addresses)] = addresses


def _thirds(values: list[int | ScalarArgument]) -> list[tuple[int, ...]]:
    count = len(values) // 3
    plain = [int(each.value) if isinstance(each, ScalarArgument) else each for each in values]
    return list(zip(plain[:count], plain[count : 2 * count], plain[2 * count :], strict=True))


class FakeDriver:
    """A `Driver`. `limit` bounds what can be allocated at a time."""

    index = 0
    active = nullcontext()
    name = "fake"
    chip = Chip()
    failures: tuple[type[BaseException], ...] = (FakeFailure,)

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self.launches = 0
        self.copies = 0
        self.strided_copies = 0
        self.waits = 0
        self.searches = 0
        self.ordered: list[tuple[int, int]] = []
        self.graphs: list[FakeGraph] = []
        self.is_lost = False
        self.released: list[int] = []
        self._streams = 0
        self._recorded: dict[int, list[Callable[[], None]]] = {}

    def submit(self, stream: int, call: Callable[[], None]) -> None:
        assert stream not in self.released, "work goes to a stream that was given back"
        recorded = self._recorded.get(stream)
        if recorded is not None:
            recorded.append(call)
        else:
            call()

    def is_active(self) -> bool:
        return True

    def explained(self, error: BaseException) -> Exception:
        if isinstance(error, CapgraphError):
            return error
        self.is_lost |= "lost" in str(error)
        return ExecutionError(f"the fake GPU refused: {error}")

    def check(self) -> None:
        if self.is_lost:
            raise ExecutionError("the fake GPU is lost")

    def allocate(self, nbytes: int) -> FakeMemory:
        if nbytes > self.limit:
            raise ResourceError(f"{nbytes} bytes are more than {self.limit}")
        assert not self._recorded, "memory is allocated while a stream is captured"
        return FakeMemory(nbytes)

    def available_bytes(self) -> int:
        return self.limit

    def pinned(self, nbytes: int) -> Array:
        return np.zeros(nbytes, dtype=np.uint8)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.copies += 1
        self.submit(stream, lambda: ctypes.memmove(target, source, nbytes) and None)

    def copy_strided(
        self,
        target: tuple[int, Sequence[int]],
        source: tuple[int, Sequence[int]],
        shape: Sequence[int],
        itemsize: int,
        stream: int,
    ) -> None:
        def work() -> None:
            into, given = (
                array_over(address, shape, strides, np.dtype(f"V{itemsize}")) for address, strides in (target, source)
            )
            into[...] = given

        self.strided_copies += 1
        self.submit(stream, work)

    def non_zero(
        self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any], stream: int
    ) -> Array:
        assert stream not in self._recorded, "the host waits for a stream that is captured"
        self.searches += 1
        return np.array(np.nonzero(array_over(address, shape, strides, dtype)), dtype=np.int64)

    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        self.submit(stream, lambda: ctypes.memset(target, byte, nbytes) and None)

    def make_stream(self) -> int:
        self._streams += 1
        return self._streams

    def release_stream(self, stream: int) -> None:
        self.released.append(stream)

    def synchronize(self, stream: int) -> None:
        assert stream not in self.released, "the host waits for a stream that was given back"
        assert stream not in self._recorded, "the host waits for a stream that is captured"
        self.waits += 1

    def order(self, first: int, then: int) -> None:
        assert {first, then}.isdisjoint(self.released), "a stream is ordered that was given back"
        self.ordered.append((first, then))

    def begin_capture(self, stream: int) -> None:
        assert stream not in self._recorded
        self._recorded[stream] = []

    def end_capture(self, stream: int) -> FakeGraph:
        self.graphs.append(FakeGraph(self, self._recorded.pop(stream)))
        return self.graphs[-1]

    def abort_capture(self, stream: int) -> None:
        self._recorded.pop(stream, None)

    def bind(self, call: KernelCall) -> Callable[[int], None]:
        work = KERNELS[call.launch.kernel.body](*call.values)
        return lambda stream: self.submit(stream, work)

    def chain(self, calls: Sequence[KernelCall]) -> "FakeChain":
        return FakeChain(self, list(calls))

    def frame(
        self,
        before: KernelCall | None,
        calls: Sequence[Callable[[int], None]],
        after: KernelCall | None,
        stream: int,
    ) -> FakeGraphWithCopies:
        self.begin_capture(stream)
        for call in calls:
            call(stream)
        made = FakeGraphWithCopies(self, before, self._recorded.pop(stream), after)
        self.graphs.append(made)
        return made

    def timer(self) -> tuple[Callable[[int], None], Callable[[int], None], Callable[[], float]]:
        return (lambda _stream: None), (lambda _stream: None), (lambda: 1e-6)


def array_over(address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """The array at an address; strides may be negative."""
    if 0 in shape:
        return np.empty(tuple(shape), dtype)
    low, high = reach_of(shape, strides, dtype)
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(address + low))
    return np.ndarray(tuple(shape), dtype, memory, -low, tuple(strides))


def reach_of(shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]) -> tuple[int, int]:
    """Where the bytes of an array begin and end, from its first element."""
    reaches = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    if 0 in shape:
        return 0, 0
    return sum(each for each in reaches if each < 0), sum(each for each in reaches if each > 0) + dtype.itemsize


# ---- the library of meanings


@dataclass(frozen=True)
class Meaning:
    """A node, and where its values lie."""

    node: Node
    operands: tuple[View | None, ...]
    results: tuple[View, ...]


def through_meaning(task: Task) -> Iterator[Candidate]:
    """One call that does the node as NumPy does: of a library for softmax, else a kernel."""
    operands = {f"o{i}": BufferPlace(v.buffer, v.offset) for i, v in enumerate(task.operands) if v is not None}
    results = {f"r{i}": BufferPlace(v.buffer, v.offset) for i, v in enumerate(task.results)}
    problem = Meaning(task.node, task.operands, task.results)
    places = {**operands, **results}
    if task.node.op.name == "softmax":
        yield Candidate("meaning", (LibraryCall("meaning", problem, places, 0),))
        return
    text = f"meaning {id(task.node)} {task.operands} {task.results}"
    KERNELS[text] = lambda *addresses: work_of(problem, dict(zip(places, addresses, strict=True)))
    yield Candidate("kernel", (KernelLaunch(Kernel(text, (1, 1, 1), (1, 1, 1)), tuple(places.values()), 0),))


KERNELS: dict[str, Callable[..., Callable[[], None]]] = {}
"""Kernels by text: from their arguments to what a launch does."""


def work_of(problem: Meaning, addresses: Mapping[str, int]) -> Callable[[], None]:
    """What computes a node at these addresses."""
    node = problem.node
    attributes = bound_attrs(node, {}, BoundRegion)
    operands = [_seen(view, addresses, f"o{i}") for i, view in enumerate(problem.operands)]
    results = [_seen(view, addresses, f"r{i}") for i, view in enumerate(problem.results)]

    def work() -> None:
        with np.errstate(all="ignore"):
            found = as_results(node, node.op.meaning(*operands, **attributes))
        for into, each in zip(results, found, strict=True):
            assert into is not None
            into[...] = each

    return work


class FakeCompiler(Compiler):
    """Compiles whatever does not say `broken`."""

    def begin(self, kernels: Iterable[Kernel]) -> None:
        pass

    def compile(self, kernels: Iterable[Kernel]) -> dict[str, Compiled | Failed]:
        return {
            kernel.text: Failed("error: broken", None) if "broken" in kernel.text else Compiled(Module("", b""), "")
            for kernel in kernels
        }


class MeaningLibrary:
    """A `Library`."""

    failures: tuple[type[BaseException], ...] = ()

    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver

    def prepare(self, call: LibraryCall) -> Callable[[int, Mapping[str, int], int], None]:
        return lambda stream, addresses, _workspace: self._driver.submit(stream, work_of(call.problem, addresses))

    def algorithms(self, call: LibraryCall) -> Sequence[Any]:
        return ()


def _seen(view: View | None, addresses: Mapping[str, int], role: str) -> Array | None:
    return None if view is None else array_over(addresses[role], view.shape, view.strides, view.dtype.numpy)


@contextmanager
def meanings() -> Iterator[None]:
    """Within it, every op has the one candidate, of `through_meaning`."""
    with patch.object(lowering, "families_of", lambda _op: (through_meaning,)):
        yield


def fake_device(folder: Path, driver: FakeDriver | None = None) -> CudaDevice:
    """A device whose kernels are meanings; to be used within `meanings()`."""
    made = driver or FakeDriver()
    backend = Backend(made.chip, frozenset({"meaning"}))
    compiler = FakeCompiler(made.chip.arch, KernelCache(folder))
    return CudaDevice(made, compiler, backend, Constants(made), {"meaning": MeaningLibrary(made)})


# ---- arrays of a framework that has its memory on the fake GPU


class GpuArray:
    """An array on the fake GPU, as callers of some framework hold it."""

    __cuda_array_interface__: Mapping[str, Any] = {}

    def __init__(self, content: Array) -> None:
        low, high = reach_of(content.shape, content.strides, content.dtype)
        self._memory = FakeMemory(high - low)
        self.address = self._memory.address - low
        self.content = self._memory.array(self.address, content)  # keeps the memory, also when nobody has this object
        self.content[...] = content


class FakeArrays:
    """A `Framework`; its stream can be chosen."""

    current = 7
    has_device = True
    failures: tuple[type[BaseException], ...] = (FakeFrameworkFailure,)

    def __init__(self, _index: int, download: Callable[[DeviceArray], Array]) -> None:
        self._download = download

    def wrap(self, given: GpuArray) -> DeviceArray:
        content = given.content
        return DeviceArray(given.address, content.dtype, content.shape, content.strides, given, self._download)

    def address_like(self, given: Any, like: DeviceArray) -> int:
        fits = type(given) is GpuArray and given.content.dtype == like.dtype and given.content.shape == like.shape
        return given.address if fits and given.content.flags.c_contiguous else 0

    def copy_of(self, array: DeviceArray) -> GpuArray:
        return GpuArray(array.native.content)

    def fresh(self, like: DeviceArray) -> tuple[GpuArray, int]:
        made = GpuArray(np.full(like.shape, 77).astype(like.dtype))
        return made, made.address

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        return self.wrap(GpuArray(np.full(shape, 77).astype(dtype)))

    def over(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> GpuArray:
        made = GpuArray.__new__(GpuArray)
        made.content, made.address = array_over(address, shape, strides, dtype), address
        return made

    def from_host(self, given: Array) -> GpuArray:
        return GpuArray(np.ascontiguousarray(given))

    def has_dtype(self, dtype: np.dtype[Any]) -> bool:
        return True

    def wraps(self, native: Any) -> bool:
        return isinstance(native, GpuArray)

    def on_stream(self, stream: int) -> Any:
        return nullcontext()

    def stream(self) -> int:
        return FakeArrays.current


class HostTorch:
    """A `Framework` of torch's tensors over the memory of the fake GPU, which is main memory; it notes its streams."""

    has_device = True
    failures: tuple[type[BaseException], ...] = ()
    streams: ClassVar[list[int]] = []

    def __init__(self, _index: int, download: Callable[[DeviceArray], Array]) -> None:
        self._download = download

    def wrap(self, given: Any) -> DeviceArray:
        content = array_of(given)
        return DeviceArray(given.data_ptr(), content.dtype, content.shape, content.strides, given, self._download)

    def over(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return tensor_of(array_over(address, shape, strides, dtype))

    def from_host(self, given: Array) -> Any:
        return tensor_of(given.copy())

    def has_dtype(self, dtype: np.dtype[Any]) -> bool:
        return dtype.kind != "S"

    def wraps(self, native: Any) -> bool:
        return hasattr(native, "untyped_storage")

    @contextmanager
    def on_stream(self, stream: int) -> Iterator[None]:
        HostTorch.streams.append(stream)
        yield


@contextmanager
def gpu_arrays() -> Iterator[None]:
    """Within it, `GpuArray`s are the arrays on the device, on which torch works too."""
    with patch.object(frameworks, "_FRAMEWORKS", {"cupy": FakeArrays, "torch": HostTorch}):
        yield
