"""Recognize attention in the shapes in which exporters write it out, and keep its heads side by side where they are.

What is looked for is softmax(scores) @ v over operands of rank 4, [batch, heads, positions, size], or of rank 3 with
batch and heads joined. `passes.recognition.scores` lists what may stand in the scores. Besides:

* a guard against NaN around the softmax, where(is_nan(p), 0, p), is dropped: the op gives 0 to a query that sees no
  key; without a guard it gets NaN (`nan_rows`) where masks of -inf may hide all keys of a query
* factors on q and k, also in front of the reshapes and transposes that part the heads, become the scale
* k in whatever order of axes: it is transposed back, which mostly cancels
* keys and values repeated for groups of query heads (reshape, expand, reshape) are read unrepeated, as is the one head
  of both that the matmuls broadcast
* a mask of zeros goes; a lower triangle, constant or computed as `parts/causal_masks.py` says, becomes `causal`,
  if it hides by -inf or is alone; others become one mask, in their order
* few keys of many features (attention over channels) stay matmuls: their scores are smaller than the queries
* heads that are parted only for attention, by reshape and transpose, and joined again after it stay side by side

Batch, heads and sizes must surely agree (the matmuls could broadcast, the op does that to one head only). A mask must
be bool or of the dtype of the scores. Nothing between q, k, v and the result may have another reader. Results move by
rounding, except that a NaN or inf among the scores gives NaN where a guard gave 0. A finite number that `where` puts in
place of scores is added to them, which is the same while they are so small that it swallows them: not for NaN, nor for
scores of 1e13.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from ...ir.analysis.contents import constant_of, may_be_infinite
from ...ir.constant import Array, Constant
from ...ir.dims import Dim, Truth, compare, product
from ...ir.graph import Node, Value
from ...ir.ops.known import CAST, EXPAND, IS_NAN, RESHAPE, TRANSPOSE, WHERE
from ...ir.ops.rules import normal_axes
from ...ir.types import DType
from ..framework.base import PatternPass
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Literal, Match, OneOf, Rule
from ..framework.rewriter import Rewriter
from .parts.causal_masks import CausalMask, causal_mask_of
from .parts.scores import HIDDEN, LARGEST, ScoreMask, Scores, factor_of, hides_nothing, read_scores

LARGE_HEAD = 128
"""Up to so many features kernels of attention have them in registers."""

_HEADS_AND_STEPS = (0, 2, 1, 3)

# ---- the whole


def _attention(rewriter: Rewriter, found: Found) -> Value | None:
    softmax, v, root = found.node("softmax"), found["v"], found.root
    if not _is_last_axis(softmax) or not _reads_only(softmax.output, root):
        return None
    scores = read_scores(found["scores"])
    if scores is None or not _fits(scores, v, root) or _is_quick_as_matmuls(scores):
        return None
    if not all(mask.value.tensor.dtype in (DType.BOOL, scores.q.tensor.dtype) for mask in scores.masks):
        return None
    if not abs(scores.scale * _factor(scores.q) * _factor(scores.keys)) <= LARGEST:
        return None
    return _built(rewriter, scores, v, root)


def _is_last_axis(softmax: Node) -> bool:
    return normal_axes((softmax.attrs["axis"],), softmax.output.tensor.rank) == (softmax.output.tensor.rank - 1,)


def _reads_only(value: Value, root: Node) -> bool:
    """Whether `root` is the one thing that the weights are computed for, through a guard or a cast."""
    pending, seen = [value], set[Node]()
    while pending:
        current = pending.pop()
        if current.is_graph_output:
            return False
        for user in current.users:
            if user is root or user in seen:
                continue
            if user.op not in (IS_NAN, WHERE, CAST):
                return False
            seen.add(user)
            pending += user.outputs
    return True


def _fits(scores: Scores, v: Value, root: Node) -> bool:
    q, keys = scores.q, scores.keys
    if not q.tensor.rank == keys.tensor.rank == v.tensor.rank or q.tensor.dtype is not root.output.tensor.dtype:
        return False
    pairs = [(v.shape[-2], keys.shape[-1]), (q.shape[-1], keys.shape[-2])]
    leading = q.shape[:1] if _share_one_head(q, keys, v) else q.shape[:-2]
    pairs += [(dim, other) for side in (keys, v) for dim, other in zip(leading, side.shape, strict=False)]
    return all(compare(*pair) is Truth.YES for pair in pairs)


def _is_quick_as_matmuls(scores: Scores) -> bool:
    """Whether scores are smaller than queries, as in attention over channels: nothing is saved by not storing them."""
    keys, depth = scores.keys.shape[-1], scores.q.shape[-1]
    return isinstance(keys, int) and isinstance(depth, int) and depth > LARGE_HEAD and 2 * keys < depth


def _share_one_head(q: Value, keys: Value, v: Value) -> bool:
    """Whether the matmuls broadcast the one head of keys and values to those of q: multi-query attention."""
    return q.tensor.rank == 4 and isinstance(q.shape[1], int) and keys.shape[1] == v.shape[1] == 1


def _built(rewriter: Rewriter, scores: Scores, v: Value, root: Node) -> Value:
    q, scale = _without_factors(rewriter, scores.q)
    keys, other = _without_factors(rewriter, scores.keys)
    lead = _leading(scores)
    kv_lead = (lead[0], 1) if _share_one_head(q, keys, v) else lead
    q, k, v = _with_leading(rewriter, q, lead), *_keys_and_values(rewriter, keys, v, kv_lead)
    scores = replace(scores, masks=tuple(_with_heads(rewriter, mask, lead) for mask in scores.masks))
    mask, causal = _mask(rewriter, scores, q, k)
    attrs: dict[str, Any] = {
        "causal": causal,
        "scale": _scale(scores.scale * scale * other, q),
        "softcap": scores.softcap,
    }
    if mask is not None and not _is_guarded(root):
        attrs["nan_rows"] = _may_hide_rows(scores.masks, q.shape[2], k.shape[2])
    result = rewriter.op("attention", q, k, v, mask, None, **attrs)
    return result if root.output.tensor.rank == 4 else rewriter.op("reshape", result, shape=root.output.shape)


def _scale(number: float, q: Value) -> float | None:
    """None where the number is the usual one, which the op then computes."""
    depth = q.shape[3]
    is_usual = isinstance(depth, int) and depth > 0 and math.isclose(number, depth**-0.5, rel_tol=1e-6)
    return None if is_usual else number


# ---- operands


def _factor(value: Value) -> float:
    """The product of the numbers that `value` is multiplied by, here or in front of moves that nothing else reads."""
    found = factor_of(value)
    if found is not None:
        return found[1] * _factor(found[0])
    node = value.producer
    if node is None or node.op not in (RESHAPE, TRANSPOSE) or len(value.uses) != 1:
        return 1.0
    return _factor(node.operands[0])


def _without_factors(rewriter: Rewriter, value: Value) -> tuple[Value, float]:
    """`value` with these numbers taken out, and their product."""
    factor = _factor(value)
    return (value, 1.0) if factor == 1.0 else (_stripped(rewriter, value), factor)


def _stripped(rewriter: Rewriter, value: Value) -> Value:
    found = factor_of(value)
    if found is not None:
        return _stripped(rewriter, found[0])
    node = value.producer
    if node is None or node.op not in (RESHAPE, TRANSPOSE) or len(value.uses) != 1 or _factor(value) == 1.0:
        return value
    return rewriter.op(node.op.name, _stripped(rewriter, node.operands[0]), **dict(node.attrs))


def _keys_and_values(rewriter: Rewriter, keys: Value, v: Value, lead: tuple[Dim, Dim]) -> tuple[Value, Value]:
    """Both as [batch, heads, positions, size]: as they are before heads are repeated for groups of q, if both are."""
    k, perm = _transposed(keys)
    k_shape: tuple[Dim, ...] = (*lead, keys.shape[-1], keys.shape[-2])
    v_shape: tuple[Dim, ...] = (*lead, *v.shape[-2:])
    if perm is None:
        repeated = [_shared_heads(k, k_shape), _shared_heads(v, v_shape)]
        counts = [value.shape[1] for value in repeated if value is not None]
        if len(counts) == 2 and compare(*counts) is Truth.YES:
            k, v = (value for value in repeated if value is not None)
            k_shape, v_shape = ((*value.shape[:2], *value.shape[3:]) for value in (k, v))
    else:
        k = rewriter.op("transpose", k, perm=perm)
    return _reshaped(rewriter, k, k_shape), _reshaped(rewriter, v, v_shape)


def _transposed(value: Value) -> tuple[Value, tuple[int, ...] | None]:
    """A value, and how to transpose it (None: not at all), that gives `value` with its last two axes swapped.

    Leading axes of the value may be joined or parted differently.
    """
    rank = value.tensor.rank
    swap = _swap(rank)
    node = value.producer
    if node is not None and node.op is TRANSPOSE:
        inner = normal_axes(node.attrs["perm"], rank)
        perm = tuple(inner[axis] for axis in swap)
        return node.operands[0], None if perm == tuple(range(rank)) else perm
    parted = _parted(node) if node is not None else None
    return (value, swap) if parted is None else (parted, None)


def _swap(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _parted(node: Node) -> Value | None:
    """What stands before a transpose of the last two axes whose leading axes a reshape then joins or parts."""
    inner = node.operands[0].producer if node.op is RESHAPE else None
    if inner is None or inner.op is not TRANSPOSE or inner.output.shape[-2:] != node.output.shape[-2:]:
        return None
    rank = inner.output.tensor.rank
    return inner.operands[0] if normal_axes(inner.attrs["perm"], rank) == _swap(rank) else None


def _reshaped(rewriter: Rewriter, value: Value, shape: Sequence[Dim]) -> Value:
    """`value` in another shape, without a chain of reshapes."""
    source = _before_reshapes(value)
    return source if source.shape == tuple(shape) else rewriter.op("reshape", source, shape=tuple(shape))


def _before_reshapes(value: Value) -> Value:
    while value.producer is not None and value.producer.op is RESHAPE:
        value = value.producer.operands[0]
    return value


def _leading(scores: Scores) -> tuple[Dim, Dim]:
    """Batch and heads: as the scores show them, else as q was before they were joined, else one head."""
    q = scores.q
    if q.tensor.rank == 4:
        return q.shape[0], q.shape[1]
    source = _before_reshapes(q)
    if scores.leading is None and source.tensor.rank == 4 and source.shape[-2:] == q.shape[-2:]:
        return source.shape[0], source.shape[1]
    return scores.leading or (q.shape[0], 1)


def _with_leading(rewriter: Rewriter, value: Value, lead: tuple[Dim, Dim]) -> Value:
    return value if value.tensor.rank == 4 else _reshaped(rewriter, value, (*lead, *value.shape[-2:]))


def _shared_heads(value: Value, shape: Sequence[Dim]) -> Value | None:
    """[batch, groups, 1, positions, size] that is expanded along the third axis and then read in `shape`."""
    node = _before_reshapes(value).producer
    if node is None or node.op is not EXPAND or node.output.tensor.rank != 5:
        return None
    source, repeated = node.operands[0], node.output.shape
    wanted = (repeated[0], product(repeated[1:3]), *repeated[3:])
    same = all(compare(*pair) is Truth.YES for pair in zip(wanted, shape, strict=True))
    only_third = source.tensor.rank == 5 and source.shape[2] == 1 and source.shape[:2] == repeated[:2]
    return source if same and only_third and source.shape[3:] == repeated[3:] else None


# ---- masks


def _is_guarded(root: Node) -> bool:
    """Whether NaN among the weights becomes 0."""
    weights = root.operands[0].producer
    if weights is not None and weights.op is CAST:
        weights = weights.operands[0].producer
    return weights is not None and weights.op is WHERE


def _may_hide_rows(masks: Sequence[ScoreMask], steps: Dim, keys: Dim) -> bool:
    """Whether masks may leave a query no key: neither finite numbers do that, nor a triangle that shows its own key."""
    hiding = [mask for mask in masks if _may_hide_for_good(mask)]
    if not hiding or (len(hiding) == 1 and _number_of_later_keys(hiding[0], steps, keys) is not None):
        return False
    contents = [_repeated(mask.value) for mask in hiding]
    if any(content is None for content in contents):
        return True
    seen = [_shown(mask, content.array) for mask, content in zip(hiding, contents, strict=True) if content is not None]
    return not np.all(np.any(reduce(np.logical_and, seen), axis=-1))


def _shown(mask: ScoreMask, content: Array) -> Array:
    """Which keys a constant mask shows."""
    if content.dtype != np.bool_:
        return np.asarray(np.atleast_1d(content) != -np.inf)
    return np.atleast_1d(~content if mask.is_inverted else content)


def _may_hide_for_good(mask: ScoreMask) -> bool:
    if mask.value.tensor.dtype is DType.BOOL:
        return mask.fill in (None, -math.inf)
    return may_be_infinite(mask.value)


def _mask(rewriter: Rewriter, scores: Scores, q: Value, k: Value) -> tuple[Value | None, bool]:
    """The mask operand, and whether the mask is causal."""
    given = [mask for mask in scores.masks if not _shows_all(mask)]
    rest = [mask for at, mask in enumerate(given) if not _becomes_causal(given, at, q.shape[2], k.shape[2])]
    if len(rest) == 1:
        return _operand(rewriter, rest[0], q), len(given) > 1
    total: Value | None = None
    for mask in rest:
        total = _joined(rewriter, total, mask, q)
    return total, len(rest) < len(given)


def _becomes_causal(masks: Sequence[ScoreMask], at: int, steps: Dim, keys: Dim) -> bool:
    """Whether a mask is a triangle that can be told apart from the others.

    It can where it hides by -inf, and nothing after it writes a number over that. One that adds a finite number leaves
    the order of keys that are hidden by others too, which a query that sees no key goes by.
    """
    hidden = _number_of_later_keys(masks[at], steps, keys)
    if hidden is None:
        return False
    overwritten = any(later.fill not in (None, -math.inf) for later in masks[at + 1 :])
    return len(masks) == 1 or (hidden == -math.inf and not overwritten)


def _number_of_later_keys(mask: ScoreMask, steps: Dim, keys: Dim) -> float | None:
    """What the scores of later keys become, or what is added to them, if a mask hides these and no others."""
    triangle = causal_mask_of(mask.value, steps, keys)
    if triangle is None:
        return None
    if mask.value.tensor.dtype is not DType.BOOL:
        return triangle.upper if triangle.lower == 0 and triangle.upper <= HIDDEN else None
    if triangle != (CausalMask(0, 1) if mask.is_inverted else CausalMask(1, 0)):
        return None
    return -math.inf if mask.fill is None else mask.fill


def _with_heads(rewriter: Rewriter, mask: ScoreMask, lead: tuple[Dim, Dim]) -> ScoreMask:
    """A mask of scores whose batch and heads were joined, for scores that have them apart."""
    shape = mask.value.shape
    if mask.rank == 4 or len(shape) < 3 or shape[0] == 1:
        return mask
    return replace(mask, value=rewriter.op("reshape", mask.value, shape=(*lead, *shape[1:])))


def _shows_all(mask: ScoreMask) -> bool:
    content = _repeated(mask.value)
    return content is not None and not mask.is_inverted and hides_nothing(content)


def _repeated(value: Value) -> Constant | None:
    """The content of a constant, before it is expanded."""
    node = value.producer
    return constant_of(node.operands[0] if node is not None and node.op is EXPAND else value)


def _operand(rewriter: Rewriter, mask: ScoreMask, q: Value) -> Value:
    """A lone mask: bool only where hidden keys do not count at all, even if no other is seen."""
    if mask.fill != -math.inf:
        return _joined(rewriter, None, mask, q)
    return rewriter.op("logical_not", mask.value) if mask.is_inverted else mask.value


def _joined(rewriter: Rewriter, before: Value | None, mask: ScoreMask, q: Value) -> Value:
    """A mask after those in `before`, as numbers to add to the scores: what it writes over stays written over."""
    if mask.value.tensor.dtype is not DType.BOOL:
        return mask.value if before is None else rewriter.op("add", before, mask.value)
    shown = before if before is not None else rewriter.constant(0.0, q.tensor.dtype)
    hidden = rewriter.constant(mask.fill if mask.fill is not None else -math.inf, q.tensor.dtype)
    return rewriter.op("where", mask.value, *((hidden, shown) if mask.is_inverted else (shown, hidden)))


def _without_known_mask(rewriter: Rewriter, found: Found) -> Value | None:
    """A mask that shows everything goes; one that hides what comes later becomes `causal`."""
    node, mask = found.root, ScoreMask(found["mask"], 4)
    shows_all = _shows_all(mask)
    steps, keys = (node.operands[index].shape[-2] for index in (0, 1))
    is_causal = node.inputs[4] is None and _number_of_later_keys(mask, steps, keys) is not None
    if not shows_all and not is_causal:
        return None
    attrs = {**dict(node.attrs), "causal": not shows_all or node.attrs["causal"], "nan_rows": False}
    return rewriter.op("attention", *node.inputs[:3], None, node.inputs[4], **attrs)


# ---- heads side by side


def _side_by_side(rewriter: Rewriter, found: Found) -> Value | None:
    """[B, H, T, D] whose elements stand in memory as [B, T, H, D], and are brought back to that order by the root."""
    node = found.node("attention")
    if node.operands[0].tensor.rank != 4 or not _is_in_order(_perm(found.root), node.output.shape):
        return None
    flat = [_flat(value) for value in node.inputs[:3] if value is not None]
    heads, kv_heads = node.operands[0].shape[1], node.operands[1].shape[1]
    if None in flat or not isinstance(heads, int) or not isinstance(kv_heads, int):
        return None
    sources = (
        _reshaped(rewriter, value, (shape[0], shape[2], shape[1] * shape[3]))
        for value, shape in zip(flat, (operand.shape for operand in node.operands), strict=False)
        if value is not None
    )
    attrs = {**dict(node.attrs), "heads": heads, "kv_heads": kv_heads}
    result = rewriter.op("attention", *sources, *node.inputs[3:], **attrs)
    return _reshaped(rewriter, result, found.root.output.shape)


def _flat(value: Value) -> Value | None:
    """A value with the elements of `value` in the order [B, T, H, D]."""
    node = value.producer
    if node is None or node.op is not TRANSPOSE:
        return value if _is_in_order((0, 1, 2, 3), value.shape) else None
    perm = normal_axes(node.attrs["perm"], 4)
    inverse = tuple(perm.index(axis) for axis in range(4))
    return node.operands[0] if _is_in_order(inverse, value.shape) else None


def _perm(node: Node) -> tuple[int, ...]:
    return normal_axes(node.attrs["perm"], 4) if node.op is TRANSPOSE else (0, 1, 2, 3)


def _is_in_order(perm: Sequence[int], shape: Sequence[Dim]) -> bool:
    """Whether moving axes of [B, H, T, D] as `perm` says gives the element order [B, T, H, D]; size 1 has no place."""
    return [axis for axis in perm if shape[axis] != 1] == [axis for axis in _HEADS_AND_STEPS if shape[axis] != 1]


_SOFTMAX = Match("softmax", Capture("scores"), name="softmax")
_GUARDED = Match("where", Match("is_nan", _SOFTMAX), Literal(value=0.0), _SOFTMAX)
_WEIGHTS = OneOf(_GUARDED, _SOFTMAX)
_ANY_WEIGHTS = OneOf(_WEIGHTS, Match("cast", _WEIGHTS))
_ATTENTION = Match("attention", name="attention", only_user=True, more=True)
_MASKED = Match("attention", Capture("q"), Capture("k"), Capture("v"), Capture("mask"), more=True)

_RULES: tuple[Rule, ...] = (
    Rule("attention", Match("matmul", _ANY_WEIGHTS, Capture("v")), _attention),
    Rule("known-mask", _MASKED, _without_known_mask),
    Rule("heads-side-by-side", Match((TRANSPOSE, RESHAPE), _ATTENTION), _side_by_side),
)


@dataclass(frozen=True)
class RecognizeAttention(PatternPass):
    """Rewrites composed attention to the op that it is."""

    name: ClassVar[str] = "recognize-attention"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING

    def rules(self) -> Sequence[Rule]:
        return _RULES
