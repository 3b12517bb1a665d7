"""Large inputs with gaps or in another order: a recording has to copy them, which eager need not.

Whether that costs more than replay saves depends on the graph, so that it is tried.
"""

from collections.abc import Sequence
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from ...ir.plan import Plan

LARGE = 1 << 16
"""From how many bytes on the copy of an input may cost more than a replay saves."""

TRIALS = 3


class StrideTrial:
    """Which of replay and eager is quicker: each is timed in turns, then the quicker has all turns."""

    def __init__(self) -> None:
        self._replayed: list[float] = []
        self._eager: list[float] = []

    @property
    def is_eagers_turn(self) -> bool:
        """Whether eager is to serve the next call."""
        if len(self._eager) < TRIALS:
            return len(self._eager) < len(self._replayed)
        return min(self._eager) < min(self._replayed)

    def timed(self) -> "Turn":
        """A context in which one call is served by whose turn it is."""
        return Turn(self._eager if self.is_eagers_turn else self._replayed)


class Turn:
    """Notes the seconds of a call that succeeds."""

    def __init__(self, times: list[float]) -> None:
        self._times = times

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if kind is None and len(self._times) < TRIALS:
            self._times.append(perf_counter() - self._start)


class StridedInputs:
    """The trials of one bucket: one for each set of large inputs that are not contiguous."""

    def __init__(self, plan: Plan) -> None:
        inputs = enumerate(plan.graph.inputs)
        self._large = [i for i, value in inputs if value in plan.views and plan.views[value].extent >= LARGE]
        self._trials: dict[tuple[int, ...], StrideTrial] = {}

    def trial(self, values: Sequence[Any]) -> StrideTrial | None:
        """The trial for calls with such inputs; None where all large ones are contiguous."""
        found = tuple([index for index in self._large if _is_strided(values[index])]) if self._large else ()
        return self._trials.setdefault(found, StrideTrial()) if found else None


def _is_strided(given: Any) -> bool:
    return type(given) is np.ndarray and given.nbytes >= LARGE and not given.flags.c_contiguous
