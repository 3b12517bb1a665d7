"""Attention of a decode step over a cache that the step adds to: one operator writes the cache and reads it.

Two forms of cache. One grows by concatenation. The other has a fixed size, is a state of the graph, and is written at a
position for each sample; that operator gives back what lies behind the last entry only where past and present are one
buffer, which is what a state is: whoever runs the model binds input and output to the same memory.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ....ir.analysis.contents import any_constant_of
from ....ir.dims import Dim, Truth, compare
from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.export_context import ExportContext, Operand
from .group import DOMAIN, Group, Operator, scalar_of, sole_producer

_NAME = "GroupQueryAttention"
_DIVISOR = 8
"""Of head sizes: others are refused when the operator runs."""

GROWING = "growing"
"""The kind of operator for caches that grow."""

_DTYPES = (DType.F32, DType.F16, DType.BF16)

OPERATORS = frozenset(Operator(_NAME, dtype, kind) for dtype in _DTYPES for kind in ("", GROWING))

SLOW_ON_CPU = frozenset({Operator(_NAME, DType.F32, GROWING)})
"""It takes 1.0 to 1.2 times as long as Concat and Attention."""


@dataclass(frozen=True)
class _Write:
    """A node that adds one entry to a cache [B, H, S, D]; without `positions` it goes behind the last."""

    node: Node
    past: Value
    entry: Value
    positions: Value | None = None


@dataclass(frozen=True)
class _Step:
    """Attention of one query for each sample, over caches that its key and its value have just been added to."""

    attention: Node
    k: _Write
    v: _Write

    @property
    def kind(self) -> str:
        """The kind of operator that does it."""
        return GROWING if self.k.positions is None else ""


def group_query_attention(node: Node, available: Collection[Operator], order: Mapping[Node, int]) -> Group | None:
    """GroupQueryAttention: both caches are written, and one query for each sample attends to what is in them."""
    step = _step_before(node)
    if step is None or Operator(_NAME, node.output.tensor.dtype, step.kind) not in available:
        return None
    if any(_is_read_before(each.node, step.attention, node, order) for each in (step.k, step.v)):
        return None
    entries = [_side_by_side(value) for value in (step.attention.operands[0], step.k.entry, step.v.entry)]
    inner = {step.attention, step.k.node, step.v.node, *(entry.made for entry in entries if entry.made is not None)}
    results = (node.output, step.k.node.output, step.v.node.output)
    return Group(node, frozenset(inner), results, partial(_write, step, entries, results))


def _write(step: _Step, entries: Sequence["_Entry"], results: Sequence[Value], ctx: ExportContext) -> None:
    attrs, (q, keys, *_, lengths) = step.attention.attrs, step.attention.inputs
    assert q is not None
    assert keys is not None
    given = [entry.write(ctx) for entry in entries]
    past, total = _lengths_of(ctx, step.k, lengths)
    ctx.emit(
        _NAME, (*given, step.k.past, step.v.past, past, total), results, domain=DOMAIN,
        num_heads=q.shape[1], kv_num_heads=keys.shape[1], scale=attrs["scale"], softcap=attrs["softcap"] or None,
    )  # fmt: skip


def _step_before(node: Node) -> _Step | None:
    """The step whose heads `node` puts side by side."""
    attention = sole_producer(node.operands[0], "attention")
    if attention is None:
        return None
    _, keys, values, mask, lengths = attention.inputs
    if keys is None or values is None or keys is values or mask is not None or not _is_single(attention, node):
        return None
    k, v = _written(keys), _written(values)
    if k is None or v is None or k.positions is not v.positions:
        return None
    is_whole = _counts_all(attention, lengths, keys) if k.positions is None else _ends_at(lengths, k.positions)
    return _Step(attention, k, v) if is_whole else None


def _is_single(attention: Node, joined: Node) -> bool:
    """Whether attention is of one query for each sample, whose heads `joined` puts side by side."""
    q, keys, values = attention.operands[:3]
    if q.tensor.rank != 4 or joined.output.tensor.rank != 3 or q.shape[2] != 1 or joined.output.shape[1] != 1:
        return False
    batch, heads, _, size = q.shape
    if not all(isinstance(each, int) for each in (heads, size, keys.shape[1])) or size % _DIVISOR:
        return False
    if attention.attrs["scale"] == 0:
        return False  # which to the operator means that none is given
    return values.shape[3] == size and compare(joined.output.shape[0], batch) is Truth.YES


def _written(present: Value) -> _Write | None:
    """How a cache came to its last entry."""
    node = present.producer
    if node is None or present.tensor.rank != 4:
        return None
    if node.op.name == "concat" and node.attrs["axis"] in (2, -2) and len(node.operands) == 2:
        grown, added = node.operands
        return _Write(node, grown, added) if added.shape[2] == 1 else None
    if node.op.name != "tensor_scatter" or node.attrs["axis"] not in (2, -2) or node.attrs["mode"] != "linear":
        return None
    past, entry, positions = node.inputs
    if past is None or entry is None or positions is None or entry.shape[2] != 1 or not _is_state(past, present):
        return None
    return _Write(node, past, entry, positions)


def _is_state(past: Value, present: Value) -> bool:
    """Whether two values are one buffer of the graph, which nobody reads when it is written."""
    graph = past.graph
    if graph is None or past.producer is not None or len(past.uses) != 1:
        return False
    return any(graph.inputs[s.input] is past and graph.outputs[s.output] is present for s in graph.states)


def _is_read_before(write: Node, attention: Node, last: Node, order: Mapping[Node, int]) -> bool:
    """Whether others read a cache before the operator that stands in the place of `last` has written it."""
    return any(user is not attention and order[user] < order[last] for user in write.output.users)


def _counts_all(attention: Node, lengths: Value | None, keys: Value) -> bool:
    """Whether every key counts, of a cache that grows."""
    if lengths is None:
        return not attention.attrs["causal"]  # without lengths, the only query is taken for the first
    content = any_constant_of(lengths)
    if content is not None:
        return bool((content.array == keys.shape[2]).all())
    made = lengths.producer
    if made is not None and made.op.name == "expand":
        made = made.operands[0].producer
    if made is None or made.op.name != "dims":
        return False
    return all(compare(each, keys.shape[2]) is Truth.YES for each in made.attrs["values"])


def _ends_at(lengths: Value | None, positions: Value) -> bool:
    """Whether the keys that count end with the one at `positions`."""
    made = None if lengths is None else lengths.producer
    if made is None or made.op.name != "add" or positions not in made.operands:
        return False
    first, second = made.operands
    return scalar_of(second if first is positions else first) == 1


@dataclass(frozen=True)
class _Entry:
    """What one position brings, [B, H, 1, D]: `flat` is what it was made of, [B, 1, H D], by `made` for it alone."""

    value: Value
    flat: Value | None = None
    made: Node | None = None

    def write(self, ctx: ExportContext) -> Operand:
        """It as [B, 1, H D]."""
        if self.flat is not None:
            return self.flat
        return ctx.emit_value("Reshape", (self.value, ctx.ints((0, 1, -1))))


def _side_by_side(value: Value) -> _Entry:
    made = value.producer
    if made is None or made.op.name != "reshape":
        return _Entry(value)
    flat, (batch, heads, _, size) = made.operands[0], value.shape
    if flat.tensor.rank != 3 or flat.shape[1] != 1 or compare(flat.shape[0], batch) is not Truth.YES:
        return _Entry(value)
    if compare(flat.shape[2], heads * size) is not Truth.YES:
        return _Entry(value)
    return _Entry(value, flat, sole_producer(value, "reshape"))


def _lengths_of(ctx: ExportContext, write: _Write, lengths: Value | None) -> tuple[Operand, Operand]:
    """How many entries each sample has before this step, and the largest number that one has behind it, as i32."""
    if lengths is None or any_constant_of(lengths) is not None:
        batch, before = write.past.shape[0], write.past.shape[2]
        return _repeated(ctx, before, batch, write.past), _size(ctx, write.node.output)
    return (
        ctx.once(("before", lengths), lambda: _narrow(ctx, write.positions or _less_one(ctx, lengths))),
        ctx.once(("largest", lengths), lambda: _narrow(ctx, ctx.emit_value("ReduceMax", (lengths,), keepdims=0))),
    )


def _less_one(ctx: ExportContext, lengths: Value) -> str:
    return ctx.emit_value("Sub", (lengths, ctx.constant(1, DType.I64)))


def _repeated(ctx: ExportContext, count: Dim, times: Dim, *operands: Value) -> str:
    if isinstance(count, int) and isinstance(times, int):
        return ctx.constant(np.full(times, count, np.int32))

    def write() -> str:
        sizes = ctx.dims_tensor((count,), *operands), ctx.dims_tensor((times,), *operands)
        return _narrow(ctx, ctx.emit_value("Expand", sizes))

    return ctx.once(("repeated", count, times), write)


def _size(ctx: ExportContext, present: Value) -> str:
    count = present.shape[2]
    if isinstance(count, int):
        return ctx.constant(np.array(count, np.int32))
    return ctx.once(("size", count), lambda: _narrow(ctx, ctx.dim_scalar(count)))


def _narrow(ctx: ExportContext, value: Operand) -> str:
    return ctx.emit_value("Cast", (value,), to=DType.I32)


RULES = {"reshape": (group_query_attention,)}
