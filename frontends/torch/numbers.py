"""Numbers that PyTorch computes beside tensors: sizes, and scalars read from tensors.

Sizes are dims and leave no node. What is computed from the content of a tensor (`item`) stays a tensor of rank 0, and
so does what is computed from that.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch

from ...ir.errors import UnsupportedError
from ...ir.graph import Value
from ...ir.types import DType
from .call import Call
from .ops.pointwise import floor_quotient
from .origins import origin_of
from .sizes import UnknownSizeError

if TYPE_CHECKING:
    from .importer import FxImporter


def number_result(importer: "FxImporter", node: Any) -> Any:
    """The number that a node gives: a Python number, a dim, or a value of rank 0 (i64, f64 or bool)."""
    meta = node.meta.get("val")
    if isinstance(meta, bool | int | float):
        return meta
    if isinstance(meta, torch.SymInt):
        try:
            return importer.sizes.dim(meta)
        except (UnknownSizeError, UnsupportedError):
            pass
    elif isinstance(meta, torch.SymFloat | torch.SymBool) and meta.node.expr.is_number:
        return float(meta.node.expr) if isinstance(meta, torch.SymFloat) else bool(meta.node.expr)
    value = computed(importer, node, importer.operand(node.args))
    expr = meta.node.expr
    if expr.is_Symbol:
        importer.numbers[expr.name] = value
    return value


def computed(importer: "FxImporter", node: Any, operands: Sequence[Any]) -> Value:
    """The number that a node gives as a value, whatever PyTorch knows of it; `operands` are those of arithmetic."""
    call = Call(importer.graph, importer.sizes, str(node.target), (), origin_of(node))
    dtype = _dtype(node.meta["val"])
    if str(node.target) in ("aten._local_scalar_dense.default", "aten.item.default"):
        source: Value = importer.operand(node.args[0])
        return call.reshape(call.cast(source, dtype), ())
    return _arithmetic(call, node, list(operands), dtype)


def _dtype(meta: Any) -> DType:
    if isinstance(meta, torch.SymBool | bool):
        return DType.BOOL
    return DType.I64 if isinstance(meta, torch.SymInt | int) else DType.F64


def _arithmetic(call: Call, node: Any, operands: list[Any], dtype: DType) -> Value:
    rule = NUMBER_CALLS.get(node.target)
    if rule is None:
        raise UnsupportedError(
            f"{node.target} on numbers that only running tells cannot be imported",
            remedy="compute with tensors instead of calling .item()",
        )
    return rule(call, operands, dtype)


def _common(operands: list[Any]) -> DType:
    """The dtype in which numbers meet."""
    is_float = any(isinstance(x, float) or (isinstance(x, Value) and x.tensor.dtype.is_float) for x in operands)
    is_bool = all(isinstance(x, bool) or (isinstance(x, Value) and x.tensor.dtype is DType.BOOL) for x in operands)
    return DType.F64 if is_float else DType.BOOL if is_bool else DType.I64


Rule = Callable[[Call, list[Any], DType], Value]


def _by(name: str) -> Rule:
    """An op on numbers of one dtype, that of the result."""
    return lambda call, operands, dtype: call.op(name, *(call.value(x, dtype) for x in operands))


def _total(call: Call, operands: list[Any], dtype: DType) -> Value:
    """The sum of a list of numbers."""
    first, *others = (call.value(x, dtype) for x in operands[0])
    return reduce(lambda one, other: call.op("add", one, other), others, first)


def _comparison(name: str) -> Rule:
    def rule(call: Call, operands: list[Any], _dtype: DType) -> Value:
        common = _common(operands)
        return call.op(name, *(call.value(x, common) for x in operands))

    return rule


def _floor_div(call: Call, operands: list[Any], dtype: DType) -> Value:
    a, b = (call.value(x, dtype) for x in operands)
    if dtype.is_float:
        return call.op("floor", call.op("div", a, b))
    return floor_quotient(call, a, b, is_positive=isinstance(operands[1], int) and operands[1] > 0)


def _cast(call: Call, operands: list[Any], dtype: DType) -> Value:
    return call.value(operands[0], dtype)


def _chosen(call: Call, operands: list[Any], dtype: DType) -> Value:
    condition, *sides = operands
    return call.op("where", call.value(condition, DType.BOOL), *(call.value(side, dtype) for side in sides))


def _rounded(name: str) -> Rule:
    return lambda call, operands, dtype: call.cast(call.op(name, call.value(operands[0], DType.F64)), dtype)


def _rounded_to_digits(call: Call, operands: list[Any], dtype: DType) -> Value:
    """Python's `round`, to so many digits behind the point, or before it."""
    number = call.value(operands[0], DType.F64)
    digits = operands[1] if len(operands) > 1 and operands[1] is not None else 0
    if not digits:
        return call.cast(call.op("round", number), dtype)
    power = call.value(10.0 ** abs(digits), DType.F64)
    there, back = ("mul", "div") if digits > 0 else ("div", "mul")
    return call.cast(call.op(back, call.op("round", call.op(there, number, power)), power), dtype)


NUMBER_CALLS: dict[Any, Rule] = {
    operator.add: _by("add"),
    operator.sub: _by("sub"),
    operator.mul: _by("mul"),
    operator.truediv: _by("div"),
    operator.floordiv: _floor_div,
    operator.mod: _by("mod"),
    operator.pow: _by("pow"),
    operator.neg: _by("neg"),
    operator.eq: _comparison("equal"),
    operator.ne: _comparison("not_equal"),
    operator.lt: _comparison("less"),
    operator.le: _comparison("less_equal"),
    operator.gt: _comparison("greater"),
    operator.ge: _comparison("greater_equal"),
    operator.and_: _by("logical_and"),
    operator.or_: _by("logical_or"),
    torch.sym_not: lambda call, operands, _dtype: call.op("logical_not", call.value(operands[0], DType.BOOL)),
    torch.sym_ite: _chosen,
    torch.sym_float: _cast,
    torch.sym_int: _cast,
    torch.sym_max: _by("max"),
    torch.sym_min: _by("min"),
    torch.sym_sum: _total,
    torch._sym_sqrt: _by("sqrt"),
    math.floor: _rounded("floor"),
    math.ceil: _rounded("ceil"),
    math.trunc: _cast,
    round: _rounded_to_digits,
}
"""How arithmetic on numbers is done where these are values."""
