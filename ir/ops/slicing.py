"""Parts of tensors and tensors from parts: slice, split, concat, pad.

Bounds of slices have NumPy's meaning: negative ones count from the end, and all are clamped, so that 2**63 - 1 means
"to the end".
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind
from ..constant import Array
from ..dims import Dim, SymDim, Truth, ceil_div, compare, dim_max, dim_min, is_at_least, upper_bound
from ..dims.constraints import require_equal
from ..errors import ExecutionError, ShapeError, TypeRuleError
from ..op import ANY, FRESH, I64, INDICES, Op, Trait, op, symbolic_by
from ..types import TensorType
from .creation import check_sizes, operand_length
from .layout import moved, shape_text
from .rules import normal_axes, normal_axis, require_rank

_DYNAMIC = Trait.DATA_DEPENDENT | Trait.READS_HOST

_FAR = 2**31 - 1
"""A bound from here on means "to the end" of a symbolic axis: exporters write 2**31 - 1 as well as 2**63 - 1."""


# ---- concat, split


def concat_type(*xs: TensorType, axis: int) -> TensorType:
    """The sizes along `axis` add up, all others must be equal. Raises `TypeRuleError` without operands."""
    if not xs:
        raise TypeRuleError("concat needs at least one operand")
    joined = normal_axis(axis, xs[0].rank)
    for x in xs:
        require_rank(x, xs[0].rank, "every operand of concat")
    sizes = [x.dims[joined] for x in xs]
    shape = [_common(dims, axis) for axis, dims in enumerate(zip(*(x.dims for x in xs), strict=True)) if axis != joined]
    shape.insert(joined, sum(sizes[1:], start=sizes[0]))
    return xs[0].with_shape(tuple(shape))


def _common(dims: Sequence[Dim], axis: int) -> Dim:
    result = dims[0]
    for dim in dims[1:]:
        result = require_equal(result, dim, f"concatenated tensors must agree along axis {axis}")
    return result


def concat(*xs: Array, axis: int) -> Array:
    """The operands one after another along `axis`."""
    return np.concatenate(xs, axis)


def split_type(x: TensorType, *, axis: int, sizes: Sequence[Dim]) -> list[TensorType]:
    """One result for each of `sizes`, which must add up to the size of `axis`."""
    where = normal_axis(axis, x.rank)
    total = sum(check_sizes(sizes), start=0)
    require_equal(total, x.dims[where], f"split of {shape_text(x.dims)} along axis {where} into {shape_text(sizes)}")
    return [x.with_shape((*x.dims[:where], size, *x.dims[where + 1 :])) for size in sizes]


def split(x: Array, *, axis: int, sizes: Sequence[int]) -> tuple[Array, ...]:
    """Consecutive parts of `x` with the given sizes along `axis`."""
    return tuple(np.split(x, np.cumsum(sizes, dtype=np.int64)[:-1], axis)) if sizes else ()


def dynamic_split_type(x: TensorType, sizes: TensorType, *, axis: int) -> list[TensorType]:
    """As many results as `sizes` has elements, of new sizes along `axis`."""
    where = normal_axis(axis, x.rank)
    part = x.with_shape((*x.dims[:where], FRESH, *x.dims[where + 1 :]))
    return [part] * operand_length(sizes, "the sizes operand")


def dynamic_split(x: Array, sizes: Array, *, axis: int) -> tuple[Array, ...]:
    """`split` with sizes i64[n] read while running."""
    if np.any(sizes < 0) or sizes.sum() != x.shape[axis]:
        raise ExecutionError(f"the sizes {sizes.tolist()} do not split axis {axis} of {shape_text(x.shape)}")
    return split(x, axis=axis, sizes=sizes.tolist())


# ---- slice


def slice_size(size: Dim, start: Dim, end: Dim, step: int) -> Dim:
    """How many elements `[start:end:step]` takes from an axis of `size`, exactly for all values of the symbols.

    Only a symbolic bound whose sign is open is taken to have one, under a constraint: `S - T` to be non-negative, and
    `-T` to be negative.
    """
    if step == 0:
        raise ShapeError("the step of a slice cannot be 0")
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*slice(start, end, step).indices(size)))
    first, last = _position(start, size, step), _position(end, size, step)
    spans: tuple[Dim, ...]
    if step < 0:  # min(first, size - 1) - max(last, -1): one minimum simplifies better than two extrema
        spans = first - last, first + 1, size - 1 - last, size
    elif is_at_least(first, 0) is Truth.YES or _is_taken_natural(start, size):
        spans = last - first, size - first
    else:  # min(last, size) - max(first, 0)
        spans = last - first, size - first, last, size
    return dim_max(0, dim_min(*(ceil_div(span, abs(step)) for span in spans)))


def _position(bound: Dim, size: Dim, step: int) -> Dim:
    """`bound` counted from the front, not clamped yet."""
    if isinstance(bound, int):
        return _integer_position(bound, size, step)
    if _is_clamped_alike(bound, size, step):
        return bound
    if _is_from_end(bound):
        require_equal(dim_min(bound, -1), bound, f"the bound {bound} of a slice must be negative")
        return bound + size
    require_equal(dim_max(bound, 0), bound, f"the bound {bound} of a slice must not be negative")
    return bound


def _integer_position(bound: int, size: Dim, step: int) -> Dim:
    if abs(bound) < _FAR or isinstance(size, int):
        return bound if bound >= 0 else bound + size
    if bound > 0:
        return size if step > 0 else size - 1
    return 0 if step > 0 else -1


def _is_clamped_alike(bound: SymDim, size: Dim, step: int) -> bool:
    """Whether a negative `bound` ends up at the same place however it is counted: `T - 1` on an axis of size T."""
    back = size - bound
    return isinstance(back, int) and 0 < back <= (2 if step > 0 else 1)


def _is_from_end(bound: SymDim) -> bool:
    high = upper_bound(bound)
    return high is not None and high <= 0


def _is_taken_natural(start: Dim, size: Dim) -> bool:
    return isinstance(start, SymDim) and not _is_from_end(start) and not _is_clamped_alike(start, size, step=1)


def slice_type(
    x: TensorType, *, axes: Sequence[int], starts: Sequence[Dim], ends: Sequence[Dim], steps: Sequence[int]
) -> TensorType:
    """The sizes by `slice_size`. Raises `ShapeError` unless there is one start, end and step for each of `axes`."""
    if not len(axes) == len(starts) == len(ends) == len(steps):
        raise ShapeError(
            f"a slice needs one start, end and step for each axis: axes {list(axes)}, starts {shape_text(starts)}, "
            f"ends {shape_text(ends)}, steps {list(steps)}"
        )
    sizes = list(x.dims)
    for axis, start, end, step in zip(normal_axes(axes, x.rank), starts, ends, steps, strict=True):
        sizes[axis] = slice_size(x.dims[axis], start, end, step)
    return x.with_shape(tuple(sizes))


def slice_(x: Array, *, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> Array:
    """`x[start:end:step]` along each of `axes`, with NumPy's meaning of negative and far bounds."""
    index: list[Any] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, end, step)
    found: Array = x[(*index, ...)]  # without the dots a scalar comes out, which of strings is no array of objects
    return found


def dynamic_slice_type(
    x: TensorType, starts: TensorType, ends: TensorType, axes: TensorType | None, steps: TensorType | None
) -> TensorType:
    """New sizes for the first axes, as many as there are starts; for all axes when `axes` says which."""
    count = operand_length(starts, "the starts operand")
    for other in (ends, axes, steps):
        if other is not None and operand_length(other, "a bounds operand") != count:
            raise ShapeError(
                f"starts, ends, axes and steps of a slice must have equal length, not {starts} and {other}"
            )
    if count > x.rank:
        raise ShapeError(f"{count} starts for the {x.rank} axes of {x}")
    return x.with_shape((FRESH,) * x.rank if axes is not None else (FRESH,) * count + x.dims[count:])


def first_taken(start: Dim, size: Dim, step: int) -> Dim:
    """The start of a `slice` that means what `start` does in ONNX.

    They differ for a start before the axis and a step backwards: ONNX takes the first element then, NumPy nothing.
    """
    if step > 0 or not isinstance(start, int) or start >= -1:
        return start
    if start <= -_FAR and isinstance(size, SymDim):
        return 0
    return start if is_at_least(size + start, 0) is Truth.YES else dim_max(size + start, 0)


def dynamic_slice(x: Array, starts: Array, ends: Array, axes: Array | None, steps: Array | None) -> Array:
    """`slice` with bounds read while running; without `axes` the first ones are meant, without `steps` steps of 1.

    As in ONNX, a slice backwards from before an axis takes its first element.
    """
    count = starts.size
    which = normal_axes(range(count) if axes is None else axes.tolist(), x.ndim)
    strides = [1] * count if steps is None else steps.tolist()
    sizes = (x.shape[axis] for axis in which)
    parts = zip(starts.tolist(), sizes, strides, strict=True)
    first = [start if step > 0 else max(start, -size) for start, size, step in parts]
    return slice_(x, axes=which, starts=first, ends=ends.tolist(), steps=strides)


# ---- pad


def pad_type(x: TensorType, value: TensorType | None, *, pads: Sequence[Dim], mode: str) -> TensorType:
    """Every size grows by its two pads. Raises `ShapeError` when it cannot, or unless there are two for each axis."""
    if len(pads) != 2 * x.rank:
        raise ShapeError(f"pad needs a begin and an end for each of {x.rank} axes, not {shape_text(pads)}")
    _check_fill(value)
    return x.with_shape(check_sizes([dim + pads[i] + pads[x.rank + i] for i, dim in enumerate(x.dims)]))


def pad(x: Array, value: Array | None, *, pads: Sequence[int], mode: str) -> Array:
    """`x` made larger by `pads` (all begins, then all ends); negative pads cut off, before the others are added.

    Mode `constant` fills with `value` (by default 0), the others as `numpy.pad` with the same name.
    """
    begins, ends = pads[: x.ndim], pads[x.ndim :]
    if any(size + begin + end < 0 for size, begin, end in zip(x.shape, begins, ends, strict=True)):
        raise ExecutionError(f"pads {list(pads)} take more away than {shape_text(x.shape)} has")
    if not x.ndim:
        return x
    if mode == "constant":
        return _pad_constant(x, fill_value(x, value), begins, ends)
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if begin or end:
            kept = np.arange(x.shape[axis], dtype=np.int64)[max(-begin, 0) : x.shape[axis] - max(-end, 0)]
            x = np.take(x, np.pad(kept, (max(begin, 0), max(end, 0)), mode=_NUMPY_MODES[mode]), axis)
    return x


_NUMPY_MODES: dict[str, Any] = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def _pad_constant(x: Array, fill: Array, begins: Sequence[int], ends: Sequence[int]) -> Array:
    bounds = list(zip(x.shape, begins, ends, strict=True))
    result = np.full([size + begin + end for size, begin, end in bounds], fill, dtype=x.dtype)
    inner = tuple(slice(max(begin, 0), max(size + begin, 0)) for size, begin, _ in bounds)
    target = result[inner]
    outer = tuple(
        slice(max(-begin, 0), max(-begin, 0) + length) for begin, length in zip(begins, target.shape, strict=True)
    )
    target[...] = x[outer]
    return result


def fill_value(x: Array, value: Array | None) -> Array:
    """The number or string that fills `x` up: `value`, else zero, or no letters."""
    if value is not None:
        return value.reshape(())
    return np.array("" if x.dtype.hasobject else 0, dtype=x.dtype)


def _check_fill(value: TensorType | None) -> None:
    if value is not None and (value.rank > 1 or compare(value.size, 1) is Truth.NO):
        raise TypeRuleError(f"the fill value of pad must have one element, not be {value}")


def dynamic_pad_type(
    x: TensorType, pads: TensorType, value: TensorType | None, axes: TensorType | None, *, mode: str
) -> TensorType:
    """New sizes for all axes."""
    _check_fill(value)
    count = x.rank if axes is None else operand_length(axes, "the axes operand")
    if compare(operand_length(pads, "the pads operand"), 2 * count) is Truth.NO:
        raise ShapeError(f"pad needs a begin and an end for each of {count} axes, not {pads}")
    return x.with_shape((FRESH,) * x.rank)


def dynamic_pad(x: Array, pads: Array, value: Array | None, axes: Array | None, *, mode: str) -> Array:
    """`pad` with pads i64[2*n] for n axes (all, when `axes` is absent) read while running."""
    which = normal_axes(range(x.ndim) if axes is None else axes.tolist(), x.ndim)
    given = pads.tolist()
    complete = [0] * (2 * x.ndim)
    for position, axis in enumerate(which):
        complete[axis], complete[x.ndim + axis] = given[position], given[len(which) + position]
    return pad(x, value, pads=complete, mode=mode)


_AXIS = Attribute("axis", AttrKind.INT)
_MODE = Attribute("mode", AttrKind.STRING, "constant", choices=("constant", "reflect", "edge", "wrap"))

OPS: tuple[Op, ...] = (
    op(
        "concat",
        "*xs: T",
        T=ANY,
        attrs=(_AXIS,),
        infer=concat_type,
        meaning=concat,
        traits=Trait.JOINS,
        symbolic=symbolic_by(concat),
    ),
    op(
        "split",
        "x: T",
        T=ANY,
        attrs=(_AXIS, Attribute("sizes", AttrKind.DIMS)),
        infer=split_type,
        meaning=split,
        traits=Trait.VIEW | Trait.KEEPS_AXES,
        symbolic=moved(split),
    ),
    op(
        "dynamic_split",
        "x: T, sizes: I!",
        T=ANY,
        I=I64,
        attrs=(_AXIS,),
        infer=dynamic_split_type,
        meaning=dynamic_split,
        traits=_DYNAMIC,
    ),
    op(
        "slice",
        "x: T",
        T=ANY,
        attrs=(
            Attribute("axes", AttrKind.INTS),
            Attribute("starts", AttrKind.DIMS),
            Attribute("ends", AttrKind.DIMS),
            Attribute("steps", AttrKind.INTS),
        ),
        infer=slice_type,
        meaning=slice_,
        traits=Trait.VIEW | Trait.KEEPS_AXES,
        symbolic=moved(slice_),
    ),
    op(
        "dynamic_slice",
        "x: T, starts: I!, ends: I!, axes: I!?, steps: I!?",
        T=ANY,
        I=INDICES,
        infer=dynamic_slice_type,
        meaning=dynamic_slice,
        traits=_DYNAMIC,
    ),
    op(
        "pad",
        "x: T, value: T?",
        T=ANY,
        attrs=(Attribute("pads", AttrKind.DIMS), _MODE),
        infer=pad_type,
        meaning=pad,
        traits=Trait.KEEPS_AXES | Trait.REFUSES_EMPTY,
    ),
    op(
        "dynamic_pad",
        "x: T, pads: I!, value: T?, axes: J!?",
        T=ANY,
        I=I64,
        J=INDICES,
        attrs=(_MODE,),
        infer=dynamic_pad_type,
        meaning=dynamic_pad,
        traits=_DYNAMIC,
    ),
)
