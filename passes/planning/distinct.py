"""`unique` with a bound as a sort and what follows it, for targets that have kernels for these and none for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.constant import Array, Constant
from ...ir.graph import Graph, Node, Value
from ...ir.op import BOOLS, NUMBERS
from ...ir.ops.bounded import PREFIX
from ...ir.ops.known import BOUNDED_UNIQUE
from ...ir.types import DType
from ..framework.base import Pass
from ..framework.rewriter import Rewriter


def is_sortable(node: Node) -> bool:
    """Whether `sort_for_unique` takes a node: elements in ascending order, with room for all of them."""
    if node.op is not BOUNDED_UNIQUE or not node.attrs["sorted"]:
        return False
    x = node.operands[0].tensor
    is_flat = node.attrs["axis"] is None or x.rank == 1
    return is_flat and x.is_static and x.size == node.attrs["size"] != 0 and x.dtype in NUMBERS | BOOLS


@dataclass(frozen=True)
class SortForUnique(Pass):
    """Puts sorts in the place of `bounded_unique` where `is_sortable` holds: equal elements then lie side by side."""

    name: ClassVar[str] = "sort-for-unique"
    runs_once: ClassVar[bool] = True

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in graph.nodes:
            if is_sortable(node) and rewriter.may_rewrite("sort", node):
                rewriter.replace(node, *_Distinct(rewriter, node).results())


class _Distinct:
    """The results of one node, of n elements: those of the first `count` of n entries, zeros behind them."""

    def __init__(self, rewriter: Rewriter, node: Node) -> None:
        self._node = node
        self._op, self._ops = rewriter.op, rewriter.ops
        size = node.attrs["size"]
        assert isinstance(size, int)  # that of the operand, which is known
        self._size = size

    def results(self) -> list[Value | None]:
        """In the order of the node's results; None for one that nothing reads."""
        x = self._op("reshape", self._node.operands[0], shape=(self._size,))
        elements, order = self._ops("sort", x, axis=0)
        begins = self._begins(elements)
        found, count = self._ops(f"{PREFIX}non_zero", begins, size=self._size)
        starts = self._op("reshape", found, shape=(self._size,))
        makers: tuple[Callable[[], Value], ...] = (
            lambda: self._valid(self._op("gather", elements, starts, axis=0), count),
            lambda: self._valid(self._op("gather", order, starts, axis=0), count),
            lambda: self._inverse(begins, order),
            lambda: self._counts(starts, count),
            lambda: count,
        )
        return [make() if value.has_uses else None for make, value in zip(makers, self._node.outputs, strict=True)]

    def _begins(self, elements: Value) -> Value:
        """Whether an element of the sorted ones is another than the one before; NaN is equal to NaN."""
        first = self._constant(np.ones(1, np.bool_))
        if self._size == 1:
            return first
        here, before = self._part(elements, 1, self._size), self._part(elements, 0, self._size - 1)
        differs = self._op("not_equal", here, before)
        if elements.tensor.dtype.is_float:
            both = self._op("logical_and", self._op("is_nan", here), self._op("is_nan", before))
            differs = self._op("logical_and", differs, self._op("logical_not", both))
        return self._op("concat", first, differs, axis=0)

    def _inverse(self, begins: Value, order: Value) -> Value:
        """For each element the number of its group, which is how many groups begin up to it, without the first."""
        numbers = self._op("cumsum", self._op("cast", begins, to=DType.I64), axis=0)
        places = self._op("sub", numbers, self._constant(np.ones((), np.int64)))
        empty = self._op("full", shape=(self._size,), value=Constant(np.zeros((), np.int64)))
        return self._op("scatter_elements", empty, order, places, axis=0)

    def _counts(self, starts: Value, count: Value) -> Value:
        """How far it is to the start of the next group, or to the end."""
        end = self._constant(np.full(1, self._size, np.int64))
        following = self._op("concat", self._part(starts, 1, self._size), end, axis=0)
        is_last = self._op("equal", self._op("add", self._numbers(), self._constant(np.ones((), np.int64))), count)
        ends = self._op("where", is_last, end, following)
        return self._valid(self._op("sub", ends, starts), count)

    def _valid(self, entries: Value, count: Value) -> Value:
        """`entries` with zeros from the `count`-th on."""
        zero = self._constant(np.zeros((), entries.tensor.dtype.numpy))
        return self._op("where", self._op("less", self._numbers(), count), entries, zero)

    def _numbers(self) -> Value:
        return self._op("arange", limit=self._size)

    def _part(self, x: Value, start: int, end: int) -> Value:
        return self._op("slice", x, axes=(0,), starts=(start,), ends=(end,), steps=(1,))

    def _constant(self, content: Array) -> Value:
        return self._op("constant", value=Constant(content))
