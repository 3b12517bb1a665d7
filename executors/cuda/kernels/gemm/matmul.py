"""Matmuls: `matmul`, `gemm`, and regions around them, by cuBLASLt, own kernels for few rows, or strides.

Constant weights [K, N] are packed once as [N, K]: rows of a weight are then read in one piece by a kernel for few rows,
and it is the layout that tensor cores are fed from directly.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from .....ir.graph import Node
from .....ir.types import DType
from ...kernel_ir.launch import Candidate, Lowering, Task
from ...kernel_ir.sources import Source, packed_weight
from .cublaslt_calls import cublaslt_calls
from .cublaslt_epilogue import epilogue_of, gemm_fits
from .exact_gemm import lower_exactly
from .gemm_copies import lower_between_copies
from .gemv import lower_coded_rows, lower_few_rows, lower_normed_rows, lower_some_rows
from .operands import gemm_operands, matmul_operands
from .regions import AnchoredRegion, completed, made_in, paired_region_of, region_of, static_shape
from .rewritten_regions import Scratch, with_rows_normed, within_scratch
from .simt_gemm import simt_gemm

NARROW = 1024
"""Up to how many columns own kernels beat a single call of cuBLASLt at some ten to some hundred rows."""


def lower_matmul(task: Task) -> Iterator[Candidate]:
    """A matmul or gemm, alone or with what follows it in a `fused` region."""
    paired = paired_region_of(task)
    if paired is not None:
        yield from lower_normed_rows(paired)
        return
    region = region_of(task)
    if region is None or region.anchor.op.name not in ("matmul", "gemm"):
        return
    if region.coded:
        yield from lower_coded_rows(region)
        return
    if region.scaled:
        from .scaled_gemm import lower_scaled

        yield from lower_scaled(region)
        return
    yield from lower_region(region)


def lower_region(region: AnchoredRegion) -> Iterator[Candidate]:
    """A region around a matmul or gemm whose operands lie in memory as they are multiplied."""
    if region.norm is not None:
        yield from list(lower_normed_rows(region)) or within_scratch(_normed_first(region, region.norm))
        return
    yield from lower_few_rows(region)
    some = [*lower_some_rows(region), *lower_exactly(region)]
    by_cublaslt = list(_by_cublaslt(region))
    is_narrow = static_shape(region.anchor.output)[-1:] <= (NARROW,)
    is_split = any(len(each.launches) > 1 for each in by_cublaslt[:1])
    yield from (*some, *by_cublaslt) if is_narrow or is_split else (*by_cublaslt, *some)
    yield from _by_strides(region)


def _normed_first(region: AnchoredRegion, norm: Node) -> Iterator[Candidate]:
    """For rows that the kernel by columns does not read: in f64, or of sizes that are no whole pieces."""
    scratch = Scratch(region.task)
    task, before = with_rows_normed(region, norm, scratch)
    for each in lower_matmul(task):
        launches = (*before, *each.launches)
        yield replace(
            each, name=f"norm+{each.name}", launches=launches, scratch_bytes=scratch.used + each.scratch_bytes
        )


def _by_cublaslt(region: AnchoredRegion) -> Iterator[Candidate]:
    if not gemm_fits(region):
        return
    epilogue = epilogue_of(region)
    made = made_in(region, epilogue.value)
    if made is None:
        return
    a, b, _ = matmul_operands(region)
    packed = packed_weight(b)
    candidates = {"cublaslt": packed}
    if packed is not b and a.dtype is DType.F32:
        candidates["cublaslt-rows"] = b
    for name, weight in candidates.items():
        operands = gemm_operands(a, weight, made.source, epilogue.residual)
        calls = cublaslt_calls(operands, epilogue, region.task, made.scratch_bytes)
        if calls is not None:
            room = max(call.workspace_bytes for call in calls)
            yield from completed(name, region, made, calls, room)
    yield from lower_between_copies(region)


def _by_strides(region: AnchoredRegion) -> Iterator[Candidate]:
    made = made_in(region, region.anchor.output)
    if made is None:
        return
    a, b, c = matmul_operands(region)
    alpha, beta = 1.0, 1.0
    if region.anchor.op.name == "gemm":
        alpha, beta = region.anchor.attrs["alpha"], region.anchor.attrs["beta"]
    launch = simt_gemm(gemm_operands(a, b, made.source, _addend(c, made.source)), alpha, beta, region.task.chip)
    if launch is None:
        return
    yield from completed("strided", region, made, (launch,))


def _addend(c: Source | None, d: Source) -> Source | None:
    """The addend of a gemm, broadcast to the result by strides of 0."""
    if c is None:
        return None
    missing = len(d.shape) - len(c.shape)
    strides = (*(0,) * missing, *c.strides)
    shape = (*(1,) * missing, *c.shape)
    moved = tuple(0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True))
    return replace(c, shape=d.shape, strides=moved)


LOWERINGS: Mapping[str, Lowering] = dict.fromkeys(("matmul", "gemm", "fused"), lower_matmul)
