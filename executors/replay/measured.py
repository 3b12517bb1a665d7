"""Outputs whose sizes a run found: the host reads those sizes, all at once, and cuts the outputs to them."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...ir.dims import Dim, evaluate
from ...ir.plan import Measured
from .recorder import BoundPlan, Cut


def cut_to_found(bound: BoundPlan, shapes: Mapping[int, Cut | None]) -> Mapping[int, Cut | None]:
    """`shapes`, by output, with the sizes that the run found; the same where no output depends on one."""
    measured = bound.plan.measured
    if not measured.shapes:
        return shapes
    return found_shapes(measured, np.asarray(bound.result(measured.output)).tolist(), shapes)


def found_shapes(measured: Measured, counts: Sequence[int], shapes: Mapping[int, Cut | None]) -> dict[int, Cut | None]:
    """`shapes` with the sizes that `counts` gives."""
    found = dict(zip(measured.symbols, counts, strict=True))
    return {
        index: _found_shape(measured.shapes[index], known, found) if index in measured.shapes else known
        for index, known in shapes.items()
    }


def _found_shape(dims: Sequence[Dim], known: Cut | None, found: Mapping[str, int]) -> Cut:
    """The real sizes of an output: those in `known`, and those that hang on what was found."""
    given = known if known is not None else (None,) * len(dims)
    return tuple([old if isinstance(dim, int) else evaluate(dim, found) for dim, old in zip(dims, given, strict=True)])
