"""Gather, GatherElements, GatherND, ScatterElements, ScatterND, TensorScatter, OneHot, Trilu; ArrayFeatureExtractor."""

from ....ir.analysis.contents import constant_of
from ....ir.dims import Dim, product
from ....ir.errors import UnsupportedError
from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.dialect import Dialect
from ..context.export_context import ExportContext, Operand
from ..context.import_context import ImportContext
from .rows import export_as, import_as

# ---- import


def import_one_hot(ctx: ImportContext) -> Value:
    """Static where the depth is known, of whatever dtype it is."""
    indices, values, axis = ctx.input(0), ctx.input(2), ctx.attr("axis", -1)
    content = ctx.array(1)
    depth = int(content.item()) if content is not None and content.size == 1 else ctx.dim(1, indices)
    if depth is None:
        return ctx.op("dynamic_one_hot", indices, ctx.input(1), values, axis=axis)
    return ctx.op("one_hot", indices, values, depth=depth, axis=axis)


def import_trilu(ctx: ImportContext) -> Value:
    """Static where the diagonal is known; it is the main one when left out."""
    x, upper = ctx.input(0), bool(ctx.attr("upper", 1))
    diagonal = (0,) if ctx.optional(1) is None else ctx.ints(1)
    if diagonal is None or len(diagonal) != 1:
        return ctx.op("dynamic_trilu", x, ctx.input(1), upper=upper)
    return ctx.op("trilu", x, upper=upper, diagonal=diagonal[0])


def import_array_feature_extractor(ctx: ImportContext) -> Value:
    """ArrayFeatureExtractor: the columns of the last axis at all indices, in a row; a vector is one row.

    What is looked up in one known row takes the shape of the indices first: a reshape behind it, which converters of
    classifiers write, then has that shape again or undoes ours.
    """
    x, count = ctx.input(0), product(ctx.tensor(1).dims)
    *before, columns = ctx.tensor(0).dims
    if not before or (before == [1] and ctx.array(0) is not None):
        row = x if not before else ctx.op("reshape", x, shape=(columns,))
        return ctx.op("reshape", ctx.op("gather", row, ctx.input(1), axis=0), shape=(1, count))
    return ctx.op("gather", x, ctx.op("reshape", ctx.input(1), shape=(count,)), axis=-1)


IMPORTS = {
    "Gather": import_as("gather", "axis"),
    "GatherElements": import_as("gather_elements", "axis"),
    "GatherND": import_as("gather_nd", "batch_dims"),
    "OneHot": import_one_hot,
    "Scatter": import_as("scatter_elements", "axis"),
    "ScatterElements": import_as("scatter_elements", "axis", "reduction"),
    "ScatterND": import_as("scatter_nd", "reduction"),
    "TensorScatter": import_as("tensor_scatter", "axis", "mode"),
    "Trilu": import_trilu,
    "ai.onnx.ml.ArrayFeatureExtractor": import_array_feature_extractor,
}

# ---- export


def export_one_hot(ctx: ExportContext, node: Node) -> None:
    """OneHot with a scalar depth."""
    indices, values = node.operands
    depth: Dim = node.attrs["depth"]
    is_float = (
        ctx.dialect is not Dialect.FAITHFUL
        and isinstance(depth, int)
        and values.tensor.dtype not in (DType.I64, DType.STRING)
    )
    # Of most values ONNX Runtime has the operator for a depth in f32, whatever the indices are.
    written = ctx.constant(depth, DType.F32) if is_float else ctx.dim_scalar(depth, indices)
    _write_one_hot(ctx, node, indices, written, values)


def export_dynamic_one_hot(ctx: ExportContext, node: Node) -> None:
    """OneHot with the depth that it has."""
    indices, depth, values = node.operands
    _write_one_hot(ctx, node, indices, depth, values)


def _write_one_hot(ctx: ExportContext, node: Node, indices: Value, depth: Operand, values: Value) -> None:
    """The operator takes no scalar index: one becomes a vector, and the result loses that axis again."""
    known = constant_of(indices)
    if ctx.opset < 11 and known is not None and bool((known.array < 0).any()):
        ctx.require_opset(11, "OneHot of negative indices")
    if indices.tensor.rank:
        ctx.emit("OneHot", [indices, depth, values], node.outputs, axis=node.attrs["axis"])
        return
    if indices.tensor.dtype is DType.BF16:
        raise UnsupportedError("ONNX's OneHot takes no bf16 as indices", remedy="cast them")
    vector = ctx.emit_value("Reshape", [indices, ctx.ints([1])])
    rows = ctx.emit_value("OneHot", [vector, depth, values], axis=-1)
    ctx.emit("Reshape", [rows, ctx.ints([-1])], node.outputs)


def export_scatter_elements(ctx: ExportContext, node: Node) -> None:
    """ScatterElements, which was called Scatter before opset 11."""
    axis, reduction = node.attrs["axis"], node.attrs["reduction"]
    if ctx.opset < 11 and reduction == "none":
        ctx.emit("Scatter", node.inputs, node.outputs, axis=axis)
        return
    ctx.emit("ScatterElements", node.inputs, node.outputs, axis=axis, reduction=reduction)


def export_trilu(ctx: ExportContext, node: Node) -> None:
    """Trilu with a scalar diagonal."""
    diagonal = ctx.constant(node.attrs["diagonal"])
    ctx.emit("Trilu", [node.inputs[0], diagonal], node.outputs, upper=node.attrs["upper"])


EXPORTS = {
    "dynamic_one_hot": export_dynamic_one_hot,
    "dynamic_trilu": export_as("Trilu", "upper"),
    "gather": export_as("Gather", "axis"),
    "gather_elements": export_as("GatherElements", "axis"),
    "gather_nd": export_as("GatherND", "batch_dims"),
    "one_hot": export_one_hot,
    "scatter_elements": export_scatter_elements,
    "scatter_nd": export_as("ScatterND", "reduction"),
    "tensor_scatter": export_as("TensorScatter", "axis", "mode"),
    "trilu": export_trilu,
}
