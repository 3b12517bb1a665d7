"""How ATen operators become native nodes, a table for each family."""

from ..call import Lowering
from . import (
    activations,
    attention,
    bags,
    comparisons,
    convolutions,
    creation,
    indexing,
    layout,
    linear,
    low_precision,
    norms,
    pointwise,
    pooling,
    random,
    recurrent,
    reductions,
    resampling,
    scatter,
    sorting,
    strided,
)

_TABLES = (
    activations.TABLE,
    attention.TABLE,
    bags.TABLE,
    comparisons.TABLE,
    convolutions.TABLE,
    creation.TABLE,
    indexing.TABLE,
    layout.TABLE,
    linear.TABLE,
    low_precision.TABLE,
    norms.TABLE,
    pointwise.TABLE,
    pooling.TABLE,
    random.TABLE,
    recurrent.TABLE,
    reductions.TABLE,
    resampling.TABLE,
    scatter.TABLE,
    sorting.TABLE,
    strided.TABLE,
)

LOWERINGS: dict[str, Lowering] = {name: lowering for table in _TABLES for name, lowering in table.items()}
"""By `aten.name.overload`, or `aten.name` for all overloads of a name."""
