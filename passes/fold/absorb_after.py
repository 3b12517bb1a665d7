"""Factors and addends taken into the weight of the node that reads the changed value.

`absorbed_after(node, x, change)` plans `node` on `x` instead of on its first operand, `x * scale + shift`, which
nothing else reads. An addend goes through a convolution only when nothing is padded: zeros are not shifted.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.constant import Array, Constant
from ...ir.graph import Node, Value
from ..framework.rewriter import Rewriter
from .absorb import Plan, ScaleShift, own_weight, scaled_constant, scaled_factor, scaled_weight, wide


def absorbed_after(node: Node, x: Value, change: ScaleShift) -> Plan | None:
    """The plan; None when `node` has no weight for it."""
    rule = _RULES.get(node.op.name)
    first = node.inputs[0]
    if rule is None or first is None or first.use_count != 1 or not x.tensor.dtype.is_float:
        return None
    return rule(node, x, change)


def _conv(node: Node, x: Value, change: ScaleShift) -> Plan | None:
    """Input channel `c` is column `c % (C / groups)` of the rows of its group."""
    weight, bias = own_weight(node.inputs[1]), node.inputs[2]
    if weight is None or not change.along(1) or (bias is not None and constant_of(bias) is None):
        return None
    if change.shift is not None and any(pad != 0 for pad in node.attrs["pads"]):
        return None
    groups: int = node.attrs["groups"]
    rows, columns = weight.shape[:2]
    scale = _per_weight(change.scale, groups, rows, columns, len(weight.shape))
    shift = _per_weight(change.shift, groups, rows, columns, len(weight.shape))
    array = wide(weight.array)
    added = None if shift is None else (array * shift).sum(axis=tuple(range(1, array.ndim)))
    window = range(2, array.ndim)
    changed = _scaled(weight, scale, change, (1, *window), (0, *window) if groups == 1 else window)
    return _replaced(node, x, changed, constant_of(bias), added)


def _scaled(
    weight: Constant, scale: Array | None, change: ScaleShift, summed: Sequence[int], others: Sequence[int]
) -> Constant | None:
    """`weight * scale`, where terms are added up along `summed`, and one input is read along `others`.

    Inputs that have a factor each may differ in magnitude as much: no weight of theirs is small beside another's.
    """
    if scale is None:
        return weight
    return scaled_weight(weight, scale, summed) if change.along() else scaled_factor(weight, scale, others)


def _per_weight(part: Array | None, groups: int, rows: int, columns: int, rank: int) -> Array | None:
    """A part along the input channels as `[rows, columns, 1, ...]`, what each weight is multiplied with."""
    if part is None:
        return None
    channels = np.broadcast_to(part.reshape(-1), (groups * columns,)).reshape(groups, 1, columns)
    spread = np.broadcast_to(channels, (groups, rows // groups, columns))
    return spread.reshape(rows, columns, *[1] * (rank - 2))


def _gemm(node: Node, x: Value, change: ScaleShift) -> Plan | None:
    weight, c, attrs = own_weight(node.inputs[1]), node.inputs[2], node.attrs
    addend = constant_of(c)
    if weight is None or attrs["trans_a"] or not change.along(1) or (c is not None and addend is None):
        return None
    if change.shift is not None and (attrs["alpha"] != 1.0 or attrs["beta"] != 1.0):
        return None
    array = wide(weight.array).T if attrs["trans_b"] else wide(weight.array)
    added = None if change.shift is None else np.broadcast_to(change.shift, (1, array.shape[0])) @ array
    scale = None if change.scale is None else change.scale if attrs["trans_b"] else change.scale.T
    inputs = 1 if attrs["trans_b"] else 0
    changed = _scaled(weight, scale, change, (inputs,), (1 - inputs,))
    return _replaced(node, x, changed, addend, added)


def _matmul(node: Node, x: Value, change: ScaleShift) -> Plan | None:
    weight = own_weight(node.inputs[1])
    if weight is None or change.scale is None or change.shift is not None or len(weight.shape) < 2:
        return None
    if not change.along(change.rank - 1):
        return None
    scaled = _scaled(weight, change.scale.reshape(-1, 1), change, (-2,), (-1,))
    if scaled is None:
        return None
    return lambda rewriter: rewriter.op("matmul", x, rewriter.constant(scaled))


def _replaced(node: Node, x: Value, weight: Constant | None, bias: Constant | None, added: Array | None) -> Plan | None:
    """`node` on `x` with another weight, and `added` to its bias."""
    if weight is None:
        return None
    if added is not None:
        bias = scaled_constant(bias or Constant(np.zeros(added.shape), weight.dtype), None, added)
    if bias is None and (added is not None or node.inputs[2] is not None):
        return None

    def build(rewriter: Rewriter) -> Value:
        operands = (x, rewriter.constant(weight), rewriter.constant(bias) if bias is not None else None)
        return rewriter.node(node.op, operands, dict(node.attrs)).outputs[0]

    return build


_RULES: Mapping[str, Callable[[Node, Value, ScaleShift], Plan | None]] = MappingProxyType(
    {"conv": _conv, "gemm": _gemm, "matmul": _matmul}
)
