"""The native ops: one table per family, gathered here under their names."""

from collections.abc import Mapping
from types import MappingProxyType

from ..errors import TypeRuleError
from ..op import Op
from . import (
    arithmetic,
    bounded,
    cast,
    control,
    creation,
    indexing,
    keyed,
    layout,
    logic,
    random,
    reduction,
    sampling,
    scatter,
    segments,
    selection,
    signal,
    slicing,
    sorting,
)
from .nn import (
    activation,
    attention,
    attention_varlen,
    conv,
    grouped,
    linear,
    normalization,
    pooling,
    quantized,
    recurrent,
    resize,
    roi,
)

_FAMILIES = {
    "activation": activation.OPS,
    "arithmetic": arithmetic.OPS,
    "attention": attention.OPS,
    "attention_varlen": attention_varlen.OPS,
    "cast": cast.OPS,
    "control": control.OPS,
    "conv": conv.OPS,
    "creation": creation.OPS,
    "grouped": grouped.OPS,
    "indexing": indexing.OPS,
    "keyed": keyed.OPS,
    "layout": layout.OPS,
    "linear": linear.OPS,
    "logic": logic.OPS,
    "normalization": normalization.OPS,
    "pooling": pooling.OPS,
    "quantized": quantized.OPS,
    "random": random.OPS,
    "recurrent": recurrent.OPS,
    "reduction": reduction.OPS,
    "resize": resize.OPS,
    "roi": roi.OPS,
    "sampling": sampling.OPS,
    "scatter": scatter.OPS,
    "selection": selection.OPS,
    "signal": signal.OPS,
    "slicing": slicing.OPS,
    "sorting": sorting.OPS,
}


_PLANNED = {"bounded": bounded.OPS, "segments": segments.OPS}


def _gather(families: Mapping[str, tuple[Op, ...]]) -> dict[str, Op]:
    gathered: dict[str, Op] = {}
    for family, table in families.items():
        for entry in table:
            if entry.name in gathered:
                raise TypeRuleError(f"op {entry.name} of family {family} is defined twice")
            gathered[entry.name] = entry
    return gathered


OPS: Mapping[str, Op] = MappingProxyType(_gather(_FAMILIES))
"""Every native op that a model can have, by name."""

PLANNED_OPS: Mapping[str, Op] = MappingProxyType(_gather(_PLANNED))
"""The ops that only planning puts into a graph, by name: no model has them."""

FAMILIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {family: tuple(entry.name for entry in table) for family, table in _FAMILIES.items()}
)
"""The names of the ops of each family, for documentation and coverage reports."""


def native(name: str) -> Op:
    """The native op called `name`. Raises `TypeRuleError` when there is none."""
    found = OPS.get(name) or PLANNED_OPS.get(name)
    if found is None:
        raise TypeRuleError(f"there is no native op {name}", remedy="a foreign op's name has a domain: onnx.Foo")
    return found
