"""GEMMs as calls of cuBLASLt: one for each batch of matrices that lie at equal distances."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.launch import Argument, BufferPlace, LibraryCall, Task
from ...kernel_ir.sources import Source
from ...libraries.problems import MatmulProblem
from .cublaslt_epilogue import CublasltEpilogue
from .operands import GemmOperands, matrix_of
from .regions import aligned, scratch_behind

MAX_CALLS = 64
"""GEMMs that one step may be split into when its leading axes do not lie as one batch."""

_CUBLASLT_DTYPES = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
_MIB = 1 << 20


def cublaslt_calls(
    operands: GemmOperands,
    epilogue: CublasltEpilogue,
    task: Task,
    used_scratch: int = 0,
    scales: Mapping[str, Argument] = MappingProxyType({}),
) -> tuple[LibraryCall, ...] | None:
    """The calls that make `operands.d`; None where cuBLASLt has no such GEMM.

    `scales` are the roles "a_scale" and "b_scale" with f32 scalars in device memory, for operands in fp8.
    """
    is_of_bytes = (operands.a.dtype, operands.d.dtype) == (DType.I8, DType.I32)
    if not (is_of_bytes or operands.d.dtype in _CUBLASLT_DTYPES) or 0 in (*operands.d.shape, operands.a.shape[-1]):
        return None
    if operands.d.dtype is DType.F64 and (epilogue.bias is not None or epilogue.activation):
        return None
    *outer, batch = (1, *operands.leading)
    if math.prod(outer) > MAX_CALLS:
        return None
    problem = _problem(operands, epilogue, task, batch)
    if problem is None:
        return None
    problem = replace(problem, scaled=bool(scales))
    workspace = scratch_behind(task, used_scratch, workspace_bytes(problem))
    return tuple(_call(problem, operands, epilogue, index, workspace, scales) for index in _indices(outer[1:]))


def _problem(operands: GemmOperands, epilogue: CublasltEpilogue, task: Task, batch: int) -> MatmulProblem | None:
    has_batch = bool(operands.leading)
    a, b, d = (
        matrix_of(source, source.strides[-3] if has_batch else 0) for source in (operands.a, operands.b, operands.d)
    )
    c = None
    if operands.c is not None:
        c = matrix_of(operands.c, operands.c.strides[-3] if has_batch else 0)
        if c is None or not c.is_row_major:
            return None
    if a is None or b is None or d is None or not d.is_row_major:
        return None
    return MatmulProblem(
        batch=batch,
        rows=operands.d.shape[-2],
        columns=operands.d.shape[-1],
        inner=operands.a.shape[-1],
        a=a,
        b=b,
        d=d,
        c=c,
        bias=epilogue.bias.dtype if epilogue.bias is not None else None,
        alpha=epilogue.alpha,
        beta=epilogue.beta,
        activation=epilogue.activation,
        tf32=task.tf32 and operands.a.dtype is DType.F32,
    )


def _indices(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not sizes:
        yield ()
        return
    for first in range(sizes[0]):
        for others in _indices(sizes[1:]):
            yield (first, *others)


def _call(
    problem: MatmulProblem,
    operands: GemmOperands,
    epilogue: CublasltEpilogue,
    index: tuple[int, ...],
    workspace: tuple[BufferPlace | None, int],
    scales: Mapping[str, Argument],
) -> LibraryCall:
    def begun(source: Source) -> Source:
        return source.at(sum(i * stride for i, stride in zip(index, source.strides, strict=False)))

    arguments = {"a": begun(operands.a), "b": begun(operands.b), "d": begun(operands.d)}
    if operands.c is not None:
        arguments["c"] = begun(operands.c)
    if epilogue.bias is not None:
        arguments["bias"] = epilogue.bias
    return LibraryCall(
        library="cublaslt",
        problem=problem,
        arguments={**{role: source.argument for role, source in arguments.items()}, **scales},
        nbytes=matmul_bytes(problem),
        flops=2 * problem.batch * problem.rows * problem.columns * problem.inner,
        workspace=workspace[0],
        workspace_bytes=workspace[1],
    )


def matmul_bytes(problem: MatmulProblem) -> int:
    """Bytes that a GEMM reads and writes at least; what is shared by a batch counts once."""
    sizes = (
        (problem.a, problem.rows * problem.inner),
        (problem.b, problem.inner * problem.columns),
        (problem.d, problem.rows * problem.columns),
        (problem.c, problem.rows * problem.columns),
    )
    total = sum(
        element_bytes(matrix.dtype) * size * (problem.batch if matrix.batch_stride else 1)
        for matrix, size in sizes
        if matrix is not None
    )
    return total + (problem.columns * element_bytes(problem.bias) if problem.bias is not None else 0)


def workspace_bytes(problem: MatmulProblem) -> int:
    """Room for eight partial results in f32, from 1 to 32 MiB: cuBLASLt splits sums when a result has few tiles."""
    return min(max(aligned(32 * problem.batch * problem.rows * problem.columns), _MIB), 32 * _MIB)
