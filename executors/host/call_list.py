"""Prebound calls of some steps, made one after another, and remade step by step where an input has moved."""

from collections.abc import Callable, Collection, Sequence
from operator import length_hint
from typing import Any

from ...ir.errors import cause_of
from ...ir.evaluate import FAILURES, failure
from ...ir.plan import Step

Lower = Callable[[Step], Sequence[Callable[[], Any]]]


class CallList:
    """The calls that `lower` gives for each of `steps`."""

    def __init__(self, steps: Sequence[Step], lower: Lower) -> None:
        self._lower = lower
        self._calls: list[Callable[[], Any]] = []
        self._owners: list[Step] = []
        self._starts: dict[int, int] = {}
        for step in steps:
            self._starts[step.index] = len(self._calls)
            made = lower(step)
            self._calls += made
            self._owners += [step] * len(made)

    def __len__(self) -> int:
        return len(self._calls)

    def __call__(self) -> None:
        """Makes the calls in order. Failures name the node."""
        remaining = iter(self._calls)
        try:
            for call in remaining:
                call()
        except FAILURES as error:
            failed = self._owners[len(self._calls) - length_hint(remaining) - 1]
            raise failure(failed.node, error) from cause_of(error)

    def remake(self, steps: Collection[int]) -> None:
        """Makes the calls of these steps anew, as many for each as before."""
        for index in steps:
            start = self._starts.get(index)
            if start is None or start == len(self._calls) or self._owners[start].index != index:
                continue
            made = self._lower(self._owners[start])
            self._calls[start : start + len(made)] = made

    def clear(self) -> None:
        """Lets go of the calls and the memory that they refer to."""
        self._calls, self._owners, self._starts = [], [], {}
