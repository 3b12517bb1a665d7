"""Resampling: Resize in all its versions, Upsample, GridSample, AffineGrid."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ....ir.attrs import Attrs
from ....ir.constant import Array
from ....ir.dims import Dim, Truth, compare
from ....ir.errors import ModelError, UnsupportedError
from ....ir.graph import Node, Value
from ....ir.ops.rules import normal_axes
from ....ir.types import TensorType
from ..context.export_context import ExportContext, Operand
from ..context.import_context import ImportContext, NotNative

_CROP = "tf_crop_and_resize"

# ---- coming in


def scaled_size(size: Dim, scale: float) -> Dim:
    """`floor(size * scale)` as ONNX Runtime and onnx's shape inference compute it, in f32.

    For a symbolic size the scale is the simplest fraction that rounds to the same f32: 7/10 rather than 0.699999988.
    """
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    fraction = _simplest_fraction(scale)
    return size * fraction.numerator // fraction.denominator


def _simplest_fraction(scale: float) -> Fraction:
    wanted = np.float32(scale)
    for digits in range(8):
        found = Fraction(scale).limit_denominator(10**digits)
        if np.float32(float(found)) == wanted:
            return found
    return Fraction(scale)


def import_upsample(ctx: ImportContext) -> Value:
    """Upsample 7 (scales as attribute) and 9 (as operand)."""
    if ctx.version >= 9:
        return _import_by_position(ctx)
    return _resize_by_position(ctx, [float(scale) for scale in ctx.attr("scales")])


def _import_by_position(ctx: ImportContext) -> Value:
    """Upsample 9 and Resize 10: scales are the second operand, and output element i lies at i / scale."""
    scales = ctx.array(1)
    if scales is not None:
        return _resize_by_position(ctx, [float(scale) for scale in scales])
    axes = tuple(range(ctx.tensor(0).rank))
    modes = _position_modes(ctx, is_shrinking=False)
    if modes["mode"] == "nearest":
        raise NotNative("the rounding depends on scales that only running tells")
    return ctx.op("dynamic_resize", ctx.input(0), None, ctx.input(1), None, axes=axes, **modes)


def _position_modes(ctx: ImportContext, *, is_shrinking: bool) -> dict[str, Any]:
    mode = {"bilinear": "linear"}.get(found := ctx.attr("mode", "nearest"), found)
    return {"mode": mode, "coordinate_mode": "asymmetric", "nearest_mode": "ceil" if is_shrinking else "floor"}


def _resize_by_position(ctx: ImportContext, scales: Sequence[float]) -> Value:
    """As ONNX Runtime does it, `nearest` rounds down along axes that grow, and up along those that shrink."""
    value = ctx.input(0)
    if len(scales) != ctx.tensor(0).rank:
        raise ModelError(f"{ctx.op_type}: {len(scales)} scales for a tensor of rank {ctx.tensor(0).rank}")
    for is_shrinking in (False, True):
        axes = [axis for axis, scale in enumerate(scales) if scale != 1 and (scale < 1) is is_shrinking]
        if axes:
            chosen = [scales[axis] for axis in axes]
            sizes = [scaled_size(value.shape[axis], scale) for axis, scale in zip(axes, chosen, strict=True)]
            modes = _position_modes(ctx, is_shrinking=is_shrinking)
            value = ctx.op("resize", value, None, axes=axes, sizes=sizes, scales=chosen, **modes)
    return value


@dataclass(frozen=True)
class _Target:
    """The axes to resize with what they become: sizes, and scales where the model gave these."""

    axes: Sequence[int]
    sizes: Sequence[Dim]
    scales: Sequence[float] | None


def import_resize(ctx: ImportContext) -> Value:
    """Resize. The operands roi, scales and sizes count as absent when they are empty tensors."""
    if ctx.version < 11:
        return _import_by_position(ctx)
    modes = _modes(ctx)
    x, roi, scales, sizes = (_non_empty(ctx, index) for index in range(4))
    if x is None:  # an empty tensor is taken as such
        raise ModelError("Resize needs a tensor to resize")
    if (scales is None) == (sizes is None):
        raise ModelError("Resize takes either scales or sizes")
    is_crop = modes["coordinate_mode"] == _CROP
    if is_crop and roi is None:
        raise ModelError(f"Resize needs the operand roi for {_CROP}")
    region = roi if is_crop else None
    axes = _axes(ctx)
    target = _target(ctx, axes, x, [value for value in (x, region) if value is not None])
    if target is None:
        return ctx.op("dynamic_resize", x, region, scales, sizes, axes=axes, **modes)
    if not is_crop and modes["policy"] == "stretch":
        target = _without_unchanged(x, target)
    if not target.axes:
        return x
    return ctx.op("resize", x, region, axes=target.axes, sizes=target.sizes, scales=target.scales, **modes)


def _non_empty(ctx: ImportContext, index: int) -> Value | None:
    value = ctx.optional(index)
    if index and value is not None and isinstance(value.type, TensorType) and value.type.shape == (0,):
        return None
    return value


def _axes(ctx: ImportContext) -> tuple[int, ...]:
    rank = ctx.tensor(0).rank
    given = ctx.attr("axes")
    return tuple(range(rank)) if given is None else tuple(axis % rank for axis in given)


def _target(ctx: ImportContext, axes: Sequence[int], x: Value, operands: Sequence[Value]) -> _Target | None:
    """What the axes become, None when only running tells."""
    if _non_empty(ctx, 3) is not None:
        sizes = ctx.dims(3, *operands)
        return None if sizes is None else _Target(axes, sizes, None)
    scales = ctx.array(2)
    if scales is None:
        return None
    if len(scales) != len(axes):
        raise ModelError(f"Resize: {len(scales)} scales for {len(axes)} axes")
    found = [float(scale) for scale in scales]
    return _Target(axes, [scaled_size(x.shape[axis], scale) for axis, scale in zip(axes, found, strict=True)], found)


def _without_unchanged(x: Value, target: _Target) -> _Target:
    """`target` without axes that keep size and scale: resampling takes each element to itself there."""
    changed = [
        index
        for index, (axis, size) in enumerate(zip(target.axes, target.sizes, strict=True))
        if compare(size, x.shape[axis]) is not Truth.YES or (target.scales is not None and target.scales[index] != 1)
    ]
    scales = None if target.scales is None else [target.scales[index] for index in changed]
    return _Target([target.axes[index] for index in changed], [target.sizes[index] for index in changed], scales)


def _modes(ctx: ImportContext) -> dict[str, Any]:
    coordinate_mode = ctx.attr("coordinate_transformation_mode", "half_pixel")
    nearest_mode = ctx.attr("nearest_mode", "round_prefer_floor")
    mode = ctx.attr("mode", "nearest")
    if coordinate_mode == "tf_half_pixel_for_nn":  # opset 11 alone: half an element after half_pixel's position
        coordinate_mode, nearest_mode = "half_pixel", _half_later(mode, nearest_mode)
    return {
        "mode": mode,
        "coordinate_mode": coordinate_mode,
        "nearest_mode": nearest_mode,
        "policy": ctx.attr("keep_aspect_ratio_policy", "stretch"),
        "cubic_coefficient": ctx.attr("cubic_coeff_a", -0.75),
        "exclude_outside": bool(ctx.attr("exclude_outside", 0)),
        "antialias": bool(ctx.attr("antialias", 0)),
        "extrapolation_value": ctx.attr("extrapolation_value", 0.0),
    }


def _half_later(mode: str, nearest_mode: str) -> str:
    """The rounding that does to p what `nearest_mode` does to p + 1/2."""
    found = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}.get(nearest_mode)
    if mode != "nearest" or found is None:
        raise NotNative(f"tf_half_pixel_for_nn with mode {mode}, {nearest_mode}")
    return found


def import_grid_sample(ctx: ImportContext) -> Value:
    """GridSample; before opset 20 the modes had two-dimensional names."""
    mode = ctx.attr("mode", "linear")
    return ctx.op(
        "grid_sample",
        ctx.input(0),
        ctx.input(1),
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        padding=ctx.attr("padding_mode", "zeros"),
        align_corners=bool(ctx.attr("align_corners", 0)),
    )


def import_affine_grid(ctx: ImportContext) -> Value:
    """AffineGrid, for a size that is known at import time."""
    theta = ctx.input(0)
    size = ctx.dims(1, theta)
    if size is None:
        raise NotNative("a size that only running tells")
    return ctx.op("affine_grid", theta, size=size[2:], align_corners=bool(ctx.attr("align_corners", 0)))


IMPORTS = {
    "Upsample": import_upsample,
    "Resize": import_resize,
    "GridSample": import_grid_sample,
    "AffineGrid": import_affine_grid,
}

# ---- going out


def _written_modes(node: Node) -> dict[str, Any]:
    """The attributes of Resize, those left out that say nothing: an older Resize may not have them."""
    attrs = node.attrs
    optional = {
        "keep_aspect_ratio_policy": (attrs["policy"], "stretch"),
        "antialias": (attrs["antialias"], False),
        "exclude_outside": (attrs["exclude_outside"], False),
        "extrapolation_value": (attrs["extrapolation_value"], 0.0),
        "nearest_mode": (attrs["nearest_mode"], "round_prefer_floor"),
        "cubic_coeff_a": (attrs["cubic_coefficient"], -0.75),
    }
    return {
        "mode": attrs["mode"],
        "coordinate_transformation_mode": attrs["coordinate_mode"],
        **{name: value for name, (value, default) in optional.items() if value != default},
    }


def export_resize(ctx: ExportContext, node: Node) -> None:
    """Resize, by the scales where they make the same sizes, else by the sizes; before opset 11 by scales alone.

    Raises `UnsupportedError` for sizes that are only a part of what the scales make.
    """
    x, roi = node.inputs
    assert x is not None  # the op requires it
    attrs = node.attrs
    if attrs["scales"] is not None and _is_part(x, attrs["axes"], attrs["sizes"], attrs["scales"]):
        raise UnsupportedError(
            "ONNX's Resize makes the sizes from the scales, or the scales from the sizes",
            remedy="give sizes that the scales make, or no scales",
        )
    scales: Operand = None
    sizes: Operand = None
    if attrs["scales"] is not None and _scales_make(x, attrs["axes"], attrs["sizes"], attrs["scales"]):
        scales = ctx.constant(_for_axes(ctx, node, np.ones(x.tensor.rank, np.float32), attrs["scales"]))
    else:
        given = np.array(x.shape, object)
        sizes = ctx.dims_tensor(tuple(_for_axes(ctx, node, given, attrs["sizes"])), *node.operands)
    if ctx.opset < 11 and scales is not None and _is_by_position(attrs):
        _write_by_position(ctx, node)
        return
    ctx.emit(
        "Resize",
        (x, *_required(ctx, roi, scales), sizes),
        node.outputs,
        axes=_axes_attr(ctx, node),
        **_written_modes(node),
    )


def _required(ctx: ExportContext, region: Operand, scales: Operand) -> tuple[Operand, ...]:
    """A region and scales, which before opset 13 are not optional, but may be empty."""
    if ctx.opset >= 13:
        return region, scales
    empty = ctx.constant(np.zeros(0, np.float32))
    return tuple(given if given is not None else empty for given in (region, scales))


def _axes_attr(ctx: ExportContext, node: Node) -> Sequence[int] | None:
    """The attribute `axes`, which came with opset 18: before, scales and sizes are for all axes.

    Counted from the first on: with an aspect policy ONNX Runtime 1.31 passes over negative ones.
    """
    rank = node.operands[0].tensor.rank
    axes = normal_axes(node.attrs["axes"], rank)
    if ctx.opset >= 18:
        return axes
    is_whole = axes == tuple(range(rank))
    if not is_whole and (node.op.name != "resize" or node.inputs[1] is not None):
        ctx.require_opset(18, "Resize along some of the axes")
    return None


def _for_axes(ctx: ExportContext, node: Node, whole: Array, given: Sequence[Any]) -> Array:
    """What is given for the node's axes; before opset 18 put into `whole`, which has an element for every axis."""
    axes = list(node.attrs["axes"])
    if ctx.opset >= 18:
        return np.array(given, whole.dtype)
    whole[axes] = given
    return whole


def _is_by_position(attrs: Attrs) -> bool:
    """Whether modes and scales are those of operators before opset 11."""
    if attrs["mode"] == "cubic" or not _is_asymmetric(attrs):
        return False
    rounding = "floor" if all(scale >= 1 for scale in attrs["scales"]) else "ceil"
    is_one_way = rounding == "floor" or all(scale <= 1 for scale in attrs["scales"])
    return attrs["mode"] == "linear" or (is_one_way and attrs["nearest_mode"] == rounding)


def _is_asymmetric(attrs: Attrs) -> bool:
    """Whether output element i lies at i / scale, as it does in operators before opset 11."""
    return attrs["coordinate_mode"] == "asymmetric" and not attrs["antialias"]


def _write_by_position(ctx: ExportContext, node: Node) -> None:
    """Resize of opset 10, or Upsample, which only grows: their scales are for all axes."""
    x, attrs = node.operands[0], node.attrs
    scales = np.ones(x.tensor.rank, np.float32)
    scales[list(attrs["axes"])] = attrs["scales"]
    if ctx.opset < 10 and (scales < 1).any():
        ctx.require_opset(10, "Resize to fewer elements")
    if ctx.opset < 9:
        ctx.emit("Upsample", (x,), node.outputs, mode=attrs["mode"], scales=tuple(scales.tolist()))
        return
    operator = "Resize" if ctx.opset >= 10 else "Upsample"
    ctx.emit(operator, (x, ctx.constant(scales)), node.outputs, mode=attrs["mode"])


def _scales_make(x: Value, axes: Sequence[int], sizes: Sequence[Dim], scales: Sequence[float]) -> bool:
    found = [scaled_size(x.shape[axis], scale) for axis, scale in zip(axes, scales, strict=True)]
    return all(compare(one, other) is Truth.YES for one, other in zip(found, sizes, strict=True))


def _is_part(x: Value, axes: Sequence[int], sizes: Sequence[Dim], scales: Sequence[float]) -> bool:
    """Whether known sizes are others than these scales make, by more than rounding does."""
    known = [
        (before, scale, after)
        for before, scale, after in zip((x.shape[axis] for axis in axes), scales, sizes, strict=True)
        if isinstance(before, int) and isinstance(after, int)
    ]
    return any(abs(before * scale - after) >= 1 for before, scale, after in known)


def export_dynamic_resize(ctx: ExportContext, node: Node) -> None:
    """Resize with scales or sizes that are computed; before opset 11 it took scales alone, for all axes."""
    x, region, scales, sizes = node.inputs
    count = len(node.attrs["axes"])
    if ctx.opset < 11:
        if ctx.opset < 9 or scales is None or node.attrs["mode"] != "linear" or not _is_asymmetric(node.attrs):
            ctx.require_opset(11, "Resize by what is computed")
        axes = _axes_attr(ctx, node)
        assert axes is None  # they are all axes there
        operator = "Resize" if ctx.opset >= 10 else "Upsample"
        ctx.emit(operator, (x, _of_length(ctx, scales, count)), node.outputs, mode="linear")
        return
    given = _required(ctx, _of_length(ctx, region, 2 * count), _of_length(ctx, scales, count))
    ctx.emit(
        "Resize",
        (x, *given, _of_length(ctx, sizes, count)),
        node.outputs,
        axes=_axes_attr(ctx, node),
        **_written_modes(node),
    )


def _of_length(ctx: ExportContext, given: Value | None, length: int) -> Operand:
    """An operand with an element for each axis, which onnx takes for empty where its shape does not say how long."""
    if given is None or isinstance(given.shape[0], int):
        return given
    return ctx.emit_value("Reshape", (given, ctx.ints([length])))


def export_grid_sample(ctx: ExportContext, node: Node) -> None:
    """GridSample; before opset 20 the modes had two-dimensional names."""
    mode = node.attrs["mode"]
    if ctx.opset < 20:
        mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    attrs = {"mode": mode, "padding_mode": node.attrs["padding"], "align_corners": node.attrs["align_corners"]}
    ctx.emit("GridSample", node.inputs, node.outputs, **attrs)


def export_affine_grid(ctx: ExportContext, node: Node) -> None:
    """AffineGrid, whose size has a batch and a channel entry too."""
    theta = node.inputs[0]
    assert theta is not None  # the op requires it
    if len(node.attrs["size"]) not in (2, 3):
        raise UnsupportedError("ONNX's AffineGrid has two or three spatial axes", remedy="keep it out of ONNX")
    size = ctx.dims_tensor((theta.shape[0], 1, *node.attrs["size"]), theta)
    ctx.emit("AffineGrid", (theta, size), node.outputs, align_corners=node.attrs["align_corners"])


EXPORTS = {
    "resize": export_resize,
    "dynamic_resize": export_dynamic_resize,
    "grid_sample": export_grid_sample,
    "affine_grid": export_affine_grid,
}
