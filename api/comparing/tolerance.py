"""What differences between results are let pass."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.analysis import nested_graphs
from ..ir.graph import Graph
from ..ir.types import DType, TensorType
from ..passes.framework.numeric import longest_sum
from .closeness import tolerance
from .fitting_inputs import in_order

_ROUNDINGS = 16.0  # of one term of a sum, whose errors add up like a random walk


@dataclass(frozen=True)
class Tolerance:
    """What differences are let pass: below `atol`, or below `rtol` of an output's largest value; None: by the model."""

    rtol: float | None = None
    atol: float = 0.0

    @property
    def is_chosen(self) -> bool:
        return self.rtol is not None or self.atol > 0

    def rtol_for(self, graph: Graph, inputs: Mapping[str, Any]) -> float:
        """The fraction by which floats may be off: by the narrowest one inside, and by how many terms a sum has."""
        if self.rtol is not None:
            return self.rtol
        bodies = nested_graphs(graph)
        types = [value.type for body in bodies for value in body.values if isinstance(value.type, TensorType)]
        floats = {ty.dtype for ty in types if ty.dtype.is_float}
        summed = np.finfo(np.float64 if floats <= {DType.F64} else np.float32).eps
        terms = longest_sum(graph, in_order(graph, inputs))
        return max(*map(tolerance, floats), _ROUNDINGS * float(summed) * math.sqrt(terms), 0.0)


BY_MODEL = Tolerance()
"""What follows from the model alone."""
