"""Simplify indices: integer and bool tensors that follow from their coordinates alone are written as what they are.

Exporters compute masks and positions with gathers, comparisons and cumulative sums over ranges. Where `AffineValues`
sees that all elements are one number, the tensor becomes that number, expanded; where a gather, concatenation or
cumulative sum counts along one axis, it becomes a range. Only symbols of the graph's inputs are mentioned. Exact; an
index out of range is not reported any more where its value is not needed.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.dims import symbols
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops.known import CUMSUM, EXPAND
from ...ir.types import DType, type_symbols
from ..framework.base import Pass
from ..framework.rewriter import Rewriter
from .affine_values import Affine, AffineValues


@dataclass(frozen=True)
class SimplifyIndices(Pass):
    """Replaces computed positions and decided comparisons by ranges and numbers."""

    name: ClassVar[str] = "simplify-indices"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        values = AffineValues()
        bound = frozenset[str]().union(*(type_symbols(value.type) for value in graph.inputs))
        for node in graph.nodes:
            if not node.inputs or len(node.outputs) != 1 or not node.has_uses or _is_plain(node):
                continue
            found = values.of(node.output)
            if found is not None and type_symbols(node.output.type) <= bound:
                _rewrite(node, found, bound, rewriter)


def _is_plain(node: Node) -> bool:
    """Whether a node is a number expanded, as this pass writes it."""
    return node.op is EXPAND and constant_of(node.operands[0]) is not None


def _rewrite(node: Node, found: Affine, bound: frozenset[str], rewriter: Rewriter) -> None:
    if found.constant is not None:
        if rewriter.may_rewrite("one-number", node):
            rewriter.replace(node, _number(found.constant, node.output, rewriter))
        return
    varying = [axis for axis, stride in enumerate(found.strides) if stride != 0]
    is_heavy = node.op.has(Trait.GATHERS | Trait.JOINS) or node.op is CUMSUM
    if not is_heavy or node.output.tensor.dtype is not DType.I64:
        return
    if len(varying) != 1 or not symbols(found.start) <= bound:
        return
    if isinstance(found.strides[varying[0]], int) and rewriter.may_rewrite("range", node):
        rewriter.replace(node, _range(found, varying[0], node.output, rewriter))


def _number(number: int, like: Value, rewriter: Rewriter) -> Value:
    dtype = like.tensor.dtype
    made = rewriter.constant(np.full((1,) * like.tensor.rank, number, dtype=dtype.numpy), dtype)
    return made if made.shape == like.shape else rewriter.op("expand", made, shape=like.shape)


def _range(found: Affine, axis: int, like: Value, rewriter: Rewriter) -> Value:
    size, step = like.shape[axis], found.strides[axis]
    made = rewriter.op("arange", start=found.start, limit=found.start + size * step, step=step, dtype=DType.I64)
    shape = tuple(size if index == axis else 1 for index in range(like.tensor.rank))
    if made.shape != shape:
        made = rewriter.op("reshape", made, shape=shape)
    return made if made.shape == like.shape else rewriter.op("expand", made, shape=like.shape)
