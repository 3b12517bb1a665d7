"""Operators that `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` call at inference, taken apart again.

PyTorch has them whole, with kernels of their own; here they are the linear layers, norms and attention that they are
made of, which passes and other devices know. Where a mask hides all keys from a query, PyTorch's kernel gives NaN;
here, as in PyTorch without this path, nothing is added.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

_ATTENTION_MASK, _PADDING_MASK = 0, 1


def _attention(  # noqa: PLR0913, PLR0917  # the operator's
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_head: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Any, Any]:
    if not query.numel():
        return torch.empty_like(query), query.new_empty(0)
    q, k, v = _heads(query, key, value, num_head, qkv_weight, qkv_bias)
    seen = None if mask is None else _seen(mask, mask_type)
    weights = _weights(q, k, seen) if need_weights else None
    mixed = F.scaled_dot_product_attention(q, k, v, seen) if weights is None else torch.matmul(weights, v)
    result = F.linear(mixed.transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if weights is None:
        return result, query.new_empty(0)
    return result, weights.mean(1) if average_attn_weights else weights


def _heads(query: Any, key: Any, value: Any, heads: int, weight: Any, bias: Any) -> list[Any]:
    """Queries, keys and values as [N, heads, L, width]."""
    if query is key and key is value:
        found = F.linear(query, weight, bias).chunk(3, dim=-1)
    else:
        parts = zip((query, key, value), weight.chunk(3), bias.chunk(3), strict=True)
        found = tuple(F.linear(*each) for each in parts)
    return [each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in found]


def _seen(mask: Any, kind: int | None) -> Any:
    """What may be seen, in a shape that the scores [N, heads, L, S] take; PyTorch hides what is not 0 in any dtype."""
    hidden = mask if mask.dtype == torch.bool else mask != 0
    if kind == _ATTENTION_MASK:
        return ~hidden
    return ~(hidden[:, None, None] if kind == _PADDING_MASK else hidden)


def _weights(q: Any, k: Any, seen: Any) -> Any:
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-2, -1))
    return (scores if seen is None else scores.masked_fill(~seen, float("-inf"))).softmax(-1)


def _encoder_layer(  # noqa: PLR0913, PLR0917  # the operator's
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    norms = (norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2)

    def normed(x: Any, index: int) -> Any:
        return F.layer_norm(x, (embed_dim,), *norms[index], eps)

    def attended(x: Any) -> Any:
        weights = qkv_weight, qkv_bias, proj_weight, proj_bias
        return _attention(x, x, x, embed_dim, num_heads, *weights, mask, False, True, mask_type)[0]

    def fed(x: Any) -> Any:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attended(normed(src, 0))
        return x + fed(normed(x, 1))
    x = normed(src + attended(src), 0)
    return normed(x + fed(x), 1)


FAST_PATHS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten._native_multi_head_attention.default: _attention,
    torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer,
}
"""By operator, what it is made of."""
