"""Pools. Global pools come in as reductions over the spatial axes; pools over regions stand here too."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir.dims import Dim, Truth, ceil_div, compare
from ....ir.errors import UnsupportedError
from ....ir.graph import Node, Value
from ....ir.ops.nn.windows import pool_window_counts
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext, NotNative
from .rows import export_as, import_as
from .windows import auto_pad, per_axis, pool_padding, spatial_rank, window_attrs

# ---- coming in


def _pool_attrs(ctx: ImportContext) -> dict[str, Any]:
    kernel = tuple(ctx.attr("kernel_shape"))
    # SAME says itself how many windows there are; VALID only that there are no pads, to ONNX Runtime and to inference.
    ceil_mode = bool(ctx.attr("ceil_mode", 0)) and auto_pad(ctx) in ("NOTSET", "VALID")
    return {"kernel": kernel, **window_attrs(ctx, kernel), "ceil_mode": ceil_mode}


def import_max_pool(ctx: ImportContext) -> Sequence[Value]:
    """MaxPool, with indices where something reads them."""
    attrs = _pool_attrs(ctx)
    if not ctx.wants(1):
        return ctx.ops("max_pool", ctx.input(0), **attrs)
    column_major = bool(ctx.attr("storage_order", 0))
    return ctx.ops("max_pool_with_indices", ctx.input(0), column_major=column_major, **attrs)


def import_average_pool(ctx: ImportContext) -> Value:
    """AveragePool."""
    count_include_pad = bool(ctx.attr("count_include_pad", 0))
    return ctx.op("average_pool", ctx.input(0), count_include_pad=count_include_pad, **_pool_attrs(ctx))


def import_lp_pool(ctx: ImportContext) -> Value:
    """LpPool."""
    return ctx.op("lp_pool", ctx.input(0), p=ctx.attr("p", 2), **_pool_attrs(ctx))


def _global_pool(reduction: str) -> Callable[[ImportContext], Value]:
    def rule(ctx: ImportContext) -> Value:
        axes = tuple(range(2, 2 + spatial_rank(ctx)))
        return ctx.op(reduction, ctx.input(0), axes=axes, keep_dims=True)

    return rule


def import_global_lp_pool(ctx: ImportContext) -> Value:
    """GlobalLpPool; for other norms than the first two, a pool whose window is the whole image."""
    p = int(ctx.attr("p", 2))
    if p in {1, 2}:
        return _global_pool(f"reduce_l{p}")(ctx)
    sizes, rank = ctx.tensor(0).dims[2:], spatial_rank(ctx)
    if not all(isinstance(size, int) for size in sizes):
        raise NotNative(f"a global norm {p} over symbolic sizes")
    plain = {"strides": (1,) * rank, "pads": (0,) * (2 * rank), "dilations": (1,) * rank}
    return ctx.op("lp_pool", ctx.input(0), p=p, kernel=sizes, **plain)


def import_max_unpool(ctx: ImportContext) -> Value:
    """MaxUnpool; its output shape must be known at import time."""
    rank, x = spatial_rank(ctx), ctx.input(0)
    sizes = None
    if ctx.optional(2) is not None:
        shape = ctx.dims(2, x, ctx.input(1))
        if shape is None:
            raise NotNative("an output shape that only running tells")
        sizes = shape[2:]
    return ctx.op(
        "max_unpool",
        x,
        ctx.input(1),
        kernel=ctx.attr("kernel_shape"),
        strides=per_axis(ctx, "strides", rank, 1),
        pads=per_axis(ctx, "pads", 2 * rank, 0),
        sizes=sizes,
    )


def import_roi_align(ctx: ImportContext) -> Value:
    """RoiAlign; before opset 16 the coordinates were not moved by half an element."""
    default = "half_pixel" if ctx.version >= 16 else "output_half_pixel"
    return ctx.op(
        "roi_align",
        *(ctx.input(index) for index in range(3)),
        output_size=(ctx.attr("output_height", 1), ctx.attr("output_width", 1)),
        sampling_ratio=ctx.attr("sampling_ratio", 0),
        spatial_scale=ctx.attr("spatial_scale", 1.0),
        mode=ctx.attr("mode", "avg"),
        coordinate_mode=ctx.attr("coordinate_transformation_mode", default),
    )


IMPORTS = {
    "MaxPool": import_max_pool,
    "AveragePool": import_average_pool,
    "LpPool": import_lp_pool,
    "GlobalMaxPool": _global_pool("reduce_max"),
    "GlobalAveragePool": _global_pool("reduce_mean"),
    "GlobalLpPool": import_global_lp_pool,
    "MaxUnpool": import_max_unpool,
    "RoiAlign": import_roi_align,
    "MaxRoiPool": import_as("max_roi_pool", "spatial_scale", pooled_shape="output_size"),
}

# ---- going out


def _export_pool(op_type: str, *same: str, **renamed: str) -> Callable[[ExportContext, Node], None]:
    names = {**{name: name for name in same}, **renamed}

    def rule(ctx: ExportContext, node: Node) -> None:
        attrs = node.attrs
        if all(value.tensor.is_static and value.tensor.size == 0 for value in node.outputs):
            _write_nothing(ctx, node)
            return
        _require_windows(op_type, node)
        x = node.operands[0]
        pads, sizes, ceil_mode = attrs["pads"], x.shape[2:], attrs["ceil_mode"]
        if ctx.opset < 22 and ceil_mode and (covered := _covered(node)) != (pads, sizes):
            rounded = _rounded_down(node)
            if rounded == pads or (rounded and not attrs.get("count_include_pad")):  # which counts more pads
                pads, ceil_mode = rounded, False
            else:
                pads, sizes = covered
            if not sizes or (len(node.outputs) > 1 and sizes != x.shape[2:]):  # indices count in all of the picture
                ctx.require_opset(22, f"{op_type} that leaves out windows in the padding alone")
        padding = pool_padding(node) if pads == attrs["pads"] else {"pads": pads}
        # An older operator has no dilations, and need not have any where they say nothing.
        dilations = attrs["dilations"] if any(step != 1 for step in attrs["dilations"]) else None
        ctx.emit(
            op_type,
            [x if sizes == x.shape[2:] else _cut(ctx, x, sizes)],
            node.outputs,
            kernel_shape=attrs["kernel"],
            strides=attrs["strides"],
            dilations=dilations,
            ceil_mode=ceil_mode or None,
            **padding,
            **{theirs: attrs[ours] for theirs, ours in names.items()},
        )

    return rule


def _covered(node: Node) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Pads and sizes of which `ceil_mode` gives as many windows when those in the padding alone count as well.

    Before opset 22 they did. Where some are left out, it is what the others cover. Neither where sizes are symbolic
    there, or nothing of an axis is covered.
    """
    attrs, sizes = node.attrs, list(node.operands[0].shape[2:])
    pads, half = list(attrs["pads"]), len(sizes)
    for axis, (size, count) in enumerate(zip(sizes, node.outputs[0].shape[2:], strict=True)):
        begin, stride = pads[axis], attrs["strides"][axis]
        width = attrs["dilations"][axis] * (attrs["kernel"][axis] - 1) + 1
        if compare(ceil_div(size + begin + pads[half + axis] - width, stride) + 1, count) is not Truth.NO:
            continue
        reach = (count - 1) * stride + width - begin
        if not isinstance(size, int) or not isinstance(reach, int) or reach < 1:
            return (), ()
        sizes[axis], pads[half + axis] = min(size, reach), max(reach - size, 0)
    return tuple(pads), tuple(sizes)


def _rounded_down(node: Node) -> tuple[Dim, ...]:
    """Pads with which there are as many windows without `ceil_mode`.

    None where symbolic sizes do not tell them, or runtimes would not take them: pads are smaller than the kernel.
    """
    attrs, sizes = node.attrs, node.operands[0].shape[2:]
    pads, half = list(attrs["pads"]), len(sizes)
    plain = pool_window_counts(sizes, attrs["kernel"], attrs["strides"], pads, attrs["dilations"])
    for axis, (size, found, count) in enumerate(zip(sizes, plain, node.outputs[0].shape[2:], strict=True)):
        if compare(found, count) is Truth.YES:
            continue
        width = attrs["dilations"][axis] * (attrs["kernel"][axis] - 1) + 1
        missing = (count - 1) * attrs["strides"][axis] + width - pads[axis] - size
        if not isinstance(missing, int) or missing >= attrs["kernel"][axis]:
            return ()
        pads[half + axis] = max(missing, 0)
    return tuple(pads)


def _cut(ctx: ExportContext, x: Value, sizes: Sequence[Dim]) -> str:
    """A picture without what lies beyond `sizes`, of which those that are not its own are known."""
    ends = {axis: size for axis, size in enumerate(sizes, 2) if size != x.shape[axis] and isinstance(size, int)}
    ctx.require_opset(10, "ceil_mode")
    return ctx.emit_value("Slice", (x, ctx.ints([0] * len(ends)), ctx.ints([*ends.values()]), ctx.ints([*ends])))


def _write_nothing(ctx: ExportContext, node: Node) -> None:
    """Results without elements as constants: onnx rounds towards 0, and counts a window where there is none."""
    for value in node.outputs:
        shape = [size for size in value.shape if isinstance(size, int)]
        nothing = np.zeros(shape, value.tensor.dtype.numpy)
        ctx.emit("Identity", [ctx.constant(nothing, value.tensor.dtype)], [value])


def _require_windows(op_type: str, node: Node) -> None:
    """Raises `UnsupportedError` where there is no window, and onnx, which rounds towards 0, counts otherwise."""
    attrs = node.attrs
    half = len(attrs["kernel"])
    for axis, (size, found) in enumerate(zip(node.operands[0].shape[2:], node.outputs[0].shape[2:], strict=True)):
        if found != 0 or not isinstance(size, int):
            continue
        width = attrs["dilations"][axis] * (attrs["kernel"][axis] - 1) + 1
        missing = width - size - attrs["pads"][axis] - attrs["pads"][half + axis]
        if attrs["ceil_mode"] or missing // attrs["strides"][axis] != 1:
            raise UnsupportedError(
                f"{op_type} whose windows are {missing} elements wider than all that there is",
                remedy="keep it out of ONNX: its result has no elements",
            )


def export_max_unpool(ctx: ExportContext, node: Node) -> None:
    """MaxUnpool."""
    names = {"kernel_shape": "kernel", "strides": "strides"}
    operands: list[Any] = list(node.inputs)
    if node.attrs["sizes"] is not None:
        operands.append(ctx.dims_tensor(node.output.shape, *node.operands))
    attrs = {theirs: node.attrs[ours] for theirs, ours in names.items()}
    ctx.emit("MaxUnpool", operands, node.outputs, **pool_padding(node), **attrs)


def export_roi_align(ctx: ExportContext, node: Node) -> None:
    """RoiAlign; before opset 16 there is one coordinate mode."""
    attrs = node.attrs
    mode = attrs["coordinate_mode"]
    height, width = attrs["output_size"]
    ctx.emit(
        "RoiAlign",
        node.inputs,
        node.outputs,
        output_height=height,
        output_width=width,
        sampling_ratio=attrs["sampling_ratio"],
        spatial_scale=attrs["spatial_scale"],
        mode=attrs["mode"],
        coordinate_transformation_mode=mode if ctx.opset >= 16 or mode == "half_pixel" else None,
    )


EXPORTS = {
    "max_pool": _export_pool("MaxPool"),
    "max_pool_with_indices": _export_pool("MaxPool", storage_order="column_major"),
    "average_pool": _export_pool("AveragePool", "count_include_pad"),
    "lp_pool": _export_pool("LpPool", "p"),
    "max_unpool": export_max_unpool,
    "roi_align": export_roi_align,
    "max_roi_pool": export_as("MaxRoiPool", "spatial_scale", pooled_shape="output_size"),
}
