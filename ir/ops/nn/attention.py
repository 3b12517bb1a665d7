"""Attention and rotary position embedding, after the ONNX operators of these names."""

import math
from collections.abc import Sequence

import numpy as np

from ...attrs import Attribute, AttrKind, Attrs
from ...constant import Array
from ...dims import Dim, Truth, compare, product
from ...dims.constraints import require_equal
from ...errors import ExecutionError, ShapeError, TypeRuleError
from ...op import BOOLS, FLOATS, I64, INDICES, Op, flops_per_element, op
from ...types import DType, TensorType, Type
from ..elementwise import is_small_float
from ..rules import require_broadcast, require_rank

# ---- attention


def attention_type(  # noqa: PLR0913  # the operator's
    q: TensorType,
    k: TensorType,
    v: TensorType,
    mask: TensorType | None,
    kv_lengths: TensorType | None,
    *,
    causal: bool,
    scale: float | None,
    softcap: float,
    heads: int,
    kv_heads: int,
    nan_rows: bool,
) -> TensorType:
    """[B, H, T, D] with [B, Hk, S, D] and [B, Hk, S, Dv] gives [B, H, T, Dv]; Hk divides H.

    Heads may stand side by side in the last axis instead: [B, T, H * D] with [B, S, Hk * D] and [B, S, Hk * Dv] gives
    [B, T, H * Dv], where `heads` is H and `kv_heads` is Hk.
    """
    for ty, name in ((q, "q"), (k, "k"), (v, "v")):
        require_rank(ty, 4 if q.rank == 4 else 3, f"{name} of attention")
    (batch, h, steps, depth), k_dims, v_dims = (
        _dims_by_head(ty, count) for ty, count in ((q, heads), (k, kv_heads), (v, kv_heads))
    )
    for other, name in ((k_dims, "k"), (v_dims, "v")):
        require_equal(batch, other[0], f"q and {name} must have one batch size")
    require_equal(k_dims[1], v_dims[1], "k and v must have as many heads")
    require_equal(k_dims[2], v_dims[2], "k and v must have one length")
    require_equal(depth, k_dims[3], "q and k must have one head size")
    if h != 0 and (k_dims[1] == 0 or compare(h % k_dims[1], 0) is Truth.NO):
        raise ShapeError(f"{h} query heads cannot share {k_dims[1]} heads of k and v")
    if mask is not None:
        require_broadcast(mask.dims, (batch, h, steps, k_dims[2]), "the mask of attention")
    if kv_lengths is not None:
        require_rank(kv_lengths, 1, "kv_lengths of attention")
        require_equal(batch, kv_lengths.dims[0], "kv_lengths must have an entry for each sample")
    size = v_dims[3]
    return TensorType(q.dtype, (batch, h, steps, size) if q.rank == 4 else (batch, steps, h * size))


def _dims_by_head(ty: TensorType, heads: int) -> tuple[Dim, Dim, Dim, Dim]:
    """The sizes of an operand of attention as batch, heads, steps and head size."""
    if ty.rank == 4:
        batch, count, steps, depth = ty.dims
        return batch, count, steps, depth
    batch, steps, hidden = ty.dims
    if heads < 1:
        raise TypeRuleError("attention on [batch, sequence, hidden] needs the numbers of heads")
    if compare(hidden % heads, 0) is Truth.NO:
        raise ShapeError(f"a hidden size of {hidden} cannot be split into {heads} heads")
    return batch, heads, steps, hidden // heads


def attention(  # noqa: PLR0913  # the operator's
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    kv_lengths: Array | None,
    *,
    causal: bool,
    scale: float | None,
    softcap: float,
    heads: int,
    kv_heads: int,
    nan_rows: bool = False,
) -> Array:
    """softmax(softcap(q @ kᵀ * scale) + mask) @ v, heads of q sharing heads of k and v in groups.

    Operands are [B, H, T, D] and [B, Hk, S, D], or [B, T, H * D] and [B, S, Hk * D] with H `heads` and Hk `kv_heads`.
    `scale` None is 1 / sqrt(D). A `softcap` above 0 maps a score s to softcap * tanh(s / softcap). A bool mask says
    which keys a query sees, a float mask is added. `kv_lengths` says how many keys of each sample count. With `causal`,
    query i sees key j where j <= i + offset; the offset is 0, and kv_lengths - T where these are given. A query that
    sees no key gives zeros, and NaN with `nan_rows`, as the softmax alone does. Keys that a query does not see do not
    count, whatever their score.
    """
    if q.ndim == 4 and k.shape[1] != v.shape[1]:
        raise ExecutionError(f"k and v must have as many heads, but have {k.shape[1]} and {v.shape[1]}")
    if q.ndim == 4:
        return _attention_by_head(q, k, v, mask, kv_lengths, causal, scale, softcap, nan_rows)
    by_head = (_by_head(q, heads), _by_head(k, kv_heads), _by_head(v, kv_heads))
    result = _attention_by_head(*by_head, mask, kv_lengths, causal, scale, softcap, nan_rows)
    return result.swapaxes(1, 2).reshape(*q.shape[:2], heads * result.shape[3])


def _by_head(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)


def _attention_by_head(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    kv_lengths: Array | None,
    causal: bool,
    scale: float | None,
    softcap: float,
    nan_rows: bool,
) -> Array:
    """`attention` for operands of rank 4."""
    wide = np.dtype(np.float32) if is_small_float(q) else q.dtype
    (batch, heads, steps, depth), groups, keys = q.shape, k.shape[1], k.shape[2]
    shared = heads // groups if groups else 1
    factor = 1 / math.sqrt(max(depth, 1)) if scale is None else scale
    rows = (q.astype(wide) * wide.type(factor)).reshape(batch, groups, shared * steps, depth)
    scores = np.matmul(rows, k.astype(wide, copy=False).swapaxes(2, 3)).reshape(batch, heads, steps, keys)
    if softcap > 0:
        scores = np.tanh(scores / wide.type(softcap)) * wide.type(softcap)
    weights = _masked_softmax(scores, mask, _visible(kv_lengths, steps, keys, causal), nan_rows)
    mixed = np.matmul(weights.reshape(batch, groups, shared * steps, keys), v.astype(wide, copy=False))
    return np.asarray(mixed.reshape(batch, heads, steps, v.shape[3]), dtype=q.dtype)


def _visible(kv_lengths: Array | None, steps: int, keys: int, causal: bool) -> Array | None:
    """Which keys each query may see, broadcastable to [B, H, T, S]; None for all."""
    if kv_lengths is None and not causal:
        return None
    key = np.arange(keys)
    query = np.arange(steps)[:, np.newaxis]
    if kv_lengths is None:
        return np.asarray(key <= query)
    lengths = kv_lengths.reshape(-1, 1, 1, 1)
    is_real = key < lengths
    return is_real & (key <= query + lengths - steps) if causal else is_real


def _masked_softmax(scores: Array, mask: Array | None, visible: Array | None, nan_rows: bool) -> Array:
    """Softmax over the last axis of `scores`, which it overwrites; of a row of -inf 0, or NaN."""
    if mask is not None and mask.dtype != np.bool_:
        mask = mask.astype(scores.dtype, copy=False)
        scores += mask
        mask = mask != -np.inf
    seen = mask if visible is None else visible if mask is None else mask & visible
    if seen is not None:
        np.copyto(scores, -np.inf, where=~seen)
    highest = np.max(scores, -1, keepdims=True, initial=-np.inf)
    highest[np.isneginf(highest)] = 0
    scores -= highest
    np.exp(scores, out=scores)
    total = np.sum(scores, -1, keepdims=True)
    total[total == 0] = np.nan if nan_rows else 1
    scores /= total
    return scores


def _attention_flops(inputs: Sequence[Type | None], outputs: Sequence[Type], attrs: Attrs) -> Dim:
    q, k, v = inputs[0], inputs[1], inputs[2]
    if not (isinstance(q, TensorType) and isinstance(k, TensorType) and isinstance(v, TensorType)):
        return 0
    batch, heads, steps, depth = _dims_by_head(q, attrs["heads"])
    scores = product((batch, heads, steps, k.dims[-2]))
    return scores * (2 * depth + 2 * _dims_by_head(v, attrs["kv_heads"])[3] + 5)


# ---- rotary embedding


def rotary_type(
    x: TensorType,
    cos: TensorType,
    sin: TensorType,
    positions: TensorType | None,
    *,
    interleaved: bool,
    heads: int,
    rotary_dim: int,
) -> TensorType:
    """The type of `x`; half of the rotated part of a head is the last size of `cos` and `sin`."""
    require_rank(x, (3, 4), "the operand of rotary_embedding")
    if cos.dtype is not x.dtype and not (cos.dtype is DType.F32 and x.dtype.is_small_float):
        raise TypeRuleError(f"tables of {cos.dtype} rotate no {x.dtype}: only floats below f32 take wider ones, of f32")
    if x.rank == 3 and heads < 1:
        raise TypeRuleError("rotary_embedding on [batch, sequence, hidden] needs the number of heads")
    if x.rank == 3 and compare(x.dims[2] % heads, 0) is Truth.NO:
        raise ShapeError(f"a hidden size of {x.dims[2]} cannot be split into {heads} heads")
    depth = x.dims[3] if x.rank == 4 else x.dims[2] // heads
    if rotary_dim % 2 or (isinstance(depth, int) and not 0 <= rotary_dim <= depth):
        raise TypeRuleError(f"rotary_dim is {rotary_dim}, not an even part of a head of size {depth}")
    batch, steps = x.dims[0], x.dims[2] if x.rank == 4 else x.dims[1]
    for table, name in ((cos, "cos"), (sin, "sin")):
        require_rank(table, 3 if positions is None else 2, f"{name} of rotary_embedding")
        half = table.dims[-1]
        require_equal(half * 2, rotary_dim or depth, f"{name} must have one entry for each pair that is rotated")
        if positions is None:
            require_broadcast(table.dims[:2], (batch, steps), name)
    if positions is not None:
        require_rank(positions, 2, "positions of rotary_embedding")
        require_broadcast(positions.dims, (batch, steps), "positions of rotary_embedding")
    return x


def rotary_embedding(
    x: Array,
    cos: Array,
    sin: Array,
    positions: Array | None,
    *,
    interleaved: bool,
    heads: int,
    rotary_dim: int,
) -> Array:
    """Pairs of each head's features rotated by the angle of their position (RoPE, arXiv:2104.09864).

    `x` is [B, H, T, D], or [B, T, H * D] with `heads` given. `cos` and `sin` are [B, T, R/2], or tables [max, R/2] that
    `positions` [B, T] selects from. The first R = `rotary_dim` features (0: all D) are rotated: neighbors form a pair
    where `interleaved`, else feature i and i + R/2. Floats below f32 are rotated in f32, and may have tables of f32.
    """
    wide = np.dtype(np.float32) if is_small_float(x) else x.dtype
    by_head = x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)
    result = np.array(by_head)
    count = rotary_dim or by_head.shape[3]
    if interleaved:
        first, second = slice(0, count, 2), slice(1, count, 2)
    else:
        first, second = slice(0, count // 2), slice(count // 2, count)
    c, s = (_angles(table, positions, wide) for table in (cos, sin))
    a, b = (by_head[..., part].astype(wide, copy=False) for part in (first, second))
    result[..., first] = a * c - b * s
    result[..., second] = a * s + b * c
    return result if x.ndim == 4 else result.swapaxes(1, 2).reshape(x.shape)


def _angles(table: Array, positions: Array | None, wide: np.dtype[np.floating]) -> Array:
    chosen = table if positions is None else table[positions]
    return chosen[:, np.newaxis].astype(wide, copy=False)


OPS: tuple[Op, ...] = (
    op(
        "attention",
        "q: T, k: T, v: V, mask: _M?, kv_lengths: N?",
        T=FLOATS,
        V=FLOATS,
        _M=FLOATS | BOOLS,
        N=I64,
        attrs=(
            Attribute("causal", AttrKind.BOOL, False),
            Attribute("scale", AttrKind.FLOAT, None),
            Attribute("softcap", AttrKind.FLOAT, 0.0),
            Attribute("heads", AttrKind.INT, 0),
            Attribute("kv_heads", AttrKind.INT, 0),
            Attribute("nan_rows", AttrKind.BOOL, False),
        ),
        infer=attention_type,
        meaning=attention,
        flops=_attention_flops,
    ),
    op(
        "rotary_embedding",
        "x: T, cos: U, sin: U, positions: N?",
        T=FLOATS,
        U=FLOATS,
        N=INDICES,
        attrs=(
            Attribute("interleaved", AttrKind.BOOL, False),
            Attribute("heads", AttrKind.INT, 0),
            Attribute("rotary_dim", AttrKind.INT, 0),
        ),
        infer=rotary_type,
        meaning=rotary_embedding,
        flops=flops_per_element(3),
    ),
)
