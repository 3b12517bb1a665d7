"""Matmuls of fp8 with scales, of bytes, and with weights in bytes."""

from typing import Any

from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering

_RESULTS = frozenset({DType.F16, DType.BF16, DType.F32})


def _scaled_mm(
    c: Call,
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    bias: Value | None,
    result_scale: Value | None,
    *_: Any,
) -> Value:
    """(a_scale * a) @ (b_scale * b) + bias, rounded once: operands that are dequantized into f32 are exact there."""
    if result_scale is not None or c.dtype not in _RESULTS or a_scale.tensor.dtype is not DType.F32:
        raise NoLowering("matmuls of fp8 with results in fp8")
    operands = [
        _dequantized(c, operand, scale, axis) for axis, (operand, scale) in enumerate(((a, a_scale), (b, b_scale)))
    ]
    matmul = c.op("matmul", *operands)
    total = matmul if bias is None else c.op("add", matmul, c.cast(bias, DType.F32))
    return c.cast(total, c.dtype)


def _dequantized(c: Call, operand: Value, scale: Value, axis: int) -> Value:
    """An operand whose scale is one number, or one for each row (`axis` 0) or column (1)."""
    if all(size == 1 for size in scale.shape):
        return c.op("dequantize_linear", operand, c.reshape(scale, ()), None, to=DType.F32)
    size = operand.shape[axis]
    if scale.tensor.rank != 2 or scale.shape[axis] != size or scale.shape[1 - axis] != 1:
        raise NoLowering("matmuls with a scale for each block")
    return c.op("dequantize_linear", operand, c.reshape(scale, (size,)), None, to=DType.F32, axis=axis)


def _int_mm(c: Call, a: Value, b: Value) -> Value:
    return c.op("matmul_integer", a, b, None, None)


def _weight_int8pack_mm(c: Call, x: Value, codes: Value, scales: Value) -> Value:
    """X [M, K] times a weight stored as i8 [N, K] with a scale for each row."""
    weight = c.op("dequantize_linear", codes, scales, None, to=x.tensor.dtype, axis=0)
    return c.op("matmul", x, c.op("transpose", weight, perm=(1, 0)))


TABLE: dict[str, Lowering] = {
    "aten._scaled_mm.default": _scaled_mm,
    "aten._int_mm.default": _int_mm,
    "aten._weight_int8pack_mm.default": _weight_int8pack_mm,
}
