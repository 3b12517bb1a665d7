"""Bodies of control flow that run by plans of their own."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.evaluate import BoundRegion, Sizes, bind_inputs
from ...ir.graph import Graph
from .memory import address_of

if TYPE_CHECKING:
    from .bound_plan import HostPlan

COPIED_BYTES = 1 << 14
"""Inputs of bodies up to this size are copied each time."""


class PlannedBody:
    """A body with its plan, in the scratch of its node.

    Large inputs are read where they are, such as weights from outside of a loop. One that lies elsewhere each time, as
    what an iteration hands to the next, is copied: that costs less than to make the calls that read it anew.
    """

    def __init__(self, bound: "HostPlan") -> None:
        self._bound = bound
        self._moving: set[int] = set()
        self._results = range(len(bound.plan.graph.outputs))
        inputs = bound.plan.graph.inputs
        self._types = [(v.tensor.dtype.numpy, v.tensor.shape) if v in bound.plan.views else None for v in inputs]

    def run(self, arrays: tuple[Any, ...], sizes: Sizes) -> tuple[Any, ...]:
        """The results, copied, as the next run overwrites the memory. `sizes` are those around the body."""
        bound = self._bound
        if not all(map(_fits, arrays, self._types)):
            bind_inputs(bound.plan.graph, arrays, sizes)
        bound.start(sizes)
        for index, given in enumerate(arrays):
            self._bring(index, given)
        for segment in bound.plan.segments:
            bound.run(segment)
        results = tuple([bound.copy_of_result(index) for index in self._results])
        bound.forget()
        return results

    def _bring(self, index: int, given: Any) -> None:
        if index in self._moving or not isinstance(given, np.ndarray) or given.nbytes <= COPIED_BYTES:
            self._bound.load(index, given)
            return
        placed = self._bound.placed_address(index)
        if placed is None and self._bound.place(index, given):
            return
        if placed == address_of(given) and given.flags.c_contiguous:
            return
        self._moving.add(index)
        if placed is not None:
            self._bound.unplace(index)
        self._bound.load(index, given)


def _fits(array: Any, wanted: tuple[Any, Any] | None) -> bool:
    return wanted is not None and isinstance(array, np.ndarray) and (array.dtype, array.shape) == wanted


class PlannedRegion(BoundRegion):
    """A planned body as the meaning of its node sees it."""

    __slots__ = ("_planned",)

    def __init__(self, body: Graph, sizes: Sizes, planned: PlannedBody) -> None:
        super().__init__(body, sizes)
        self._planned = planned

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """The results of the body."""
        return self._planned.run(arrays, dict(self.sizes))
