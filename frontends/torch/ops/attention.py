"""Scaled dot product attention."""

from typing import Any

from ....ir.dims import Dim, product
from ....ir.graph import Value
from ..call import Call, Lowering, NotNative


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
        raise NotNative("dropout in attention")
    leading = q.shape[:-2]
    if not enable_gqa:
        k, v = (c.expand(x, (*leading, *x.shape[-2:])) for x in (k, v))
    operands = [_of_rank_4(c, x) for x in (q, k, v)]
    attrs = {"causal": is_causal, "scale": None if scale is None else float(scale)}
    result = c.op("attention", *operands, _mask(c, mask, leading), None, **attrs)
    return c.reshape(result, (*leading, q.shape[-2], v.shape[-1]))


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
