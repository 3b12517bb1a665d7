"""Nodes of windows: convolutions, pools, resampling, regions of interest."""

import math
from typing import Any

import numpy as np

from tests.onnx_models.draw import Draw, Unrunnable, Value
from tests.onnx_models.registry import recipe


def _frame(d: Draw, op: str, rank: int, kernel: list[int], *, has_dilations: bool = True) -> dict[str, Any]:
    """Strides, dilations and borders, each given or not."""
    attributes = d.attributes(
        op,
        strides=[d.whole(1, 3) for _ in range(rank)],
        dilations=[d.whole(1, 2) for _ in range(rank)] if has_dilations and d.chance(0.4) else None,
    )
    if d.chance(0.25):
        attributes["auto_pad"] = d.pick("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    elif d.chance(0.6):
        attributes["pads"] = [d.whole(0, max(0, size - 1)) for size in (*kernel, *kernel)]
    return attributes


@recipe("Conv", "ConvTranspose", "ConvInteger")
def convolution(d: Draw, op: str) -> None:
    """One to three spatial axes, groups, a bias."""
    rank = d.pick(1, 2, 2, 3)
    group = d.pick(1, 1, 2, 3)
    inner, outer = d.whole(1, 3), d.whole(1, 3)
    kernel = [d.whole(1, 3) for _ in range(rank)]
    lead = (d.pick(0, 1, 1, 2, 3), inner * group)
    sizes = tuple(d.whole(2, 6) for _ in range(rank))
    attributes = _frame(d, op, rank, kernel)
    if group > 1 or d.chance(0.2):
        attributes["group"] = group
    if d.chance(0.6):
        attributes["kernel_shape"] = kernel
    if op == "ConvInteger":
        x = d.like(d.element(op, "T1"), (*lead, *sizes))
        w = d.new(d.element(op, "T2"), (outer * group, inner, *kernel))
        d.shared.settled.add(w.name)
        zeros = [d.new(v.element, (), 0, 5) if d.chance(0.5) else None for v in (x, w)]
        d.node(op, [x, w, *zeros], attributes)
        return
    x = d.like(d.element(op, "T"), (*lead, *sizes))
    shape = (outer * group, inner, *kernel) if op == "Conv" else (inner * group, outer, *kernel)
    w = d.new(x.element, shape)
    d.shared.settled.add(w.name)
    if op == "ConvTranspose":
        if d.chance(0.25):
            strides = attributes.get("strides", [1] * rank)
            attributes["output_padding"] = [d.whole(0, max(0, s - 1)) for s in strides]
        elif d.chance(0.15):
            attributes["output_shape"] = [d.whole(3, 8) for _ in range(rank)]
    bias = d.like(x.element, (outer * group,)) if d.chance(0.5) else None
    d.node(op, [x, w, bias], attributes)


@recipe("DeformConv")
def deformed(d: Draw, op: str) -> None:
    """A convolution at places that are moved."""
    group, offsets = d.pick(1, 1, 2), d.pick(1, 1, 2)
    kernel = [d.whole(1, 3), d.whole(1, 3)]
    x = d.like(d.element(op, "T", ["float", "double"]), (d.whole(1, 2), 2 * group, d.whole(3, 5), d.whole(3, 5)))
    strides, pads = [d.whole(1, 2), d.whole(1, 2)], [d.whole(0, 1) for _ in range(4)]
    sizes = [(x.shape[2 + i] + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i in range(2)]
    if min(sizes) < 1:
        raise Unrunnable("no windows")
    outer = group * d.whole(1, 2)
    operands: list[Value | None] = [
        x,
        d.new(x.element, (outer, 2, *kernel)),
        d.new(x.element, (x.shape[0], offsets * 2 * math.prod(kernel), *sizes)),
        d.like(x.element, (outer,)) if d.chance(0.5) else None,
        d.new(x.element, (x.shape[0], offsets * math.prod(kernel), *sizes)) if d.chance(0.5) else None,
    ]
    d.node(op, operands, {"strides": strides, "pads": pads, "group": group, "offset_group": offsets})


@recipe("AveragePool", "LpPool", "MaxPool")
def pool(d: Draw, op: str) -> None:
    """One to three spatial axes, all borders and roundings."""
    rank = d.pick(1, 2, 2, 3)
    kernel = [d.whole(1, 3) for _ in range(rank)]
    x = d.like(d.element(op, "T"), (d.pick(0, 1, 1, 2), d.whole(1, 3), *(d.whole(2, 6) for _ in range(rank))))
    attributes = {"kernel_shape": kernel, **_frame(d, op, rank, kernel)}
    reach = [(n - 1) * step for n, step in zip(kernel, attributes.get("dilations", [1] * rank), strict=True)]
    if any(size <= last for size, last in zip(x.shape[2:], reach, strict=True)):
        raise Unrunnable("no window fits, of which peers make one or none")
    if "SAME" in attributes.get("auto_pad", "") and "dilations" in attributes:
        raise Unrunnable("peers leave dilations out where they pad by themselves")
    if "SAME" in attributes.get("auto_pad", "") and "strides" in attributes:
        attributes["strides"] = [min(s, last + 1) for s, last in zip(attributes["strides"], reach, strict=True)]
    attributes |= d.attributes(
        op, ceil_mode=d.whole(0, 1), count_include_pad=d.whole(0, 1), storage_order=d.whole(0, 1), p=d.whole(1, 3)
    )
    has_indices = op == "MaxPool" and d.opset >= 8 and d.chance(0.4)
    d.node(op, [x], attributes, (True, has_indices))


@recipe("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def global_pool(d: Draw, op: str) -> None:
    """Over all spatial axes."""
    x = d.like(d.element(op, "T"), (d.whole(1, 2), d.whole(1, 3), *(d.whole(1, 4) for _ in range(d.whole(1, 3)))))
    d.node(op, [x], d.attributes(op, p=d.whole(1, 3)))


@recipe("MaxUnpool")
def unpool(d: Draw, op: str) -> None:
    """A pool undone."""
    kernel = [d.whole(1, 2), d.whole(1, 2)]  # of which 4 is a multiple: else indices lie outside of what is inferred
    x = d.like(d.element(op, "T1", ["float", "double"]), (1, d.whole(1, 2), 4, 4))
    attributes = {"kernel_shape": kernel, "strides": kernel}
    top, places = d.node("MaxPool", [x], attributes, (True, True))
    sizes = [*x.shape[:2], x.shape[2] + d.whole(0, 2), x.shape[3] + d.whole(0, 2)] if d.chance(0.4) else None
    d.node(op, [top, places, d.ints(sizes) if sizes else None], attributes)


@recipe("Resize")
def resize(d: Draw, op: str) -> None:
    """Every mode, by scales or to sizes, along all axes or some."""
    x = d.some(op, d.schema(op).inputs[0].type_str, 1, 4, least=1)
    mode = d.pick("nearest", "linear", "cubic") if d.opset >= 11 else d.pick("nearest", "linear")
    if mode == "cubic" or x.element not in ("float", "double") or (d.opset < 11 and mode == "linear"):
        element = d.element(
            op, d.schema(op).inputs[0].type_str, ["float", "double", "int32", "uint8", "int8", "float16"]
        )
        x = d.like(element, (1, d.whole(1, 2), d.whole(1, 5), d.whole(1, 5)))
    axes = list(range(max(0, x.rank - 2), x.rank))
    if d.opset >= 18 and d.chance(0.3):
        axes = d.axes(x.rank, least=1, negative=False)
    factors = {axis: d.pick(0.5, 1.0, 1.5, 2.0, 0.6, 2.5, 3.0) for axis in axes}
    if d.opset == 10:
        scales = d.given([factors.get(i, 1.0) for i in range(x.rank)], "float", "settled")
        d.node(op, [x, scales], d.attributes(op, mode=mode))
        return
    names = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]
    names += ["tf_half_pixel_for_nn"] if d.opset < 13 else []
    names += ["half_pixel_symmetric"] if d.opset >= 19 else []
    transformation = d.pick(*names)
    attributes = d.attributes(
        op,
        nearest_mode=d.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        cubic_coeff_a=d.pick(-0.5, -0.75),
        exclude_outside=d.whole(0, 1) if mode == "cubic" else None,
        extrapolation_value=d.real(),
        antialias=d.whole(0, 1) if mode != "nearest" and d.chance(0.4) else None,
    )
    attributes |= {"mode": mode, "coordinate_transformation_mode": transformation}
    some = d.opset >= 18 and (sorted(axes) != list(range(x.rank)) and d.chance(0.6))
    if some:
        attributes["axes"] = axes
    wanted = axes if some else list(range(x.rank))
    roi = None
    if transformation == "tf_crop_and_resize" or d.opset < 13:
        first = [d.real(0, 0.4) if a in factors else 0.0 for a in wanted]
        last = [d.real(0.6, 1.2) if a in factors else 1.0 for a in wanted]
        roi = d.given(
            [*first, *last],
            d.pick("float", "float", x.element if x.element in ("double", "float16") else "float"),
            "settled",
        )
    if d.chance(0.5):
        scales = d.given([factors.get(a, 1.0) for a in wanted], "float", "settled")
        d.node(op, [x, roi, scales], attributes)
        return
    sizes = [max(1, int(x.shape[a] * factors.get(a, 1.0))) for a in wanted]
    attributes |= d.attributes(op, keep_aspect_ratio_policy=d.pick("stretch", "not_larger", "not_smaller"))
    empty = d.given([], "float", "fixed") if d.opset < 13 else None
    d.node(op, [x, roi, empty, d.ints(sizes)], attributes)


@recipe("RoiAlign", "MaxRoiPool")
def regions(d: Draw, op: str) -> None:
    """Boxes of a picture, to one size."""
    count, batch = d.whole(0 if d.chance(0.1) else 1, 3), d.whole(1, 2)
    element = d.element(op, "T1" if op == "RoiAlign" else "T", ["float", "double", "float16"])
    x = d.like(element, (batch, d.whole(1, 2), d.whole(4, 7), d.whole(4, 7)))
    corners = np.sort(d.array("float", (count, 2, 2), 0, 5), axis=1).reshape(count, 4)
    scale = d.pick(0.5, 1.0, 0.75)
    if op == "MaxRoiPool":
        boxes = np.concatenate([d.array("int64", (count, 1), 0, batch - 1), np.round(corners)], 1)
        attributes = {"pooled_shape": [d.whole(1, 3), d.whole(1, 3)], **d.attributes(op, spatial_scale=scale)}
        d.node(op, [x, d.given(boxes, element)], attributes)
        return
    attributes = d.attributes(
        op,
        spatial_scale=scale,
        mode=d.pick("avg", "max"),
        output_height=d.whole(1, 3),
        output_width=d.whole(1, 3),
        sampling_ratio=d.whole(0, 3),
        coordinate_transformation_mode=d.pick("half_pixel", "output_half_pixel"),
    )
    d.node(op, [x, d.given(corners, element), d.new("int64", (count,), 0, batch - 1)], attributes)


@recipe("GridSample")
def grid_sample(d: Draw, op: str) -> None:
    """A picture read at places."""
    rank = 3 if d.opset >= 20 and d.chance(0.25) else 2
    n = d.whole(1, 2)
    x = d.like(d.element(op, "T1", ["float", "double"]), (n, d.whole(1, 2), *(d.whole(1, 4) for _ in range(rank))))
    grid = d.new(x.element if d.chance(0.8) else "float", (n, *(d.whole(1, 3) for _ in range(rank)), rank), -1.3, 1.3)
    modes = ("bilinear", "nearest", "bicubic") if d.opset < 20 else ("linear", "nearest", "cubic")
    attributes = d.attributes(
        op,
        mode=d.pick(*modes if rank == 2 else modes[:2]),
        padding_mode=d.pick("zeros", "border", "reflection"),
        align_corners=d.whole(0, 1),
    )
    d.node(op, [x, grid], attributes)


@recipe("AffineGrid")
def affine_grid(d: Draw, op: str) -> None:
    """Places of an affine map."""
    rank, n = d.pick(2, 2, 3), d.whole(1, 2)
    theta = d.like(d.element(op, "T1", ["float", "double"]), (n, rank, rank + 1))
    corners = d.whole(0, 1)  # of a single place these are the first, the middle or the last to peers
    sizes = d.ints([n, d.whole(1, 2), *(d.whole(1 + corners, 3) for _ in range(rank))])
    d.node(op, [theta, sizes], {"align_corners": corners})
