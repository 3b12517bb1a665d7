"""Matmuls, attention and convolutions one by one: every candidate of each step, right or wrong, and how long it takes.

Times are of one launch among twenty in a captured graph, each with a weight of its own, so that weights come from
device memory as they do in a model. PyTorch's time is that of the same work in a CUDA graph of its own.

    python -m benchmarks.gpu.heavy [matmuls attention convolutions others]
"""

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import cupy
import numpy as np
import torch
from capgraph.executors.cuda.driver.compiler import build, symbol_of
from capgraph.executors.cuda.driver.packing import packed_bytes
from capgraph.executors.cuda.kernel_ir.launch import (
    BufferPlace,
    Candidate,
    Chip,
    HostCall,
    KernelLaunch,
    LibraryCall,
    Packed,
    ScalarArgument,
    Task,
)
from capgraph.executors.cuda.kernels.attention import attention
from capgraph.executors.cuda.kernels.conv import convolutions
from capgraph.executors.cuda.kernels.conv import quantized as quantized_convolutions
from capgraph.executors.cuda.kernels.gemm import einsums, matmul, quantized_gemm
from capgraph.executors.cuda.libraries.base import open_library
from capgraph.ir.constant import Constant
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph, Node
from capgraph.ir.plan import View
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse
from cuda.bindings import driver as cuda_driver
from cuda.core import Device, LaunchConfig, ObjectCode, Stream
from cuda.core import launch as enqueue_kernel

from .heavy_cases import FAMILIES, Case
from .torch_peer import LAUNCHES, REPLAYS

HEAVY = tuple(
    family.LOWERINGS for family in (matmul, convolutions, attention, einsums, quantized_gemm, quantized_convolutions)
)
SCRATCH = 64 << 20
MOST_BYTES = 4 << 30


class Machine:
    """The GPU with what runs on it."""

    def __init__(self) -> None:
        self.device = Device(0)
        self.device.set_current()
        self.runtime = cupy.cuda.runtime
        properties = self.runtime.getDeviceProperties(0)
        arch = 10 * properties["major"] + properties["minor"]
        self.chip = Chip(arch, properties["multiProcessorCount"], properties["sharedMemPerBlockOptin"])
        self.own_stream = cupy.cuda.Stream(non_blocking=True)
        self.stream = int(self.own_stream.ptr)
        self.scratch = self.allocate(SCRATCH)
        self.libraries: dict[str, Any] = {}
        self.compiled: dict[str, bytes] = {}
        self.kernels: dict[str, Any] = {}

    def library(self, name: str) -> Any:
        if name not in self.libraries:
            self.libraries[name] = open_library(name, 0)
        return self.libraries[name]

    def compile(self, text: str) -> bytes:
        if text not in self.compiled:
            module = build([text], self.chip.arch)
            if isinstance(module, str):
                raise RuntimeError(module[:1500])
            self.compiled[text] = module.code
        return self.compiled[text]

    def compile_quietly(self, text: str) -> None:
        """Compiles ahead of time; what fails is told when it is used."""
        with contextlib.suppress(RuntimeError):
            self.compile(text)

    def upload(self, content: np.ndarray) -> Any:
        data = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        memory = self.allocate(max(data.nbytes, 1))
        self.copy(memory.ptr, data.ctypes.data, data.nbytes)
        return memory

    def allocate(self, nbytes: int) -> Any:
        return cupy.cuda.alloc(nbytes).mem

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self.runtime.memcpyAsync(target, source, nbytes, 4, self.stream)
        self.synchronize()

    def synchronize(self) -> None:
        self.runtime.streamSynchronize(self.stream)

    def launcher(self, launch: KernelLaunch, arguments: Sequence[Any]) -> Callable[[int], None]:
        """Enqueues a kernel, beside its predecessor where it may overlap."""
        kernel = launch.kernel
        if kernel.text not in self.kernels:
            module = ObjectCode.from_cubin(self.compile(kernel.text))
            loaded = module.get_kernel(symbol_of(kernel.text))
            most = cuda_driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            if kernel.shared_bytes > 48 << 10:
                cuda_driver.cuKernelSetAttribute(most, kernel.shared_bytes, loaded.handle, 0)
            self.kernels[kernel.text] = (module, loaded, loaded.attributes.num_regs)
        options: dict[str, Any] = {}
        if launch.may_overlap:
            options["programmatic_stream_serialization"] = True
        if kernel.cluster != (1, 1, 1):
            options["cluster"] = kernel.cluster
        grid = tuple(blocks // each for blocks, each in zip(kernel.grid, kernel.cluster, strict=True))
        config = LaunchConfig(grid=grid, block=kernel.block, shmem_size=kernel.shared_bytes, **options)
        loaded = self.kernels[kernel.text][1]
        return lambda stream: enqueue_kernel(Stream.from_handle(stream), config, loaded, *arguments)


def as_image(array: np.ndarray) -> np.ndarray:
    """[N, C, ...] stored as [N, ..., C]."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


@dataclass
class Prepared:
    """A case with its step, what its buffers hold, what is expected, and the candidates to do it."""

    case: Case
    node: Node
    task: Task
    contents: list[np.ndarray]
    expected: list[np.ndarray]
    candidates: list[Candidate]
    packed: dict[Any, np.ndarray] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The kernels of all candidates."""
        launches = [launch for candidate in self.candidates for launch in candidate.launches]
        return [launch.kernel.text for launch in launches if isinstance(launch, KernelLaunch)]


class Buffers:
    """One set of the buffers of a case, uploaded when they are asked for."""

    def __init__(self, machine: Machine, prepared: Prepared) -> None:
        self.machine = machine
        self.prepared = prepared
        self.memory: dict[Any, Any] = {}

    def address(self, argument: Any) -> Any:
        if isinstance(argument, ScalarArgument):
            return argument
        if isinstance(argument, Packed):
            key = (argument.constant.digest, argument.packing, argument.options)
            if key not in self.prepared.packed:
                self.prepared.packed[key] = packed_bytes(argument)
            return self.uploaded(key, self.prepared.packed[key])
        assert isinstance(argument, BufferPlace)
        if argument.buffer == len(self.prepared.contents):
            return self.machine.scratch.ptr + argument.offset
        return self.uploaded(argument.buffer, self.prepared.contents[argument.buffer]) + argument.offset

    def uploaded(self, key: Any, content: np.ndarray) -> int:
        if key not in self.memory:
            self.memory[key] = self.machine.upload(content)
        return int(self.memory[key].ptr)

    @property
    def nbytes(self) -> int:
        return sum(memory.size for memory in self.memory.values())


def bind(machine: Machine, candidate: Candidate, buffers: Buffers) -> list[Callable[[int], None]]:
    enqueues: list[Callable[[int], None]] = []
    for launch in candidate.launches:
        if isinstance(launch, KernelLaunch):
            enqueues.append(machine.launcher(launch, [buffers.address(a) for a in launch.arguments]))
        elif isinstance(launch, LibraryCall):
            enqueues.append(bound_call(machine, launch, buffers))
        else:
            raise RuntimeError(f"host: {launch.reason}")
    return enqueues


def bound_call(machine: Machine, call: LibraryCall, buffers: Buffers) -> Callable[[int], None]:
    enqueue = machine.library(call.library).prepare(call)
    addresses = {role: buffers.address(argument) for role, argument in call.arguments.items()}
    workspace = buffers.address(call.workspace) if call.workspace is not None else 0
    return lambda stream: enqueue(stream, addresses, workspace)


def prepare(machine: Machine, case: Case) -> Prepared:
    graph = Graph()
    inputs = case.build(graph)
    Pipeline(((Fuse(),),)).run(graph)
    node = [each for each in graph.nodes if each.inputs][-1]
    expected = [np.asarray(x) for x in evaluate_graph(graph, [inputs[value.name] for value in graph.inputs])]
    arrays = {value: inputs[value.name] for value in graph.inputs}
    arrays |= {each.output: each.attrs["value"].array for each in graph.nodes if not each.inputs}
    task, contents = task_of(machine, node, arrays, case)
    candidates = [each for family in HEAVY if node.op.name in family for each in family[node.op.name](task)]
    return Prepared(case, node, task, contents, expected, candidates)


def measure(machine: Machine, prepared: Prepared) -> None:
    case = prepared.case
    for candidate in prepared.candidates:
        report(machine, prepared, candidate)
    if not prepared.candidates:
        print(f"  {case.name}: NOTHING", flush=True)
    if case.peer is not None:
        print(f"  {case.name:44} {'torch':34} {case.peer():8.2f} us", flush=True)


def task_of(machine: Machine, node: Node, arrays: dict[Any, np.ndarray], case: Case) -> tuple[Task, list[np.ndarray]]:
    views: list[View | None] = []
    contents: list[np.ndarray] = []
    constants: dict[int, Constant] = {}
    for index, value in enumerate(node.inputs):
        if value is None:
            views.append(None)
            continue
        array = np.ascontiguousarray(arrays[value])
        memory, strides = array, array.strides
        lies = case.views.get(value.name, as_image if case.lays_out(value) else None)
        if lies is not None:
            view = lies(array)
            memory, strides = view.base if view.base is not None else view, view.strides
        views.append(View(len(contents), 0, value.tensor.dtype, array.shape, strides))
        contents.append(memory)
        producer = value.producer
        if producer is not None:
            constants[index] = producer.attrs["value"]
    results = []
    for value in node.outputs:
        shape = tuple(int(dim) for dim in value.shape)
        dtype = value.tensor.dtype
        zeros = np.zeros(shape, dtype.numpy)
        strides = as_image(zeros).strides if case.lays_out(value) else zeros.strides
        results.append(View(len(contents), 0, dtype, shape, strides))
        contents.append(zeros)
    scratch = BufferPlace(len(contents))
    task = Task(node, tuple(views), tuple(results), constants, machine.chip, scratch, SCRATCH)
    return task, contents


def report(machine: Machine, prepared: Prepared, candidate: Candidate) -> None:
    name = f"  {prepared.case.name:44} {candidate.name:34}"
    try:
        error, micros = run(machine, prepared, candidate)
    except Exception as failure:  # noqa: BLE001
        line = str(failure).strip().replace("\n", " | ")[:600]
        print(f"{name} FAILED {type(failure).__name__}: {line}", flush=True)
        return
    verdict = "" if error <= prepared.case.tolerance else f" WRONG error {error:.3g}"
    nbytes = sum(launch.nbytes for launch in candidate.launches if not isinstance(launch, HostCall))
    print(f"{name} {micros:8.2f} us {nbytes / micros / 1e6:6.2f} TB/s{verdict}", flush=True)


def run(machine: Machine, prepared: Prepared, candidate: Candidate) -> tuple[float, float]:
    stream = machine.stream
    sets = [Buffers(machine, prepared)]
    bounds = [bind(machine, candidate, sets[0])]
    for enqueue in bounds[0]:
        enqueue(stream)
    machine.synchronize()
    error = 0.0
    first = len(prepared.contents) - len(prepared.node.outputs)
    for index, wanted in enumerate(prepared.expected):
        got = np.zeros_like(prepared.contents[first + index])
        machine.copy(got.ctypes.data, sets[0].uploaded(first + index, got), got.nbytes)
        strides = prepared.task.results[index].strides
        error = max(error, distance(np.ndarray(got.shape, got.dtype, got.reshape(-1), strides=strides), wanted))
    for _ in range(min(LAUNCHES, MOST_BYTES // max(sets[0].nbytes, 1)) - 1):
        sets.append(Buffers(machine, prepared))
        bounds.append(bind(machine, candidate, sets[-1]))
    machine.own_stream.begin_capture()
    for index in range(LAUNCHES):
        for enqueue in bounds[index % len(sets)]:
            enqueue(stream)
    graph = machine.own_stream.end_capture()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    times = []
    for _ in range(REPLAYS):
        begin.record(machine.own_stream)
        graph.launch(machine.own_stream)
        end.record(machine.own_stream)
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) * 1e3 / LAUNCHES)
    return error, float(np.median(times))


def distance(got: np.ndarray, wanted: np.ndarray) -> float:
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return float("inf")
    if not a.size:
        return 0.0
    scale = max(float(np.nanmax(np.abs(b))), 1e-6)
    return float(np.nanmax(np.abs(a - b)) / scale)


def main() -> None:
    machine = Machine()
    print(torch.cuda.get_device_name(), flush=True)
    for family in sys.argv[1:] or list(FAMILIES):
        prepared = [made for case in FAMILIES[family]() if (made := attempted(case.name, prepare, machine, case))]
        texts = list(dict.fromkeys(text for each in prepared for text in each.texts))
        begun = time.perf_counter()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(machine.compile_quietly, texts))
        print(f"{family}: {len(texts)} kernels compiled in {time.perf_counter() - begun:.1f} s", flush=True)
        for each in prepared:
            begun = time.perf_counter()
            attempted(each.case.name, measure, machine, each)
            if time.perf_counter() - begun > 5:
                print(f"  ... {time.perf_counter() - begun:.1f} s", flush=True)


def attempted(name: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` gives; None when it fails, which is printed."""
    try:
        return work(*arguments)
    except Exception as failure:  # noqa: BLE001
        print(f"  {name}: BROKEN {type(failure).__name__}: {failure}", flush=True)
        traceback.print_exc(limit=-3)
        return None


if __name__ == "__main__":
    main()
