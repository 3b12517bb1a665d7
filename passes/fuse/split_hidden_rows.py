"""Attention whose hidden rows are NaN, for kernels that give zeros there."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ...ir.dims import Dim
from ...ir.graph import Graph, Node, Value
from ...ir.ops.known import ATTENTION
from ...ir.types import DType
from ..framework.base import Pass
from ..framework.rewriter import Rewriter

_BY_HEAD = 4  # axes of operands with heads apart


@dataclass(frozen=True)
class SplitHiddenRows(Pass):
    """Rewrites attention with `nan_rows` as one without, and NaN in the rows whose keys the mask all hides.

    That is computed from the mask alone, once for all nodes that share it after common subexpressions are merged.
    """

    name: ClassVar[str] = "split-hidden-rows"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in graph.nodes:
            if node.op is ATTENTION and _is_open(node) and rewriter.may_rewrite("split-hidden-rows", node):
                rewriter.replace(node, _split(rewriter, node))


def _is_open(node: Node) -> bool:
    """Whether hidden rows are NaN; with lengths, which nothing that is recognized has, it stays as it is."""
    return bool(node.attrs["nan_rows"]) and node.inputs[4] is None


def _split(rewriter: Rewriter, node: Node) -> Value:
    result = rewriter.op("attention", *node.inputs, **{**dict(node.attrs), "nan_rows": False})
    mask = node.inputs[3]
    if mask is None:
        return result
    seen = _as_numbers(rewriter, mask)
    steps, keys = (value.shape[-2] for value in node.operands[:2])
    if node.attrs["causal"]:
        is_seen = rewriter.op(
            "less_equal", _positions(rewriter, keys), rewriter.op("unsqueeze", _positions(rewriter, steps), axes=[1])
        )
        seen = rewriter.op("where", is_seen, seen, rewriter.constant(-math.inf, DType.F32))
    highest = rewriter.op("reduce_max", seen, axes=[-1], keep_dims=True)
    is_hidden = rewriter.op("equal", highest, rewriter.constant(-math.inf, DType.F32))
    return _with_nan(rewriter, node, result, is_hidden)


def _as_numbers(rewriter: Rewriter, mask: Value) -> Value:
    """The mask as f32 that is -inf where keys are hidden."""
    if mask.tensor.dtype is not DType.BOOL:
        return mask if mask.tensor.dtype is DType.F32 else rewriter.op("cast", mask, to=DType.F32)
    zero, hidden = (rewriter.constant(number, DType.F32) for number in (0.0, -math.inf))
    return rewriter.op("where", mask, zero, hidden)


def _positions(rewriter: Rewriter, count: Dim) -> Value:
    return rewriter.op("arange", limit=count)


def _with_nan(rewriter: Rewriter, node: Node, result: Value, is_hidden: Value) -> Value:
    """The result, [B, H, T, D] or [B, T, H * D], with NaN in the rows that are hidden, [B, H, T, 1] or fewer axes."""
    nan = rewriter.constant(math.nan, result.tensor.dtype)
    if result.tensor.rank == _BY_HEAD:
        return rewriter.op("where", is_hidden, nan, result)
    heads, shape = node.attrs["heads"], result.shape
    missing = _BY_HEAD - is_hidden.tensor.rank
    if missing:
        is_hidden = rewriter.op("reshape", is_hidden, shape=((1,) * missing + is_hidden.shape))
    is_hidden = rewriter.op("transpose", is_hidden, perm=[0, 2, 1, 3])
    parted = rewriter.op("reshape", result, shape=(*shape[:2], heads, shape[2] // heads))
    return rewriter.op("reshape", rewriter.op("where", is_hidden, nan, parted), shape=shape)
