"""GEMMs of quantized tensors as one op: cuBLASLt for i8 without zero points, own kernels for the rest.

GemmOperands that are dequantized by ops of their own are those of `scaled_gemm.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from .....ir.plan import contiguous_strides
from .....ir.types import DType
from ...kernel_ir.launch import Candidate, Kernel, KernelLaunch, Launch, LibraryCall, Lowering, Packed, Task
from ...kernel_ir.sources import Source, source_of
from ..fused import lower_fused
from .cublaslt_calls import cublaslt_calls
from .cublaslt_epilogue import CublasltEpilogue
from .operands import GemmOperands
from .own_kernel_epilogue import broadcast_to
from .quantization import Quantization
from .regions import region_of
from .rewritten_regions import (
    PIECE,
    Scratch,
    byte_operands,
    is_in_pieces,
    quantized_again,
    signed_bytes,
    within_scratch,
)
from .simt_gemm import simt_gemm

_THREADS = 256


def lower_matmul_integer(task: Task) -> Iterator[Candidate]:
    """The GEMM of bytes in i32."""
    a, b, a_zero, b_zero = _sources(task, 4)
    assert a is not None
    assert b is not None
    d = source_of(task.results[0])
    if a.dtype is b.dtype is DType.I8 and _is_zero(a_zero) and _is_zero(b_zero):
        yield from within_scratch(_by_cublaslt(task, a, b))
    if (a.dtype, b.dtype) == (DType.U8, DType.I8) and _is_zero(b_zero) and _fits_rows(a_zero, a):
        yield from within_scratch(_as_signed_bytes(task, a, b))
    given = {"a_zero": _per_row(a_zero), "b_zero": b_zero}
    yield from _by_strides(task, a, b, d, given)


def lower_qlinear_matmul(task: Task) -> Iterator[Candidate]:
    """The GEMM of quantized matrices, quantized again."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = _sources(task, 8)
    assert a is not None
    assert b is not None
    is_integer = task.results[0].dtype in (DType.I8, DType.U8)
    if is_integer and a.dtype is b.dtype is DType.I8 and _is_zero(a_zero) and _is_zero(b_zero):
        yield from within_scratch(_summed_and_quantized(task, a, b))
    given = {
        "a_zero": _per_row(a_zero),
        "b_zero": b_zero,
        "a_scale": _per_row(a_scale),
        "b_scale": b_scale,
        "y_scale": _per_row(y_scale),
        "y_zero": _per_row(y_zero),
    }
    yield from _by_strides(task, a, b, source_of(task.results[0]), given)


def _sources(task: Task, count: int) -> list[Source | None]:
    found = [
        source_of(view, task.constants.get(index)) if view is not None else None
        for index, view in enumerate(task.operands)
    ]
    return [*found, *[None] * (count - len(found))]


def _is_zero(zero: Source | None) -> bool:
    return zero is None or (zero.constant is not None and not zero.constant.array.any())


def _per_row(parameter: Source | None) -> Source | None:
    """A vector [M] as [M, 1]."""
    if parameter is None or len(parameter.shape) != 1 or parameter.size == 1:
        return parameter
    return replace(parameter, shape=(*parameter.shape, 1), strides=(*parameter.strides, 0))


def _by_strides(task: Task, a: Source, b: Source, d: Source, given: Mapping[str, Source | None]) -> Iterator[Candidate]:
    if 1 in (len(a.shape), len(b.shape)):
        return
    sources = {name: source for name, source in given.items() if source is not None}
    leading = d.shape[:-2]
    operands = GemmOperands(broadcast_to(a, (*leading, *a.shape[-2:])), broadcast_to(b, (*leading, *b.shape[-2:])), d)
    launch = simt_gemm(operands, chip=task.chip, quantization=Quantization((a.dtype, b.dtype), sources))
    if launch is not None:
        yield Candidate("strided", (launch,))


# ---- cuBLASLt


def _by_cublaslt(task: Task, a: Source, b: Source) -> Iterator[Candidate]:
    d = source_of(task.results[0])
    scratch = Scratch(task)
    launches = _sum(a, b, d, scratch) if is_in_pieces(d) else ()
    if launches:
        yield Candidate("cublaslt", launches, scratch.used + _workspace(launches))


def _fits_rows(zero: Source | None, a: Source) -> bool:
    """Whether it is one zero point, or a vector with one for each row of a matrix."""
    return zero is None or zero.size == 1 or (len(zero.shape) == 1 and len(a.shape) == 2)


def _as_signed_bytes(task: Task, a: Source, b: Source) -> Iterator[Candidate]:
    """u8 less 128 is i8; what that takes from each sum is a multiple of the sums of the weight's columns."""
    d, region, weight = source_of(task.results[0]), region_of(task), b.constant
    if region is None or weight is None or not weight.is_at_hand or len(b.shape) != 2 or b.shape != weight.shape:
        return
    if d.strides != contiguous_strides(d.shape, 1) or not is_in_pieces(d) or len(a.shape) < 2:
        return
    scratch = Scratch(task)
    made = scratch.take(DType.I8, a.shape)
    before = signed_bytes(region, task.node.operands[0], made)
    launches = _sum(made, b, d, scratch)
    if launches:
        zero = _sources(task, 4)[2]
        behind = _brought_back(d, Packed(weight, "column_sums"), zero)
        yield Candidate("cublaslt-signed", (*before, *launches, behind), scratch.used + _workspace(launches))


def _brought_back(d: Source, sums: Packed, zero: Source | None) -> KernelLaunch:
    """Adds what was taken off: (128 - zero point) times the sum of the column."""
    columns = d.shape[-1]
    row = f"i / {columns}u" if zero is not None and zero.size != 1 else "0u"
    taken = "0" if zero is None else f"(int)zero[({row}) * {zero.strides[0] if zero.shape else 1}u]"
    parameters = "int* d, const int* __restrict__ sums" + (", const unsigned char* zero" if zero is not None else "")
    text = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({parameters}) {{
  begin();
  const u64 i = (u64)blockIdx.x * {_THREADS} + threadIdx.x;
  if (i >= {d.size}u) return;
  d[i] += (128 - {taken}) * sums[i % {columns}u];
}}
"""
    arguments = (d.argument, sums) if zero is None else (d.argument, sums, zero.argument)
    grid = (-(-d.size // _THREADS), 1, 1)
    return KernelLaunch(Kernel(text, grid, (_THREADS, 1, 1)), arguments, 2 * d.nbytes, 2 * d.size, may_overlap=True)


def _summed_and_quantized(task: Task, a: Source, b: Source) -> Iterator[Candidate]:
    """The exact sum in scratch memory, and a kernel that quantizes it."""
    scratch = Scratch(task)
    total = scratch.take(DType.I32, task.results[0].shape)
    launches = _sum(a, b, total, scratch)
    region = region_of(task)
    if not launches or region is None:
        return
    for rest in lower_fused(quantized_again(region, total, scratch)):
        used = scratch.used + max(_workspace(launches), rest.scratch_bytes)
        yield Candidate(f"cublaslt+{rest.name}", (*launches, *rest.launches), used)


def _sum(a: Source, b: Source, d: Source, scratch: Scratch) -> tuple[Launch, ...]:
    """The launches that make `d`; none where the library has no such GEMM."""
    if 1 in (len(a.shape), len(b.shape)) or a.shape[-1] % PIECE or b.shape[-1] % PIECE:
        return ()
    operands, before = byte_operands(a, b, d, None, scratch)
    calls = cublaslt_calls(operands, CublasltEpilogue(scratch.task.node.output), scratch.task, scratch.used)
    return () if calls is None else (*before, *calls)


def _workspace(launches: Iterable[Launch]) -> int:
    return max(launch.workspace_bytes for launch in launches if isinstance(launch, LibraryCall))


LOWERINGS: Mapping[str, Lowering] = {
    "matmul_integer": lower_matmul_integer,
    "qlinear_matmul": lower_qlinear_matmul,
}
