"""Attention and rotary embedding. Attention's 3-D form and its key and value cache are written around the native op."""

from typing import Any

import numpy as np

from ....ir.dims import Dim, Truth, compare
from ....ir.errors import ModelError
from ....ir.graph import Node, Value
from ....ir.padded_attention import padded_attention
from ....ir.types import DType
from ..context.attention_masks import safe_mask
from ..context.dialect import Dialect
from ..context.export_context import ExportContext, Operand
from ..context.import_context import ImportContext, NotNative
from ..tensors import dtype_of

# ---- coming in


def import_attention(ctx: ImportContext) -> tuple[Value | None, ...]:
    """Attention. Not native: scores as a result, windows, and a softmax in less precision than the operands have."""
    if ctx.wants(3):
        raise NotNative("the scores as a result")
    if ctx.attr("left_window_size", -1) >= 0 or ctx.attr("right_window_size", -1) >= 0:
        raise NotNative("a sliding window")
    dtype = ctx.tensor(0).dtype
    precision = ctx.attr("softmax_precision")
    if precision is not None and dtype_of(precision).bits < dtype.bits:
        raise NotNative("a softmax in less precision than its operands")
    heads, kv_heads = ctx.attr("q_num_heads", 0), ctx.attr("kv_num_heads", 0)
    attrs = {"scale": ctx.attr("scale"), "softcap": ctx.attr("softcap", 0.0)}
    if ctx.tensor(0).rank == 3 and ctx.optional(4) is None and not (ctx.wants(1) or ctx.wants(2)):
        return _side_by_side(ctx, {**attrs, "heads": heads, "kv_heads": kv_heads})
    q, k, v = (_by_head(ctx, index, count) for index, count in enumerate((heads, kv_heads, kv_heads)))
    lengths, causal = ctx.optional(6), bool(ctx.attr("is_causal", 0))
    if ctx.optional(4) is not None:
        if lengths is not None:
            raise NotNative("a cache inside and outside")
        if causal and compare(q.shape[2], k.shape[2]) is not Truth.YES:
            raise NotNative("causal attention with a cache, of other keys than queries")
        k, v = (ctx.op("concat", ctx.input(index), new, axis=2) for index, new in ((4, k), (5, v)))
        lengths = _all_keys(ctx, q, k) if causal else None
    result = ctx.op("attention", q, k, v, _mask(ctx, k.shape[2], dtype), lengths, causal=causal, **attrs)
    return _joined(ctx, result), k, v


def _side_by_side(ctx: ImportContext, attrs: dict[str, Any]) -> tuple[Value | None, ...]:
    """The 3-D form without a cache."""
    q, k, v = (ctx.input(index) for index in range(3))
    for x in (k, v):
        if x.tensor.rank != 3:
            raise ModelError(f"Attention takes operands of one rank, but {x.name} is {x.tensor} beside {q.tensor}")
    mask = _mask(ctx, k.shape[1], q.tensor.dtype)
    causal = bool(ctx.attr("is_causal", 0))
    return (ctx.op("attention", q, k, v, mask, ctx.optional(6), causal=causal, **attrs), None, None)


def _by_head(ctx: ImportContext, index: int, heads: int) -> Value:
    """An operand as [batch, heads, sequence, head size]."""
    x, ty = ctx.input(index), ctx.tensor(index)
    if ty.rank == 4:
        return x
    if ty.rank != 3:
        raise ModelError(f"Attention takes operands of rank 3 or 4, but {x.name} is {ty}")
    if heads < 1:
        raise ModelError(f"Attention of operands of rank 3 needs the number of heads, but it is {heads}")
    batch, steps, hidden = ty.dims
    split = ctx.op("reshape", x, shape=(batch, steps, heads, hidden // heads))
    return ctx.op("transpose", split, perm=(0, 2, 1, 3))


def _joined(ctx: ImportContext, result: Value) -> Value:
    """The result in the form of the operands."""
    if ctx.tensor(0).rank == 4:
        return result
    batch, heads, steps, depth = result.shape
    return ctx.op("reshape", ctx.op("transpose", result, perm=(0, 2, 1, 3)), shape=(batch, steps, heads * depth))


def _all_keys(ctx: ImportContext, q: Value, k: Value) -> Value:
    """The number of keys for each sample: causal attention then starts from the last key, as it does with a cache."""
    keys, batch = k.shape[2], q.shape[0]
    if isinstance(keys, int) and isinstance(batch, int):
        return ctx.constant(np.full(batch, keys, dtype=np.int64))
    count = ctx.op("shape", k, start=2, end=3)
    if ctx.may_mention((batch,), count):
        return ctx.op("expand", count, shape=(batch,))
    return ctx.op("dynamic_expand", count, ctx.op("shape", q, start=0, end=1))


def _mask(ctx: ImportContext, keys: Dim, dtype: DType) -> Value | None:
    """The mask, one that ends before the last key continued as hidden."""
    mask = ctx.optional(3)
    if mask is None:
        return None
    if mask.tensor.dtype is not DType.BOOL and not mask.tensor.dtype.is_float:
        mask = ctx.op("cast", mask, to=dtype)
    rank = mask.tensor.rank
    if not rank or compare(mask.shape[-1], keys) is not Truth.NO:
        return mask
    hidden = ctx.scalar_like(False if mask.tensor.dtype is DType.BOOL else float("-inf"), mask)
    missing = keys - mask.shape[-1]
    if not ctx.may_mention((missing,), mask):
        raise NotNative("a mask that ends before the last key")
    return ctx.op("pad", mask, hidden, pads=(*(0,) * (2 * rank - 1), missing))


def import_rotary_embedding(ctx: ImportContext) -> Value:
    """RotaryEmbedding."""
    return ctx.op(
        "rotary_embedding",
        *(ctx.input(index) for index in range(3)),
        ctx.optional(3),
        interleaved=bool(ctx.attr("interleaved", 0)),
        heads=ctx.attr("num_heads", 0),
        rotary_dim=ctx.attr("rotary_embedding_dim", 0),
    )


IMPORTS = {"Attention": import_attention, "RotaryEmbedding": import_rotary_embedding}

# ---- going out


def export_attention(ctx: ExportContext, node: Node) -> None:
    """Attention in the form of its operands."""
    _, k, v, mask, lengths = node.inputs
    written = None if mask is None else _full_mask(ctx, node, mask)
    q, scale = _scaled(ctx, node)
    ctx.emit(
        "Attention",
        (q, k, v, written, None, None, lengths),
        node.outputs,
        is_causal=node.attrs["causal"],
        scale=scale,
        softcap=node.attrs["softcap"],
        q_num_heads=node.attrs["heads"] or None,
        kv_num_heads=node.attrs["kv_heads"] or None,
    )


def _scaled(ctx: ExportContext, node: Node) -> tuple[Operand, float | None]:
    """The queries and the scale: ONNX takes the root of it, and ONNX Runtime refuses one that is not above 0."""
    q, scale = node.operands[0], node.attrs["scale"]
    if scale is None or 0 < np.float32(scale) < np.inf:
        return q, scale
    return ctx.emit_value("Mul", (q, ctx.constant(scale, q.tensor.dtype))), 1.0


def _full_mask(ctx: ExportContext, node: Node, mask: Value) -> Operand:
    """The mask with queries and keys in full: for ONNX one key is a mask that ends early, not one for all keys."""
    full = (node.operands[0].shape[-2], node.operands[1].shape[-2])
    written = mask if ctx.dialect is Dialect.FAITHFUL else safe_mask(ctx, mask)
    if mask.tensor.rank >= 2 and all(dim != 1 or size == 1 for dim, size in zip(mask.shape[-2:], full, strict=True)):
        return written
    return ctx.emit_value("Expand", (written, ctx.dims_tensor(full, *node.operands)))


def export_rotary_embedding(ctx: ExportContext, node: Node) -> None:
    """RotaryEmbedding, whose positions are i64, in the dtype of its tables."""
    x, cos, sin, positions = node.inputs
    assert x is not None  # the op requires all three
    assert cos is not None
    indices: Operand = positions
    if isinstance(positions, Value) and positions.tensor.dtype is not DType.I64:
        indices = ctx.emit_value("Cast", (positions,), to=DType.I64)
    dtype, wide = x.tensor.dtype, cos.tensor.dtype
    attrs = {
        "interleaved": node.attrs["interleaved"],
        "num_heads": node.attrs["heads"] or None,
        "rotary_embedding_dim": node.attrs["rotary_dim"] or None,
    }
    if dtype is wide:
        ctx.emit("RotaryEmbedding", (x, cos, sin, indices), node.outputs, **attrs)
        return
    turned = ctx.emit_value("RotaryEmbedding", (ctx.emit_value("Cast", (x,), to=wide), cos, sin, indices), **attrs)
    ctx.emit("Cast", (turned,), node.outputs, to=dtype)


def export_varlen_attention(ctx: ExportContext, node: Node) -> None:
    """Attention with the queries of each sequence padded to the longest one: ONNX has no other."""
    ctx.inline(padded_attention(node))


EXPORTS = {
    "attention": export_attention,
    "rotary_embedding": export_rotary_embedding,
    "varlen_attention": export_varlen_attention,
}
