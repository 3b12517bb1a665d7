"""Scaled dot product attention."""

from typing import Any

from ....ir.dims import Dim, product
from ....ir.graph import Value
from ..call import Call, Lowering, NoLowering


def _attention(
    c: Call,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool = False,
) -> Value:
    """Of q [..., H, T, D] with k [..., H, S, D] and v; a mask of bools says what is seen, one of floats is added."""
    if dropout:
        raise NoLowering("dropout in attention")
    leading = q.shape[:-2] if enable_gqa else c.shape[:-2]
    if not enable_gqa:
        q, k, v = (c.expand(x, (*leading, *x.shape[-2:])) for x in (q, k, v))
    few = [_without_repeats(x) for x in (k, v)]
    if few[0].shape[1:2] == few[1].shape[1:2]:
        k, v = few
    operands = [_of_rank_4(c, x) for x in (q, k, v)]
    attrs = {"causal": is_causal, "scale": None if scale is None else float(scale)}
    result = c.op("attention", *operands, _mask(c, mask, leading), None, **attrs)
    return c.reshape(result, (*leading, q.shape[-2], v.shape[-1]))


def _without_repeats(x: Value) -> Value:
    """The heads behind repeated ones, [B, H, 1, S, D] expanded and reshaped: the native op shares heads by itself."""
    repeated = _operand_of(x, "reshape")
    single = _operand_of(repeated, "expand")
    heads = _operand_of(single, "unsqueeze")
    if repeated is None or single is None or heads is None or heads.tensor.rank != 4 or x.tensor.rank != 4:
        return x
    batch, count, one, *rest = single.shape
    is_repeat = one == 1 and repeated.shape[:2] == (batch, count) and list(repeated.shape[3:]) == rest
    joined = (batch, count * repeated.shape[2], *rest)
    return heads if is_repeat and heads.shape == (batch, count, *rest) and x.shape == joined else x


def _operand_of(x: Value | None, native: str) -> Value | None:
    """What the value is made of by an op of that name; None if it is not made so."""
    node = x.producer if x is not None else None
    return node.operands[0] if node is not None and node.op.name == native else None


def _of_rank_4(c: Call, x: Value) -> Value:
    """All axes before the heads as one."""
    if x.tensor.rank == 2:
        return c.unsqueeze(x, 0, 1)
    if x.tensor.rank == 3:
        return c.unsqueeze(x, 0)
    return c.reshape(x, (product(x.shape[:-3]), *x.shape[-3:])) if x.tensor.rank > 4 else x


def _mask(c: Call, mask: Value | None, leading: tuple[Dim, ...]) -> Value | None:
    if mask is None or (mask.tensor.rank <= 4 and len(leading) <= 2):
        return mask
    return _of_rank_4(c, c.expand(mask, (*leading, *mask.shape[-2:])))


def _with_extras(c: Call, q: Value, k: Value, v: Value, dropout: float, is_causal: bool, **given: Any) -> list[Any]:
    result = _attention(c, q, k, v, given.get("mask"), dropout, is_causal, given.get("scale"))
    return [result, *[None] * (len(c.results) - 1)]


def _flash(c: Call, q: Value, k: Value, v: Value, dropout: float, causal: bool, *rest: Any) -> list[Any]:
    """Flash attention on the CPU: a mask and a scale follow."""
    mask, scale = rest[-2:]
    return _with_extras(c, q, k, v, dropout, causal, mask=mask, scale=scale)


TABLE: dict[str, Lowering] = {
    "aten.scaled_dot_product_attention": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu": _flash,
}
