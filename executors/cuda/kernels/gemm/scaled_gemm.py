"""GEMMs of numbers of 8 bits with a scale each: fp8 and i8 operands that are dequantized in the region of a GEMM.

cuBLASLt multiplies fp8 operands on tensor cores and applies both scales, which it reads in device memory, to the sum.
Sums of i8 are exact in i32, and a kernel behind the library's call applies the scales. Where neither fits, operands are
dequantized into scratch memory and multiplied as any others, and a remark says why.
https://docs.nvidia.com/cuda/cublas/#cublasltmatmul
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from .....ir.graph import Value
from .....ir.types import DType
from ...kernel_ir.launch import Argument, Candidate, Launch, Packed
from ...kernel_ir.sources import Source
from ..fused import lower_fused
from .cublaslt_calls import cublaslt_calls
from .cublaslt_epilogue import EPILOGUE_STEPS, CublasltEpilogue, epilogue_of, gemm_fits, lengthened
from .matmul import lower_matmul
from .operands import GemmOperands, matmul_operands
from .regions import AnchoredRegion, completed, made_in, next_step, static_shape
from .rewritten_regions import (
    PIECE,
    Scratch,
    byte_operands,
    is_in_pieces,
    scale_in_f32,
    with_operands_dequantized,
    within_scratch,
    without_matmul,
)

FIRST_FP8_ARCH = 89

_WITHOUT_ACTIVATION = frozenset({"bias", "residual"})


def lower_scaled(region: AnchoredRegion) -> Iterator[Candidate]:
    """The candidates of a region around a GEMM whose operands are dequantized in it."""
    problem = obstacle(region)
    by_library = [] if problem else _by_library(region)
    yield from by_library
    if not problem and not by_library:
        problem = "dequantized before a matmul: the library has none that lies so, or no scratch memory is left"
    yield from (replace(each, remark=problem) for each in within_scratch(_dequantized_first(region)))


def _by_library(region: AnchoredRegion) -> list[Candidate]:
    if _is_integer(region) or not all(operand.scale.size == 1 for operand in region.scaled.values()):
        return within_scratch(_scaled_behind(region))
    return [*within_scratch(_by_fp8(region)), *within_scratch(_apart(region))]


def _is_integer(region: AnchoredRegion) -> bool:
    return all(operand.codes.dtype.is_integer for operand in region.scaled.values())


def obstacle(region: AnchoredRegion) -> str:
    """Why the library cannot multiply the numbers as they are, empty if it can."""
    a, b, _ = matmul_operands(region)
    inner, columns = a.shape[-1], b.shape[-1] if len(b.shape) > 1 else 1
    if inner % PIECE or columns % PIECE or not inner:
        sizes = f"an inner axis of {inner} and {columns} columns"
        return f"dequantized before a matmul: {sizes} are not multiples of {PIECE}"
    if _is_integer(region):
        return ""
    if region.task.chip.arch < FIRST_FP8_ARCH:
        own = region.task.chip.arch / 10
        return f"dequantized before a matmul: fp8 takes compute capability {FIRST_FP8_ARCH / 10}, this is {own}"
    if a.dtype is b.dtype is DType.F8E5M2:
        return "dequantized before a matmul: there is none of two operands in f8e5m2"
    is_seen_in_f32 = any(value.tensor.dtype in (DType.F32, DType.F64) for value in region.results)
    if is_seen_in_f32 and not region.task.tf32:
        return "dequantized before a matmul: tensor cores sum fp8 in fewer bits than f32 has, so only from level=3 on"
    return ""


# ---- fp8


def _by_fp8(region: AnchoredRegion) -> Iterator[Candidate]:
    values: set[tuple[str, str]] = set()
    for name, steps in (("fp8", EPILOGUE_STEPS), ("fp8-linear", _WITHOUT_ACTIVATION)):
        epilogue = _epilogue(region, steps)
        if epilogue is None or (epilogue.value.name, epilogue.activation) in values:
            continue
        values.add((epilogue.value.name, epilogue.activation))
        yield from _in_one_call(name, region, epilogue)


def _epilogue(region: AnchoredRegion, steps: Collection[str]) -> CublasltEpilogue | None:
    """What one call takes along; None if the GEMM does something by itself that a call for fp8 cannot do.

    A result in f32 has no bias of its own dtype in the library, but it may be rounded right away.
    """
    if not gemm_fits(region):
        return None
    if region.anchor.output.tensor.dtype is not DType.F32:
        return _with_aligned_bias(epilogue_of(region, steps))
    found = epilogue_of(region, [step for step in steps if step != "bias"])
    if found.bias is not None:
        return None
    is_bare = found.value is region.anchor.output and found.residual is None
    rounded = next_step(region, found.value) if is_bare else None
    if rounded is None or not (rounded.op.name == "cast" and rounded.attrs["to"] in (DType.F16, DType.BF16)):
        return found
    return _with_aligned_bias(lengthened(region, replace(found, value=rounded.output), steps))


def _with_aligned_bias(epilogue: CublasltEpilogue) -> CublasltEpilogue | None:
    return epilogue if epilogue.bias is None or epilogue.bias.starts_a_piece else None


def _in_one_call(name: str, region: AnchoredRegion, epilogue: CublasltEpilogue) -> Iterator[Candidate]:
    made = made_in(region, epilogue.value)
    if made is None or not is_in_pieces(made.source):
        return
    if epilogue.residual is not None and not is_in_pieces(epilogue.residual):
        return
    scratch = Scratch(region.task, made.scratch_bytes)
    operands, before = _operands(region, made.source, epilogue.residual, scratch)
    scales = _scales(region, scratch, before)
    calls = cublaslt_calls(operands, epilogue, region.task, scratch.used, scales)
    if calls is not None:
        room = max(call.workspace_bytes for call in calls)
        yield from completed(name, region, made, (*before, *calls), scratch.used - made.scratch_bytes + room)


def _apart(region: AnchoredRegion) -> Iterator[Candidate]:
    """The GEMM alone by the library, and all that follows in a kernel."""
    scratch = Scratch(region.task)
    gemm = region.anchor.output
    total = scratch.take(gemm.tensor.dtype, static_shape(gemm))
    operands, before = _operands(region, total, None, scratch)
    scales = _scales(region, scratch, before)
    calls = cublaslt_calls(operands, CublasltEpilogue(gemm), region.task, scratch.used, scales)
    if calls is None:
        return
    room = max(call.workspace_bytes for call in calls)
    for rest in lower_fused(without_matmul(region, total, scratch, is_scaled=True)):
        used = scratch.used + max(room, rest.scratch_bytes)
        yield Candidate(f"fp8-apart+{rest.name}", (*before, *calls, *rest.launches), used)


def _scales(region: AnchoredRegion, scratch: Scratch, before: list[Launch]) -> dict[str, Argument]:
    """Both scales as f32 in device memory."""
    pairs = zip(("a_scale", "b_scale"), region.anchor.operands[:2], strict=True)
    return {role: _in_f32(region, operand, scratch, before) for role, operand in pairs}


def _in_f32(region: AnchoredRegion, operand: Value, scratch: Scratch, before: list[Launch]) -> Argument:
    scale = region.scaled[operand].scale
    if scale.constant is not None:
        return Packed(scale.constant, "cast", ("f32",))
    if scale.dtype is DType.F32:
        return scale.argument
    made, launches = scale_in_f32(region, operand, scratch)
    before += launches
    return made.argument


# ---- i8, and scales of rows and columns


def _scaled_behind(region: AnchoredRegion) -> Iterator[Candidate]:
    """The sum without scales, exact in i32 or in f32, then scales and all that follows in a kernel."""
    scratch = Scratch(region.task)
    gemm, is_integer = region.anchor.output, _is_integer(region)
    total = scratch.take(DType.I32 if is_integer else DType.F32, static_shape(gemm))
    operands, before = _operands(region, total, None, scratch)
    calls = cublaslt_calls(operands, CublasltEpilogue(gemm), region.task, scratch.used)
    if calls is None:
        return
    room = max(call.workspace_bytes for call in calls)
    name = "bytes" if is_integer else "fp8-unscaled"
    for rest in lower_fused(without_matmul(region, total, scratch, is_scaled=False)):
        used = scratch.used + max(room, rest.scratch_bytes)
        yield Candidate(f"{name}+{rest.name}", (*before, *calls, *rest.launches), used)


def _operands(
    region: AnchoredRegion, d: Source, c: Source | None, scratch: Scratch
) -> tuple[GemmOperands, list[Launch]]:
    a, b, _ = matmul_operands(region)
    return byte_operands(a, b, d, c, scratch)


# ---- otherwise


def _dequantized_first(region: AnchoredRegion) -> Iterator[Candidate]:
    """Both operands in the dtype of the result, in scratch memory, and then any candidate for the GEMM."""
    scratch = Scratch(region.task)
    task, before = with_operands_dequantized(region, scratch)
    for each in lower_matmul(task):
        used = scratch.used + each.scratch_bytes
        yield Candidate(f"dequantized+{each.name}", (*before, *each.launches), used)
