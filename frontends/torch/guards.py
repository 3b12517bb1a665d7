"""What PyTorch took for granted of sizes when it traced a module: relations that the sizes of every call must keep.

A branch in Python on `x.shape[0] % 2 == 0` leaves one side in the graph, and the guard that says for which sizes.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._sympy.functions import Mod, PythonMod

from ...ir.dims import Dim, evaluate, symbols
from ...ir.errors import UnsupportedError
from .sizes import Sizes, UnknownSizeError

_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Guard:
    """`left` and `right`, of which `relation` has to hold."""

    left: Dim
    relation: str
    right: Dim

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"

    @property
    def symbols(self) -> frozenset[str]:
        """The sizes that it speaks of."""
        return symbols(self.left) | symbols(self.right)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds for these sizes, which have all of its symbols."""
        return _RELATIONS[self.relation](evaluate(self.left, sizes), evaluate(self.right, sizes))


def guards_of(program: Any, sizes: Sizes) -> tuple[list[Guard], list[str]]:
    """The guards of an exported and decomposed program, and in PyTorch's words those that cannot be checked.

    Ranges of single sizes are no guards, nor is that a size which PyTorch traced as 2 or more is not 0 or 1.
    """
    environment = _environment(program)
    relations = list(_relations(environment)) if environment is not None else []
    guards: list[Guard] = []
    unchecked: list[str] = []
    for expr in relations:
        try:
            guard = Guard(sizes.dim_of(expr.lhs), expr.rel_op, sizes.dim_of(expr.rhs))
        except UnknownSizeError:  # of sizes that only running tells
            continue
        except (AttributeError, UnsupportedError):
            unchecked.append(str(expr))
            continue
        if guard.symbols and not _is_of_small_sizes(guard, expr):
            guards.append(guard)
    return list(dict.fromkeys(guards)), unchecked


def _environment(program: Any) -> Any:
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    fakes = (value for value in values if isinstance(value, torch._subclasses.FakeTensor))
    return next((fake.fake_mode.shape_env for fake in fakes), None)


def _relations(environment: Any) -> Iterator[Any]:
    """What holds of sizes, as sympy's relations."""
    yield from (guard.expr for guard in environment.guards)
    yield from (each.expr for found in environment.deferred_runtime_asserts.values() for each in found)


def _is_of_small_sizes(guard: Guard, expr: Any) -> bool:
    """Whether it says of one size that something made of it is not 0 or 1, where tensors broadcast or are empty."""
    is_remainder = bool(expr.atoms(Mod, PythonMod))
    return guard.relation == "!=" and guard.right in (0, 1) and len(guard.symbols) == 1 and not is_remainder
