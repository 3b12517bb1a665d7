"""`einsum`: as a matmul where two operands share at most one summed index, else by one loop an element."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .....ir.ops.nn.linear import einsum_subscripts
from .....ir.types import DType
from ...kernel_ir.launch import Candidate, Kernel, KernelLaunch, Lowering, Task
from ...kernel_ir.sources import Source, index_type, offset_code, source_of, split_index_code
from ...kernel_ir.types import computed, stored
from .cublaslt_calls import cublaslt_calls
from .cublaslt_epilogue import CublasltEpilogue
from .operands import gemm_operands
from .simt_gemm import simt_gemm

_THREADS = 128
_SUMS = {DType.F64: "double", DType.F32: "float", DType.F16: "float", DType.BF16: "float"}


@dataclass(frozen=True)
class Sum:
    """An einsum: the size of each index, and operands and result with a stride for each index that they have."""

    sizes: Mapping[str | int, int]
    operands: Sequence[tuple[Source, Mapping[str | int, int]]]
    result: Source
    result_indices: Sequence[str | int]

    @property
    def summed(self) -> list[str | int]:
        """The indices that the result does not have."""
        return [index for index in self.sizes if index not in self.result_indices]


def sum_of(task: Task) -> Sum:
    """The einsum of a task."""
    sources = [source_of(view) for view in task.operands if view is not None]
    terms, result = einsum_subscripts(task.node.attrs["equation"], [len(source.shape) for source in sources])
    sizes: dict[str | int, int] = {}
    operands: list[tuple[Source, Mapping[str | int, int]]] = []
    for source, term in zip(sources, terms, strict=True):
        strides: dict[str | int, int] = {}
        for index, size, stride in zip(term, source.shape, source.strides, strict=True):
            sizes[index] = max(sizes.get(index, 1), size) if size != 0 else 0
            strides[index] = strides.get(index, 0) + (stride if size != 1 else 0)  # a repeated index is a diagonal
        operands.append((source, strides))
    return Sum(sizes, operands, source_of(task.results[0]), result)


def lower_einsum(task: Task) -> Iterator[Candidate]:
    """The candidates of an einsum."""
    whole = sum_of(task)
    if len(whole.operands) == 2 and whole.result.dtype in _SUMS:
        yield from _as_matmul(whole, task)
    yield Candidate("loop", (_loop(whole),))


def _as_matmul(whole: Sum, task: Task) -> Iterator[Candidate]:
    (left, a), (right, b) = whole.operands
    made = set(whole.result_indices)
    inner = whole.summed
    if len(inner) > 1 or any(index not in a or index not in b for index in inner):
        return
    rows = [index for index in whole.result_indices if index in a and index not in b]
    columns = [index for index in whole.result_indices if index in b and index not in a]
    shared = [index for index in whole.result_indices if index in a and index in b]
    if not made <= {*rows, *columns, *shared}:
        return
    leading = [*shared, *rows[:-1], *columns[:-1]]
    d_strides = dict(zip(whole.result_indices, whole.result.strides, strict=True))

    def matrix(source: Source, strides: Mapping[str | int, int], last: Sequence[Sequence[str | int]]) -> Source:
        axes = [*([index] for index in leading), *last]
        shape = tuple(math.prod(whole.sizes[index] for index in axis) for axis in axes)
        steps = tuple(strides.get(axis[0], 0) if axis else 1 for axis in axes)
        return replace(source, shape=shape, strides=steps, constant=None)

    row, column = rows[-1:], columns[-1:]
    operands = gemm_operands(
        matrix(left, a, (row, inner)), matrix(right, b, (inner, column)), matrix(whole.result, d_strides, (row, column))
    )
    calls = cublaslt_calls(operands, CublasltEpilogue(task.node.output), task)
    if calls is not None:
        yield Candidate("cublaslt", calls, max(call.workspace_bytes for call in calls))
    launch = simt_gemm(operands, chip=task.chip)
    if launch is not None:
        yield Candidate("strided", (launch,))


def _loop(whole: Sum) -> KernelLaunch:
    threads = max(whole.result.size, 1)
    sources = [source for source, _ in whole.operands]
    return KernelLaunch(
        Kernel(_text(whole), (-(-threads // _THREADS), 1, 1), (_THREADS, 1, 1)),
        tuple(source.argument for source in (*sources, whole.result)),
        nbytes=sum(source.nbytes for source in (*sources, whole.result)),
        flops=2 * math.prod(whole.sizes.values()),
        may_overlap=True,
    )


def _text(whole: Sum) -> str:
    dtype = whole.result.dtype
    total = _SUMS.get(dtype, "u64")
    sources = [source for source, _ in whole.operands]
    index = index_type(whole.result, *sources)
    names = {each: f"i{number}" for number, each in enumerate(whole.sizes)}
    given = [names[each] for each in whole.result_indices]
    sizes = [whole.sizes[each] for each in whole.result_indices]
    loops = "\n  ".join(
        f"for (int {names[each]} = 0; {names[each]} < {whole.sizes[each]}; {names[each]}++)" for each in whole.summed
    )
    product = " * ".join(
        f"({total})get(x{number}[{offset_code([names[each] for each in strides], list(strides.values()))}])"
        for number, (_, strides) in enumerate(whole.operands)
    )
    parameters = [f"const {stored(source.dtype)}* x{number}" for number, source in enumerate(sources)]
    at = offset_code(given, whole.result.strides)
    return f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({", ".join(parameters)}, {stored(dtype)}* y) {{
  begin();
  {index} element = ({index})blockIdx.x * {_THREADS} + threadIdx.x;
  if (element >= {whole.result.size}) return;
  {split_index_code("element", given, sizes, index)}
  {total} sum = 0;
  {loops}
    sum += {product};
  put(y[{at}], ({computed(dtype)})sum);
}}
"""


LOWERINGS: Mapping[str, Lowering] = {"einsum": lower_einsum}
