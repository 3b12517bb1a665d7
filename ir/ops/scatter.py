"""Writing at indices, with or without a reduction: scatter_elements, scatter_nd (`tensor_scatter`: indexing.py)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind
from ..constant import Array
from ..dims.constraints import require_equal
from ..errors import TypeRuleError
from ..op import ANY, I64, INDICES, Flops, Op, Trait, op
from ..types import DType, Kind, TensorType
from .indexing import check_element_indices, checked_indices, element_positions, index_depth
from .rules import require_rank

REDUCTIONS: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
"""How a reduction combines two elements."""


def scatter_elements_type(
    x: TensorType, indices: TensorType, updates: TensorType, *, axis: int, reduction: str
) -> TensorType:
    """The type of `x`; `updates` has the shape of `indices`."""
    _check_reduction(x, reduction)
    check_element_indices(x, indices, axis, "scatter_elements")
    require_rank(updates, indices.rank, "the updates of scatter_elements")
    for update, index in zip(updates.dims, indices.dims, strict=True):
        require_equal(update, index, "scatter_elements needs one update for each index")
    return x


def scatter_elements(x: Array, indices: Array, updates: Array, *, axis: int, reduction: str) -> Array:
    """`x` with each update written to its own position, but at its index along `axis` (ONNX ScatterElements).

    With a reduction the update is combined with what is there, in any order; without, the last of equal indices stays.
    """
    return _written(x, element_positions(x, indices, axis, "scatter_elements"), updates, reduction)


def scatter_nd_type(x: TensorType, indices: TensorType, updates: TensorType, *, reduction: str) -> TensorType:
    """The type of `x`; `updates` has the leading sizes of `indices`, then those that an index tuple leaves of `x`."""
    _check_reduction(x, reduction)
    depth = index_depth(indices, x.rank, "scatter_nd")
    expected = (*indices.dims[:-1], *x.dims[depth:])
    require_rank(updates, len(expected), "the updates of scatter_nd")
    for update, dim in zip(updates.dims, expected, strict=True):
        require_equal(update, dim, f"the updates of scatter_nd for {x} at {indices}")
    return x


def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str) -> Array:
    """`x` with updates written at index tuples, the last axis of `indices` (ONNX ScatterND); reductions as above."""
    depth = indices.shape[-1]
    positions = (checked_indices(indices[..., i], x.shape[i], "scatter_nd") for i in range(depth))
    return _written(x, tuple(positions), updates, reduction)


def _check_reduction(x: TensorType, reduction: str) -> None:
    if reduction != "none" and x.dtype.kind in (Kind.STRING, Kind.COMPLEX):
        raise TypeRuleError(f"{x.dtype} cannot be reduced by {reduction}")


def _written(x: Array, positions: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    if reduction == "none":
        result = x.copy()
        result[positions] = updates
        return result
    wide = accumulator(DType.of(x.dtype))
    result = x.astype(wide)
    REDUCTIONS[reduction].at(result, positions, updates.astype(wide))
    return result.astype(x.dtype, copy=False)


def accumulator(dtype: DType) -> Any:
    """Sums of small floats are rounded once, not at every update; integers below a byte have no ufuncs of their own."""
    if dtype.is_small_float:
        return np.float32
    return dtype.numpy if dtype.bits >= 8 else np.int32


def _flops_of(updates: int) -> Flops:
    def rule(inputs: Any, _outputs: Any, attrs: Any) -> Any:
        return 0 if attrs["reduction"] == "none" else inputs[updates].size

    return rule


_REDUCTION = Attribute("reduction", AttrKind.STRING, "none", choices=("none", *REDUCTIONS))


def _scatter(name: str, dtypes: Any, infer: Callable[..., Any], meaning: Callable[..., Any], *attrs: Attribute) -> Op:
    return op(
        name,
        "x: T, indices: I, updates: T",
        T=ANY,
        I=dtypes,
        attrs=(*attrs, _REDUCTION),
        infer=infer,
        meaning=meaning,
        traits=Trait.WRITES | Trait.REFUSES_EMPTY,
        aliases=((0, 0),),
        flops=_flops_of(2),
    )


OPS: tuple[Op, ...] = (
    _scatter("scatter_elements", INDICES, scatter_elements_type, scatter_elements, Attribute("axis", AttrKind.INT, 0)),
    _scatter("scatter_nd", I64, scatter_nd_type, scatter_nd),
)
