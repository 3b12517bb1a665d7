"""Loops and scans written out: one copy of the body for each iteration, each fed by the one before.

Carried values go from copy to copy, iteration numbers are constants, and what the iterations give one by one is joined
at the end. Meanings are those of `ir.ops.control`.
"""

from collections.abc import Collection, Sequence

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.constant import Constant
from ...ir.dims import Truth, compare
from ...ir.errors import TypeRuleError
from ...ir.graph import Graph, Node, Value
from ...ir.ops.rules import normal_axis
from ...ir.types import DType
from ..framework.rewriter import Rewriter

# ---- how often


def loop_trips(node: Node) -> int | None:
    """How many iterations a `loop` runs; None when only running tells."""
    trip, condition = node.inputs[:2]
    count = constant_of(trip)
    start = constant_of(condition)
    if (count is not None and int(count.array) <= 0) or (start is not None and not bool(start.array)):
        return 0
    if (trip is not None and count is None) or (condition is not None and start is None):
        return None
    most = int(count.array) if count is not None else None
    return most if condition is None else _trips_of_condition(node.regions["body"], most)


def _trips_of_condition(body: Graph, most: int | None) -> int | None:
    """The same for a loop that begins and whose body says whether it goes on."""
    if body.outputs[0] is body.inputs[1]:
        return most
    goes_on = constant_of(body.outputs[0])
    if goes_on is None:
        return None
    return most if bool(goes_on.array) else 1


def scan_trips(node: Node) -> int | None:
    """How many iterations a `scan` runs; None when that is not a plain number."""
    lengths = {value.shape[axis] for value, axis in zip(_sequences(node), _input_axes(node), strict=True)}
    (length, *others) = lengths
    return length if isinstance(length, int) and not others else None


# ---- writing out


def unroll_loop(node: Node, trips: int, rewriter: Rewriter) -> tuple[Value | None, ...]:
    """What stands for the results of a `loop` of `trips` iterations; None for scanned results that nobody reads.

    Raises `TypeRuleError` when a scanned result of no iterations has no static type, or iterations may give others.
    """
    body, carried = node.regions["body"], int(node.attrs["carried"])
    values = tuple(value for value in node.inputs[2:] if value is not None)
    state, captured = values[:carried], values[carried:]
    gathered: list[tuple[Value, ...]] = []
    of_control: list[Value] = []
    for number in range(trips):
        begin = rewriter.constant(number, DType.I64), rewriter.constant(True, DType.BOOL)
        results = rewriter.inline(body, (*begin, *state, *captured))
        of_control += (*begin, results[0])
        state = results[1 : 1 + carried]
        gathered.append(results[1 + carried :])
    scanned = node.outputs[carried:]
    columns = list(zip(*gathered, strict=True)) if gathered else [()] * len(scanned)
    made = (*state, *(_joined(old, parts, 0, rewriter) for old, parts in zip(scanned, columns, strict=True)))
    _erase_unread(of_control, made, rewriter)
    return made


def _erase_unread(values: Sequence[Value], kept: Collection[Value | None], rewriter: Rewriter) -> None:
    """Erases iteration numbers and conditions that nothing reads; `kept` are results, whose readers come later."""
    for value in dict.fromkeys(values):
        node = value.producer
        if node is not None and node.graph is not None and not node.has_uses and not set(node.outputs) & set(kept):
            rewriter.erase(node, kept)


def unroll_scan(node: Node, trips: int, rewriter: Rewriter) -> tuple[Value | None, ...]:
    """What stands for the results of a `scan` of `trips` iterations; None for scanned results that nobody reads.

    Raises `TypeRuleError` when a scanned result of no iterations has no static type, or iterations may give others.
    """
    body, states = node.regions["body"], int(node.attrs["states"])
    sequences = _sequences(node)
    state, captured = node.operands[:states], node.operands[states + len(sequences) :]
    backwards = node.attrs["input_reverse"] or (0,) * len(sequences)
    slices = [
        _slices(value, axis, trips, rewriter)[:: -1 if flag else 1]
        for value, axis, flag in zip(sequences, _input_axes(node), backwards, strict=True)
    ]
    gathered: list[tuple[Value, ...]] = []
    for number in range(trips):
        results = rewriter.inline(body, (*state, *(each[number] for each in slices), *captured))
        state = results[:states]
        gathered.append(results[states:])
    scanned = node.outputs[states:]
    columns = list(zip(*gathered, strict=True)) if gathered else [()] * len(scanned)
    axes = node.attrs["output_axes"] or (0,) * len(scanned)
    flags = node.attrs["output_reverse"] or (0,) * len(scanned)
    joined = (
        _joined(old, parts[:: -1 if flag else 1], axis, rewriter)
        for old, parts, axis, flag in zip(scanned, columns, axes, flags, strict=True)
    )
    return (*state, *joined)


def _sequences(node: Node) -> tuple[Value, ...]:
    states, count = int(node.attrs["states"]), int(node.attrs["scan_inputs"])
    return node.operands[states : states + count]


def _input_axes(node: Node) -> tuple[int, ...]:
    """The axis of each sequence that a `scan` runs over, counted from the first."""
    sequences = _sequences(node)
    axes = node.attrs["input_axes"] or (0,) * len(sequences)
    return tuple(normal_axis(axis, len(value.shape)) for axis, value in zip(axes, sequences, strict=True))


def _slices(value: Value, axis: int, count: int, rewriter: Rewriter) -> list[Value]:
    """The `count` slices of `value` along `axis`, without that axis."""
    if not count:
        return []
    parts = rewriter.ops("split", value, axis=axis, sizes=(1,) * count) if count > 1 else (value,)
    return [rewriter.op("squeeze", part, axes=(axis,)) for part in parts]


def _joined(old: Value, parts: Sequence[Value], axis: int, rewriter: Rewriter) -> Value | None:
    """`parts` stacked along a new axis, for the scanned result `old`; None when nobody reads it."""
    if not old.has_uses:
        return None
    at = normal_axis(axis, len(old.shape))
    if not parts:
        return _nothing(old, at, rewriter)
    for part in parts[1:]:
        _require_same_shape(parts[0], part)
    longer = [rewriter.op("unsqueeze", part, axes=(at,)) for part in parts]
    return rewriter.op("concat", *longer, axis=at) if len(longer) > 1 else longer[0]


def _require_same_shape(first: Value, other: Value) -> None:
    """What iterations give is of one shape; a size that is told later, by a loop inside, may turn out to differ."""
    if any(compare(one, size) is not Truth.YES for one, size in zip(first.shape, other.shape, strict=True)):
        raise TypeRuleError(f"%{first.name}: {first.type} and %{other.name}: {other.type} may be of other shapes")


def _nothing(old: Value, axis: int, rewriter: Rewriter) -> Value:
    sizes = [0 if at == axis else size for at, size in enumerate(old.shape)]
    plain = [size for size in sizes if isinstance(size, int)]
    if len(plain) < len(sizes):
        raise TypeRuleError(f"%{old.name} is the stack of no values, whose size {old.type} does not tell")
    return rewriter.constant(Constant(np.zeros(plain, old.tensor.dtype.numpy), old.tensor.dtype))
