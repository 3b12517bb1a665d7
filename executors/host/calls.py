"""Prebound NumPy calls: what a step of a plan becomes on the host, remade where an input has moved."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np

from ...ir.constant import Array
from ...ir.errors import ExecutionError, cause_of
from ...ir.evaluate import FAILURES, failure
from ...ir.plan import Step


class ArrayCall(NamedTuple):
    """`function(*operands, *results)`: reads arrays at fixed addresses and writes into arrays at fixed addresses."""

    function: Callable[..., Any]
    operands: tuple[Any, ...]
    results: tuple[Array, ...]

    def bound(self) -> Callable[[], Any]:
        """The call without arguments, for the replay loop."""
        if isinstance(self.function, IntoResult):
            return partial(self.function.ufunc, *self.operands, out=self.results[0])
        return partial(self.function, *self.operands, *self.results)


class IntoResult:
    """A ufunc with its result by keyword: NumPy warns of a third positional operand of `maximum` and `minimum`."""

    __slots__ = ("ufunc",)

    def __init__(self, ufunc: np.ufunc) -> None:
        self.ufunc = ufunc

    def __call__(self, first: Any, second: Any, result: Array) -> None:
        """Computes into `result`."""
        self.ufunc(first, second, out=result)


GREATER = IntoResult(np.maximum)
LESSER = IntoResult(np.minimum)


def copy(source: Array, result: Array) -> None:
    """Copies `source` into `result`, which has its shape and dtype."""
    np.copyto(result, source)


class ThroughMeaning:
    """An op's NumPy meaning as a function that writes into its results: it computes, then copies.

    The meaning allocates its results itself, as it would in eager execution; nothing that the plan placed moves.
    """

    __slots__ = ("count", "meaning")

    def __init__(self, meaning: Callable[..., Any], count: int) -> None:
        self.meaning = meaning
        self.count = count

    def __call__(self, *arguments: Any) -> None:
        """Calls the meaning on all but the last `count` arguments and copies what it gives into those."""
        split = len(arguments) - self.count
        self.keep(self.meaning(*arguments[:split]), arguments[split:])

    def keep(self, given: Any, results: Sequence[Array]) -> None:
        """Copies what the meaning gave into `results`."""
        store(given if isinstance(given, tuple) else (given,), results)


def store(given: Sequence[Any], results: Sequence[Array]) -> None:
    """Copies what a meaning gave into `results`. Raises `ExecutionError` when number, shape or dtype differ."""
    if len(given) != len(results):
        raise ExecutionError(f"the kernel gave {len(given)} results instead of {len(results)}")
    for array, result in zip(given, results, strict=True):
        made = array if type(array) is np.ndarray else np.asarray(array, dtype=result.dtype)
        if made.shape != result.shape or made.dtype != result.dtype:
            raise ExecutionError(
                f"the kernel gave {made.dtype}{list(made.shape)} instead of {result.dtype}{list(result.shape)}"
            )
        np.copyto(result, made)


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
