"""Float masks of attention, written without the lowest number of their element type.

Frameworks hide keys with that number (torch.finfo(dtype).min). Added to the scores, as attention is defined, it leaves
a query whose keys are all hidden the average of the values; such queries are the padding of a batch padded on the left.
ONNX Runtime's CPU takes the number, and no other, for its own sign of a key that does not count: its Attention gives
zeros there, and its MultiHeadAttention counts the keys that `causal` hides as well. A number a little higher hides just
as much and is added everywhere. -inf is left alone: to both, and to the IR, it is a key that does not count.
"""

from collections.abc import Iterator, Sequence

import ml_dtypes
import numpy as np

from ....ir.analysis.contents import any_constant_of
from ....ir.constant import Constant
from ....ir.graph import Node, Value
from ....ir.types import DType, TensorType
from .export_context import ExportContext, Operand

_DTYPES = (DType.F32, DType.F16, DType.BF16)  # ONNX Runtime runs attention of f64 as the operator's body, which adds
_RAISED = 0.9375  # in f16 there must be room below it: the scores are added in f16 too
_LESS_THAN_HALF = 0.49  # of a limit: a sum of two above that stays above the limit, also once it is rounded
_MASK = 3  # the operand of attention
_VIEWS = ("expand", "reshape", "unsqueeze", "squeeze", "transpose")
_MOVING = (
    *_VIEWS,
    "cast",
    "slice",
    "gather",
    "dynamic_expand",
    "dynamic_reshape",
    "dynamic_slice",
    "dynamic_unsqueeze",
)


def safe_mask(ctx: ExportContext, mask: Value) -> Operand:
    """A mask without the lowest number: itself where that can be seen, else nodes that are written once for all."""
    dtype = mask.tensor.dtype
    if dtype not in _DTYPES or not _holds_lowest(mask):
        return mask
    return ctx.once((safe_mask, mask), lambda: _written(ctx, mask))


def _written(ctx: ExportContext, mask: Value) -> str:
    dtype = mask.tensor.dtype
    raised = ctx.constant(_RAISED * _lowest(dtype), dtype)
    if not hides_for_good(mask):
        return ctx.emit_value("Max", (mask, raised))
    is_lowest = ctx.emit_value("Equal", (mask, ctx.constant(_lowest(dtype), dtype)))
    return ctx.emit_value("Where", (is_lowest, raised, mask))


def safe_content(value: Value, content: Constant) -> Constant:
    """The content of a constant as it is to be written: where it does nothing but hide keys, without that number."""
    if content.dtype not in _DTYPES or not _only_hides(value):
        return content
    lowest = content.array == _lowest(content.dtype)
    if not lowest.any():
        return content
    return Constant(np.where(lowest, _RAISED * _lowest(content.dtype), content.array), content.dtype)


def _lowest(dtype: DType) -> float:
    return float(ml_dtypes.finfo(dtype.numpy).min)  # type: ignore[no-untyped-call]


def _only_hides(value: Value) -> bool:
    """Whether all that is made of a value is masks of attention, by views and by choices with `where`."""
    pending, seen = [value], set[Value]()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.is_graph_output or not current.has_uses:
            return False
        for user, index in current.uses:
            if not isinstance(user, Node):
                return False
            if user.op.name in _VIEWS or (user.op.name == "where" and index):
                pending.append(user.output)
            elif user.op.name != "attention" or index != _MASK:
                return False
    return True


def hides_for_good(mask: Value) -> bool:
    """Whether some element of a mask may be -inf."""
    return not _is_above(mask, -np.inf, or_hidden=False)


def _holds_lowest(mask: Value) -> bool:
    """Whether some element of a mask, as it is written, may be the lowest number."""
    return not _is_above(mask, _lowest(mask.tensor.dtype), or_hidden=True)


def _is_above(mask: Value, least: float, *, or_hidden: bool) -> bool:
    """Whether each element of a mask, as it is written, is known to be above `least` (or -inf)."""
    pending, seen = [(mask, least)], set[tuple[Value, float]]()
    while pending:
        value, limit = found = pending.pop()
        if found in seen:
            continue
        seen.add(found)
        content = any_constant_of(value)
        if content is None:
            sources = _sources(value, limit, mask.tensor.dtype)
            if sources is None:
                return False
            pending += sources
        elif not _content_is_above(safe_content(value, content), limit, mask.tensor.dtype, or_hidden):
            return False
    return True


def _content_is_above(content: Constant, limit: float, dtype: DType, or_hidden: bool) -> bool:
    """Whether all elements are, once they are cast to `dtype`."""
    numbers = Constant(content.array, dtype).array
    return bool(((numbers > limit) | ((numbers == -np.inf) & or_hidden)).all())


def _sources(value: Value, limit: float, dtype: DType) -> Sequence[tuple[Value, float]] | None:
    """The values that `value` is from, and what these must be above; None where that is not known."""
    node = value.producer
    if node is None or not isinstance(value.type, TensorType):
        return None
    if node.op.name in _MOVING:
        return [(node.operands[0], limit)]
    if node.op.name == "add":
        return [(each, max(limit, _lowest(dtype)) * _LESS_THAN_HALF) for each in node.operands]
    if node.op.name == "where":
        condition, *chosen = node.operands
        finds = limit == _lowest(dtype) and _is_equal_to(condition, chosen[1], limit)
        return [(each, limit) for each in (chosen[:1] if finds else chosen)]
    if node.op.name == "max" and any(number > limit for each in node.operands for number in _numbers(each)):
        return []
    return None


def _is_equal_to(condition: Value, value: Value, number: float) -> bool:
    """Whether a condition says where `value` is the number."""
    node = condition.producer
    if node is None or node.op.name != "equal" or value not in node.operands:
        return False
    return any(number in _numbers(each) for each in node.operands)


def _numbers(value: Value) -> Iterator[float]:
    """The number that every element of a constant is, if it has one element."""
    content = any_constant_of(value)
    if content is not None and content.size == 1:
        yield float(content.array.reshape(-1)[0])
