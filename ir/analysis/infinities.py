"""Whether a float value can hold -inf, as masks of attention do that hide keys for good."""

import numpy as np

from ..graph import Value
from ..op import Trait
from ..ops.known import (
    ADD,
    CAST,
    CONCAT,
    DYNAMIC_EXPAND,
    DYNAMIC_RESHAPE,
    DYNAMIC_SLICE,
    DYNAMIC_UNSQUEEZE,
    GATHER,
    MAX,
    MIN,
    MUL,
    NEG,
    SUB,
    TRILU,
    WHERE,
)
from .contents import any_constant_of

_MOVES = (CONCAT, DYNAMIC_EXPAND, DYNAMIC_RESHAPE, DYNAMIC_SLICE, DYNAMIC_UNSQUEEZE, GATHER, TRILU, WHERE)
_FINITE = frozenset((*_MOVES, ADD, CAST, MAX, MIN, MUL, NEG, SUB))
"""Ops of finite operands that give finite results, beside views."""


def may_be_infinite(value: Value) -> bool:
    """Whether something that a value is made of is infinite or unknown; numbers that overflow are not looked for."""
    pending, seen = [value], set[Value]()
    while pending:
        current = pending.pop()
        if current in seen or not current.tensor.dtype.is_float:
            continue
        seen.add(current)
        content = any_constant_of(current)
        if content is not None:
            if not np.isfinite(content.array.astype(np.float64)).all():
                return True
        elif current.producer is None or not (current.producer.op in _FINITE or current.producer.op.has(Trait.VIEW)):
            return True
        else:
            pending += current.producer.operands
    return False
