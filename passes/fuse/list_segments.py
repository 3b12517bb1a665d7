"""Scatters with a reduction whose slots are listed first, by the slice that they name: once for all with the same ones.

Networks over graphs scatter in each layer along the same edges. What makes the updates then runs in the kernel that
reduces them, which reads them in the order of the list (`fusion_groups.py`).
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.constant import Constant
from ...ir.graph import Graph, Node, Value
from ...ir.op import FLOATS
from ...ir.ops.known import ADD, EXPAND, FULL, RESHAPE, SCATTER_ELEMENTS, SCATTER_ND, UNSQUEEZE
from ...ir.ops.rules import normal_axis
from ...ir.types import DType
from ..framework.base import Pass
from ..framework.exactness import Exactness
from ..framework.rewriter import Rewriter

_MOST = 2**30 - 1
"""Slots and slices are counted by an i32, with room beyond."""

_Key = tuple[Value, int]


@dataclass(frozen=True)
class ListSegments(Pass):
    """Rewrites scatters of whole slices along the first axis as `segment_slots` and `segment_reduce`.

    They have `fewest` updates or more; not `crowd` and more for each slice, unless slices have more than `elements`
    elements in all; and rows of `width` elements, unless others share the list. Counts beside them are read off it.
    """

    name: ClassVar[str] = "list-segments"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING
    fewest: int = (1 << 14) + 1
    crowd: int = 32
    elements: int = 1 << 16
    width: int = 4

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        keys = {node: key for node in graph.nodes if (key := self._key(node)) is not None}
        sums = [node for node in keys if node.operands[0].tensor.dtype in FLOATS]
        readers = Counter(keys[node] for node in sums)
        shared = {keys[node] for node in sums if readers[keys[node]] > 1 or _row_size(node) >= self.width}
        lists: dict[_Key, tuple[Value, Value]] = {}
        for node, key in keys.items():
            if key in shared and (node.operands[0].tensor.dtype in FLOATS or _is_count(node)):
                if not rewriter.may_rewrite("scatter", node):
                    return
                _rewrite(rewriter, node, key, lists)

    def _key(self, node: Node) -> _Key | None:
        """The indices of a scatter by rows, without repetition along a row, and the number of slices."""
        if node.op not in (SCATTER_ELEMENTS, SCATTER_ND) or node.attrs["reduction"] == "none":
            return None
        x, indices, updates = (value.tensor for value in node.operands)
        if not (x.is_static and indices.is_static and updates.is_static) or x.shape is None or updates.shape is None:
            return None
        sizes = [dim for dim in (*x.dims, *updates.dims) if isinstance(dim, int)]
        if 0 in sizes or x.rank == 0 or updates.rank != x.rank or x.shape[1:] != updates.shape[1:]:
            return None
        slices, count = sizes[0], sizes[x.rank]
        is_crowded = count >= self.crowd * slices and math.prod(sizes[: x.rank]) <= self.elements
        if count < self.fewest or is_crowded or max(count, slices) > _MOST:
            return None
        root = _row_indices(node, count)
        return None if root is None else (root, slices)


def _row_size(node: Node) -> int:
    return math.prod(dim for dim in node.operands[0].shape[1:] if isinstance(dim, int))


def _row_indices(node: Node, count: int) -> Value | None:
    """The value that holds the index of each row, of `count` elements in whatever shape."""
    indices = node.operands[1]
    if node.op is SCATTER_ND:
        return _root(indices) if indices.tensor.rank == 2 and indices.shape[1] == 1 else None
    if normal_axis(node.attrs["axis"], indices.tensor.rank) != 0:
        return None
    producer = indices.producer
    if producer is not None and producer.op is EXPAND:
        indices = producer.operands[0]
    return _root(indices) if indices.shape[:1] == (count,) and indices.tensor.size == count else None


def _root(value: Value) -> Value:
    """Its elements in the shape that they were made in."""
    while value.producer is not None and value.producer.op in (RESHAPE, UNSQUEEZE):
        value = value.producer.operands[0]
    return value


def _uniform(value: Value) -> Constant | None:
    """The scalar that all elements of a value are known to be."""
    producer = value.producer
    if producer is None:
        return None
    if producer.op is EXPAND:
        return _uniform(producer.operands[0])
    content = producer.attrs["value"] if producer.op is FULL else constant_of(value)
    if not isinstance(content, Constant):
        return None
    first = content.array.reshape(-1)[:1]
    return Constant(first.reshape(()), content.dtype) if first.size and np.all(content.array == first) else None


def _is_count(node: Node) -> bool:
    """Whether a scatter adds a one for each index to zeros."""
    start, one = _uniform(node.operands[0]), _uniform(node.operands[2])
    is_from_zero = start is not None and start.array == 0
    return bool(node.attrs["reduction"] == "add" and is_from_zero and one is not None and one.array == 1)


def _rewrite(rewriter: Rewriter, node: Node, key: _Key, lists: dict[_Key, tuple[Value, Value]]) -> None:
    if key not in lists:
        indices, count = key
        flat = rewriter.op("reshape", indices, shape=(indices.tensor.size,)) if indices.tensor.rank != 1 else indices
        starts, slots = rewriter.ops("segment_slots", flat, count=count)
        lists[key] = starts, slots
    starts, slots = lists[key]
    if _is_count(node):
        rewriter.replace(node, _counts(rewriter, node, starts))
        return
    x, updates, reduction = node.operands[0], node.operands[2], node.attrs["reduction"]
    start = _uniform(x)
    if start is not None:
        x = rewriter.constant(start)
    addition = _addition(node) if reduction == "add" and start is not None and start.array == 0 else None
    if addition is None:
        rewriter.replace(node, rewriter.op("segment_reduce", x, starts, slots, updates, reduction=reduction))
        return
    other = next(value for value in addition.operands if value is not node.output)
    rewriter.at(addition)
    rewriter.replace(addition, rewriter.op("segment_reduce", other, starts, slots, updates, reduction=reduction))


def _addition(node: Node) -> Node | None:
    """The node that adds something of the same type to what was scattered onto zeros, if nothing else reads that."""
    users = node.output.users
    if node.output.use_count != 1 or node.output.is_graph_output or users[0].op is not ADD:
        return None
    return users[0] if all(value.type == node.output.type for value in users[0].operands) else None


def _counts(rewriter: Rewriter, node: Node, starts: Value) -> Value:
    """How long each segment is, in the type of the result."""
    result = node.output.tensor
    count = result.dims[0]
    first = rewriter.op("slice", starts, axes=[0], starts=[0], ends=[count], steps=[1])
    last = rewriter.op("slice", starts, axes=[0], starts=[1], ends=[count + 1], steps=[1])
    lengths = rewriter.op("sub", last, first)
    if result.dtype is not DType.I32:
        lengths = rewriter.op("cast", lengths, to=result.dtype)
    if result.rank == 1:
        return lengths
    column = rewriter.op("reshape", lengths, shape=(count, *(1,) * (result.rank - 1)))
    return rewriter.op("expand", column, shape=result.dims)
