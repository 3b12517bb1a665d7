"""Masks in the form of triangles: one number for the keys up to the position of a query, another for the later ones.

Followed are constants, what `trilu` leaves of one number, positions that are compared, and what is computed from these
element by element: comparisons with a number, casts, sums and products, choices by `where`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....ir.analysis.contents import constant_of
from ....ir.constant import Constant
from ....ir.dims import Dim, Truth, compare
from ....ir.evaluate import run_meaning
from ....ir.graph import Node, Value
from ....ir.op import Trait
from ....ir.ops.known import CONSTANT, EXPAND, FULL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, TRILU
from ....ir.types import DType
from ...cleanup.affine_values import AffineValues, broadcast

_DEEPEST = 8


@dataclass(frozen=True)
class CausalMask:
    """`lower` stands at key j for query i where j <= i, `upper` elsewhere; of several numbers the greatest."""

    lower: float
    upper: float


def causal_mask_of(mask: Value, steps: Dim, keys: Dim) -> CausalMask | None:
    """What stands on either side of the diagonal of a mask, [..., steps, keys] of equal sizes; None where unknown."""
    if compare(steps, keys) is not Truth.YES:
        return None
    content = constant_of(mask)
    if content is not None:
        return _of_constant(content, steps)
    sides = _sides(mask, steps, _DEEPEST)
    return None if sides is None else CausalMask(float(sides[0]), float(sides[1]))


def _of_constant(content: Constant, steps: Dim) -> CausalMask | None:
    """A constant may have different numbers above the diagonal."""
    array = content.array
    size = array.shape[-1] if array.ndim else 0
    square = array.ndim >= 2 and array.shape[-2] == size and all(count == 1 for count in array.shape[:-2])
    if not square or not size or compare(steps, size) is not Truth.YES:
        return None
    matrix = array.reshape(size, size).astype(np.float64)
    is_lower = np.tril(np.ones((size, size), bool))
    lower, upper = matrix[is_lower], matrix[~is_lower]
    if not np.all(lower == lower[0]):
        return None
    if content.dtype is DType.BOOL:
        return CausalMask(lower[0], 1 - lower[0]) if np.all(upper != lower[0]) else None
    return CausalMask(lower[0], float(upper.max(initial=-np.inf)))


def _sides(value: Value, steps: Dim, depth: int) -> NDArray[Any] | None:
    """[lower, upper] of a computed tensor, in its dtype."""
    node = value.producer
    if node is None or not depth or value.tensor.shape is None or value.shape[-2:] != (steps, steps):
        return None
    if node.op is TRILU:
        return _of_trilu(node)
    if _repeats(node):
        return _sides(node.operands[0], steps, depth - 1)
    if node.op.has(Trait.ELEMENTWISE):
        found = _computed(node, steps, depth)
        return found if found is not None else _compared(node, steps)
    return None


def _repeats(node: Node) -> bool:
    return node.op is EXPAND or node.op.has(Trait.RESHAPES)


def _of_trilu(node: Node) -> NDArray[Any] | None:
    number = _number(node.operands[0])
    if number is None:
        return None
    zero = np.zeros_like(number)
    if node.attrs["upper"]:
        return np.stack((zero, number)) if node.attrs["diagonal"] == 1 else None
    return np.stack((number, zero)) if node.attrs["diagonal"] == 0 else None


def _number(value: Value) -> NDArray[Any] | None:
    """The one element, without axes, that all of a tensor has."""
    node = value.producer
    while node is not None and _repeats(node):
        node = node.operands[0].producer
    if node is None or node.op not in (FULL, CONSTANT):
        return None
    content: Constant | None = node.attrs["value"] if node.op is FULL else constant_of(node.output)
    return content.array.reshape(()) if content is not None and content.size == 1 else None


def _computed(node: Node, steps: Dim, depth: int) -> NDArray[Any] | None:
    """The op on the two sides of its operands, which broadcast only where they are one number."""
    operands: list[NDArray[Any]] = []
    for operand in node.operands:
        number = _number(operand)
        sides = _sides(operand, steps, depth - 1) if number is None else np.stack((number, number))
        if sides is None:
            return None
        operands.append(sides)
    with np.errstate(all="ignore"):
        (result,) = run_meaning(node, operands, {})
    return np.asarray(result)


# ---- compared positions

_AT_LEAST = {GREATER_EQUAL: (1, 0), LESS_EQUAL: (-1, 0), GREATER: (1, 1), LESS: (-1, 1)}
"""Comparisons as sign * (a - b) >= bound."""


def _compared(node: Node, steps: Dim) -> NDArray[Any] | None:
    return np.array([True, False]) if _compares_positions(node, steps) else None


def _compares_positions(node: Node, steps: Dim) -> bool:
    """Whether a bool tensor is true just where the last coordinate is at most the one before it."""
    mask = node.output
    if node.op not in _AT_LEAST:
        return False
    values = AffineValues()
    a, b = (values.of(operand) for operand in node.operands)
    aligned = [
        broadcast(affine, operand.shape, mask.shape) for affine, operand in zip((a, b), node.operands, strict=True)
    ]
    if aligned[0] is None or aligned[1] is None:
        return False
    sign, bound = _AT_LEAST[node.op]
    gap = aligned[0].plus(aligned[1], -1).times(sign)
    zeros = (0,) * (mask.tensor.rank - 2)
    return (gap.start - bound, gap.strides) == (0, (*zeros, 1, -1))
