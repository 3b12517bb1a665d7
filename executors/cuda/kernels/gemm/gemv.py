"""Own kernels for products of few rows with a weight: `column_products.py`, or tensor cores (`split_k_gemm.py`).

cuBLASLt takes 5 us for such a product, of which reading the weight is a third.
"""

from collections.abc import Iterator, Mapping

from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.launch import Candidate, Lowering
from ...kernel_ir.sources import Source, source_of
from .column_products import Norm, column_product, column_tilings
from .operands import GemmOperands, gemm_operands, packed_weight, product_operands
from .pipelined_gemm import pipelined_gemm
from .pipelined_gemm import tilings as pipelined_tilings
from .regions import AnchoredRegion
from .split_k_gemm import fits, split_k_gemm, tilings
from .sum_epilogue import sum_epilogue

MAX_ROWS = {DType.F32: 8, DType.F16: 4, DType.BF16: 4}
"""How many rows a thread has sums of. `NORMED_ROWS` of `executors/cuda/programs.py` is none above these."""


def lower_few_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The whole region as one kernel, where the product is of few rows and the rest is pointwise."""
    epilogue = sum_epilogue(region)
    if epilogue is None or region.anchor.op.name not in ("matmul", "gemm"):
        return
    a, b, _ = product_operands(region)
    if len(a.shape) < 2 or len(b.shape) != 2:
        return
    operands = gemm_operands(a, packed_weight(b), source_of(region.task.results[0]))
    chip = region.task.chip
    if _fits_columns(operands):
        for columns in column_tilings(operands):
            yield Candidate(columns.name, (column_product(operands, epilogue, columns, chip),))
    if operands.a.shape[-2] > 16:
        return
    if fits(operands):
        for tiling in tilings(operands, chip):
            yield Candidate(tiling.name, (split_k_gemm(operands, epilogue, tiling, chip),))


def lower_normed_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The same for rows that the kernel norms itself: every block has whole rows in its hands."""
    epilogue = sum_epilogue(region)
    a, b, _ = product_operands(region)
    if epilogue is None or region.norm is None or len(a.shape) < 2 or len(b.shape) != 2:
        return
    operands = gemm_operands(a, packed_weight(b), source_of(region.task.results[0]))
    gain = region.sources[region.norm.operands[1]] if len(region.norm.operands) > 1 else None
    if _fits_columns(operands) and (gain is None or _fits_gain(gain, a)):
        norm = Norm(float(region.norm.attrs["epsilon"]), gain)
        partner = None if region.partner is None else packed_weight(region.sources[region.partner.operands[1]])
        name = "normed" if partner is None else "paired"
        for columns in column_tilings(operands):
            launch = column_product(operands, epilogue, columns, region.task.chip, norm, partner)
            yield Candidate(f"{name}-{columns.name}", (launch,))


def _fits_gain(gain: Source, a: Source) -> bool:
    return gain.dtype is a.dtype and gain.strides == (1,) and gain.starts_a_piece


def lower_some_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The whole region as one kernel, where the product is of some ten to some hundred rows."""
    epilogue = sum_epilogue(region)
    if epilogue is None or region.anchor.op.name not in ("matmul", "gemm"):
        return
    a, b, _ = product_operands(region)
    if len(a.shape) < 2 or len(b.shape) != 2:
        return
    operands = gemm_operands(a, packed_weight(b), source_of(region.task.results[0]))
    chip = region.task.chip
    for staged in pipelined_tilings(operands, chip):
        yield Candidate(staged.name, (pipelined_gemm(operands, epilogue, staged),))
    if fits(operands) and operands.a.shape[-2] > 16:
        for tiling in tilings(operands, chip):
            yield Candidate(tiling.name, (split_k_gemm(operands, epilogue, tiling, chip),))


def _fits_columns(operands: GemmOperands) -> bool:
    a, b = operands.a, operands.b
    piece = 16 // element_bytes(a.dtype)
    return (
        not operands.leading
        and 1 <= a.shape[-2] <= MAX_ROWS.get(a.dtype, 0)
        and a.shape[-1] % piece == 0
        and a.strides[-1] == 1
        and b.strides[-2] == 1
        and b.strides[-1] % piece == 0
        and (a.strides[-2] % piece == 0 or a.shape[-2] == 1)
        and a.starts_a_piece
        and b.starts_a_piece
    )


LOWERINGS: Mapping[str, Lowering] = {}
"""Products ask for these kernels themselves."""
