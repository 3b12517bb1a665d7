"""Problems of libraries solved by NumPy over flat memory: what a library would write, without one and without a GPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from capgraph.executors.cuda.driver.packing import packed_bytes
from capgraph.executors.cuda.kernel_ir.launch import (
    Argument,
    BufferPlace,
    Candidate,
    Chip,
    KernelLaunch,
    LibraryCall,
    Packed,
    Task,
)
from capgraph.executors.cuda.libraries.problems import (
    AttentionProblem,
    ConvProblem,
    MatmulProblem,
    Matrix,
    Spectrum,
    TensorLayout,
    TransformProblem,
)
from capgraph.ir.constant import Array, Constant
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph, Node, Value
from capgraph.ir.ops.nn.activation import gelu, leaky_relu, relu, sigmoid, silu, softplus
from capgraph.ir.ops.nn.conv import conv, conv_transpose
from capgraph.ir.plan import View
from capgraph.ir.types import DType
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse

from tests.executors.cuda.emulator import compiled, launched

SCRATCH = 1 << 23
RESULTS = "*"
"""Among layouts by name: that of results that have none of their own."""

PADDING = 64
"""Bytes before and behind each buffer that nothing may write."""


@dataclass
class Memory:
    """Buffers by number, with the scratch behind them."""

    buffers: list[Array] = field(default_factory=list)

    def add(self, content: Array) -> int:
        """A buffer with that content, between bytes that stay as they are."""
        data = np.full(content.nbytes + 2 * PADDING, 0xA5, np.uint8)
        data[PADDING : PADDING + content.nbytes] = content.reshape(-1).view(np.uint8)
        self.buffers.append(data)
        return len(self.buffers) - 1

    def tensor(self, argument: Argument, dtype: Any, shape: Sequence[int], strides: Sequence[int]) -> Array:
        """The tensor of an argument, by strides in elements."""
        steps = [stride * np.dtype(dtype).itemsize for stride in strides]
        if isinstance(argument, Packed):
            return np.ndarray(tuple(shape), dtype, packed_bytes(argument), 0, steps)
        assert isinstance(argument, BufferPlace)
        data = self.buffers[argument.buffer]
        return np.ndarray(tuple(shape), dtype, data, PADDING + argument.offset, steps)

    def address(self, buffer: int) -> int:
        """Where the content of a buffer begins."""
        return int(self.buffers[buffer].ctypes.data) + PADDING

    def is_intact(self) -> bool:
        """Whether nothing was written before or behind a buffer."""
        return all((data[:PADDING] == 0xA5).all() and (data[-PADDING:] == 0xA5).all() for data in self.buffers)


# ---- solving


def solve(call: LibraryCall, memory: Memory) -> None:
    """Does what the library would do."""
    solvers: dict[type, Callable[[Any, Mapping[str, Argument], Memory], None]] = {
        MatmulProblem: _solve_matmul,
        ConvProblem: _solve_convolution,
        AttentionProblem: _solve_attention,
        TransformProblem: _solve_transform,
    }
    solvers[type(call.problem)](call.problem, call.arguments, memory)


def _matrix(memory: Memory, argument: Argument, matrix: Matrix, sizes: tuple[int, int, int]) -> Array:
    strides = (matrix.batch_stride, matrix.row_stride, matrix.column_stride)
    return memory.tensor(argument, matrix.dtype.numpy, sizes, strides)


def _solve_matmul(problem: MatmulProblem, arguments: Mapping[str, Argument], memory: Memory) -> None:
    batch, rows, columns, inner = problem.batch, problem.rows, problem.columns, problem.inner
    assert problem.d.is_row_major
    for matrix, width in ((problem.a, inner), (problem.b, columns), (problem.d, columns)):
        height = inner if matrix is problem.b else rows
        assert 1 in (matrix.row_stride, matrix.column_stride)
        assert matrix.leading >= (width if matrix.is_row_major else height)
    if problem.a.dtype.bits == 8:
        _check_bytes(problem, arguments)
    a = _matrix(memory, arguments["a"], problem.a, (batch, rows, inner)).astype(np.float64)
    b = _matrix(memory, arguments["b"], problem.b, (batch, inner, columns)).astype(np.float64)
    d = _matrix(memory, arguments["d"], problem.d, (batch, rows, columns))
    found = problem.alpha * (a @ b)
    for role in ("a_scale", "b_scale") if problem.scaled else ():
        found *= float(memory.tensor(arguments[role], np.float32, (), ()))
    if problem.c is not None:
        found += problem.beta * _matrix(memory, arguments["c"], problem.c, (batch, rows, columns)).astype(np.float64)
    if problem.bias is not None:
        found += memory.tensor(arguments["bias"], problem.bias.numpy, (columns,), (1,)).astype(np.float64)
    if problem.activation:
        found = {"relu": relu, "gelu_tanh": lambda x: gelu(x, approximate="tanh")}[problem.activation](found)
    d[...] = found.astype(d.dtype)


def _check_bytes(problem: MatmulProblem, arguments: Mapping[str, Argument]) -> None:
    """What cuBLASLt asks of matmuls in i8 and fp8.

    https://docs.nvidia.com/cuda/cublas/#cublasltmatmul
    """
    a, b, d = problem.a, problem.b, problem.d
    assert a.is_row_major
    assert not b.is_row_major
    assert problem.inner % 16 == problem.columns % 16 == 0
    strides = [(x.leading * x.dtype.numpy.itemsize, x.batch_stride * x.dtype.numpy.itemsize) for x in (a, b, d)]
    assert all(stride % 16 == 0 for pair in strides for stride in pair)
    places = [argument for role, argument in arguments.items() if not role.endswith("scale")]
    assert all(place.offset % 16 == 0 for place in places if isinstance(place, BufferPlace))
    if a.dtype is DType.I8:
        assert b.dtype is DType.I8
        assert (d.dtype, problem.scaled, problem.bias, problem.activation) == (DType.I32, False, None, "")
        return
    assert problem.scaled or d.dtype is DType.F32
    assert {a.dtype, b.dtype} in ({DType.F8E4M3FN}, {DType.F8E4M3FN, DType.F8E5M2})
    assert d.dtype in (DType.F16, DType.BF16, DType.F32)
    assert problem.c is None or problem.c.dtype is d.dtype
    assert problem.bias is None or problem.bias is (DType.BF16 if d.dtype is DType.F32 else d.dtype)


def _tensor(memory: Memory, argument: Argument, tensor: TensorLayout) -> Array:
    return memory.tensor(argument, tensor.dtype.numpy, tensor.shape, tensor.strides)


def _solve_convolution(problem: ConvProblem, arguments: Mapping[str, Argument], memory: Memory) -> None:
    x, w, y = (_tensor(memory, arguments[role], getattr(problem, role)) for role in ("x", "w", "y"))
    bias = None
    if problem.bias is not None:
        bias = memory.tensor(arguments["bias"], problem.bias.numpy, (y.shape[1],), (1,)).astype(np.float64)
    window: dict[str, Any] = {"strides": problem.strides, "pads": problem.pads, "dilations": problem.dilations}
    wide = x.astype(np.float64), w.astype(np.float64)
    if problem.is_transposed:
        groups = x.shape[1] // w.shape[0] or 1
        axes = zip(y.shape[2:], x.shape[2:], w.shape[2:], range(len(problem.strides)), strict=True)
        extra = [
            made - ((size - 1) * problem.strides[i] + problem.dilations[i] * (width - 1) + 1)
            + problem.pads[i] + problem.pads[i + len(problem.strides)]
            for made, size, width, i in axes
        ]  # fmt: skip
        found = conv_transpose(*wide, bias, output_padding=extra, groups=y.shape[1] // w.shape[1] * groups, **window)
    else:
        found = conv(*wide, bias, groups=x.shape[1] // w.shape[1], **window)
    for step in problem.steps:
        if step.tensor is not None:
            other = _tensor(memory, arguments[step.role], step.tensor).astype(np.float64)
            found = found + other if step.name == "add" else found * other
        else:
            found = _activated(step.name, found, step.number)
    y[...] = found.astype(y.dtype)


def _activated(name: str, x: Array, number: float) -> Array:
    functions: dict[str, Callable[[Array], Array]] = {
        "relu": relu,
        "sigmoid": sigmoid,
        "tanh": np.tanh,
        "softplus": softplus,
        "gelu": lambda x: gelu(x, approximate="none"),
        "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
        "silu": lambda x: silu(x, alpha=number),
        "leaky_relu": lambda x: leaky_relu(x, alpha=number),
    }
    return functions[name](x)


def _solve_attention(problem: AttentionProblem, arguments: Mapping[str, Argument], memory: Memory) -> None:
    """As the library does it: masks are added whatever the scores are, and rows without keys are left as they are.

    Scores are in units of log 2, which takes the lowest floats to minus infinity; rows of nothing else are zeros.
    """
    q, k, v, o = (_tensor(memory, arguments[role], getattr(problem, role)) for role in ("q", "k", "v", "o"))
    shared = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, shared, axis=1).astype(np.float32) for x in (k, v))
    scores = q.astype(np.float32) @ k.swapaxes(2, 3) * problem.scale
    steps, keys = scores.shape[2:]
    reach = np.full((len(q), 1, 1, 1), keys)
    if problem.has_lengths:
        counts = TensorLayout(DType.I32, (len(q), 1, 1, 1), (1, 1, 1, 1))
        assert (_tensor(memory, arguments["q_lengths"], counts) == steps).all()
        reach = _tensor(memory, arguments["kv_lengths"], counts)
        assert ((reach >= 0) & (reach <= keys)).all()
    seen = np.arange(keys) < reach
    if problem.causal:
        behind = reach - steps if problem.has_lengths else 0
        seen = seen & (np.arange(keys) <= np.arange(steps)[:, np.newaxis] + behind)
    with np.errstate(all="ignore"):
        if problem.mask is not None:
            assert not problem.has_lengths
            assert problem.mask.dtype in (problem.q.dtype, DType.F32)
            scores = scores + _tensor(memory, arguments["mask"], problem.mask).astype(np.float32)
        scores = np.where(seen, scores * np.float32(1 / np.log(2)), -np.inf)
        most = scores.max(-1, keepdims=True)
        weights = np.exp2(scores - np.where(most == -np.inf, 0, most))
        total = weights.sum(-1, keepdims=True)
        found = weights / np.where(total == 0, 1, total) @ np.where(np.isnan(v), 0, v)
    is_made = np.broadcast_to(seen.any(-1, keepdims=True), (*scores.shape[:3], 1))
    np.copyto(o, found.astype(o.dtype), where=is_made)


# ---- steps


Layout = Callable[[Array], Array]
"""From an array to one of the same elements that lies otherwise."""


def _solve_transform(problem: TransformProblem, arguments: Mapping[str, Argument], memory: Memory) -> None:
    """Half a spectrum that comes to be real has no imaginary part at its ends, as the library asks."""
    half = problem.length // 2 + 1
    given = half if problem.spectrum is Spectrum.TO_REAL else problem.length
    made = half if problem.spectrum is Spectrum.OF_REAL else problem.length

    def rows(role: str, count: int, real: Spectrum) -> Array:
        parts = 1 if problem.spectrum is real else 2
        strides = (count * parts, parts, 1)
        return memory.tensor(arguments[role], problem.dtype.numpy, (problem.count, count, parts), strides)

    x, y = rows("x", given, Spectrum.OF_REAL), rows("y", made, Spectrum.TO_REAL)
    if problem.spectrum is Spectrum.TO_REAL:
        assert not x[:, 0, 1].any()
        assert problem.length % 2 or not x[:, -1, 1].any()
        y[..., 0] = np.fft.irfft(x[..., 0] + 1j * x[..., 1], problem.length) * problem.length
        return
    signal = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    if problem.is_inverse:
        found = np.fft.ifft(signal) * problem.length
    else:
        found = np.fft.fft(signal)[:, :made]
    y[...] = np.stack([found.real, found.imag], -1)


@dataclass
class Setting:
    """A step with its memory: `task` may be lowered, `expected` is what its results should be."""

    task: Task
    memory: Memory
    expected: list[Array]

    def operands(self) -> list[Array | None]:
        """What the operands hold."""
        return [None if view is None else _read(self.memory, view) for view in self.task.operands]

    def found(self, candidate: Candidate, folder: Path | None = None) -> list[Array]:
        """The results after all launches of a candidate; kernels are emulated, which takes a folder for their code."""
        kernels = [launch.kernel for launch in candidate.launches if isinstance(launch, KernelLaunch)]
        assert not kernels or folder is not None
        library = compiled(kernels, folder) if kernels and folder is not None else None
        for launch in candidate.launches:
            if isinstance(launch, LibraryCall):
                solve(launch, self.memory)
                continue
            assert isinstance(launch, KernelLaunch)
            assert library is not None
            launched(library, launch, self.memory.address)
        assert self.memory.is_intact()
        return [_read(self.memory, view) for view in self.task.results]


def _read(memory: Memory, view: View) -> Array:
    itemsize = view.dtype.numpy.itemsize
    strides = [stride // itemsize for stride in view.strides]
    return memory.tensor(BufferPlace(view.buffer, view.offset), view.dtype.numpy, view.shape, strides)


def setting(
    graph: Graph,
    inputs: Mapping[str, Array],
    layouts: Mapping[str, Layout] | None = None,
    *,
    chip: Chip | None = None,
    tf32: bool = False,
) -> Setting:
    """The last step of a graph, fused; `layouts` says how inputs and outputs lie, by name."""
    Pipeline(((Fuse(scaled_operands=True),),)).run(graph, check="none")
    expected = [np.asarray(x) for x in evaluate_graph(graph, [inputs[value.name] for value in graph.inputs])]
    node = [each for each in graph.nodes if each.inputs][-1]
    memory, lies = Memory(), dict(layouts or {})
    arrays = {value: inputs[value.name] for value in graph.inputs}
    operands = tuple(_placed(memory, value, arrays, lies) for value in node.inputs)
    zeros = {value: np.zeros(array.shape, array.dtype) for value, array in zip(node.outputs, expected, strict=True)}
    lies = {**{value.name: lies[RESULTS] for value in node.outputs if RESULTS in lies}, **lies}
    results = tuple(_placed(memory, value, zeros, lies) for value in node.outputs)
    constants = {i: value.producer.attrs["value"] for i, value in enumerate(node.inputs) if value and value.producer}
    scratch = BufferPlace(memory.add(np.zeros(SCRATCH, np.uint8)))
    assert all(view is not None for view in results)
    made = tuple(view for view in results if view is not None)
    task = Task(node, operands, made, constants, chip or Chip(), scratch, SCRATCH, tf32)
    return Setting(task, memory, expected)


def _placed(
    memory: Memory, value: Value | None, arrays: Mapping[Value, Array], layouts: Mapping[str, Layout]
) -> View | None:
    if value is None:
        return None
    producer = value.producer
    is_constant = producer is not None and value not in arrays
    array = np.array(producer.attrs["value"].array if producer and is_constant else arrays[value], order="C")
    lies = layouts.get(value.name, lambda x: x)(array)
    whole = lies if lies.base is None else lies.base
    start = lies.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    buffer = memory.add(np.ascontiguousarray(whole))
    return View(buffer, start, value.tensor.dtype, array.shape, lies.strides)


def constant(graph: Graph, content: Array) -> Value:
    """A constant in a graph."""
    from capgraph.ir.ops import native

    return graph.append(native("constant"), [], {"value": Constant(content)}).output


def heavy_nodes(node: Node) -> int:
    """How many nodes a step stands for."""
    return len(list(node.attrs["body"].nodes)) if node.op.name == "fused" else 1
