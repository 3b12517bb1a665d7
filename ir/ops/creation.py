"""Tensors from nothing or from a shape: constants, fills, sizes, ranges.

`dims`, `dim`, `full` and `arange` take symbolic sizes as attributes. `shape` and `size` say the same of an operand, and
so keep the dependency on it.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind, Attrs
from ..constant import Array, Constant
from ..dims import Dim, Truth, ceil_div, dim_max, is_at_least
from ..errors import ExecutionError, ShapeError, TypeRuleError
from ..op import ANY, BOOLS, FRESH, I64, NUMBERS, Op, Trait, op
from ..types import DType, Kind, TensorType, Type
from .rules import require_rank

_DYNAMIC = Trait.DATA_DEPENDENT | Trait.READS_HOST
_WITH_ONE = NUMBERS | BOOLS
_FOLLOWED = (Kind.BOOL, Kind.INT, Kind.UINT)


def dim_array(dims: Sequence[Dim]) -> Array:
    """A vector of dims, as symbolic meanings take and give them: dtype object, elements int or SymDim."""
    made = np.empty(len(dims), dtype=object)
    made[:] = list(dims)
    return made


def constant_dims(value: Constant) -> Array | None:
    """The elements of an integer or bool constant as an object array of Python's integers; None for other dtypes."""
    return value.array.astype(object) if value.dtype.kind in _FOLLOWED else None


def check_sizes(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """`shape` itself. Raises `ShapeError` when a size is negative whatever the symbols are."""
    for dim in shape:
        if is_at_least(dim, 0) is Truth.NO:
            raise ShapeError(f"the shape [{', '.join(map(str, shape))}] has a negative size")
    return tuple(shape)


MAX_RANK = 64
"""Of a NumPy array."""


def operand_length(ty: TensorType, what: str) -> int:
    """The static length of an operand that lists axes or sizes. Raises `TypeRuleError` when it has none."""
    require_rank(ty, 1, what)
    length = ty.dims[0]
    if not isinstance(length, int):
        raise TypeRuleError(f"{what} must have a static length, not {ty}: it gives the rank of the result")
    if length > MAX_RANK:
        raise TypeRuleError(f"{what} lists {length} sizes, but arrays have {MAX_RANK} axes at most")
    return length


# ---- constant, full


def constant_type(*, value: Constant) -> TensorType:
    """The constant's own type."""
    return value.type


def constant(*, value: Constant) -> Array:
    """The tensor `value`, read-only."""
    return value.array


def _constant_symbolic(_types: Sequence[Type | None], _operands: Sequence[Any], attrs: Attrs) -> Array | None:
    return constant_dims(attrs["value"])


def full_type(*, shape: Sequence[Dim], value: Constant) -> TensorType:
    """A tensor of shape `shape`. Raises `TypeRuleError` when `value` is not of rank 0."""
    _check_scalar(value)
    return TensorType(value.dtype, check_sizes(shape))


def full(*, shape: Sequence[int], value: Constant) -> Array:
    """A tensor of shape `shape` whose elements are all the rank-0 constant `value`."""
    return np.full(tuple(shape), value.array, dtype=value.dtype.numpy)


def _full_symbolic(_types: Sequence[Type | None], _operands: Sequence[Any], attrs: Attrs) -> Array | None:
    element = constant_dims(attrs["value"])
    return None if element is None else np.full(tuple(attrs["shape"]), element.item(), dtype=object)


def dynamic_full_type(shape: TensorType, *, value: Constant) -> TensorType:
    """As many new sizes as `shape` has elements."""
    _check_scalar(value)
    return TensorType(value.dtype, (FRESH,) * operand_length(shape, "the shape operand"))


def dynamic_full(shape: Array, *, value: Constant) -> Array:
    """`full` with its shape read from an operand i64[rank] while running (ONNX ConstantOfShape)."""
    return full(shape=shape.tolist(), value=value)


def _check_scalar(value: Constant) -> None:
    if value.shape:
        raise TypeRuleError(f"the fill value must have rank 0, not be {value.type}")


# ---- dims, dim, shape, size


def dims_type(*, values: Sequence[Dim]) -> TensorType:
    """i64[n] for n dims."""
    return TensorType(DType.I64, (len(values),))


def dims(*, values: Sequence[int]) -> Array:
    """The sizes `values` as a vector i64[n]; symbolic ones are known at the latest when a call binds its shapes."""
    return np.array(values, dtype=np.int64)


def dim_type(*, value: Dim) -> TensorType:
    """i64[]."""
    return TensorType(DType.I64, ())


def dim(*, value: int) -> Array:
    """The size `value` as a scalar i64[]."""
    return np.array(value, dtype=np.int64)


def shape_type(x: TensorType, *, start: int, end: int | None) -> TensorType:
    """i64[k] for the k sizes in [start, end)."""
    return TensorType(DType.I64, (len(x.dims[start:end]),))


def shape(x: Array, *, start: int, end: int | None) -> Array:
    """The sizes of axes start to end (excluded) of `x`: negative ones count from the end, and both are clamped."""
    return np.array(x.shape[start:end], dtype=np.int64)


def _shape_symbolic(types: Sequence[Type | None], _operands: Sequence[Any], attrs: Attrs) -> Array | None:
    x = types[0]
    return dim_array(x.dims[attrs["start"] : attrs["end"]]) if isinstance(x, TensorType) else None


def size_type(_x: TensorType) -> TensorType:
    """i64[]."""
    return TensorType(DType.I64, ())


def size(x: Array) -> Array:
    """The number of elements of `x`."""
    return np.array(x.size, dtype=np.int64)


def _size_symbolic(types: Sequence[Type | None], _operands: Sequence[Any], _attrs: Attrs) -> Array | None:
    x = types[0]
    return np.array(x.size, dtype=object) if isinstance(x, TensorType) else None


# ---- arange, eye_like


def arange_length(start: Dim, limit: Dim, step: int) -> Dim:
    """How many of start, start + step, ... lie before `limit`. Raises `ShapeError` for a step of 0."""
    if step == 0:
        raise ShapeError("the step of a range cannot be 0")
    distance = limit - start if step > 0 else start - limit
    return dim_max(0, ceil_div(distance, abs(step)))


def arange_type(*, start: Dim, limit: Dim, step: int, dtype: DType) -> TensorType:
    """A vector; raises `TypeRuleError` for a dtype that is no number."""
    if dtype not in NUMBERS:
        raise TypeRuleError(f"a range cannot be {dtype}")
    return TensorType(dtype, (arange_length(start, limit, step),))


def arange(*, start: int, limit: int, step: int, dtype: DType) -> Array:
    """start, start + step, ... up to `limit` (excluded), computed in i64 and converted to `dtype`."""
    return np.arange(start, limit, step, dtype=np.int64).astype(dtype.numpy)


def _arange_symbolic(_types: Sequence[Type | None], _operands: Sequence[Any], attrs: Attrs) -> Array | None:
    start, step = attrs["start"], attrs["step"]
    length = arange_length(start, attrs["limit"], step)
    if not isinstance(length, int) or attrs["dtype"].kind not in _FOLLOWED:
        return None
    return dim_array([start + index * step for index in range(length)])


def dynamic_arange_type(start: TensorType, limit: TensorType, step: TensorType) -> TensorType:
    """A vector of a new size; raises `TypeRuleError` when a bound is no scalar."""
    for bound in (start, limit, step):
        require_rank(bound, 0, "a bound of a range")
    return TensorType(start.dtype, (FRESH,))


def dynamic_arange(start: Array, limit: Array, step: Array) -> Array:
    """max(ceil((limit - start)/step), 0) elements (counted in f64) start + i*step, small floats in f32 (ONNX Range)."""
    if not step:
        raise ExecutionError("the step of a range cannot be 0")
    dtype = start.dtype
    if dtype.kind in "iu":
        return np.array(range(int(start), int(limit), int(step)), dtype=dtype)
    wide: Any = np.float64 if dtype == np.float64 else np.float32
    count = max(math.ceil((float(limit) - float(start)) / float(step)), 0)
    first, stride = wide(start), wide(step)
    return np.asarray(first + np.arange(count, dtype=np.int64).astype(wide) * stride).astype(dtype)


def eye_like_type(x: TensorType, *, dtype: DType | None, diagonal: int) -> TensorType:
    """The shape of `x`; raises `TypeRuleError` unless that has rank 2 and `dtype` has a one and a zero."""
    require_rank(x, 2, "the operand of eye_like")
    if dtype is not None and dtype not in _WITH_ONE:
        raise TypeRuleError(f"eye_like cannot give {dtype}")
    return x if dtype is None else x.with_dtype(dtype)


def eye_like(x: Array, *, dtype: DType | None, diagonal: int) -> Array:
    """Ones on a diagonal (0: main, above it: positive), zeros elsewhere; shape, and by default dtype, as `x`."""
    rows, columns = x.shape
    made = np.eye(rows, columns, k=min(max(diagonal, -rows), columns), dtype=np.bool_)
    return made.astype(x.dtype if dtype is None else dtype.numpy)


_SHAPE = Attribute("shape", AttrKind.DIMS)
_VALUE = Attribute("value", AttrKind.CONSTANT)

OPS: tuple[Op, ...] = (
    op("constant", "", attrs=(_VALUE,), infer=constant_type, meaning=constant, symbolic=_constant_symbolic),
    op("full", "", attrs=(_SHAPE, _VALUE), infer=full_type, meaning=full, symbolic=_full_symbolic),
    op(
        "dynamic_full",
        "shape: I!",
        I=I64,
        attrs=(_VALUE,),
        infer=dynamic_full_type,
        meaning=dynamic_full,
        traits=_DYNAMIC,
    ),
    op(
        "dims",
        "",
        attrs=(Attribute("values", AttrKind.DIMS),),
        infer=dims_type,
        meaning=dims,
        traits=Trait.SIZES,
        symbolic=lambda _types, _operands, attrs: dim_array(attrs["values"]),
    ),
    op(
        "dim",
        "",
        attrs=(Attribute("value", AttrKind.DIM),),
        infer=dim_type,
        meaning=dim,
        traits=Trait.SIZES,
        symbolic=lambda _types, _operands, attrs: np.array(attrs["value"], dtype=object),
    ),
    op(
        "shape",
        "x: T",
        T=ANY,
        attrs=(Attribute("start", AttrKind.INT, 0), Attribute("end", AttrKind.INT, None)),
        infer=shape_type,
        meaning=shape,
        traits=Trait.SIZES,
        symbolic=_shape_symbolic,
    ),
    op("size", "x: T", T=ANY, infer=size_type, meaning=size, traits=Trait.SIZES, symbolic=_size_symbolic),
    op(
        "arange",
        "",
        attrs=(
            Attribute("start", AttrKind.DIM, 0),
            Attribute("limit", AttrKind.DIM),
            Attribute("step", AttrKind.INT, 1),
            Attribute("dtype", AttrKind.DTYPE, DType.I64),
        ),
        infer=arange_type,
        meaning=arange,
        symbolic=_arange_symbolic,
    ),
    op(
        "dynamic_arange",
        "start: T!, limit: T!, step: T!",
        T=NUMBERS,
        infer=dynamic_arange_type,
        meaning=dynamic_arange,
        traits=_DYNAMIC,
    ),
    op(
        "eye_like",
        "x: T",
        T=_WITH_ONE,
        attrs=(Attribute("dtype", AttrKind.DTYPE, None), Attribute("diagonal", AttrKind.INT, 0)),
        infer=eye_like_type,
        meaning=eye_like,
    ),
)
