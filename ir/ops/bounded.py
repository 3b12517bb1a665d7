"""Results whose size depends on the data, in memory of a size that is known: twins of the ops in `selection.py`.

Plans have them, graphs do not. Each gives what its twin does in the first `count` of `size` entries, zeros behind them,
and `count` itself as one more result: a scalar in device memory, so that a recording serves whatever is found.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind
from ..constant import Array
from ..dims import Dim
from ..op import FRESH, Op, Trait
from ..types import DType, TensorType
from . import selection

COUNT = TensorType(DType.I64, ())


def _of_size(ty: TensorType, size: Dim) -> TensorType:
    """A result of the twin, with `size` where only running tells."""
    return ty.with_shape(tuple(size if dim == FRESH else dim for dim in ty.dims))


def _padded(found: Array, axis: int, size: int) -> Array:
    """`found` with zeros behind it, up to `size` along `axis`."""
    shape = (*found.shape[:axis], size, *found.shape[axis + 1 :])
    result = np.zeros(shape, dtype=found.dtype)
    result[(*(slice(None),) * axis, slice(found.shape[axis]))] = found
    return result


PREFIX = "bounded_"
"""What the name of a twin begins with."""

_SIZE = Attribute("size", AttrKind.DIM)


def _bounded(twin: Op) -> Op:
    """The row of an op that `twin` is, with an attribute `size` more."""

    def infer(*types: TensorType | None, size: Dim, **attrs: Any) -> list[TensorType]:
        return [*(_of_size(ty, size) for ty in _listed(twin.infer(*types, **attrs))), COUNT]

    def meaning(*operands: Array | None, size: int, **attrs: Any) -> tuple[Array, ...]:
        types = [x if x is None else TensorType(DType.of(x.dtype), x.shape) for x in operands]
        axes = [ty.dims.index(FRESH) if FRESH in ty.dims else None for ty in _listed(twin.infer(*types, **attrs))]
        found = _listed(twin.meaning(*operands, **attrs))
        results = [each if axis is None else _padded(each, axis, size) for each, axis in zip(found, axes, strict=True)]
        return (*results, np.asarray(found[0].shape[axes[0]], dtype=np.int64))

    return replace(
        twin,
        name=f"{PREFIX}{twin.name}",
        operands=tuple(replace(operand, is_shaping=False) for operand in twin.operands),
        attrs={**twin.attrs, "size": _SIZE},
        infer=infer,
        meaning=meaning,
        traits=Trait.NONE,
        doc=f"`{twin.name}` in `size` entries: zeros behind what was found, and how many that are.",
    )


def _listed(found: Any) -> list[Any]:
    return [found] if isinstance(found, TensorType | np.ndarray) else list(found)


OPS: tuple[Op, ...] = tuple(_bounded(twin) for twin in selection.OPS)
