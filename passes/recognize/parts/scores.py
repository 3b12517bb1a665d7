"""The scores of attention, read from the operand of the softmax down to the matmul of queries and keys.

On the way stand, in any order that makes sense: factors on the scores or on either operand of the matmul (also after a
mask that no factor changes), a soft cap, added masks, masks by `where`, casts to a wider float and back, and reshapes
that join or part batch and heads.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ....ir.analysis.contents import constant_of
from ....ir.constant import Constant
from ....ir.dims import Dim
from ....ir.graph import Node, Value
from ....ir.ops.known import DIV, MUL, TANH, WHERE
from ....ir.types import DType
from ...cleanup.canonical.neutral import holds_every
from .forms import number_of

HIDDEN = -1e30
"""An added number at or below this hides a key: it swallows any score, and leaves a weight of exactly 0."""


LARGEST = 3e38
"""The largest number that a scale can be, in f32 too."""


@dataclass(frozen=True)
class ScoreMask:
    """What hides keys: `value` is added, or (bool) says which keys are seen, or hidden if `is_inverted`.

    With a `fill`, `value` is bool and chooses between the score and that number. `rank` is that of the scores.
    """

    value: Value
    rank: int
    fill: float | None = None
    is_inverted: bool = False


@dataclass(frozen=True)
class Scores:
    """softcap(q @ keys * scale) + masks, where `keys` has the head size before the positions.

    `scale` leaves out the factors that q and keys have themselves. `leading` is (batch, heads) where the scores had
    these apart. With `is_alone`, no other mask or factor may follow: a finite mask came before a factor, which is
    only the same while nothing else changes what it hides.
    """

    q: Value
    keys: Value
    scale: float = 1.0
    softcap: float = 0.0
    masks: tuple[ScoreMask, ...] = ()
    leading: tuple[Dim, Dim] | None = None
    is_alone: bool = False


def read_scores(value: Value) -> Scores | None:
    """What `value`, the operand of a softmax over its last axis, is made of; None when that is no attention.

    Everything on the way has one reader, so that nothing of it is left after a rewrite.
    """
    node = value.producer
    if node is None or len(value.uses) != 1 or value.is_graph_output:
        return None
    reader = _READERS.get(node.op.name)
    found = reader(node) if reader is not None else None
    if found is None or found.leading is not None or value.tensor.rank != 4:
        return found
    return replace(found, leading=(value.shape[0], value.shape[1]))


def factor_of(value: Value) -> tuple[Value, float] | None:
    """`(x, c)` when `value` is x * c or x / c with one number c, and of the type of x."""
    node = value.producer
    if node is None or node.op not in (MUL, DIV):
        return None
    pairs = [(node.operands[0], node.operands[1])]
    if node.op is MUL:
        pairs.append((node.operands[1], node.operands[0]))
    for x, other in pairs:
        content = constant_of(other)
        if content is None or content.size != 1 or not content.dtype.is_float or x.type != value.type:
            continue
        number = number_of(content)
        factor = number if node.op is MUL else 1 / number if number else math.inf
        if abs(factor) <= LARGEST:
            return x, factor
    return None


def _matmul(node: Node) -> Scores | None:
    q, keys = node.operands
    return Scores(q, keys) if q.tensor.rank == keys.tensor.rank and q.tensor.rank in (3, 4) else None


def _scaled(node: Node) -> Scores | None:
    capped = _soft_cap(node)
    if capped is not None:
        return capped
    found = factor_of(node.output)
    inner = read_scores(found[0]) if found is not None else None
    if found is None or inner is None or inner.softcap or inner.is_alone or not _may_come_after(inner.masks, found[1]):
        return None
    return replace(inner, scale=inner.scale * found[1], is_alone=bool(inner.masks) and not _hides_for_good(inner.masks))


def _hides_for_good(masks: tuple[ScoreMask, ...]) -> bool:
    return all(_hidden_number(mask) == -math.inf for mask in masks)


def _may_come_after(masks: tuple[ScoreMask, ...], factor: float) -> bool:
    """Whether masks before a factor do the same after it.

    One mask does whose hidden keys count for nothing both times, and that leaves other scores as they are. The matmul
    must not reach -inf where the mask is finite: a query that sees no key would get NaN.
    """
    if not masks:
        return True
    hidden = _hidden_number(masks[0]) if len(masks) == 1 else None
    if hidden is None or factor <= 0:
        return False
    return hidden == -math.inf or (factor <= 1 and hidden * factor <= HIDDEN)


def _hidden_number(mask: ScoreMask) -> float | None:
    """The one number that a mask puts in the place of scores, or adds to them; None where it may add others than 0."""
    if mask.fill is not None:
        return mask.fill
    node = mask.value.producer
    parts = node.operands[1:] if node is not None and node.op is WHERE else (mask.value,)
    contents = [content for content in map(constant_of, parts) if content is not None]
    if len(contents) < len(parts):
        return None
    numbers = np.unique(np.concatenate([content.array.astype(np.float64).reshape(-1) for content in contents]))
    hidden = numbers[numbers != 0]
    return float(hidden[0]) if hidden.size == 1 and hidden[0] <= HIDDEN else None


def _soft_cap(node: Node) -> Scores | None:
    """The product `cap * tanh(scores / cap)`."""
    outer = factor_of(node.output)
    tanh = outer[0].producer if outer is not None else None
    if outer is None or tanh is None or tanh.op is not TANH or len(tanh.output.uses) != 1:
        return None
    inner = factor_of(tanh.operands[0])
    if inner is None or len(tanh.operands[0].uses) != 1 or not np.isclose(inner[1] * outer[1], 1, rtol=1e-6):
        return None
    found = read_scores(inner[0])
    if found is None or found.masks or found.softcap or outer[1] <= 0:
        return None
    return replace(found, softcap=outer[1])


def _added(node: Node) -> Scores | None:
    for index, mask in enumerate(reversed(node.operands)):
        found = read_scores(node.operands[index])
        if found is not None and not found.is_alone and _broadcasts_into(mask, node.operands[index], node):
            return replace(found, masks=(*found.masks, ScoreMask(mask, node.output.tensor.rank)))
    return None


def _chosen(node: Node) -> Scores | None:
    condition, first, second = node.operands
    for scores, fill, is_inverted in ((first, second, False), (second, first, True)):
        content = constant_of(fill)
        if content is None or content.size != 1 or number_of(content) > HIDDEN:
            continue
        found = read_scores(scores)
        if found is not None and not found.is_alone and _broadcasts_into(condition, scores, node):
            return replace(
                found, masks=(*found.masks, ScoreMask(condition, scores.tensor.rank, number_of(content), is_inverted))
            )
    return None


def _broadcasts_into(mask: Value, scores: Value, node: Node) -> bool:
    """Whether `node` has the shape of the scores, which means that the mask does not broadcast them."""
    return scores.tensor.rank >= mask.tensor.rank and scores.shape == node.output.shape


def _widened(node: Node) -> Scores | None:
    x = node.operands[0]
    to: DType = node.attrs["to"]
    return read_scores(x) if x.tensor.dtype.is_float and to.is_float and holds_every(to, x.tensor.dtype) else None


def _reshaped(node: Node) -> Scores | None:
    """Batch and heads joined or parted; the last two axes stay."""
    before, after = node.operands[0].shape, node.output.shape
    if {len(before), len(after)} != {3, 4} or before[-2:] != after[-2:]:
        return None
    return read_scores(node.operands[0])


_READERS = {
    "matmul": _matmul,
    "mul": _scaled,
    "div": _scaled,
    "add": _added,
    "where": _chosen,
    "cast": _widened,
    "reshape": _reshaped,
}


# ---- masks that are known


def hides_nothing(content: Constant) -> bool:
    """Whether a constant mask, added or bool, leaves every score as it is."""
    return bool(np.all(content.array)) if content.dtype is DType.BOOL else not np.any(content.array)
