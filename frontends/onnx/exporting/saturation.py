"""Products of bytes, kept from the kernels of ONNX Runtime that saturate.

Where an x86 processor has AVX2 or AVX-512 without VNNI, its kernel for u8 by i8 adds two products in 16 bits at a time:
255 * 127 + 255 * 127 becomes 32767. Its kernels for u8 by u8, i8 by i8 and i8 by u8 are exact, as all are elsewhere. So
the i8 is written as u8: with 128 added to each number and to the zero point it stands for the same.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ....ir.analysis import all_nodes, nested_graphs
from ....ir.analysis.contents import constant_of
from ....ir.builder import Emitter
from ....ir.graph import Graph, Node, Value
from ....ir.op import Trait, foreign
from ....ir.ops.known import MAX_POOL, QUANTIZE, SLICE
from ....ir.types import DType, TensorType

_SHIFT = np.uint8(128)
_UINT8 = 2
"""ONNX's number of the type; executors read this module where onnx is not installed."""
_MOVES = Trait.VIEW | Trait.LOOKUP


class _Bytes(NamedTuple):
    """Where a node has a quantized operand, its zero point, and its scale if it has one."""

    value: int
    zero: int
    scale: int | None = None


class _Product(NamedTuple):
    """Where a node has the u8 (None: it quantizes that itself) and the i8 of which the kernel's product saturates."""

    unsigned: int | None
    signed: tuple[_Bytes, ...]


_PRODUCTS: Mapping[str, _Product] = {
    "conv_integer": _Product(1, (_Bytes(0, 2),)),  # the kernel has the weights on the left
    "matmul_integer": _Product(0, (_Bytes(1, 3),)),
    "qlinear_conv": _Product(0, (_Bytes(3, 5, 4),)),
    "qlinear_matmul": _Product(0, (_Bytes(3, 5, 4),)),
    "com.microsoft.DynamicQuantizeLSTM": _Product(None, (_Bytes(1, 9, 8), _Bytes(2, 11, 10))),
    "com.microsoft.DynamicQuantizeMatMul": _Product(None, (_Bytes(1, 3, 2),)),
    "com.microsoft.MatMulIntegerToFloat": _Product(0, (_Bytes(1, 5, 3),)),
    "com.microsoft.QAttention": _Product(0, (_Bytes(1, 7, 4),)),
    "com.microsoft.QGemm": _Product(0, (_Bytes(3, 5, 4),)),
}
_OF_FLOATS = ("conv", "gemm", "matmul")
_DEQUANTIZE, _DEQUANTIZED = "dequantize_linear", _Bytes(0, 2, 1)
_NATIVE = {
    **{f"onnx.{name}": name.lower() for name in ("Conv", "Gemm", "MatMul")},
    "onnx.ConvInteger": "conv_integer",
    "onnx.DequantizeLinear": _DEQUANTIZE,
    "onnx.MatMulInteger": "matmul_integer",
    "onnx.QLinearConv": "qlinear_conv",
    "onnx.QLinearMatMul": "qlinear_matmul",
}
"""The native op of an operator that stays foreign where shapes are not known."""


def saturated(graph: Graph) -> dict[Node, tuple[_Bytes, ...]]:
    """The nodes of `graph`, regions included, some of whose operands are to be written as u8, with those operands.

    Beside products of bytes these are the dequantized right operands of products of floats, as ONNX Runtime joins such
    nodes to a product of bytes; it makes u8 of i8 on the left by itself where it quantizes it.
    """
    found: dict[Node, tuple[_Bytes, ...]] = {}
    for node in all_nodes(graph):
        name = _name(node)
        product = _PRODUCTS.get(name)
        if product is not None and _saturates(node, product):
            found[node] = product.signed
        left, right = (dequantized(node, at) if name in _OF_FLOATS else None for at in (0, 1))
        if left is not None and right is not None and _is_signed(right, _DEQUANTIZED):
            found[right] = (_DEQUANTIZED,)
    return found


def _name(node: Node) -> str:
    return _NATIVE.get(node.op.name, node.op.name)


def _saturates(node: Node, product: _Product) -> bool:
    left = DType.U8 if product.unsigned is None else _dtype(node, product.unsigned)
    return left is DType.U8 and all(_is_signed(node, each) for each in product.signed)


def _is_signed(node: Node, operand: _Bytes) -> bool:
    return _dtype(node, operand.value) is DType.I8 and _dtype(node, operand.zero) in (DType.I8, None)


def _dtype(node: Node, at: int) -> DType | None:
    """Of an operand; foreign nodes may have fewer, and of any type."""
    value = node.inputs[at] if at < len(node.inputs) else None
    return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None


def dequantized(node: Node, at: int) -> Node | None:
    """The node that dequantized what an operand was taken from: ONNX Runtime moves it past those that move elements."""
    value = node.inputs[at] if at < len(node.inputs) else None
    found = None if value is None else value.producer
    while found is not None and _name(found) != _DEQUANTIZE:
        may_move = found.op.has(_MOVES) or found.op in (MAX_POOL, SLICE) or found.op.is_foreign
        found = found.operands[0].producer if may_move and found.operands else None
    return found


def without_saturation(graph: Graph) -> Graph:
    """`graph`, or a copy of the same meaning in which no product of bytes saturates."""
    if not saturated(graph):
        return graph
    copy = graph.clone()
    found, known = saturated(copy), dict[Value, Value]()
    for body in nested_graphs(copy):
        for node in [node for node in body.nodes if node in found]:
            emit = Emitter(body, anchor=node, origin=node.origin)
            inputs = _unsigned_inputs(emit, node, found[node], known)
            made = emit.node(node.op, inputs, node.attrs, [value.type for value in node.outputs])
            for old, new in zip(node.outputs, made.outputs, strict=True):
                body.replace_uses(old, new)
            body.erase(node)
    return copy


def _unsigned_inputs(
    emit: Emitter, node: Node, operands: tuple[_Bytes, ...], known: dict[Value, Value]
) -> list[Value | None]:
    """The inputs of `node`, of which these operands and their zero points are u8."""
    length = max(each.zero + 1 for each in operands)
    inputs = [*node.inputs, *[None] * (length - len(node.inputs))]
    for each in operands:
        value, zero = inputs[each.value], inputs[each.zero]
        assert value is not None  # the product would not be one of bytes
        inputs[each.value] = _unsigned(emit, value, known)
        inputs[each.zero] = _zero(emit, zero, None if each.scale is None else inputs[each.scale], known)
    return inputs


def _unsigned(emit: Emitter, value: Value, known: dict[Value, Value]) -> Value:
    """An i8 as u8, 128 added to each number: the highest bit flipped."""
    if value not in known:
        content, node = constant_of(value), value.producer
        if content is not None:
            known[value] = emit.constant(content.array.view(np.uint8) ^ _SHIFT)
        elif node is not None and node.op is QUANTIZE:
            x, scale, zero = node.inputs
            moved = _zero(emit, zero, scale, known)
            known[value] = emit.node(QUANTIZE, (x, scale, moved), {**node.attrs, "to": DType.U8}).output
        else:
            known[value] = _computed(emit, value)
    return known[value]


def _computed(emit: Emitter, value: Value) -> Value:
    shift, ty = emit.constant(_SHIFT), value.tensor.with_dtype(DType.U8)
    if ty.shape is not None:
        return emit.op("bitwise_xor", emit.op("cast", value, to=DType.U8), shift)
    cast = emit.node(foreign("onnx.Cast"), (value,), {"to": _UINT8, "opset_version": 13}, [ty])
    return emit.node(foreign("onnx.BitwiseXor"), (cast.output, shift), {"opset_version": 18}, [ty]).output


def _zero(emit: Emitter, zero: Value | None, scale: Value | None, known: dict[Value, Value]) -> Value:
    """A zero point as u8; where there was none, as many as there are scales."""
    if zero is not None:
        return _unsigned(emit, zero, known)
    shift, dims = emit.constant(_SHIFT), () if scale is None else scale.tensor.shape
    return emit.op("expand", shift, shape=dims) if dims else shift
