"""Attention of a decode step over a cache that the step adds to: one operator writes the cache and reads it.

Two forms of cache. One grows by concatenation. The other has a fixed size, is a state of the graph, and is written at a
position for each sample; that operator gives back what lies behind the last entry only where past and present are one
buffer, which is what a state is: whoever runs the model binds input and output to the same memory.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ....ir.dims import Dim, Truth, compare
from ....ir.graph import Node, Value
from ....ir.types import DType
from ..export_context import ExportContext, Operand
from .group import DOMAIN, Group, Operator, content_of, scalar_of, sole_producer

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


def group_query_attention(node: Node, available: Collection[Operator], order: Mapping[Node, int]) -> Group | None:
    """GroupQueryAttention: both caches are written, and one query for each sample attends to what is in them."""
    attention = sole_producer(node.operands[0], "attention")
    if attention is None:
        return None
    q, keys, values, mask, lengths = attention.inputs
    if q is None or keys is None or values is None or mask is not None or not _is_step(attention, node):
        return None
    writes = _written(keys), _written(values)
    if writes[0] is None or writes[1] is None or keys is values:
        return None
    k, v = writes[0], writes[1]
    if Operator(_NAME, node.output.tensor.dtype, GROWING if k.positions is None else "") not in available:
        return None
    if k.positions is not v.positions or any(_is_read_before(each.node, attention, node, order) for each in (k, v)):
        return None
    if not (_counts_all(attention, lengths, keys) if k.positions is None else _ends_at(lengths, k.positions)):
        return None
    entries = [_side_by_side(value) for value in (q, k.entry, v.entry)]

    def write(ctx: ExportContext) -> None:
        given = [
            ctx.emit_value("Reshape", (value, ctx.ints((0, 1, -1)))) if flat is None else flat
            for value, (flat, _) in zip((q, k.entry, v.entry), entries, strict=True)
        ]
        past, total = _lengths_of(ctx, k, lengths)
        ctx.emit(
            _NAME, (*given, k.past, v.past, past, total), (node.output, keys, values), domain=DOMAIN,
            num_heads=q.shape[1], kv_num_heads=keys.shape[1], scale=attention.attrs["scale"],
            softcap=attention.attrs["softcap"] or None,
        )  # fmt: skip

    inner = {attention, k.node, v.node, *(made for _, made in entries if made is not None)}
    return Group(node, frozenset(inner), (node.output, keys, values), write)


def _is_step(attention: Node, joined: Node) -> bool:
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
    content = content_of(lengths)
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


def _side_by_side(value: Value) -> tuple[Value | None, Node | None]:
    """What [B, H, 1, D] is made of as [B, 1, H D], and the node that is not needed then."""
    made = value.producer
    if made is None or made.op.name != "reshape":
        return None, None
    flat, (batch, heads, _, size) = made.operands[0], value.shape
    if flat.tensor.rank != 3 or flat.shape[1] != 1 or compare(flat.shape[0], batch) is not Truth.YES:
        return None, None
    if compare(flat.shape[2], heads * size) is not Truth.YES:
        return None, None
    return flat, made if sole_producer(value, "reshape") is made else None


def _lengths_of(ctx: ExportContext, write: _Write, lengths: Value | None) -> tuple[Operand, Operand]:
    """How many entries each sample has before this step, and the largest number that one has behind it, as i32."""
    if lengths is None or content_of(lengths) is not None:
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
