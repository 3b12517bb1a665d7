"""A scatter with a reduction in two steps: its slots listed by the slice that they name, and each slice reduced.

Plans have them, graphs do not: `list_segments.py` of the passes puts them there, so that scatters with the same indices
share one list.
"""

from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind
from ..constant import Array
from ..dims import Dim
from ..dims.constraints import require_equal
from ..op import INDICES, NUMBERS, Op, Trait, op
from ..types import DType, TensorType
from .indexing import checked_indices
from .rules import require_broadcast, require_rank
from .scatter import REDUCTIONS, accumulator


def segment_slots_type(indices: TensorType, *, count: Dim) -> list[TensorType]:
    """Where each of `count` segments begins, and where the last ends; a number for each index."""
    require_rank(indices, 1, "the indices of segment_slots")
    return [TensorType(DType.I32, (count + 1,)), TensorType(DType.I32, indices.dims)]


def segment_slots(indices: Array, *, count: int) -> tuple[Array, Array]:
    """The places of equal indices side by side, in order: those of index `i` are `slots[starts[i] : starts[i + 1]]`.

    Results are `starts` and `slots`. Indices are below `count`; negative ones count from there.
    """
    owners = checked_indices(indices, count, "segment_slots")
    slots = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[slots], np.arange(count + 1))
    return starts.astype(np.int32), slots.astype(np.int32)


def segment_reduce_type(
    x: TensorType, starts: TensorType, slots: TensorType, updates: TensorType, *, reduction: str
) -> TensorType:
    """A slice like those of `updates` for each segment; `x` broadcasts to that."""
    require_rank(starts, 1, "the starts of segment_reduce")
    require_rank(slots, 1, "the slots of segment_reduce")
    require_equal(updates.dims[0], slots.dims[0], f"segment_reduce by {reduction} needs one update for each slot")
    result = updates.with_shape((starts.dims[0] - 1, *updates.dims[1:]))
    require_broadcast(x.dims, result.dims, "the start of segment_reduce")
    return result


def segment_reduce(x: Array, starts: Array, slots: Array, updates: Array, *, reduction: str) -> Array:
    """Each slice of `x` combined with the updates whose numbers its segment lists (`segment_slots`), in order."""
    count = len(starts) - 1
    wide = accumulator(DType.of(x.dtype))
    result = np.broadcast_to(x, (count, *updates.shape[1:])).astype(wide)
    owners = np.repeat(np.arange(count), np.diff(starts))
    REDUCTIONS[reduction].at(result, owners, updates[slots[starts[0] : starts[-1]]].astype(wide))
    return result.astype(x.dtype, copy=False)


def _flops(inputs: Any, _outputs: Any, _attrs: Any) -> Any:
    return inputs[3].size


OPS: tuple[Op, ...] = (
    op(
        "segment_slots",
        "indices: I",
        I=INDICES,
        attrs=(Attribute("count", AttrKind.DIM),),
        infer=segment_slots_type,
        meaning=segment_slots,
    ),
    op(
        "segment_reduce",
        "x: T, starts: N, slots: N, updates: T",
        T=NUMBERS,
        N=frozenset({DType.I32}),
        attrs=(Attribute("reduction", AttrKind.STRING, choices=tuple(REDUCTIONS)),),
        infer=segment_reduce_type,
        meaning=segment_reduce,
        traits=Trait.SEGMENTS,
        aliases=((0, 0),),
        flops=_flops,
    ),
)
