"""Drawn expressions over sizes: a tree, read once by Python's own integers and once by dims."""

import operator
from collections.abc import Callable

from capgraph.ir.dims import Dim, dim_max, dim_min, symbol
from capgraph.ir.errors import ShapeError
from hypothesis import assume
from hypothesis import strategies as st

Tree = int | str | tuple[str, "Tree", "Tree"]
NAMES = ("B", "T", "seq len")
OPERATORS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": dim_min,
    "max": dim_max,
}
PLAIN: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}

leaves = st.one_of(st.integers(-6, 12), st.sampled_from(NAMES))
trees: st.SearchStrategy[Tree] = st.recursive(
    leaves, lambda inner: st.tuples(st.sampled_from(list(OPERATORS)), inner, inner), max_leaves=9
)
values = st.fixed_dictionaries({name: st.integers(0, 9) for name in NAMES})


def plain(tree: Tree, env: dict[str, int]) -> int:
    """What Python's integers give; assumes that no divisor is 0."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    name, left, right = tree
    a, b = plain(left, env), plain(right, env)
    assume(b != 0 or name not in ("//", "%"))
    return PLAIN[name](a, b)


def built(tree: Tree) -> Dim:
    """The same as a dim; assumes that it is within the size limits and divides by no constant 0."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return symbol(tree)
    name, left, right = tree
    try:
        return OPERATORS[name](built(left), built(right))
    except (ShapeError, ZeroDivisionError):
        assume(False)
        raise
