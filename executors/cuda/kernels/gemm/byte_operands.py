"""Operands of 8 bits as tensor cores read them: the inner axis side by side, rows in whole pieces of 16 bytes."""

from .....ir.errors import UnsupportedError
from ...kernel_ir.copies import copied
from ...kernel_ir.launch import BufferPlace, Launch
from ...kernel_ir.sources import Source, view_of
from .matrix_layouts import packed_weight, transposed
from .operands import GemmOperands, gemm_operands
from .rewritten_regions import Scratch

PIECE = 16
"""Multiples of which sizes, strides and addresses of operands in bytes have to be."""


def byte_operands(
    a: Source, b: Source, d: Source, c: Source | None, scratch: Scratch
) -> tuple[GemmOperands, list[Launch]]:
    """The operands of a product with the inner axis side by side, and the copies of those that lie otherwise.

    Raises `UnsupportedError` when there is not enough scratch memory for a copy.
    """
    before: list[Launch] = []
    a = _along_inner(a, scratch, before)
    b = transposed(_along_inner(transposed(packed_weight(b)), scratch, before))
    return gemm_operands(a, b, d, c), before


def _along_inner(rows: Source, scratch: Scratch, before: list[Launch]) -> Source:
    """An operand [..., inner] as it is, or a copy of it."""
    if is_in_pieces(rows):
        return rows
    source = view_of(rows)
    made = scratch.take(rows.dtype, rows.shape)
    target = view_of(made)
    if source is None or target is None:
        raise UnsupportedError("a constant that is packed has no view")
    before += copied(source, target, scratch.task.chip)
    return made


def is_in_pieces(rows: Source) -> bool:
    """Whether elements of a row lie side by side, and each row begins at a multiple of 16 bytes."""
    itemsize = rows.dtype.numpy.itemsize
    outer = [stride * itemsize for size, stride in zip(rows.shape[:-1], rows.strides[:-1], strict=True) if size != 1]
    offset = rows.argument.offset if isinstance(rows.argument, BufferPlace) else 0
    return rows.strides[-1] == 1 and all(each % PIECE == 0 for each in (*outer, offset))
