"""Matmuls of rows that are sorted by group, each group with a matrix of its own: the experts of a mixture."""

from collections.abc import Sequence

import numpy as np

from ...attrs import Attrs
from ...constant import Array
from ...dims import Dim
from ...dims.constraints import require_equal
from ...op import FLOATS, Op, op
from ...types import DType, TensorType, Type
from ..rules import require_rank
from .linear import accumulated


def _grouped_matmul_type(a: TensorType, b: TensorType, ends: TensorType) -> TensorType:
    for ty, rank, name in ((a, 2, "a"), (b, 3, "b"), (ends, 1, "ends")):
        require_rank(ty, rank, f"{name} of grouped_matmul")
    require_equal(a.dims[1], b.dims[1], "the inner sizes of a grouped matmul must be equal")
    require_equal(b.dims[0], ends.dims[0], "b and ends must have one entry for each group")
    return a.with_shape((a.dims[0], b.dims[2]))


def group_ends(ends: Array, rows: int) -> Array:
    """Where each group really ends: within the rows, and not before the group before."""
    return np.asarray(np.maximum.accumulate(np.clip(ends.astype(np.int64), 0, rows)))


def grouped_matmul(a: Array, b: Array, ends: Array) -> Array:
    """Rows `[M, K]`, those of group g from `ends[g - 1]` to `ends[g]`, times matrix g of `[G, K, N]`: `[M, N]`.

    Ends are cut to 0 to M, and one before another's is where that one is. Rows behind the last end give 0. As
    `torch.nn.functional.grouped_mm`, which leaves such rows as memory has them.
    """
    left, right = accumulated(a), accumulated(b)
    result = np.zeros((len(a), b.shape[2]), left.dtype)
    start = 0
    for group, end in enumerate(group_ends(ends, len(a)).tolist()):
        if end > start:
            result[start:end] = np.matmul(left[start:end], right[group])
        start = end
    return result.astype(a.dtype, copy=False)


def _flops(inputs: Sequence[Type | None], outputs: Sequence[Type], _attrs: Attrs) -> Dim:
    """A multiply-add for each result element and each step along the inner axis."""
    a, result = inputs[0], outputs[0]
    assert isinstance(a, TensorType)
    assert isinstance(result, TensorType)
    return 2 * result.size * a.dims[1]


OPS: tuple[Op, ...] = (
    op(
        "grouped_matmul",
        "a: T, b: T, ends: N",
        T=FLOATS,
        N=frozenset({DType.I32, DType.I64}),
        infer=_grouped_matmul_type,
        meaning=grouped_matmul,
        flops=_flops,
    ),
)
