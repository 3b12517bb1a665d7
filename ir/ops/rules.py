"""Type rules and small computations on types that several op families share."""

from collections.abc import Sequence
from typing import Any

from ..constraints import require_equal
from ..dims import Dim, Truth, compare
from ..errors import ShapeError, TypeRuleError
from ..types import DType, TensorType


def same_type(first: TensorType, *_others: TensorType | None, **_attrs: Any) -> TensorType:
    """The result has the type of the first operand."""
    return first


def broadcast_type(first: TensorType, *others: TensorType | None, **_attrs: Any) -> TensorType:
    """The operands broadcast together; the result has the dtype of the first."""
    shapes = [first.dims, *(other.dims for other in others if other is not None)]
    return TensorType(first.dtype, broadcast_shapes(*shapes))


def compare_type(first: TensorType, second: TensorType, **_attrs: Any) -> TensorType:
    """The operands broadcast together; the result is bool."""
    return TensorType(DType.BOOL, broadcast_shapes(first.dims, second.dims))


def broadcast_shapes(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The NumPy broadcast of symbolic shapes. Raises `ShapeError` for sizes that cannot meet.

    A symbol against a size other than 1 is taken to be that size, under a constraint: a model that relies on a symbol
    being 1 at run time must say so in its shapes.
    """
    if len(shapes) == 1 or all(shape == shapes[0] for shape in shapes[1:]):
        return tuple(shapes[0])
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(_broadcast_dims(dims) for dims in zip(*padded, strict=True))


def _broadcast_dims(dims: tuple[Dim, ...]) -> Dim:
    result: Dim = 1
    for dim in dims:
        if dim == 1:
            continue
        result = dim if result == 1 else require_equal(result, dim, "broadcast sizes must be equal or 1")
    return result


def require_broadcast(dims: Sequence[Dim], target: Sequence[Dim], what: str) -> None:
    """Raises `ShapeError` unless an operand of shape `dims` broadcasts to `target` without changing it."""
    if len(dims) > len(target):
        raise ShapeError(f"{what} has rank {len(dims)}, but what it broadcasts to has {len(target)}")
    for dim, size in zip(reversed(dims), reversed(target), strict=False):
        if dim != 1:
            require_equal(size, dim, f"{what} must broadcast to the shape [{', '.join(map(str, target))}]")


def normal_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front. Raises `ShapeError` when it is out of range for `rank`."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """`axes` counted from the front, in the given order. Raises `ShapeError` for one out of range or repeated."""
    normal = tuple(normal_axis(axis, rank) for axis in axes)
    if len(set(normal)) != len(normal):
        raise ShapeError(f"axes {list(axes)} repeat an axis")
    return normal


def require_rank(ty: TensorType, ranks: Sequence[int] | int, what: str) -> None:
    """Raises `TypeRuleError` unless the rank of `ty` is (one of) `ranks`."""
    allowed = (ranks,) if isinstance(ranks, int) else tuple(ranks)
    if ty.rank not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise TypeRuleError(f"{what} must have rank {wanted}, not {ty.rank}: {ty}")


def may_differ(left: Dim, right: Dim) -> bool:
    """Whether some call could give the two dims different sizes."""
    return compare(left, right) is not Truth.YES
