"""Attention over flattened tokens: sequences of different lengths, one behind another, each with its own cache."""

from collections.abc import Sequence

import numpy as np

from ...attrs import Attribute, AttrKind, Attrs
from ...constant import Array
from ...dims import Dim
from ...dims.constraints import require_equal
from ...errors import ExecutionError, ShapeError, TypeRuleError
from ...op import FLOATS, I64, Op, Trait, op
from ...types import TensorType, Type
from ..rules import require_rank
from .attention import attention


def varlen_attention_type(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    query_lengths: TensorType,
    kv_lengths: TensorType,
    *,
    longest: Dim,
    causal: bool,
    scale: float | None,
    softcap: float,
) -> TensorType:
    """[N, H, D] with [R, S, Hk, D] and [R, S, Hk, Dv] gives [N, H, Dv]; Hk divides H. Both lengths are i64[R]."""
    for ty, rank, name in ((q, 3, "q"), (k, 4, "k"), (v, 4, "v"), (query_lengths, 1, "query_lengths")):
        require_rank(ty, rank, f"{name} of varlen_attention")
    require_rank(kv_lengths, 1, "kv_lengths of varlen_attention")
    tokens, heads, depth = q.dims
    sequences, keys, kv_heads, size = v.dims
    for other, name in ((k.dims[0], "k"), (query_lengths.dims[0], "query_lengths"), (kv_lengths.dims[0], "kv_lengths")):
        require_equal(sequences, other, f"v and {name} must have one entry for each sequence")
    require_equal(keys, k.dims[1], "k and v must have one length")
    require_equal(kv_heads, k.dims[2], "k and v must have as many heads")
    require_equal(depth, k.dims[3], "q and k must have one head size")
    if not isinstance(heads, int) or not isinstance(kv_heads, int):
        raise TypeRuleError("varlen_attention needs numbers of heads that are known")
    if kv_heads < 1 or heads % kv_heads:
        raise ShapeError(f"{heads} query heads cannot share {kv_heads} heads of k and v")
    if isinstance(longest, int) and longest < 0:
        raise ShapeError(f"the longest sequence cannot have {longest} tokens")
    return TensorType(q.dtype, (tokens, heads, size))


def varlen_attention(
    q: Array,
    k: Array,
    v: Array,
    query_lengths: Array,
    kv_lengths: Array,
    *,
    longest: int,
    causal: bool,
    scale: float | None,
    softcap: float,
) -> Array:
    """Native `attention` of each sequence over its own keys and values, for tokens of all sequences in one axis.

    q is [N, H, D]: the first `query_lengths[0]` tokens are the queries of sequence 0, the next `query_lengths[1]` those
    of sequence 1, and so on; a length may be 0, none is above `longest`. Tokens behind the last sequence get zeros. k
    [R, S, Hk, D] and v [R, S, Hk, Dv] are caches, of which the first `kv_lengths[r]` entries count for sequence r. With
    `causal`, the last query of a sequence sees all of those, each one before it one less. `scale` and `softcap` are
    those of attention. Raises `ExecutionError` for lengths that do not fit.

    Known as variable-length or ragged attention: T. Dao, "FlashAttention-2" (2023), varlen functions.
    """
    _check_lengths(query_lengths, len(q), longest, "query_lengths", "tokens")
    _check_lengths(kv_lengths[query_lengths > 0], None, k.shape[1], "kv_lengths", "entries")
    (_, heads, depth), (sequences, keys, kv_heads, size) = q.shape, v.shape
    flat_k, flat_v = k.reshape(sequences, keys, kv_heads * depth), v.reshape(sequences, keys, kv_heads * size)
    result = np.zeros((len(q), heads, size), dtype=q.dtype)
    start = 0
    for row, count in enumerate(query_lengths.tolist()):
        if not count:
            continue
        queries = q[start : start + count].reshape(1, count, heads * depth)
        one = slice(row, row + 1)
        mixed = attention(
            queries,
            flat_k[one],
            flat_v[one],
            None,
            kv_lengths[one],
            causal=causal,
            scale=scale,
            softcap=softcap,
            heads=heads,
            kv_heads=kv_heads,
        )
        result[start : start + count] = mixed.reshape(count, heads, size)
        start += count
    return result


def _check_lengths(lengths: Array, total: int | None, longest: int, name: str, what: str) -> None:
    """Raises `ExecutionError` for a length below 0 or above `longest`, or when the sum is above `total`."""
    wrong = lengths[(lengths < 0) | (lengths > longest)]
    if len(wrong):
        raise ExecutionError(f"{name} has {int(wrong[0])}, where a sequence has 0 to {longest} {what}")
    if total is not None and lengths.sum() > total:
        raise ExecutionError(f"{name} adds up to {int(lengths.sum())}, but there are {total} {what}")


def _flops(inputs: Sequence[Type | None], _outputs: Sequence[Type], _attrs: Attrs) -> Dim:
    """Every token with every entry of a cache, which is the most that lengths can ask for."""
    q, v = inputs[0], inputs[2]
    if not (isinstance(q, TensorType) and isinstance(v, TensorType)):
        return 0
    tokens, heads, depth = q.dims
    return tokens * heads * v.dims[1] * (2 * depth + 2 * v.dims[3] + 5)


OPS: tuple[Op, ...] = (
    op(
        "varlen_attention",
        "q: T, k: T, v: V, query_lengths: N, kv_lengths: N",
        T=FLOATS,
        V=FLOATS,
        N=I64,
        attrs=(
            Attribute("longest", AttrKind.DIM),
            Attribute("causal", AttrKind.BOOL, False),
            Attribute("scale", AttrKind.FLOAT, None),
            Attribute("softcap", AttrKind.FLOAT, 0.0),
        ),
        infer=varlen_attention_type,
        meaning=varlen_attention,
        traits=Trait.READS_HOST,
        flops=_flops,
    ),
)
