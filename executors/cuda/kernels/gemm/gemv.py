"""Own kernels for matmuls of few rows with a weight: `column_gemv.py`, or tensor cores (`few_rows/`).

cuBLASLt takes 5 us for such a matmul, of which reading the weight is a third.
"""

from collections.abc import Iterator, Mapping, Sequence

from .....ir.graph import Node
from .....ir.ops.known import LAYER_NORM
from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.launch import Candidate, Chip, Lowering
from ...kernel_ir.sources import Source, packed_weight, source_of
from .coded_mma import coded_mma, matrix_tilings
from .column_gemv import column_gemv, column_tilings
from .few_rows.row_gemm import LEAST_ROWS, MOST_ROWS, row_gemm
from .operands import GemmOperands, gemm_operands, matmul_operands
from .own_kernel_epilogue import OwnKernelEpilogue, own_kernel_epilogue
from .pipelined_gemm import pipelined_gemm
from .pipelined_gemm import tilings as pipelined_tilings
from .regions import AnchoredRegion
from .row_norms import Norm
from .split_k_gemm import fits, split_k_gemm, tilings
from .weight_formats import ColumnWeight

MAX_ROWS = {DType.F32: 8, DType.F16: 4, DType.BF16: 4}
"""How many rows a thread has sums of. `NORMED_ROWS` of `executors/cuda/programs.py` is none above these."""


def lower_few_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The whole region as one kernel, where the matmul is of few rows and the rest is pointwise."""
    epilogue = own_kernel_epilogue(region)
    if epilogue is None or region.anchor.op.name not in ("matmul", "gemm"):
        return
    a, b, _ = matmul_operands(region)
    if len(a.shape) < 2 or len(b.shape) != 2:
        return
    operands = gemm_operands(a, packed_weight(b), source_of(region.task.results[0]))
    chip, weight = region.task.chip, ColumnWeight(operands.b)
    if _fits_columns(operands, MAX_ROWS, weight):
        for columns in column_tilings(operands.a.shape[-2], weight, operands.b.shape[-1], chip):
            yield Candidate(columns.name, (column_gemv(operands, [weight], epilogue, columns, chip),))
    yield from _by_rows(operands, [weight], epilogue, chip)
    if operands.a.shape[-2] > 16:
        return
    if fits(operands):
        for tiling in tilings(operands, chip):
            yield Candidate(tiling.name, (split_k_gemm(operands, epilogue, tiling, chip),))


def lower_normed_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The same for rows that the kernel norms itself: every block has whole rows in its hands."""
    epilogue = own_kernel_epilogue(region)
    a, b, _ = matmul_operands(region)
    if epilogue is None or region.norm is None or len(a.shape) < 2 or len(b.shape) != 2:
        return
    norm = _norm_of(region, region.norm)
    if all(_fits_piece(source, a) for source in norm.affine.values()):
        yield from _by_columns(region, epilogue, norm)


def _norm_of(region: AnchoredRegion, node: Node) -> Norm:
    gain, bias = (region.sources[value] if value is not None else None for value in (*node.inputs, None, None)[1:3])
    return Norm(float(node.attrs["epsilon"]), gain, bias, is_centered=node.op is LAYER_NORM)


def lower_coded_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The same for a weight whose codes are read as they are and multiplied with their scales in registers."""
    if region.norm is not None:
        yield from lower_normed_rows(region)
        return
    epilogue = own_kernel_epilogue(region)
    a, b, _ = matmul_operands(region)
    if epilogue is not None and len(a.shape) > 1 and len(b.shape) == 2:
        yield from _by_columns(region, epilogue, None)


def _by_columns(region: AnchoredRegion, epilogue: OwnKernelEpilogue, norm: Norm | None) -> Iterator[Candidate]:
    matmuls = [region.anchor] if region.partner is None else [region.anchor, region.partner]
    found = [_weight_of(region, matmul) for matmul in matmuls]
    weights = [weight for weight in found if weight is not None]
    if len(weights) < len(matmuls):
        return
    a, _, _ = matmul_operands(region)
    operands = gemm_operands(a, weights[0].codes, source_of(region.task.results[0]))
    name = "" if norm is None else "normed-" if len(weights) == 1 else "paired-"
    if not _fits_columns(operands, MAX_ROWS, *weights):
        yield from _by_rows(operands, weights, epilogue, region.task.chip, norm, name)
        return
    count = len(weights) * operands.b.shape[-1]
    for columns in column_tilings(operands.a.shape[-2], weights[0], count, region.task.chip):
        launch = column_gemv(operands, weights, epilogue, columns, region.task.chip, norm)
        yield Candidate(f"{name}{columns.name}{weights[0].suffix}", (launch,))
    for tiling in () if norm is not None and norm.is_centered else matrix_tilings(operands, weights[0]):
        launch = coded_mma(operands, weights, epilogue, tiling, region.task.chip, norm)
        yield Candidate(f"{name}{tiling.name}{weights[0].suffix}", (launch,))
    yield from _by_rows(operands, weights, epilogue, region.task.chip, norm, name)


def _by_rows(
    operands: GemmOperands,
    weights: Sequence[ColumnWeight],
    epilogue: OwnKernelEpilogue,
    chip: Chip,
    norm: Norm | None = None,
    name: str = "",
) -> Iterator[Candidate]:
    """On tensor cores, with a weight that is no codes; of norms that do not center rows."""
    is_centered = norm is not None and norm.is_centered
    if operands.a.shape[-2] < LEAST_ROWS or weights[0].scale is not None or is_centered:
        return
    if _fits_columns(operands, {DType.F16: MOST_ROWS, DType.BF16: MOST_ROWS}, *weights):
        for tiling, launch in row_gemm(operands, weights, epilogue, chip, norm):
            yield Candidate(f"{name}{tiling}", (launch,))


def _weight_of(region: AnchoredRegion, matmul: Node) -> ColumnWeight | None:
    """The right operand with its columns in one piece each, None where it cannot lie so."""
    value = matmul.operands[1]
    weight = region.coded.get(value) or ColumnWeight(region.sources[value])
    is_turned = matmul.op.name == "gemm" and matmul.attrs["trans_b"]
    return (weight.permuted((1, 0)) if is_turned else weight).packed()


def _fits_piece(source: Source, a: Source) -> bool:
    """Whether a gain or bias is read as the rows are."""
    is_vector = source.shape == a.shape[-1:] and source.strides == (1,)
    return source.dtype is a.dtype and is_vector and source.starts_a_piece


def lower_some_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The whole region as one kernel, where the matmul is of some ten to some hundred rows."""
    epilogue = own_kernel_epilogue(region)
    if epilogue is None or region.anchor.op.name not in ("matmul", "gemm"):
        return
    a, b, _ = matmul_operands(region)
    if len(a.shape) < 2 or len(b.shape) != 2:
        return
    operands = gemm_operands(a, packed_weight(b), source_of(region.task.results[0]))
    chip = region.task.chip
    for staged in pipelined_tilings(operands, chip):
        yield Candidate(staged.name, (pipelined_gemm(operands, epilogue, staged),))
    if fits(operands) and operands.a.shape[-2] > 16:
        for tiling in tilings(operands, chip):
            yield Candidate(tiling.name, (split_k_gemm(operands, epilogue, tiling, chip),))


def _fits_columns(operands: GemmOperands, most_rows: Mapping[DType, int], *weights: ColumnWeight) -> bool:
    a = operands.a
    piece = 16 // element_bytes(a.dtype)
    return (
        not operands.leading
        and 1 <= a.shape[-2] <= most_rows.get(a.dtype, 0)
        and a.shape[-1] % piece == 0
        and a.strides[-1] == 1
        and len({weight.format for weight in weights}) == 1
        and all(weight.fits and weight.codes.starts_a_piece for weight in weights)
        and (weights[0].scale is not None or weights[0].dtype is a.dtype)
        and (a.strides[-2] % piece == 0 or a.shape[-2] == 1)
        and a.starts_a_piece
    )


LOWERINGS: Mapping[str, Lowering] = {}
"""Matmuls ask for these kernels themselves."""
