"""Comparisons, booleans, bits and selection."""

from typing import Any

import torch

from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, Number, Operand
from ..dtypes import dtype_of, torch_dtype_of


def _common_dtype(*operands: Operand) -> DType:
    """The dtype in which PyTorch compares operands: tensors of rank 0 and numbers count less than others."""
    given = [_sample(operand) for operand in operands]
    return dtype_of(torch.result_type(*given))


def _sample(operand: Operand) -> Any:
    """What has the dtype and the rank of an operand for promotion."""
    if isinstance(operand, Value):
        shape = (1,) * operand.tensor.rank
        return torch.empty(shape, dtype=torch_dtype_of(operand.tensor.dtype), device="meta")
    return operand if isinstance(operand, Number) else 0


def _comparison(native: str) -> Lowering:
    def lower(c: Call, a: Operand, b: Operand) -> Value:
        common = _common_dtype(a, b)
        if common is DType.BOOL and native not in ("equal", "not_equal"):
            common = DType.U8
        return c.op(native, c.value(a, common), c.value(b, common))

    return lower


def _logical(native: str) -> Lowering:
    return lambda c, *operands: c.op(native, *(c.cast(x, DType.BOOL) for x in operands))


def _bitwise(on_bools: str, on_integers: str) -> Lowering:
    def lower(c: Call, *operands: Operand) -> Value:
        native = on_bools if c.dtype is DType.BOOL else on_integers
        return c.op(native, *(c.value(x, c.dtype) for x in operands))

    return lower


def _shift(native: str) -> Lowering:
    return lambda c, a, b: c.op(native, c.value(a, c.dtype), c.value(b, c.dtype))


def _where(c: Call, condition: Value, x: Operand, y: Operand) -> Value:
    return c.op("where", c.cast(condition, DType.BOOL), c.value(x, c.dtype), c.value(y, c.dtype))


def _is_inf(**signs: bool) -> Lowering:
    return lambda c, x: c.op("is_inf", x, **signs) if x.tensor.dtype.is_float else _everywhere(c, x, False)


def _is_finite(c: Call, x: Value) -> Value:
    if not x.tensor.dtype.is_float:
        return _everywhere(c, x, True)
    return c.op("logical_not", c.op("logical_or", c.op("is_nan", x), c.op("is_inf", x)))


def _everywhere(c: Call, x: Value, number: bool) -> Value:
    return c.op("expand", c.constant(number, DType.BOOL), shape=x.shape)


TABLE: dict[str, Lowering] = {
    "aten.eq": _comparison("equal"),
    "aten.ne": _comparison("not_equal"),
    "aten.lt": _comparison("less"),
    "aten.le": _comparison("less_equal"),
    "aten.gt": _comparison("greater"),
    "aten.ge": _comparison("greater_equal"),
    "aten.logical_and": _logical("logical_and"),
    "aten.logical_or": _logical("logical_or"),
    "aten.logical_xor": _logical("logical_xor"),
    "aten.logical_not": _logical("logical_not"),
    "aten.bitwise_and": _bitwise("logical_and", "bitwise_and"),
    "aten.bitwise_or": _bitwise("logical_or", "bitwise_or"),
    "aten.bitwise_xor": _bitwise("logical_xor", "bitwise_xor"),
    "aten.bitwise_not": _bitwise("logical_not", "bitwise_not"),
    "aten.bitwise_left_shift": _shift("shift_left"),
    "aten.bitwise_right_shift": _shift("shift_right"),
    "aten.__and__": _bitwise("logical_and", "bitwise_and"),
    "aten.__or__": _bitwise("logical_or", "bitwise_or"),
    "aten.__xor__": _bitwise("logical_xor", "bitwise_xor"),
    "aten.__lshift__": _shift("shift_left"),
    "aten.__rshift__": _shift("shift_right"),
    "aten.where.self": _where,
    "aten.where.ScalarOther": _where,
    "aten.where.ScalarSelf": _where,
    "aten.where.Scalar": _where,
    "aten.isnan": lambda c, x: c.op("is_nan", x) if x.tensor.dtype.is_float else _everywhere(c, x, False),
    "aten.isinf": _is_inf(),
    "aten.isposinf": _is_inf(detect_negative=False),
    "aten.isneginf": _is_inf(detect_positive=False),
    "aten.isfinite": _is_finite,
    "aten.masked_fill": lambda c, x, mask, value: c.op("where", mask, c.value(value, c.dtype), c.cast(x, c.dtype)),
}
