"""Own kernels for products of few rows with a weight: `column_products.py`, or tensor cores (`split_k_gemm.py`).

cuBLASLt takes 5 us for such a product, of which reading the weight is a third.
"""

from collections.abc import Iterator, Mapping

from .....ir.graph import Node
from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.launch import Candidate, Lowering
from ...kernel_ir.sources import Source, packed_weight, source_of
from .coded_mma import coded_mma, matrix_tilings
from .column_products import Norm, column_product, column_tilings
from .operands import GemmOperands, gemm_operands, product_operands
from .own_kernel_epilogue import OwnKernelEpilogue, own_kernel_epilogue
from .pipelined_gemm import pipelined_gemm
from .pipelined_gemm import tilings as pipelined_tilings
from .regions import AnchoredRegion
from .split_k_gemm import fits, split_k_gemm, tilings
from .weight_formats import ColumnWeight

MAX_ROWS = {DType.F32: 8, DType.F16: 4, DType.BF16: 4}
"""How many rows a thread has sums of. `NORMED_ROWS` of `executors/cuda/programs.py` is none above these."""


def lower_few_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The whole region as one kernel, where the product is of few rows and the rest is pointwise."""
    epilogue = own_kernel_epilogue(region)
    if epilogue is None or region.anchor.op.name not in ("matmul", "gemm"):
        return
    a, b, _ = product_operands(region)
    if len(a.shape) < 2 or len(b.shape) != 2:
        return
    operands = gemm_operands(a, packed_weight(b), source_of(region.task.results[0]))
    chip, weight = region.task.chip, ColumnWeight(operands.b)
    if _fits_columns(operands, weight):
        for columns in column_tilings(operands.a.shape[-2], weight, operands.b.shape[-1], chip):
            yield Candidate(columns.name, (column_product(operands, [weight], epilogue, columns, chip),))
    if operands.a.shape[-2] > 16:
        return
    if fits(operands):
        for tiling in tilings(operands, chip):
            yield Candidate(tiling.name, (split_k_gemm(operands, epilogue, tiling, chip),))


def lower_normed_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The same for rows that the kernel norms itself: every block has whole rows in its hands."""
    epilogue = own_kernel_epilogue(region)
    a, b, _ = product_operands(region)
    if epilogue is None or region.norm is None or len(a.shape) < 2 or len(b.shape) != 2:
        return
    gain = region.sources[region.norm.operands[1]] if len(region.norm.operands) > 1 else None
    if gain is None or _fits_gain(gain, a):
        norm = Norm(float(region.norm.attrs["epsilon"]), gain)
        yield from _by_columns(region, epilogue, norm)


def lower_coded_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The same for a weight whose codes are read as they are and multiplied with their scales in registers."""
    if region.norm is not None:
        yield from lower_normed_rows(region)
        return
    epilogue = own_kernel_epilogue(region)
    a, b, _ = product_operands(region)
    if epilogue is not None and len(a.shape) > 1 and len(b.shape) == 2:
        yield from _by_columns(region, epilogue, None)


def _by_columns(region: AnchoredRegion, epilogue: OwnKernelEpilogue, norm: Norm | None) -> Iterator[Candidate]:
    products = [region.anchor] if region.partner is None else [region.anchor, region.partner]
    found = [_weight_of(region, product) for product in products]
    weights = [weight for weight in found if weight is not None]
    if len(weights) < len(products):
        return
    a, _, _ = product_operands(region)
    operands = gemm_operands(a, weights[0].codes, source_of(region.task.results[0]))
    if not _fits_columns(operands, *weights):
        return
    name = "" if norm is None else "normed-" if len(weights) == 1 else "paired-"
    count = len(weights) * operands.b.shape[-1]
    for columns in column_tilings(operands.a.shape[-2], weights[0], count, region.task.chip):
        launch = column_product(operands, weights, epilogue, columns, region.task.chip, norm)
        yield Candidate(f"{name}{columns.name}{weights[0].suffix}", (launch,))
    for tiling in matrix_tilings(operands, weights[0]):
        launch = coded_mma(operands, weights, epilogue, tiling, region.task.chip, norm)
        yield Candidate(f"{name}{tiling.name}{weights[0].suffix}", (launch,))


def _weight_of(region: AnchoredRegion, product: Node) -> ColumnWeight | None:
    """The right operand with its columns in one piece each, None where it cannot lie so."""
    value = product.operands[1]
    weight = region.coded.get(value) or ColumnWeight(region.sources[value])
    is_turned = product.op.name == "gemm" and product.attrs["trans_b"]
    return (weight.permuted((1, 0)) if is_turned else weight).packed()


def _fits_gain(gain: Source, a: Source) -> bool:
    return gain.dtype is a.dtype and gain.strides == (1,) and gain.starts_a_piece


def lower_some_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The whole region as one kernel, where the product is of some ten to some hundred rows."""
    epilogue = own_kernel_epilogue(region)
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


def _fits_columns(operands: GemmOperands, *weights: ColumnWeight) -> bool:
    a = operands.a
    piece = 16 // element_bytes(a.dtype)
    return (
        not operands.leading
        and 1 <= a.shape[-2] <= MAX_ROWS.get(a.dtype, 0)
        and a.shape[-1] % piece == 0
        and a.strides[-1] == 1
        and len({weight.format for weight in weights}) == 1
        and all(weight.fits and weight.codes.starts_a_piece for weight in weights)
        and (weights[0].scale is not None or weights[0].dtype is a.dtype)
        and (a.strides[-2] % piece == 0 or a.shape[-2] == 1)
        and a.starts_a_piece
    )


LOWERINGS: Mapping[str, Lowering] = {}
"""Products ask for these kernels themselves."""
