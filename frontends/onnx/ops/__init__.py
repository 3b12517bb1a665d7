"""The ONNX op table: for every family how operators come in (`IMPORTS`) and how native ops go out (`EXPORTS`).

A family file has two dicts: `IMPORTS` maps an operator's name (with its domain unless that is the default one) to an
import rule (see `frontends.onnx.context.import_context`), `EXPORTS` a native op's name to an export rule (see
`frontends.onnx.context.export_context`). Operators that are one native op are rows made by `frontends.onnx.ops.rows`.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ....ir.graph import Node, Value
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext
from . import (
    activation,
    arithmetic,
    attention,
    cast,
    control,
    conv,
    creation,
    experimental,
    indexing,
    layout,
    linear,
    logic,
    normalization,
    pooling,
    random,
    recurrent,
    reduction,
    resize,
    selection,
    sequence,
    signal,
    slicing,
)

ImportRule = Callable[[ImportContext], Value | Sequence[Value | None]]
ExportRule = Callable[[ExportContext, Node], None]

_FAMILIES: tuple[Any, ...] = (
    activation,
    arithmetic,
    attention,
    cast,
    control,
    conv,
    creation,
    experimental,
    indexing,
    layout,
    linear,
    logic,
    normalization,
    pooling,
    random,
    recurrent,
    reduction,
    resize,
    selection,
    sequence,
    signal,
    slicing,
)


def _gather(table: str) -> Mapping[str, Any]:
    gathered: dict[str, Any] = {}
    for family in _FAMILIES:
        entries = getattr(family, table)
        repeated = gathered.keys() & entries.keys()
        if repeated:
            raise ValueError(f"{family.__name__}.{table} repeats {sorted(repeated)}")
        gathered.update(entries)
    return MappingProxyType(gathered)


IMPORTS: Mapping[str, ImportRule] = _gather("IMPORTS")
EXPORTS: Mapping[str, ExportRule] = _gather("EXPORTS")
