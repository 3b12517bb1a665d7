"""Constant, ConstantOfShape, Range, EyeLike, Shape, Size."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.analysis.contents import constant_of
from ....ir.constant import Constant
from ....ir.dims import Dim
from ....ir.errors import ModelError
from ....ir.graph import Node, Value
from ....ir.ops import native
from ....ir.types import DType
from ..context.dialect import Dialect
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext
from ..context.partly_known import op_of_shape, partial_dims
from ..tensors import dense_constant, dtype_of
from .rows import export_as

# ---- import

_PLAIN_VALUES: dict[str, tuple[DType, int]] = {
    "value_float": (DType.F32, 0),
    "value_floats": (DType.F32, 1),
    "value_int": (DType.I64, 0),
    "value_ints": (DType.I64, 1),
    "value_string": (DType.STRING, 0),
    "value_strings": (DType.STRING, 1),
}


def import_constant(ctx: ImportContext) -> Value:
    """Any of the attributes that can hold the value."""
    if ctx.has_attr("value"):
        return ctx.constant(ctx.attr("value"))
    if ctx.has_attr("sparse_value"):
        return ctx.constant(dense_constant(ctx.attr("sparse_value"), ctx.scope.folder))
    for name, (dtype, rank) in _PLAIN_VALUES.items():
        if ctx.has_attr(name):
            content = ctx.attr(name)
            made = np.empty(() if rank == 0 else len(content), dtype=dtype.numpy)
            made[...] = content
            return ctx.constant(made)
    raise ModelError("Constant has no value")


def import_constant_of_shape(ctx: ImportContext) -> Value:
    """A fill, of f32 zeros unless the attribute says otherwise."""
    given: Constant = ctx.attr("value") or Constant(np.zeros(1, dtype=np.float32))
    if given.size != 1:
        raise ModelError(f"the value of ConstantOfShape must have one element, not be {given.type}")
    value = Constant(given.array.reshape(()))
    shape = ctx.dims(0)
    if shape is not None:
        return ctx.op("full", shape=shape, value=value)
    return op_of_shape(ctx, "dynamic_full", ctx.input(0), shape=partial_dims(ctx, ctx.input(0)), value=value)


def import_range(ctx: ImportContext) -> Value:
    """Static where the bounds are sizes, also when they were converted to floats first."""
    bounds = [_scalar(ctx, index) for index in range(3)]
    start, limit, step = (_exact_bound(ctx, value) for value in bounds)
    dtype = bounds[0].tensor.dtype
    if start is None or limit is None or not isinstance(step, int) or not ctx.may_mention((start, limit)):
        return _constant_range(ctx, bounds) or ctx.op("dynamic_arange", *bounds)
    return ctx.op("arange", start=start, limit=limit, step=step, dtype=dtype)


def _scalar(ctx: ImportContext, index: int) -> Value:
    value = ctx.input(index)
    return value if not ctx.tensor(index).rank else ctx.op("reshape", value, shape=())


_MAX_FLOAT = 2**24
"""Below this, f32 holds every whole number."""


def _exact_bound(ctx: ImportContext, value: Value) -> Dim | None:
    """A bound as a dim; None when it is not known, or is no whole number. A float counts up to f32's exact integers."""
    dtype = value.tensor.dtype
    if not dtype.is_float:
        return ctx.shape_values.as_dim(value)
    if dtype not in (DType.F32, DType.F64):
        return None
    content = constant_of(value)
    if content is not None:
        number = float(content.array.item())
        return int(number) if number.is_integer() and abs(number) < _MAX_FLOAT else None
    producer = value.producer
    if producer is not None and producer.op is native("cast") and producer.operands[0].tensor.dtype.is_integer:
        return ctx.shape_values.as_dim(producer.operands[0])
    return None


_MAX_FOLDED = 1 << 16
_GREATEST_SPAN = 2.0**127
"""Between bounds of a range that is folded: what f32 can subtract."""


def _constant_range(ctx: ImportContext, bounds: list[Value]) -> Value | None:
    contents = [content for value in bounds if (content := constant_of(value)) is not None]
    if len(contents) < len(bounds) or not _is_short(contents):
        return None
    return ctx.constant(native("dynamic_arange").meaning(*(content.array for content in contents)))


def _is_short(bounds: Sequence[Constant]) -> bool:
    """Whether a range from, to and by these has few elements; reckoned beyond their dtype, where nothing overflows."""
    if not (bounds[0].dtype.is_integer or bounds[0].dtype.is_float):
        return False
    number: type[int] | type[float] = int if bounds[0].dtype.is_integer else float
    start, limit, step = (number(bound.array.item()) for bound in bounds)
    span = abs(limit - start)
    return step != 0 and span <= _GREATEST_SPAN and span <= _MAX_FOLDED * abs(step)


def import_shape(ctx: ImportContext) -> Value:
    """A part of the shape, from opset 15 on."""
    ctx.tensor(0)
    return ctx.op("shape", ctx.input(0), start=ctx.attr("start", 0), end=ctx.attr("end", None))


def import_size(ctx: ImportContext) -> Value:
    """The number of elements."""
    ctx.tensor(0)
    return ctx.op("size", ctx.input(0))


def import_eye_like(ctx: ImportContext) -> Value:
    """A diagonal of ones; the dtype is that of the operand unless given."""
    dtype = dtype_of(ctx.attr("dtype")) if ctx.has_attr("dtype") else None
    return ctx.op("eye_like", ctx.input(0), dtype=dtype, diagonal=ctx.attr("k", 0))


IMPORTS = {
    "Constant": import_constant,
    "ConstantOfShape": import_constant_of_shape,
    "EyeLike": import_eye_like,
    "Range": import_range,
    "Shape": import_shape,
    "Size": import_size,
}

# ---- export


def _filled(ctx: ExportContext, node: Node, shape: Any) -> None:
    value: Constant = node.attrs["value"]
    if value.dtype is DType.STRING:
        ctx.emit("Expand", [ctx.constant(value), shape], node.outputs)
        return
    ctx.emit("ConstantOfShape", [shape], node.outputs, value=Constant(value.array.reshape(1)))


def export_full(ctx: ExportContext, node: Node) -> None:
    """ConstantOfShape, which strings lack."""
    _filled(ctx, node, ctx.dims_tensor(node.attrs["shape"]))


def export_dynamic_full(ctx: ExportContext, node: Node) -> None:
    """ConstantOfShape, which strings lack."""
    _filled(ctx, node, node.inputs[0])


def export_dims(ctx: ExportContext, node: Node) -> None:
    """The sizes."""
    ctx.give(ctx.dims_tensor(node.attrs["values"]))


def export_dim(ctx: ExportContext, node: Node) -> None:
    """The size."""
    ctx.give(ctx.dim_scalar(node.attrs["value"]))


_RANGE_DTYPES = (DType.F32, DType.F64, DType.I16, DType.I32, DType.I64)


def export_arange(ctx: ExportContext, node: Node) -> None:
    """Range in i64, converted when another dtype is wanted; a faithful one counts in the dtype where it can."""
    dtype, bounds = node.attrs["dtype"], [node.attrs[name] for name in ("start", "limit", "step")]
    if dtype is DType.I64 or (ctx.dialect is Dialect.FAITHFUL and all(_is_exact(bound, dtype) for bound in bounds)):
        ctx.emit("Range", [_range_bound(ctx, bound, dtype) for bound in bounds], node.outputs)
        return
    wide = ctx.emit_value("Range", [_range_bound(ctx, bound, DType.I64) for bound in bounds])
    ctx.emit("Cast", [wide], node.outputs, to=dtype)


def _is_exact(bound: Dim, dtype: DType) -> bool:
    """Whether Range takes the bound in `dtype` as it is; symbolic ones come from models that converted them as well."""
    if dtype not in _RANGE_DTYPES:
        return False
    if not isinstance(bound, int):
        return dtype is not DType.I16  # to which no size is converted
    limit = _MAX_FLOAT if dtype.is_float else 2 ** (dtype.bits - 1)
    return abs(bound) < limit


def _range_bound(ctx: ExportContext, bound: Dim, dtype: DType) -> str:
    if isinstance(bound, int):
        return ctx.constant(np.array(bound).astype(dtype.numpy))
    size = ctx.dim_scalar(bound)
    return size if dtype is DType.I64 else ctx.emit_value("Cast", [size], to=dtype)


def export_dynamic_arange(ctx: ExportContext, node: Node) -> None:
    """Range; in f32 or i64 where it lacks the dtype, as the op's own meaning says."""
    dtype = node.output.tensor.dtype
    is_small = dtype in (DType.F16, DType.BF16) and ctx.dialect is Dialect.FAITHFUL
    if is_small and ctx.has_opset(27, f"Range in {dtype}"):
        ctx.emit("Range", node.inputs, node.outputs)
        return
    if dtype in _RANGE_DTYPES:
        ctx.emit("Range", node.inputs, node.outputs)
        return
    wide = DType.F32 if dtype.is_float else DType.I64
    bounds = [ctx.emit_value("Cast", [value], to=wide) for value in node.inputs]
    ctx.emit("Cast", [ctx.emit_value("Range", bounds)], node.outputs, to=dtype)


def export_shape(ctx: ExportContext, node: Node) -> None:
    """Shape, with bounds only where they say something; before opset 15 the sizes between them are gathered."""
    (x,) = node.operands
    axes = range(x.tensor.rank)[node.attrs["start"] : node.attrs["end"]]
    if ctx.opset < 15 and len(axes) < x.tensor.rank:
        ctx.emit("Gather", (ctx.emit_value("Shape", (x,)), ctx.ints(axes)), node.outputs, axis=0)
        return
    ctx.emit("Shape", node.inputs, node.outputs, start=node.attrs["start"] or None, end=node.attrs["end"])


EXPORTS = {
    "arange": export_arange,
    "dim": export_dim,
    "dims": export_dims,
    "dynamic_arange": export_dynamic_arange,
    "dynamic_full": export_dynamic_full,
    "eye_like": export_as("EyeLike", "dtype", k="diagonal"),
    "full": export_full,
    "shape": export_shape,
    "size": export_as("Size"),
}
