"""Dynamic ops whose result is known in part: a size that the model leaves open is a new symbol, the others stay."""

from collections.abc import Sequence
from typing import Any

from ....ir.dims import Dim
from ....ir.graph import Value
from ....ir.op import FRESH
from ....ir.ops import native
from ....ir.types import TensorType
from .import_context import ImportContext

_MOST_PARTS = 1 << 16
"""A vector that the file says is longer is not believed: it is neither a shape nor the sizes of a node's results."""


def partial_dims(ctx: ImportContext, value: Value) -> list[Dim] | None:
    """The content of an integer vector, with FRESH for what is not known; None when not even its length is.

    A concatenation of sizes that are known and sizes that are computed from data is the case that models have.
    """
    parts: list[Dim] = []
    for part in _concatenated(value):
        known = ctx.shape_values.as_dims(part)
        length = part.shape[0] if part.tensor.rank == 1 else None
        if known is not None:
            parts += [dim if ctx.may_mention((dim,)) else FRESH for dim in known]
        elif isinstance(length, int) and length <= _MOST_PARTS:
            parts += [FRESH] * length
        else:
            return None
    return parts


def _concatenated(value: Value) -> tuple[Value, ...]:
    producer = value.producer
    return producer.operands if producer is not None and producer.op is native("concat") else (value,)


def op_of_shape(
    ctx: ImportContext, name: str, *inputs: Value | None, shape: Sequence[Dim] | None, **attrs: Any
) -> Value:
    """A new node whose result has `shape`, where FRESH stands for what is open; all is open when `shape` is None."""
    if shape is None:
        return ctx.op(name, *inputs, **attrs)
    return ops_of_shapes(ctx, name, *inputs, shapes=[shape], **attrs)[0]


def ops_of_shapes(
    ctx: ImportContext, name: str, *inputs: Value | None, shapes: Sequence[Sequence[Dim]], **attrs: Any
) -> tuple[Value, ...]:
    """As `op_of_shape`, for an op with several results."""
    op = native(name)
    completed = op.complete_attrs(attrs)
    inferred = op.result_types([value.type if value is not None else None for value in inputs], completed)
    types = [ty.with_shape(tuple(s)) for ty, s in zip(inferred, shapes, strict=True) if isinstance(ty, TensorType)]
    return ctx.node(op, inputs, completed, types).outputs
