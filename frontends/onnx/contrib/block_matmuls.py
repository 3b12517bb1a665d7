"""MatMulNBits: a matmul with a constant weight that is dequantized in blocks, and the bias that is added to it.

Left as DequantizeLinear and MatMul, ONNX Runtime joins the two by itself, also where a column or all have one scale,
and then rounds the other operand to 8 bits.
Here it computes with floats, unless the model that the graph came from has such a node and asked for less: an operator
that is imported leaves a mark on its nodes. Only a mark brings weights of 8 bits back as well: ONNX Runtime takes 30
times as long for a row of floats by those.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ....ir.analysis.contents import any_constant_of
from ....ir.constant import Array, Constant
from ....ir.graph import Node, Value
from ....ir.ops.rules import normal_axis
from ....ir.types import DType, Kind
from ..context.export_context import ExportContext, Operand
from ..ops.linear import BlockMark, mark_of
from .group import DOMAIN, Group, Operator, have_equal_shapes, is_vector, sole_producer

_NAME, _BIAS = "MatMulNBits", "Bias"
_DTYPES = (DType.F32, DType.F16)
_CODES = frozenset((DType.U4, DType.I4, DType.U8, DType.I8))
_LEAST_BLOCK = 16
_OWN_BLOCK = 32  # as ONNX Runtime has it where a column has one scale
_MATRIX = 2  # axes

OPERATORS = frozenset(Operator(_NAME, dtype, kind) for dtype in _DTYPES for kind in ("", _BIAS))

SINCE = dict.fromkeys((Operator(_NAME, dtype, _BIAS) for dtype in _DTYPES), 22)
"""The bias, from the first opset that only versions take which have it: 1.17 refuses it, 1.20 has it."""


@dataclass(frozen=True)
class _Product:
    """`x` times what `back` dequantizes, by the node `matmul`, plus a bias."""

    matmul: Node
    back: Node
    bias: Value | None


def block_matmul(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """MatMulNBits for a matmul, for a gemm, or for the sum of a matmul and a vector."""
    found = _biased(node) if node.op.name == "add" else _product(node)
    if found is None or not _is_in_blocks(found.back):
        return None
    matmul, back, bias = found.matmul, found.back, found.bias
    mark = mark_of(back) or BlockMark()
    x, dtype = matmul.operands[0], node.output.tensor.dtype
    may_add = mark.has_bias or Operator(_NAME, dtype, _BIAS) in available
    if Operator(_NAME, dtype) not in available or (node.op.name == "add" and not may_add):
        return None
    if any(each.tensor.dtype is not dtype for each in (x, back.operands[1], back.output)):
        return None

    def write(ctx: ExportContext) -> None:
        operands, attributes = _packed(ctx, back)
        inputs = (x, *operands, None, bias if may_add else None)
        more = {**attributes, "accuracy_level": mark.accuracy or None}
        if bias is None or may_add:
            ctx.emit(_NAME, inputs, node.outputs, domain=DOMAIN, **more)
        else:
            ctx.emit("Add", (ctx.emit_value(_NAME, inputs, domain=DOMAIN, **more), bias), node.outputs)

    return Group(node, frozenset({matmul, back} - {node}), node.outputs, write)


def dequantizes_blocks(value: Value) -> bool:
    """Whether a matmul with this on the right may become the operator."""
    back = sole_producer(value, "dequantize_linear")
    return back is not None and _is_in_blocks(back)


def _biased(node: Node) -> _Product | None:
    for value, bias in (node.operands, node.operands[::-1]):
        matmul = sole_producer(value, "matmul")
        found = None if matmul is None else _product(matmul)
        if found is not None and is_vector(bias, node.output.shape[-1]) and have_equal_shapes(value, node.output):
            return replace(found, bias=bias)
    return None


def _product(node: Node) -> _Product | None:
    x, weight, *more = node.inputs
    if x is None or weight is None or x.tensor.rank < _MATRIX or weight.tensor.rank != _MATRIX:
        return None
    bias = more[0] if more else None
    attrs = node.attrs
    if node.op.name == "gemm":
        is_plain = not attrs["trans_a"] and not attrs["trans_b"] and attrs["alpha"] == 1
        is_added = bias is None or (attrs["beta"] == 1 and is_vector(bias, node.output.shape[-1]))
        if not is_plain or not is_added:
            return None
    back = sole_producer(weight, "dequantize_linear")
    return None if back is None else _Product(node, back, bias)


def _is_in_blocks(back: Node) -> bool:
    """Whether a node dequantizes a constant matrix [K, N] with a scale, and maybe a zero point, for blocks of columns.

    ONNX Runtime takes blocks of 16 and more, in powers of 2.
    """
    codes, block = back.operands[0], _block(back)
    if codes.tensor.dtype not in _CODES or codes.tensor.rank != _MATRIX:
        return False
    is_known = all(any_constant_of(value) is not None for value in back.operands)
    is_wanted = codes.tensor.dtype.bits == 4 or mark_of(back) is not None
    return is_known and is_wanted and block >= _LEAST_BLOCK and block.bit_count() == 1 and 0 not in codes.shape


def _block(back: Node) -> int:
    """How many numbers of a column have one scale, in any number of blocks where all have; 0 where rows have scales."""
    block, is_by_column = int(back.attrs["block_size"]), normal_axis(back.attrs["axis"], _MATRIX) == 1
    if block:
        return 0 if is_by_column else block
    return _OWN_BLOCK if is_by_column or not back.operands[1].tensor.rank else 0


def _packed(ctx: ExportContext, back: Node) -> tuple[tuple[Operand, ...], dict[str, int]]:
    """The weight's operands as the operator takes them, one column after another, and its attributes."""
    dtype, block = back.operands[0].tensor.dtype, _block(back)
    codes, *given = (_content(value) for value in back.operands)
    bits, (inner, columns), half = dtype.bits, codes.shape, 1 << dtype.bits - 1
    blocks = -(-inner // block)
    scales, *zero = (np.broadcast_to(each, (blocks, columns)) for each in given)
    shift = half if dtype.kind is Kind.INT else 0
    rows = np.pad(_unsigned(codes.T, shift), ((0, 0), (0, blocks * block - inner)))
    low = _unsigned(zero[0].T, shift) if zero else np.full((columns, blocks), shift, np.uint8)
    packed = _bytes(rows, bits).reshape(columns, blocks, block * bits // 8)
    is_usual = bool((low == half).all())
    operands = (
        ctx.constant(Constant(packed)),
        ctx.constant(Constant(np.ascontiguousarray(scales.T).reshape(-1), back.operands[1].tensor.dtype)),
        None if is_usual else ctx.constant(Constant(_bytes(low, bits).reshape(-1))),
    )
    return operands, {"K": inner, "N": columns, "bits": bits, "block_size": block}


def _content(value: Value) -> Array:
    content = any_constant_of(value)
    assert content is not None
    return content.array


def _unsigned(codes: Array, shift: int) -> Array:
    """Codes that are signed, with half of their range added."""
    return (codes.astype(np.int16) + shift).astype(np.uint8)


def _bytes(rows: Array, bits: int) -> Array:
    """Rows of numbers, one to a byte, as rows of bytes: of two numbers in a byte the first lies in the low half."""
    if bits == 8:
        return np.ascontiguousarray(rows)
    even = np.pad(rows, ((0, 0), (0, rows.shape[1] % 2)))
    return np.asarray(even[:, ::2] | even[:, 1::2] << 4)


RULES = {"add": (block_matmul,), "matmul": (block_matmul,), "gemm": (block_matmul,)}
