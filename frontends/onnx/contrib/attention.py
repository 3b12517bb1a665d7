"""Attention with heads side by side in the last axis: with its matmuls and their biases, or alone; rotation."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.analysis.contents import any_constant_of
from ....ir.constant import Array, Constant
from ....ir.dims import Truth, compare
from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.attention_masks import hides_for_good, safe_mask
from ..context.export_context import ExportContext, Operand
from .group import DOMAIN, Group, Operator, have_equal_shapes, is_vector, sole_producer

_DTYPES = (DType.F32, DType.F16)
_RANK = 3

_SHARED = "a mask for several samples or heads"
_NAMES = ("Attention", "MultiHeadAttention")

RECENT = frozenset(Operator(name, dtype, _SHARED) for name in _NAMES for dtype in _DTYPES)
"""What older versions get wrong: 1.20 gives all samples the mask of the first, 1.17 refuses one mask for all heads."""

_ATTENTION = RECENT | {each._replace(kind="") for each in RECENT}


@dataclass(frozen=True)
class _Projection:
    """An operand of attention as x times a constant weight, plus a bias; `inner` are the nodes that make it."""

    x: Value
    weight: Array
    bias: Array | None
    inner: frozenset[Node]


def self_attention(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """Attention: the matmuls of one operand with three weights, their biases, and attention of the three."""
    if _operator("Attention", node) not in available or not _is_plain(node):
        return None
    parts = [_projection(value) for value in node.operands[:3]]
    if any(part is None for part in parts):
        return None
    q, k, v = (part for part in parts if part is not None)
    if not (q.x is k.x is v.x) or q.weight.shape != k.weight.shape or len({*node.operands[:3]}) != len(parts):
        return None

    def write(ctx: ExportContext) -> None:
        weight = ctx.constant(Constant(np.concatenate([q.weight, k.weight, v.weight], axis=1), q.x.tensor.dtype))
        bias = _joined_bias(ctx, (q, k, v))
        sizes = tuple(part.weight.shape[1] for part in (q, k, v))
        ctx.emit(
            "Attention", (q.x, weight, bias, None, None, _mask(ctx, node)), node.outputs, domain=DOMAIN,
            num_heads=node.attrs["heads"], unidirectional=node.attrs["causal"], scale=_scale(node),
            qkv_hidden_sizes=sizes,
        )  # fmt: skip

    return Group(node, q.inner | k.inner | v.inner, node.outputs, write)


def multi_head_attention(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """MultiHeadAttention: attention, with the constant biases of its three operands."""
    if _operator("MultiHeadAttention", node) not in available or not _is_plain(node):
        return None
    biases = [_biased(value) for value in node.operands[:3]]
    if all(each is not None for each in biases) and len({*node.operands[:3]}) == len(biases):
        given: Sequence[Operand] = [each[0] for each in biases if each is not None]
        bias = np.concatenate([each[1] for each in biases if each is not None])
        inner = frozenset(each[2] for each in biases if each is not None)
    else:
        given, bias, inner = node.operands[:3], None, frozenset()

    def write(ctx: ExportContext) -> None:
        written = None if bias is None else ctx.constant(Constant(bias, node.output.tensor.dtype))
        ctx.emit(
            "MultiHeadAttention", (*given, written, None, _mask(ctx, node)), node.outputs, domain=DOMAIN,
            num_heads=node.attrs["heads"], unidirectional=node.attrs["causal"], scale=_scale(node),
        )  # fmt: skip

    return Group(node, inner, node.outputs, write)


def _operator(name: str, node: Node) -> Operator:
    return Operator(name, node.output.tensor.dtype, _SHARED if _shares_mask(node) else "")


def _shares_mask(node: Node) -> bool:
    """Whether a mask of rank 4 is not known to be one for each sample and head."""
    mask, wholes = node.inputs[3], (node.operands[0].shape[0], node.attrs["heads"])
    if mask is None or mask.tensor.rank != 4:
        return False
    return any(compare(dim, whole) is not Truth.YES for dim, whole in zip(mask.shape[:2], wholes, strict=True))


def _is_plain(node: Node) -> bool:
    """Whether these operators can do it: heads are not shared, a mask is added as it is, nothing else is asked for."""
    attrs = node.attrs
    q, k, _, mask, lengths = node.inputs
    assert q is not None
    assert k is not None
    if q.tensor.rank != _RANK or attrs["heads"] != attrs["kv_heads"] or attrs["softcap"] or lengths is not None:
        return False
    if attrs["scale"] is not None and np.float32(attrs["scale"]) == 0:
        return False  # which to these operators means that none is given
    if attrs["causal"] and compare(q.shape[1], k.shape[1]) is not Truth.YES:
        return False
    return mask is None or _is_added(node, mask)


def _is_added(node: Node, mask: Value) -> bool:
    """Whether a mask is floats [B or 1, H or 1, T, S] without -inf: a query that sees no key would get NaN, not 0."""
    q, k = node.operands[:2]
    if mask.tensor.dtype is not q.tensor.dtype or mask.tensor.rank != 4 or hides_for_good(mask):
        return False
    batch, heads, steps, keys = mask.shape
    is_whole = compare(steps, q.shape[1]) is Truth.YES and compare(keys, k.shape[1]) is Truth.YES
    return is_whole and _is_one_or(batch, q.shape[0]) and _is_one_or(heads, node.attrs["heads"])


def _is_one_or(dim: Any, whole: Any) -> bool:
    return dim == 1 or compare(dim, whole) is Truth.YES


def _mask(ctx: ExportContext, node: Node) -> Operand:
    """The mask. These operators add the lowest number like any other, except to scores that `causal` hides."""
    mask = node.inputs[3]
    return mask if mask is None or not node.attrs["causal"] else safe_mask(ctx, mask)


def _scale(node: Node) -> float | None:
    scale = node.attrs["scale"]
    return None if scale is None else float(scale)


def _projection(value: Value) -> _Projection | None:
    node = sole_producer(value, "gemm")
    if node is not None:
        return None  # of matrices, which attention does not take
    bias, inner, matmul = None, frozenset[Node](), value
    found = _biased(value)
    if found is not None:
        matmul, bias, inner = found[0], found[1], frozenset({found[2]})
    made = sole_producer(matmul, "matmul")
    weight = None if made is None else any_constant_of(made.operands[1])
    if made is None or weight is None or weight.array.ndim != 2:
        return None
    return _Projection(made.operands[0], weight.array, bias, inner | {made})


def _biased(value: Value) -> tuple[Value, Array, Node] | None:
    """A sum as what is added to, the constant vector that is added, and the node."""
    node = sole_producer(value, "add")
    if node is None:
        return None
    for matmul, bias in (node.operands, node.operands[::-1]):
        content = any_constant_of(bias)
        if content is not None and is_vector(bias, value.shape[-1]) and have_equal_shapes(matmul, value):
            return matmul, content.array, node
    return None


def _joined_bias(ctx: ExportContext, parts: Sequence[_Projection]) -> Operand:
    dtype = parts[0].x.tensor.dtype
    given = [np.zeros(part.weight.shape[1], dtype.numpy) if part.bias is None else part.bias for part in parts]
    return ctx.constant(Constant(np.concatenate(given), dtype))


_NAME = "RotaryEmbedding"

ROTARY = frozenset(Operator(_NAME, dtype) for dtype in (DType.F32, DType.F16, DType.BF16))


def rotary_embedding(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """RotaryEmbedding of tables [most positions, pairs] at positions [B, T]."""
    x, cos, sin, positions = node.inputs
    if x is None or cos is None or sin is None or positions is None:
        return None
    if cos.tensor.dtype is not x.tensor.dtype:
        return None
    if Operator(_NAME, x.tensor.dtype) not in available or not _is_for_each(positions, x):
        return None
    heads = node.attrs["heads"] or x.shape[1]
    if not isinstance(heads, int) or compare(cos.shape[0], sin.shape[0]) is not Truth.YES:
        return None

    def write(ctx: ExportContext) -> None:
        written: Operand = positions
        if positions.tensor.dtype is not DType.I64:
            written = ctx.emit_value("Cast", (positions,), to=DType.I64)
        ctx.emit(
            _NAME, (x, written, cos, sin), node.outputs, domain=DOMAIN, interleaved=node.attrs["interleaved"],
            num_heads=heads, rotary_embedding_dim=node.attrs["rotary_dim"] or None,
        )  # fmt: skip

    return Group(node, frozenset(), node.outputs, write)


def _is_for_each(positions: Value, x: Value) -> bool:
    """Whether there is a position for each step of each sample: the operator does not broadcast them."""
    steps = x.shape[2] if x.tensor.rank == 4 else x.shape[1]
    wanted = (x.shape[0], steps)
    return all(compare(*pair) is Truth.YES for pair in zip(positions.shape, wanted, strict=True))


OPERATORS = _ATTENTION | ROTARY
RULES = {"attention": (self_attention, multi_head_attention), "rotary_embedding": (rotary_embedding,)}
