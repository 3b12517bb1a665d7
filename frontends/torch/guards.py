"""What PyTorch took for granted of sizes when it traced a module: relations that the sizes of every call must keep.

A branch in Python on `x.shape[0] % 2 == 0` leaves one side in the graph, and the guard that says for which sizes.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...ir.dims import Dim, evaluate, solve, symbols
from ...ir.errors import UnsupportedError
from .sizes import InFloats, Sizes, UnknownSizeError, is_computed

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


def guards_of(program: Any, sizes: Sizes) -> tuple[list[Guard | InFloats], list[str]]:
    """The guards of an exported and decomposed program, and in PyTorch's words those that cannot be checked.

    Ranges of single sizes are no guards, nor is that a size which PyTorch traced as 2 or more is not 0 or 1. Symbols
    that are known by others, as those of derived dims, are written by these.
    """
    environment = environment_of(program)
    relations = list(_relations(environment)) if environment is not None else []
    guards: list[Guard | InFloats] = []
    unchecked: list[str] = []
    for expr, is_of_tensors in relations:
        if expr.is_Boolean and not expr.args:  # true of all sizes
            continue
        try:
            guard = Guard(sizes.dim_of(expr.lhs), expr.rel_op, sizes.dim_of(expr.rhs))
        except UnknownSizeError:  # of sizes that only running tells
            continue
        except (AttributeError, UnsupportedError):
            if is_computed(expr):
                guards.append(sizes.in_floats(expr))
            else:
                unchecked.append(str(expr))
            continue
        if guard.symbols and not _is_of_small_sizes(guard, is_of_tensors):
            guards.append(guard)
    return list(dict.fromkeys(guards)), unchecked


def environment_of(program: Any) -> Any:
    """What PyTorch knows of the symbols of a program or a traced module; None where its inputs have none."""
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    fakes = [value.fake_mode for value in values if isinstance(value, torch._subclasses.FakeTensor)]
    return next((each.shape_env for each in [*fakes, *(v.node for v in values if isinstance(v, torch.SymInt))]), None)


def guards_in(environment: Any) -> list[Any]:
    """PyTorch's guards of an environment, none where there is none."""
    return [] if environment is None else list(environment.guards)


def _relations(environment: Any) -> Iterator[tuple[Any, bool]]:
    """What holds of sizes, as sympy's relations, and whether PyTorch asked it for itself, of the shape of a tensor."""
    for guard in environment.guards:
        yield from ((each, _is_asked_by_torch(guard)) for each in _conjuncts(environment.replace(guard.expr)))
    for found in environment.deferred_runtime_asserts.values():
        yield from ((part, False) for each in found for part in _conjuncts(environment.replace(each.expr)))


def _conjuncts(expr: Any) -> tuple[Any, ...]:
    return tuple(expr.args) if type(expr).__name__ == "And" else (expr,)


_TORCH = Path(torch.__file__).parent
_BRANCH = "evaluate_expr"  # where Dynamo decides a branch of the user's


def _is_asked_by_torch(guard: Any) -> bool:
    frame = guard.sloc.framework_loc
    name = getattr(frame, "filename", None)
    return name is not None and _TORCH in Path(name).parents and frame.name != _BRANCH


def _is_of_small_sizes(guard: Guard, is_of_tensors: bool) -> bool:
    """Whether it says that a size is not 0 or 1, where tensors broadcast or are empty, and nothing of other sizes.

    `b - 1 != 1` of a tensor's shape is one, but of a branch in Python, or of a quotient, it tells apart more.
    """
    if guard.relation != "!=" or guard.right not in (0, 1) or not isinstance(guard.right, int):
        return False
    solved = solve(guard.left, guard.right, {})
    return solved is not None and (is_of_tensors or solved[1] < 2)
