"""Costs of graphs, which may depend on symbolic sizes, as tables and JSON show them."""

from collections.abc import Mapping

from .ir.dims import Dim, bind


def bound_cost(cost: Dim | None, sizes: Mapping[str, int]) -> int | str | None:
    """`cost` with the symbols in `sizes` replaced: a number, or text where symbols are left; None stays None."""
    bound = None if cost is None else bind(cost, sizes)
    return bound if bound is None or isinstance(bound, int) else str(bound)
