"""TopK, Unique, NonZero, Compress, NonMaxSuppression."""

from collections.abc import Sequence

from ....ir.graph import Node, Value
from ....ir.ops.rules import normal_axis
from ....ir.types import DType
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext
from .rows import export_as, import_as

# ---- import


def import_top_k(ctx: ImportContext) -> Sequence[Value]:
    """K is an attribute before opset 10, an operand since; the smallest elements came with opset 11."""
    x = ctx.input(0)
    attrs = {
        "axis": ctx.attr("axis", -1),
        "largest": bool(ctx.attr("largest", 1)),
        "sorted": bool(ctx.attr("sorted", 1)),
    }
    k = ctx.attr("k") if ctx.version < 10 else ctx.dim(1, x)
    if k is None:
        return ctx.ops("dynamic_top_k", x, ctx.input(1), **attrs)
    return ctx.ops("top_k", x, k=k, **attrs)


IMPORTS = {
    "Compress": import_as("compress", "axis"),
    "NonMaxSuppression": import_as("non_max_suppression", "center_point_box"),
    "NonZero": import_as("non_zero"),
    "TopK": import_top_k,
    "Unique": import_as("unique", "axis", "sorted"),
}

# ---- export


def export_top_k(ctx: ExportContext, node: Node) -> None:
    """TopK with k as an operand."""
    x, attrs = node.operands[0], node.attrs
    named = {name: attrs[name] for name in ("axis", "largest", "sorted")}
    if ctx.opset < 10 and isinstance(attrs["k"], int):
        if not attrs["largest"]:
            ctx.require_opset(11, "TopK of the least elements")
        ctx.emit("TopK", [x], node.outputs, k=attrs["k"], axis=attrs["axis"])
        return
    ctx.emit("TopK", [x, ctx.dims_tensor([attrs["k"]], x)], node.outputs, **named)


def export_dynamic_top_k(ctx: ExportContext, node: Node) -> None:
    """TopK, whose k must be a vector of one element."""
    x, k = node.operands
    vector = k if k.tensor.rank else ctx.emit_value("Reshape", [k, ctx.ints([1])])
    named = {name: node.attrs[name] for name in ("axis", "largest", "sorted")}
    ctx.emit("TopK", [x, vector], node.outputs, **named)


def export_sort(ctx: ExportContext, node: Node) -> None:
    """TopK of all elements, which puts the lower index first as well; bools are sorted as bytes."""
    x, axis = node.operands[0], node.attrs["axis"]
    size = ctx.dims_tensor([x.shape[normal_axis(axis, x.tensor.rank)]], x)
    largest = node.attrs["descending"]
    if x.tensor.dtype is not DType.BOOL:
        ctx.emit("TopK", [x, size], node.outputs, axis=axis, largest=largest)
        return
    values, indices = node.outputs
    bytes_ = ctx.writer.new_name(f"{values.name}_bytes")
    ctx.emit("TopK", [ctx.emit_value("Cast", [x], to=DType.U8), size], [bytes_, indices], axis=axis, largest=largest)
    ctx.emit("Cast", [bytes_], [values], to=DType.BOOL)


EXPORTS = {
    "compress": export_as("Compress", "axis"),
    "dynamic_top_k": export_dynamic_top_k,
    "non_max_suppression": export_as("NonMaxSuppression", "center_point_box"),
    "non_zero": export_as("NonZero"),
    "sort": export_sort,
    "top_k": export_top_k,
    "unique": export_as("Unique", "axis", "sorted"),
}
