"""One NVIDIA GPU through CuPy (memory, streams, captured graphs) and `cuda.core` (machine code and launches)."""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, partial
from typing import Any

import numpy as np

from ....ir.constant import Array
from ....ir.errors import CapgraphError, ResourceError
from ...memory import size_text
from ..arrays.protocol import as_rows
from ..kernel_ir.launch import Chip, KernelLaunch, ScalarArgument
from .captured_graph import CapturedGraph
from .compiler import Compiled
from .failures import explanation, is_loss, loss, words_of
from .protocol import Enqueue, KernelCall

_CTYPES: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "unsigned int": ctypes.c_uint,
    "long long": ctypes.c_longlong,
    "unsigned long long": ctypes.c_ulonglong,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


class CupyMemory:
    """`nbytes` bytes from CUDA itself, not from a pool: CUDA waits for the device before it takes them back."""

    def __init__(self, cupy: Any, nbytes: int) -> None:
        self._memory = cupy.cuda.Memory(nbytes)
        self.address = int(self._memory.ptr)
        self.nbytes = nbytes


class CupyGraph:
    """A graph that CuPy captured, instantiated; `runtime` is CuPy's module of that name."""

    def __init__(self, graph: Any, runtime: Any, nbytes: int) -> None:
        self._graph = graph
        self._runtime = runtime
        self.nbytes = nbytes

    @property
    def launch(self) -> Enqueue:
        """See `DeviceGraph.launch`."""
        directly, handle = getattr(self._runtime, "graphLaunch", None), getattr(self._graph, "graphExec", 0)
        if directly is not None and handle:
            return partial(directly, handle)  # without an object for the stream
        launch, stream_of = self._graph.launch, _stream_object
        return lambda stream: launch(stream_of(stream))

    def close(self) -> None:
        """See `DeviceGraph.close`."""
        self._graph = None


class CoreGraph:
    """A graph that was built node by node through `cuda.core`: an `UpdatableGraph`."""

    def __init__(self, graph: Any, nodes: Sequence[Any], prepared: Sequence[tuple[Any, ...]], nbytes: int) -> None:
        self._graph = graph
        self._nodes = [(graph[node], each[0], each[1]) for node, each in zip(nodes, prepared, strict=True)]
        self.nbytes = nbytes

    @property
    def launch(self) -> Enqueue:
        """See `DeviceGraph.launch`."""
        launch = self._graph.launch
        return lambda stream: launch(_core_stream(stream))

    def update(self, index: int, values: Sequence[int | ScalarArgument]) -> None:
        """See `UpdatableGraph.update`."""
        node, config, kernel = self._nodes[index]
        node.update(config=config, kernel=kernel, args=arguments_of(values))

    def close(self) -> None:
        """See `DeviceGraph.close`."""
        self._nodes.clear()
        self._graph.close()


def arguments_of(values: Sequence[int | ScalarArgument]) -> tuple[Any, ...]:
    """Arguments as `cuda.core` takes them: plain integers are addresses."""
    return tuple(_CTYPES[value.ctype](value.value) if isinstance(value, ScalarArgument) else value for value in values)


@cache
def _stream_object(stream: int) -> Any:
    """CuPy's object for a stream that somebody else owns."""
    import cupy

    return cupy.cuda.Stream.from_external(_Stream(stream))


class _Stream:
    """A stream by its address, as CuPy takes it."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


_BUT_SIGNS = {"f4": 0x7FFFFFFF, "c8": 0x7FFFFFFF7FFFFFFF}
"""All bits but those of signs."""


class CupyDriver:
    """The GPU `index`: a `Driver`."""

    def __init__(self, index: int) -> None:
        import cupy

        self._cupy = cupy
        self._runtime = cupy.cuda.runtime
        self.index = index
        self.failures = _failures(cupy)
        self._lost = ""
        self._streams: dict[int, Any] = {}
        self._events: dict[int, int] = {}
        self._modules: dict[str, Any] = {}
        self._kernels: dict[tuple[str, int], Any] = {}
        self._capturing: dict[int, int] = {}
        try:
            self._open()
        except self.failures as error:
            raise self.explained(error) from error

    def _open(self) -> None:
        from cuda.core import Device

        self._is_only = self._runtime.getDeviceCount() == 1
        self.active: AbstractContextManager[Any] = (
            nullcontext() if self._is_only else self._cupy.cuda.Device(self.index)
        )
        with self.active:
            Device(self.index).set_current()
        properties = self._runtime.getDeviceProperties(self.index)
        self.chip = _chip(properties)
        self.name = properties["name"].decode()

    def is_active(self) -> bool:
        """See `Driver.is_active`."""
        current: int = self.index if self._is_only else self._runtime.getDevice()
        return current == self.index

    # ---- failures

    def explained(self, error: BaseException) -> Exception:
        """See `Driver.explained`."""
        if not isinstance(error, CapgraphError) and is_loss(words_of(error)):
            self._lost = words_of(error)
        return explanation(error)

    def check(self) -> None:
        """See `Driver.check`."""
        if self._lost:
            raise loss(self._lost)

    # ---- memory

    def allocate(self, nbytes: int) -> CupyMemory:
        """See `Driver.allocate`."""
        self.check()
        try:
            return CupyMemory(self._cupy, max(nbytes, 1))
        except self._cupy.cuda.memory.OutOfMemoryError:
            self._cupy.get_default_memory_pool().free_all_blocks()
        try:
            return CupyMemory(self._cupy, max(nbytes, 1))
        except self.failures as error:
            free = self.available_bytes()
            raise ResourceError(
                f"{size_text(nbytes)} of device memory are needed, but {size_text(free)} are free",
                remedy="allow smaller sizes or fewer buckets, or give device memory back",
            ) from error

    def available_bytes(self) -> int:
        """See `Driver.available_bytes`: what CUDA has, and what CuPy holds without using it."""
        free: int = self._runtime.memGetInfo()[0]
        return free + int(self._cupy.get_default_memory_pool().free_bytes())

    def pinned(self, nbytes: int) -> Array:
        """See `Driver.pinned`."""
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(nbytes), dtype=np.uint8, count=nbytes)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """See `Driver.copy`."""
        self._runtime.memcpyAsync(target, source, nbytes, _ANY_DIRECTION, stream)

    def copy_rows(self, target: tuple[int, int], source: tuple[int, int], width: int, rows: int, stream: int) -> None:
        """See `Driver.copy_rows`."""
        self._runtime.memcpy2DAsync(*target, *source, width, rows, _ANY_DIRECTION, stream)

    def copy_strided(
        self,
        target: tuple[int, Sequence[int]],
        source: tuple[int, Sequence[int]],
        shape: Sequence[int],
        itemsize: int,
        stream: int,
    ) -> None:
        """See `Driver.copy_strided`: rows, or a kernel of CuPy's on words of the element's size."""
        rows = as_rows(tuple(shape), tuple(target[1]), tuple(source[1]), itemsize)
        if rows is not None:
            ends = (target[0], rows.target_pitch), (source[0], rows.source_pitch)
            self.copy_rows(*ends, rows.width, rows.number, stream)
            return
        with _stream_object(stream):
            into, given = (self._array(address, shape, strides, itemsize) for address, strides in (target, source))
            into[...] = given

    def non_zero(
        self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any], stream: int
    ) -> Array:
        """See `Driver.non_zero`: CuPy's own, in memory that no pool keeps.

        CuPy takes subnormal f32 for zeros, so that these are told by their bits.
        """
        cupy = self._cupy
        with _stream_object(stream), cupy.cuda.using_allocator(None):
            bits = self._array(address, shape, strides, dtype.itemsize)
            signs = _BUT_SIGNS.get(dtype.str[1:])
            given = bits.view(dtype) if signs is None else bits & bits.dtype.type(signs)
            found: Array = cupy.asnumpy(cupy.stack(cupy.nonzero(given)))
        return found

    def _array(self, address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Any:
        cupy = self._cupy
        memory = cupy.cuda.UnownedMemory(address, 0, None, self.index)
        dtype = np.dtype(f"u{itemsize}") if itemsize <= 8 else np.dtype(np.complex128)
        return cupy.ndarray(tuple(shape), dtype, cupy.cuda.MemoryPointer(memory, 0), tuple(strides))

    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        """See `Driver.fill`."""
        self._runtime.memsetAsync(target, byte, nbytes, stream)

    # ---- streams and graphs

    def make_stream(self) -> int:
        """See `Driver.make_stream`."""
        made = self._cupy.cuda.Stream(non_blocking=True)
        self._streams[int(made.ptr)] = made
        return int(made.ptr)

    def release_stream(self, stream: int) -> None:
        """See `Driver.release_stream`. Its address may become that of another stream, on any device."""
        if self._lost:
            return  # CUDA would refuse
        event = self._events.pop(stream, None)
        if event is not None:
            self._runtime.eventDestroy(event)
        self._streams.pop(stream, None)
        _stream_object.cache_clear()
        _core_stream.cache_clear()

    def synchronize(self, stream: int) -> None:
        """See `Driver.synchronize`."""
        self._runtime.streamSynchronize(stream)

    def order(self, first: int, then: int) -> None:
        """See `Driver.order`."""
        event = self._events.get(first)
        if event is None:
            event = self._events[first] = self._runtime.eventCreateWithFlags(self._runtime.eventDisableTiming)
        self._runtime.eventRecord(event, first)
        self._runtime.streamWaitEvent(then, event)

    def begin_capture(self, stream: int) -> None:
        """See `Driver.begin_capture`. Relaxed: what other threads do with CUDA meanwhile does not end it."""
        self._capturing[stream] = self._runtime.memGetInfo()[0]
        self._stream(stream).begin_capture()

    def end_capture(self, stream: int) -> CupyGraph:
        """See `Driver.end_capture`."""
        free = self._capturing.pop(stream)
        graph = self._stream(stream).end_capture()
        graph.upload(self._stream(stream))
        self._runtime.streamSynchronize(stream)
        return CupyGraph(graph, self._runtime, max(0, free - self._runtime.memGetInfo()[0]))

    def abort_capture(self, stream: int) -> None:
        """See `Driver.abort_capture`."""
        if self._capturing.pop(stream, None) is None:
            return
        with suppress(*self.failures):  # what was recorded may be broken; it is gone either way
            self._stream(stream).end_capture()

    def _stream(self, stream: int) -> Any:
        return self._streams.get(stream) or _stream_object(stream)

    # ---- kernels

    def bind(self, call: KernelCall) -> Enqueue:
        """See `Driver.bind`."""
        from cuda.core import launch as enqueue

        config, kernel, *arguments = self._prepared(call)
        return lambda stream: enqueue(_core_stream(stream), config, kernel, *arguments)

    def chain(self, calls: Sequence[KernelCall]) -> "CoreGraph":
        """See `Driver.chain`. Edges are full ones: explicit graphs know no programmatic launch."""
        from cuda.core.graph import GraphDefinition

        free = self._runtime.memGetInfo()[0]
        definition = GraphDefinition()
        nodes: list[Any] = []
        prepared = [self._prepared(call) for call in calls]
        for each in prepared:
            nodes.append((nodes[-1] if nodes else definition).launch(*each))
        graph = definition.instantiate()
        stream = list(self._streams.values())[-1]  # held, as its program may be closed in another thread
        graph.upload(_core_stream(stream.ptr))
        self._runtime.streamSynchronize(stream.ptr)
        return CoreGraph(graph, nodes, prepared, max(0, free - self._runtime.memGetInfo()[0]))

    def frame(
        self, before: KernelCall | None, calls: Sequence[Enqueue], after: KernelCall | None, stream: int
    ) -> CapturedGraph:
        """See `Driver.frame`."""
        runtime = self._runtime
        ends = [[] if each is None else [self.bind(each)] for each in (before, after)]
        free = runtime.memGetInfo()[0]
        runtime.streamBeginCapture(stream, runtime.streamCaptureModeRelaxed)
        try:
            for enqueue in (*ends[0], *calls, *ends[1]):
                enqueue(stream)
        except BaseException:
            with suppress(*self.failures):  # a broken recording is gone either way
                runtime.graphDestroy(runtime.streamEndCapture(stream))
            raise
        made = CapturedGraph(runtime.streamEndCapture(stream), before, after, runtime.graphLaunch)
        made.upload(stream)
        runtime.streamSynchronize(stream)
        made.nbytes = max(0, free - runtime.memGetInfo()[0])
        return made

    def _prepared(self, call: KernelCall) -> tuple[Any, ...]:
        """Launch configuration, kernel, arguments."""
        kernel = self._loaded(call.compiled, call.launch.kernel.shared_bytes)
        return self._config(call.launch), kernel, *arguments_of(call.values)

    def _config(self, launch: KernelLaunch) -> Any:
        from cuda.core import LaunchConfig

        kernel = launch.kernel
        options: dict[str, Any] = {}
        if launch.may_overlap and self.chip.arch >= 90:
            options["programmatic_stream_serialization"] = True
        if kernel.cluster != (1, 1, 1):
            options["cluster"] = kernel.cluster
        grid = tuple(blocks // each for blocks, each in zip(kernel.grid, kernel.cluster, strict=True))
        return LaunchConfig(grid=grid, block=kernel.block, shmem_size=kernel.shared_bytes, **options)

    def _loaded(self, compiled: Compiled, shared_bytes: int) -> Any:
        key = (compiled.symbol, shared_bytes)
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = self._load(compiled, shared_bytes)
        return found

    def _load(self, compiled: Compiled, shared_bytes: int) -> Any:
        from cuda.bindings import driver
        from cuda.core import ObjectCode

        module = self._modules.get(compiled.module.digest)
        if module is None:
            module = self._modules[compiled.module.digest] = ObjectCode.from_cubin(compiled.module.code)
        kernel = module.get_kernel(compiled.symbol)
        if shared_bytes > _PLAIN_SHARED:
            most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (status,) = driver.cuKernelSetAttribute(most, shared_bytes, kernel.handle, self.index)
            if status != driver.CUresult.CUDA_SUCCESS:
                raise ResourceError(f"a kernel wants {size_text(shared_bytes)} of shared memory: {status.name}")
        assert kernel.attributes.num_regs  # has the code loaded now, not while a stream is captured
        return kernel

    def timer(self) -> tuple[Enqueue, Enqueue, Callable[[], float]]:
        """See `Driver.timer`."""
        runtime, first, last = self._runtime, self._cupy.cuda.Event(), self._cupy.cuda.Event()

        def seconds() -> float:
            runtime.eventSynchronize(last.ptr)
            found: float = runtime.eventElapsedTime(first.ptr, last.ptr) / 1e3
            return found

        begin, end = (lambda stream, event=event: runtime.eventRecord(event.ptr, stream) for event in (first, last))
        return begin, end, seconds


_ANY_DIRECTION = 4  # cudaMemcpyDefault: CUDA sees from the addresses where they lie

_PLAIN_SHARED = 48 << 10  # what a block may have without asking


@cache
def _core_stream(stream: int) -> Any:
    """`cuda.core`'s object for a stream that somebody else owns."""
    from cuda.core import Stream

    return Stream.from_handle(stream)


def _chip(properties: Any) -> Chip:
    arch = 10 * properties["major"] + properties["minor"]
    return Chip(arch, properties["multiProcessorCount"], properties["sharedMemPerBlockOptin"])


def _failures(cupy: Any) -> tuple[type[BaseException], ...]:
    from cuda.core._utils.cuda_utils import CUDAError

    return (
        cupy.cuda.runtime.CUDARuntimeError,
        cupy.cuda.driver.CUDADriverError,
        cupy.cuda.memory.OutOfMemoryError,
        CUDAError,
    )
