"""Type rules and small computations on types that several op families share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..attrs import AttrKind
from ..constant import Array
from ..dims import Dim, SymDim, Truth, compare, dim_min, upper_bound
from ..dims.constraints import are_untied, require_equal
from ..errors import ShapeError, TypeRuleError
from ..op import FRESH, DTypes, Op, Operand, Trait
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

    A symbol against a size other than 1 is taken to be that size, under a constraint, but where `untied_sizes` is
    active: a model that relies on a symbol being 1 at run time must say so in its shapes, as `min(1, N)` does, the size
    of `x[:1]`.
    """
    if len(shapes) == 1 or all(shape == shapes[0] for shape in shapes[1:]):
        return tuple(shapes[0])
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(_broadcast_dims(dims) for dims in zip(*padded, strict=True))


def _broadcast_dims(dims: tuple[Dim, ...]) -> Dim:
    reason = "broadcast sizes must be equal or 1"
    free = [dim for dim in dims if dim != 1 and not _is_at_most_one(dim)]
    if free and are_untied(free):
        return next((dim for dim in free if isinstance(dim, int)), FRESH)
    result = free[0] if free else max(dims, key=lambda dim: dim != 1)
    for dim in dims:
        if dim in free:
            result = require_equal(result, dim, reason)
        else:
            require_one_or(result, dim, reason)
    return result


def _is_at_most_one(dim: Dim) -> bool:
    bound = upper_bound(dim) if isinstance(dim, SymDim) else None
    return bound is not None and bound <= 1


def require_one_or(size: Dim, dim: Dim, reason: str) -> None:
    """Requires that `dim` is `size`, or 1 wherever `size` is not 0. Raises `ShapeError` where it cannot be."""
    if dim == 1:
        return
    if not _is_at_most_one(dim):
        require_equal(size, dim, reason)
    elif size != 0 and compare(dim, size) is not Truth.YES and compare(dim, dim_min(1, size)) is not Truth.YES:
        require_equal(dim, 1, reason)


def require_broadcast(dims: Sequence[Dim], target: Sequence[Dim], what: str) -> None:
    """Raises `ShapeError` unless an operand of shape `dims` broadcasts to `target` without changing it."""
    if len(dims) > len(target):
        raise ShapeError(f"{what} has rank {len(dims)}, but what it broadcasts to has {len(target)}")
    for dim, size in zip(reversed(dims), reversed(target), strict=False):
        require_one_or(size, dim, f"{what} must broadcast to the shape [{', '.join(map(str, target))}]")


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


def require_one_element(ty: TensorType, what: str) -> None:
    """Raises unless `ty` is a scalar or a vector of one element."""
    require_rank(ty, (0, 1), what)
    require_equal(ty.size, 1, f"{what} must have one element")


def reading(twin: Op, attribute: str, dtypes: DTypes, traits: Trait = Trait.NONE) -> Op:
    """The row of the op that reads an attribute of `twin` while running: from its second operand, of one element."""
    unknown = FRESH if twin.attrs[attribute].kind is AttrKind.DIM else 0
    operand = Operand(attribute, "N", dtypes, is_shaping=True)

    def infer(first: TensorType, number: TensorType, *others: TensorType, **attrs: Any) -> Any:
        require_one_element(number, f"the {attribute} of {twin.name}")
        return twin.infer(first, *others, **{attribute: unknown}, **attrs)

    def meaning(first: Array, number: Array, *others: Array, **attrs: Any) -> Any:
        return twin.meaning(first, *others, **{attribute: int(number.item())}, **attrs)

    return replace(
        twin,
        name=f"dynamic_{twin.name}",
        operands=(twin.operands[0], operand, *twin.operands[1:]),
        attrs={name: each for name, each in twin.attrs.items() if name != attribute},
        infer=infer,
        meaning=meaning,
        traits=traits,
        doc=f"`{twin.name}` with its `{attribute}` read while running, from an operand of one element.",
    )
