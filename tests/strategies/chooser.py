"""The source of all choices in a drawn graph: Hypothesis, which shrinks, or a seeded generator, which is fast."""

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from hypothesis import strategies as st

T = TypeVar("T")


class Chooser(Protocol):
    """What samplers ask. Lower integers and earlier options are the simpler ones: Hypothesis shrinks toward them."""

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        ...

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        ...

    def chance(self, percent: int) -> bool:
        """True in about `percent` of 100 cases; shrinks to False."""
        ...

    def generator(self) -> np.random.Generator:
        """A generator for the bulk of an array's elements."""
        ...

    def as_one(self, draw: Callable[[], T]) -> T:
        """What `draw` gives; the choices that it makes belong together, so that shrinking may drop them together."""
        ...


class RandomChooser:
    """Choices of a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def integer(self, low: int, high: int) -> int:
        return low + int(self._random.random() * (high - low + 1))

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._random.random() * len(options))]

    def chance(self, percent: int) -> bool:
        return self._random.random() * 100 < percent

    def generator(self) -> np.random.Generator:
        return self._generator

    def as_one(self, draw: Callable[[], T]) -> T:
        return draw()


class HypothesisChooser:
    """Choices that Hypothesis records, replays and shrinks."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return int(self._draw(_integers(low, high)))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) >= 100 - percent

    def generator(self) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(self.integer(0, 2**16)))

    def as_one(self, draw: Callable[[], T]) -> T:
        return cast(T, self._draw(st.builds(draw)))


@cache
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)
