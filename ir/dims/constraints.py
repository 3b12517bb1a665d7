"""What type rules assume about symbolic sizes.

A rule that needs two sizes to be equal calls `require_equal`. A provable difference is an error at once; what depends
on the sizes of the call becomes a `Constraint`, which `collect_constraints` gathers and planning checks once sizes are
known.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from ..errors import ShapeError
from . import Dim, Truth, compare, evaluate, symbols
from .symdim import bind


@dataclass(frozen=True, slots=True)
class Constraint:
    """`left == right` must hold for every call; `reason` says which rule wants it."""

    left: Dim
    right: Dim
    reason: str

    def __str__(self) -> str:
        return f"{self.left} == {self.right} ({self.reason})"

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols whose sizes it speaks of."""
        return symbols(self.left) | symbols(self.right)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the sizes of a call keep the constraint; not where one of them divides by 0."""
        try:
            self.check(sizes)
        except ShapeError:
            return False
        return True

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raises `ShapeError` when the sizes of a call break the constraint."""
        left, right = evaluate(self.left, sizes), evaluate(self.right, sizes)
        if left != right:
            raise ShapeError(f"{self.reason}: {self.left} is {left}, but {self.right} is {right}")


class Difference(Constraint):
    """`left != right` must hold for every call."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.left} != {self.right} ({self.reason})"

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raises `ShapeError` when the sizes of a call break the constraint."""
        size = evaluate(self.left, sizes)
        if size == evaluate(self.right, sizes):
            raise ShapeError(f"{self.reason}: {self.left} is {size}")


_is_untied: ContextVar[bool] = ContextVar("is_untied", default=False)
_active: ContextVar[list[Constraint] | None] = ContextVar("active_constraints", default=None)


@contextmanager
def collect_constraints() -> Generator[list[Constraint], None, None]:
    """While active, `require_equal` appends to the list that this gives what it could not decide."""
    found: list[Constraint] = []
    token = _active.set(found)
    try:
        yield found
    finally:
        _active.reset(token)


@contextmanager
def untied_sizes() -> Generator[None, None, None]:
    """While active, sizes that meet in a broadcast are not taken to be one: the result has a size of its own."""
    token = _is_untied.set(True)
    try:
        yield
    finally:
        _is_untied.reset(token)


def are_untied(dims: Iterable[Dim]) -> bool:
    """Whether these sizes, which meet in a broadcast, may be different in this context."""
    first, *others = dims
    return _is_untied.get() and any(compare(first, dim) is Truth.UNKNOWN for dim in others)


def require_equal(left: Dim, right: Dim, reason: str) -> Dim:
    """The common size of two dims that must be equal: the more concrete one. Raises `ShapeError` when they differ."""
    if left is right:
        return left
    answer = compare(left, right)
    if answer is Truth.NO:
        raise ShapeError(f"{reason}: {left} and {right} differ")
    if answer is Truth.UNKNOWN:
        found = _active.get()
        if found is not None:
            found.append(Constraint(left, right, reason))
    return right if isinstance(right, int) else left


def assume_bound(constraints: Iterable[Constraint], sizes: Mapping[str, Dim]) -> None:
    """Notes constraints of a body with what its own symbols are at first; those that are then certain are left out."""
    noted = _active.get()
    for each in constraints:
        left, right = bind(each.left, sizes), bind(each.right, sizes)
        if noted is not None and compare(left, right) is not Truth.YES:
            noted.append(type(each)(left, right, each.reason))


def assume_different(left: Dim, right: Dim, reason: str) -> None:
    """Notes that two dims of which nothing is known are taken to be different."""
    found = _active.get()
    if found is not None:
        found.append(Difference(left, right, reason))
