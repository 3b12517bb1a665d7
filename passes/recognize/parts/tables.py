"""Halves of the cos and sin tables of rotary embedding, which exporters repeat to the size of a head."""

from collections.abc import Callable, Sequence

import numpy as np

from ....ir.analysis.contents import any_constant_of
from ....ir.constant import Constant
from ....ir.dims import Dim, Truth, compare
from ....ir.graph import Node, Value
from ....ir.op import Trait
from ....ir.ops.known import CONCAT, EXPAND
from ....ir.ops.rules import normal_axes, normal_axis
from ...framework.deferred import deferred
from ...framework.rewriter import Rewriter

Plan = Callable[[Rewriter], Value]


def half_of(value: Value, *, interleaved: bool) -> Plan | None:
    """How to make the half of `value` that holds each angle once; None where it is not seen that the rest repeats it.

    Along the last axis, each angle stands twice: in two equal halves, or next to each other where `interleaved`.
    """
    content = any_constant_of(value)
    if content is not None:
        return _half_of_constant(content, interleaved)
    node = value.producer
    if node is None or not value.tensor.rank:
        return None
    if node.op.name in _RULES:
        found = _RULES[node.op.name](node, interleaved)
        if found is not None:
            return found
    return _elementwise(node, interleaved) if node.op.has(Trait.ELEMENTWISE) else None


def _half_of_constant(content: Constant, interleaved: bool) -> Plan | None:
    """A large table on a device is read once, to see that its halves are equal, and halved where it lies."""
    size = content.shape[-1] if content.shape else 0
    if size % 2 or not size or not (content.is_at_hand or content.residence is not None):
        return None
    first, second = (
        (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(0, size // 2, 1), slice(size // 2, size, 1))
    )
    if not np.array_equal(content.array[..., first], content.array[..., second]):
        return None
    if content.is_at_hand:
        half = Constant(np.ascontiguousarray(content.array[..., first]), content.dtype)
    else:
        bounds = {"starts": (first.start,), "ends": (first.stop,), "steps": (first.step,)}
        half = deferred("slice", [content], {"axes": (-1,), **bounds})
    return lambda rewriter: rewriter.constant(half.with_digest())  # those of all layers become one, also large ones


def _elementwise(node: Node, interleaved: bool) -> Plan | None:
    """The same op on the halves of its operands; those that broadcast along the last axis are taken as they are."""
    plans: list[Plan | None] = []
    for operand in node.operands:
        is_broadcast = not operand.tensor.rank or operand.shape[-1] == 1
        plans.append(_itself(operand) if is_broadcast else half_of(operand, interleaved=interleaved))
    made = [plan for plan in plans if plan is not None]
    if len(made) < len(plans):
        return None
    return lambda rewriter: rewriter.op(node.op.name, *(plan(rewriter) for plan in made), **dict(node.attrs))


def _itself(value: Value) -> Plan:
    return lambda _rewriter: value


def _concat(node: Node, interleaved: bool) -> Plan | None:
    """The angles twice, one after the other."""
    last = node.output.tensor.rank - 1
    parts = node.operands
    if interleaved or len(parts) != 2 or parts[0] is not parts[1] or normal_axis(node.attrs["axis"], last + 1) != last:
        return None
    return _itself(parts[0])


def _reshape(node: Node, interleaved: bool) -> Plan | None:
    """A reshape that leaves the last axis, or that joins pairs: [..., R, 2] made by repeating [..., R, 1]."""
    source, shape = node.operands[0], node.output.shape
    if interleaved and source.shape[-1] == 2 and compare(source.shape[-2] * 2, shape[-1]) is Truth.YES:
        pairs = _repeated_pairs(source)
        return None if pairs is None else _reshaped(_itself(pairs), (*shape[:-1], source.shape[-2]))
    if not source.tensor.rank or compare(source.shape[-1], shape[-1]) is not Truth.YES:
        return None
    half = half_of(source, interleaved=interleaved)
    return None if half is None else _reshaped(half, (*shape[:-1], shape[-1] // 2))


def _repeated_pairs(value: Value) -> Value | None:
    """[..., R, 1] whose last axis is repeated to give `value`."""
    node = value.producer
    if node is None:
        return None
    source = node.operands[0] if node.operands else value
    if node.op is EXPAND and source.shape == (*value.shape[:-1], 1):
        return source
    same = node.op is CONCAT and len(node.operands) == 2 and source is node.operands[1]
    return source if same and source.shape == (*value.shape[:-1], 1) else None


def _reshaped(plan: Plan, shape: Sequence[Dim]) -> Plan:
    return lambda rewriter: rewriter.op("reshape", plan(rewriter), shape=tuple(shape))


def _expand(node: Node, interleaved: bool) -> Plan | None:
    source, shape = node.operands[0], node.output.shape
    half = half_of(source, interleaved=interleaved)
    if half is None or compare(source.shape[-1], shape[-1]) is not Truth.YES:
        return None
    return lambda rewriter: rewriter.op("expand", half(rewriter), shape=(*shape[:-1], shape[-1] // 2))


def _gather(node: Node, interleaved: bool) -> Plan | None:
    """Rows of a table by position."""
    table, positions = node.operands
    half = half_of(table, interleaved=interleaved) if table.tensor.rank == 2 else None
    if half is None or normal_axis(node.attrs["axis"], 2) != 0:
        return None
    return lambda rewriter: rewriter.op("gather", half(rewriter), positions, axis=0)


def _slice(node: Node, interleaved: bool) -> Plan | None:
    """The first rows of a table."""
    source = node.operands[0]
    half = half_of(source, interleaved=interleaved)
    if half is None or source.tensor.rank - 1 in normal_axes(node.attrs["axes"], source.tensor.rank):
        return None
    return lambda rewriter: rewriter.op("slice", half(rewriter), **dict(node.attrs))


_RULES: dict[str, Callable[[Node, bool], Plan | None]] = {
    "concat": _concat,
    "reshape": _reshape,
    "unsqueeze": _reshape,
    "squeeze": _reshape,
    "expand": _expand,
    "gather": _gather,
    "slice": _slice,
}
