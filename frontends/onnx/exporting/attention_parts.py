"""Attention as matmuls, a softmax and masks: before the operator, for NaN in hidden rows, and where kernels lack.

A query that sees no key gives NaN, or zeros, as the node says: for zeros, where a mask can hide every key, weights of
hidden keys are set to 0 behind the softmax. A float mask counts as one that cannot if it is made of finite numbers,
whatever they overflow to.
"""

import math

import numpy as np

from ....ir.analysis.contents import may_be_infinite
from ....ir.builder import Builder
from ....ir.constant import Constant
from ....ir.dims import Dim
from ....ir.graph import Graph, Node, Value
from ....ir.types import DType
from ..context.export_context import ExportContext, Operand

_APART = 4  # axes of operands with heads apart
_FLAT = 2  # axes of a mask that is one for all samples and heads
_MASK = 3
_LARGEST_TRIANGLE = 1 << 16  # elements; larger ones are computed


def attention_parts(ctx: ExportContext, node: Node) -> None:
    """Writes the node. Which keys `causal` shows is written once for all nodes of the same sizes."""
    q, k, *_ = node.operands
    seen = None
    if node.attrs["causal"] and node.inputs[4] is None:
        sizes = (q.shape[-2], k.shape[-2])
        seen = ctx.once((attention_parts, sizes), lambda: _written_triangle(ctx, node, sizes))
    operands: list[Operand] = [value for value in node.inputs if value is not None]
    ctx.inline_with(_Writer(node).graph(), [*operands, *([] if seen is None else [seen])])


def _written_triangle(ctx: ExportContext, node: Node, sizes: tuple[Dim, Dim]) -> str:
    steps, keys = sizes
    if isinstance(steps, int) and isinstance(keys, int) and steps * keys <= _LARGEST_TRIANGLE:
        return ctx.constant(np.tri(steps, keys, dtype=np.bool_))
    b = Builder("triangle", symbols=node.graph.symbols if node.graph is not None else None)
    row = b.op("unsqueeze", b.op("arange", limit=steps), axes=[1])
    body = b.finish([b.op("less_equal", b.op("arange", limit=keys), row)])
    name = ctx.writer.new_name("causal")
    ctx.inline_with(body, [], [name])
    return name


class _Writer:
    """The body of one node: B samples, H heads of T queries, G heads of S keys."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.attrs = node.attrs
        self.b = Builder("attention", symbols=node.graph.symbols if node.graph is not None else None)
        names = ("q", "k", "v", "mask", "kv_lengths")
        q, k, v, mask, lengths = (
            None if value is None else self.b.input(name, value.type)
            for name, value in zip(names, node.inputs, strict=True)
        )
        assert q is not None  # the op requires the first three
        assert k is not None
        assert v is not None
        self.mask, self.lengths = mask, lengths
        self.seen: Value | None = None
        if self.attrs["causal"] and lengths is None:
            self.seen = self.b.input("seen", f"bool[{q.shape[-2]}, {k.shape[-2]}]")
        self.is_apart = q.tensor.rank == _APART
        heads, groups = (q.shape[1], k.shape[1]) if self.is_apart else (self.attrs["heads"], self.attrs["kv_heads"])
        self.batch, self.steps, self.keys = q.shape[0], q.shape[-2], k.shape[-2]
        is_flat_mask = mask is None or mask.tensor.rank <= _FLAT
        self.is_one_head = not self.is_apart and heads == groups == 1 and lengths is None and is_flat_mask
        self.heads: Dim = heads
        self.groups: Dim = groups
        self.q, self.k, self.v = self._parted(q, heads), self._transposed(k), self._parted(v, groups)
        self.dtype = q.tensor.dtype

    def graph(self) -> Graph:
        b, shared = self.b, self.heads != self.groups
        q = self._scaled(self.q)
        if shared:
            q = b.op("reshape", q, shape=(self.batch, self.groups, self._rows(), q.shape[3]))
        scores = b.op("matmul", q, self.k)
        if shared:
            scores = b.op("reshape", scores, shape=(self.batch, self.heads, self.steps, self.keys))
        softcap = self.attrs["softcap"]
        if softcap > 0:
            cap = self._number(softcap)
            scores = b.op("mul", b.op("tanh", b.op("div", scores, cap)), cap)
        weights = self._weights(scores)
        if shared:
            weights = b.op("reshape", weights, shape=(self.batch, self.groups, self._rows(), self.keys))
        mixed = b.op("matmul", weights, self._as(self.v))
        if shared:
            mixed = b.op("reshape", mixed, shape=(self.batch, self.heads, self.steps, mixed.shape[3]))
        if self.is_apart or self.is_one_head:
            return b.finish([mixed])
        joined = b.op("transpose", mixed, perm=(0, 2, 1, 3))
        return b.finish([b.op("reshape", joined, shape=(self.batch, self.steps, self.heads * mixed.shape[3]))])

    def _rows(self) -> Dim:
        return self.heads // self.groups * self.steps

    def _parted(self, x: Value, heads: Dim, perm: tuple[int, ...] = (0, 2, 1, 3)) -> Value:
        if self.is_apart or self.is_one_head:
            return x
        batch, steps, hidden = x.shape
        return self.b.op("transpose", self.b.op("reshape", x, shape=(batch, steps, heads, hidden // heads)), perm=perm)

    def _transposed(self, k: Value) -> Value:
        if self.is_apart:
            return self.b.op("transpose", k, perm=(0, 1, 3, 2))
        if self.is_one_head:
            return self.b.op("transpose", k, perm=(0, 2, 1))
        return self._parted(k, self.groups, (0, 2, 3, 1))

    def _scaled(self, q: Value) -> Value:
        scale, depth = self.attrs["scale"], q.shape[-1]
        if scale is None and not isinstance(depth, int):
            root = self.b.op("sqrt", self.b.op("cast", self.b.op("dim", value=depth), to=self.dtype))
            return self.b.op("div", q, root)
        factor = 1 / math.sqrt(max(int(depth), 1)) if scale is None else scale  # type: ignore[arg-type]  # plain here
        return q if factor == 1 else self.b.op("mul", q, self._number(factor))

    def _number(self, number: float) -> Value:
        return self.b.op("constant", value=Constant(np.asarray(number, self.dtype.numpy), self.dtype))

    def _as(self, x: Value) -> Value:
        return x if x.tensor.dtype is self.dtype else self.b.op("cast", x, to=self.dtype)

    def _weights(self, scores: Value) -> Value:
        """The softmax of the scores, of which hidden ones become -inf; 0 for keys that masks hide for good."""
        b, hidden = self.b, self._number(-math.inf)
        seen = self.seen if self.lengths is None else self._shown_by_lengths(self.lengths)
        guards = [seen] if seen is not None and self.lengths is not None else []
        if self.mask is not None and self.mask.tensor.dtype is DType.BOOL:
            seen = self.mask if seen is None else b.op("logical_and", seen, self.mask)
            guards = [seen]
        elif self.mask is not None:
            scores = b.op("add", scores, self._as(self.mask))
            if self._may_hide_all():
                shown = b.op("logical_not", b.op("equal", self.mask, self._lowest()))
                guards = [shown] if seen is None else [seen, shown]
        if seen is not None:
            scores = b.op("where", seen, scores, hidden)
        weights = b.op("softmax", scores, axis=-1)
        for guard in () if self.attrs["nan_rows"] else guards:
            weights = b.op("where", guard, weights, self._number(0))
        return weights

    def _lowest(self) -> Value:
        assert self.mask is not None  # asked for by who has one
        dtype = self.mask.tensor.dtype
        return self.b.op("constant", value=Constant(np.asarray(-math.inf, dtype.numpy), dtype))

    def _may_hide_all(self) -> bool:
        mask = self.node.inputs[_MASK]
        return mask is not None and not self.attrs["nan_rows"] and may_be_infinite(mask)

    def _shown_by_lengths(self, lengths: Value) -> Value:
        """bool[B, 1, T or 1, S]: the keys before each sample's length, and with `causal` before each query's place."""
        b = self.b
        ends = b.op("unsqueeze", lengths, axes=(1, 2, 3))
        key = b.op("arange", limit=self.keys)
        if not self.attrs["causal"]:
            return b.op("less", key, ends)
        query = b.op("unsqueeze", b.op("arange", limit=self.steps), axes=[1])
        last = b.op("add", b.op("sub", ends, b.op("dim", value=self.steps)), query)
        return b.op("less_equal", key, last)  # which is below the length, as a query's place is
