"""Prebound NumPy calls: what a step of a plan becomes on the host."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...ir.constant import Array
from ...ir.errors import ExecutionError


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
