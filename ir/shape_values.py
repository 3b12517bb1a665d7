"""The contents of small integer tensors as dims: what makes the shape arithmetic of a model visible.

A model computes shapes with nodes: `shape`, `gather`, `mul`, `concat`. `ShapeValues` follows such chains through the
`symbolic` meanings of their ops, so that the operand of a reshape is known to be `[B, 12*T, 64]` before anything runs.
"""

from typing import Any

import numpy as np

from .constant import Array
from .dims import Dim, SymDim
from .errors import CapgraphError
from .graph import Node, Value
from .types import DType, Kind, TensorType

MAX_ELEMENTS = 64
"""Larger tensors are data, not shapes: nothing is known of them."""

_KINDS = (Kind.INT, Kind.UINT, Kind.BOOL)


class ShapeValues:
    """The contents of values, computed when asked for and remembered; works on finished graphs and on ones being built.

    What was once answered stays: use a new one after binding symbols or after an edit that changed what a value means.
    """

    def __init__(self) -> None:
        self._known: dict[Value, Array | None] = {}

    def of(self, value: Value) -> Array | None:
        """The content of `value`: a read-only object array of int and SymDim in its shape, None when it is not known.

        Known are at most the values of integer or bool tensors of static shape with up to 64 elements.
        """
        if value in self._known:
            return self._known[value]
        if not _is_followed(value):
            return None
        pending = [value]
        while pending:
            current = pending[-1]
            missing = self._unvisited_operands(current)
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if current not in self._known:
                self._known[current] = self._computed(current)
        return self._known[value]

    def as_dims(self, value: Value) -> tuple[Dim, ...] | None:
        """The content of a tensor of rank 1 as a tuple of dims; None when it is not known or of another rank."""
        found = self.of(value)
        return None if found is None or found.ndim != 1 else tuple(found.tolist())

    def as_dim(self, value: Value) -> Dim | None:
        """The content of a tensor with one element as a dim; None when it is not known or has another size."""
        found = self.of(value)
        if found is None or found.size != 1:
            return None
        dim: Dim = found.item()
        return dim

    def assume(self, value: Value, like: Value) -> None:
        """Takes the content of `value` (the input of a region, say) to be that of `like`, a value of another graph."""
        known = self.of(like)
        if known is not None and _is_followed(value):
            self._known[value] = known

    def _unvisited_operands(self, value: Value) -> list[Value]:
        node = value.producer
        if value in self._known or node is None or node.op.symbolic is None:
            return []
        return [operand for operand in node.operands if operand not in self._known and _is_followed(operand)]

    def _computed(self, value: Value) -> Array | None:
        node = value.producer
        if node is None or node.op.symbolic is None:
            return None
        found = self._meaning(node)
        if isinstance(found, tuple):  # one for each result
            found = found[value.index]  # pyright: ignore[reportUnknownVariableType]
        elif value.index:
            return None
        return None if found is None else _checked(found, value)

    def _meaning(self, node: Node) -> Any:
        assert node.op.symbolic is not None  # checked by the only caller
        types = [operand.type if operand is not None else None for operand in node.inputs]
        contents = [self._known.get(operand) if operand is not None else None for operand in node.inputs]
        try:
            return node.op.symbolic(types, contents, node.attrs)
        except (CapgraphError, TypeError, ArithmeticError, IndexError, ValueError):
            # A dim that cannot be decided has no truth value (TypeError), one can grow past its limits, and a division
            # by zero or an index out of range is reported when the node runs, if it ever does.
            return None


def _is_followed(value: Value) -> bool:
    ty = value.type
    if not isinstance(ty, TensorType) or ty.dtype.kind not in _KINDS or ty.shape is None:
        return False
    count = 1
    for dim in ty.shape:
        if not isinstance(dim, int):
            return False
        count *= dim
    return count <= MAX_ELEMENTS


def _checked(found: Any, value: Value) -> Array | None:
    """`found` as a read-only object array; None unless it has the shape and can be of the dtype of `value`."""
    content = np.array(found, dtype=object)
    dtype = value.tensor.dtype
    if content.shape != value.shape or not all(_fits(element, dtype) for element in content.reshape(-1).tolist()):
        return None
    content.flags.writeable = False
    return content


def _fits(element: Any, dtype: DType) -> bool:
    """Whether a dim can be an element: integers must lie in range, symbolic ones are taken to, from 32 bits on."""
    if isinstance(element, SymDim):
        return dtype.bits >= 32 and dtype.is_integer
    if dtype is DType.BOOL or isinstance(element, bool):
        return dtype is DType.BOOL and isinstance(element, bool)
    least = 0 if dtype.kind is Kind.UINT else -(1 << (dtype.bits - 1))
    return isinstance(element, int) and least <= element < least + (1 << dtype.bits)
