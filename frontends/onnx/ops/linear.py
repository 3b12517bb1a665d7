"""Matmuls."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ....ir.constant import Array
from ....ir.graph import Node, Origin, Value
from ....ir.types import DType
from ..context.export_context import ExportContext, Operand
from ..context.import_context import ImportContext, NotNative
from .rows import export_as, import_as

_CODES = {4: DType.U4, 8: DType.U8}


def import_matmul_nbits(ctx: ImportContext) -> Value:
    """MatMulNBits: [.., K] times a weight [K, N], with a scale, and maybe a zero point, for each block of a column.

    B is u8 [N, blocks, bytes of a block], the first of two numbers in the low half; zero points are packed alike, and
    half of the range where they are left out. The operator stays foreign for weights that are not known and for columns
    in another order (`g_idx`). For ONNX Runtime it goes out as itself again (`contrib/block_matmuls.py`).
    """
    inner, columns, bits, block = (int(ctx.attr(name, default)) for name, default in _ATTRIBUTES)
    packed, scales, zeros = ctx.array(1), ctx.array(2), ctx.optional(3)
    zero = None if zeros is None else ctx.array(3)
    is_known = packed is not None and scales is not None and (zeros is None or zero is not None)
    if not is_known or packed is None or scales is None or ctx.optional(4) is not None or bits not in _CODES:
        raise NotNative("weights that are not known, or lie in another order")
    if zero is not None and zero.dtype != np.uint8:
        raise NotNative("zero points that are floats")
    blocks = -(-inner // block)
    codes = _numbers(packed.reshape(columns, -1), bits)[:, :inner]
    low = np.full((columns, blocks), 1 << bits - 1, np.uint8) if zero is None else _rows(zero, columns, blocks, bits)
    dtype, bias = _CODES[bits], ctx.optional(5)
    ctx.origin = marked(ctx.origin, BlockMark(int(ctx.attr("accuracy_level", 0)), bias is not None))
    weight = ctx.op(
        "dequantize_linear",
        ctx.constant(np.ascontiguousarray(codes.T).view(dtype.numpy), dtype),
        ctx.constant(np.ascontiguousarray(scales.reshape(columns, blocks).T), DType.of(scales.dtype)),
        ctx.constant(np.ascontiguousarray(low.T).view(dtype.numpy), dtype),
        to=ctx.tensor(0).dtype,
        axis=0,
        block_size=block,
    )
    matmul = ctx.op("matmul", ctx.input(0), weight)
    return matmul if bias is None else ctx.op("add", matmul, bias)


_ATTRIBUTES = (("K", 0), ("N", 0), ("bits", 4), ("block_size", 0))


def _numbers(packed: Array, bits: int) -> Array:
    """Rows of bytes as rows of numbers, one to a byte."""
    if bits == 8:
        return packed
    return np.stack((packed & 15, packed >> 4), -1).reshape(packed.shape[0], -1)


def _rows(zero: Array, columns: int, blocks: int, bits: int) -> Array:
    """Zero points [N, blocks]; a row that ends within a byte leaves the rest of it."""
    return _numbers(zero.reshape(columns, -1), bits)[:, :blocks]


_KEY = "com.microsoft.MatMulNBits"
_BIAS = "Bias"


class BlockMark(NamedTuple):
    """What nodes that are imported from MatMulNBits do not say of it, kept in their metadata: in files too.

    The level of accuracy that was asked for (0: none, floats), and whether the operator had a bias.
    """

    accuracy: int = 0
    has_bias: bool = False


def marked(origin: Origin | None, mark: BlockMark) -> Origin:
    """`origin` with a mark, in the place of any that it has."""
    origin = origin or Origin()
    others = (entry for entry in origin.metadata if entry[0] != _KEY)
    text = f"{mark.accuracy} {_BIAS}" if mark.has_bias else str(mark.accuracy)
    return replace(origin, metadata=(*others, (_KEY, text)))


def mark_of(node: Node) -> BlockMark | None:
    """The mark of a node; None without one, or with one that somebody else has written."""
    words = dict(node.origin.metadata).get(_KEY, "").split() if node.origin is not None else []
    is_ours = bool(words) and words[0].isdecimal() and words[1:] in ([], [_BIAS])
    return BlockMark(int(words[0]), len(words) > 1) if is_ours else None


IMPORTS = {
    "MatMul": import_as("matmul"),
    "Gemm": import_as("gemm", "alpha", "beta", transA="trans_a", transB="trans_b"),
    "Einsum": import_as("einsum", "equation"),
    "MatMulInteger": import_as("matmul_integer"),
    "QLinearMatMul": import_as("qlinear_matmul"),
    "Det": import_as("det"),
    "com.microsoft.MatMulNBits": import_matmul_nbits,
}


def export_gemm(ctx: ExportContext, node: Node) -> None:
    """Gemm; without an addend, which opsets before 11 require, `beta` means nothing."""
    a, b, addend = node.inputs
    attrs = node.attrs
    beta = attrs["beta"] if addend is not None else None
    c: Operand = addend
    if addend is None and ctx.opset < 11:
        c = ctx.constant(0, node.output.tensor.dtype)
    ctx.emit(
        "Gemm", (a, b, c), node.outputs,
        alpha=attrs["alpha"], beta=beta, transA=attrs["trans_a"], transB=attrs["trans_b"],
    )  # fmt: skip


EXPORTS = {
    "matmul": export_as("MatMul"),
    "gemm": export_gemm,
    "einsum": export_as("Einsum", "equation"),
    "matmul_integer": export_as("MatMulInteger"),
    "qlinear_matmul": export_as("QLinearMatMul"),
    "det": export_as("Det"),
}
