"""Pools over regions of interest, roi_align and max_roi_pool; and col2im, whose blocks overlap.

What decides which elements count (positions, numbers of samples) is rounded step by step, as NumPy does it.
"""

import math
from collections.abc import Iterator, Mapping

from .....ir.ops.nn.windows import window_counts
from .....ir.types import DType, Kind
from ...kernel_ir.casts import converted
from ...kernel_ir.kernels import at, per_position, reach_type, read, written
from ...kernel_ir.launch import Candidate, Lowering, Task
from ...kernel_ir.layouts import index_lines
from ...kernel_ir.moving import operand, result
from ...kernel_ir.pointwise import has_types
from ...kernel_ir.regions import flops_of
from ...kernel_ir.types import Name, computed, number
from .sampling import wide_type


def _lower_roi_align(task: Task) -> Iterator[Candidate]:
    x, regions, images, y, attrs = operand(task), operand(task, 1), operand(task, 2), result(task), task.node.attrs
    if not has_types(task.node) or not x.size:
        return
    wide = wide_type(x.dtype)
    c, kind = computed(wide), "d" if wide is DType.F64 else "f"
    ctype = reach_type((x, regions, y))
    is_half, is_max = attrs["coordinate_mode"] == "half_pixel", attrs["mode"] == "max"
    scale, shift = number(attrs["spatial_scale"], c), "0.5" if is_half else "0"
    lines = [
        *index_lines("c", "p", y.shape, ctype),
        f"const {x.ctype}* from = x + ((i64)place_of(images[c0 * {images.strides[0]}], {x.shape[0]}) * {x.strides[0]}",
        f"+ c1 * {x.strides[1]});",
        f"const auto corner = [&](int n) {{ const {c} v = ({c})get(regions[c0 * {regions.strides[0]}",
        f"+ n * {regions.strides[1]}]); return __{kind}mul_rn(v, {scale}) - ({c}){shift}; }};",
    ]
    for axis, (near, far) in enumerate(((1, 3), (0, 2))):
        bins, size = attrs["output_size"][axis], x.shape[axis + 2]
        least = "" if is_half else f"if (length{axis} < 1) length{axis} = 1;"
        counted = str(attrs["sampling_ratio"]) if attrs["sampling_ratio"] > 0 else f"(int)ceil(step{axis})"
        lines += [
            f"const {c} start{axis} = corner({near}); {c} length{axis} = corner({far}) - start{axis}; {least}",
            f"const {c} step{axis} = length{axis} / {bins}; int count{axis} = {counted};",
            f"if (count{axis} < 0) count{axis} = 0;",
            f"const auto sample{axis} = [&](int n, int* at, {c}* w) {{",
            f"const {c} begin = __{kind}add_rn(start{axis}, __{kind}mul_rn(({c})c{axis + 2}, step{axis}));",
            f"{c} v = __{kind}add_rn(begin, __{kind}mul_rn(n + ({c})0.5, step{axis}) / count{axis});",
            f"const {c} inside = v >= -1 && v <= {size} ? 1 : 0;",
            f"v = v < 0 ? 0 : v > {size - 1} ? {size - 1} : v;",
            f"at[0] = (int)v; at[1] = at[0] + 1 < {size} ? at[0] + 1 : {size - 1};",
            "const auto part = v - at[0]; w[0] = (1 - part) * inside; w[1] = part * inside; };",
        ]
    term = f"({c})get(from[({ctype})at0[a] * {x.strides[2]} + ({ctype})at1[b] * {x.strides[3]}]) * (w0[a] * w1[b])"
    lines += [
        f"{c} sum = {number(-math.inf, c) if is_max else '0'};",
        f"for (int n = 0; n < count0; n++) {{ int at0[2]; {c} w0[2]; sample0(n, at0, w0);",
        f"for (int m = 0; m < count1; m++) {{ int at1[2]; {c} w1[2]; sample1(m, at1, w1);",
        "for (int a = 0; a < 2; a++) for (int b = 0; b < 2; b++)",
        f"{{ const {c} term = {term}; {'sum = greatest(sum, term);' if is_max else 'sum += term;'} }} }} }}",
        f"if (!count0 || !count1) sum = 0;{'' if is_max else f' else sum /= ({c})count0 * count1;'}",
        f"put(y[{at(y)}], {converted(Name('sum', wide), y.dtype)});",
    ]
    parameters = [written("y", y), read("x", x), read("regions", regions), read("images", images)]
    nbytes = x.nbytes + y.nbytes
    yield Candidate("samples", (per_position(parameters, y.size, lines, nbytes, flops_of(task), 128, ctype),))


def _lower_max_roi_pool(task: Task) -> Iterator[Candidate]:
    x, regions, y, attrs = operand(task), operand(task, 1), result(task), task.node.attrs
    if not has_types(task.node) or not x.size:
        return
    c, ctype = computed(x.dtype), reach_type((x, regions, y))
    lines = [
        *index_lines("c", "p", y.shape, ctype),
        f"const {regions.ctype}* region = regions + (c0 * {regions.strides[0]});",
        f"const auto number = [&](int n) {{ return get(region[n * {regions.strides[1]}]); }};",
        f"const i64 image = place_of((i64)number(0), {x.shape[0]});",
        f"const {x.ctype}* from = x + (image * {x.strides[0]} + c1 * {x.strides[1]});",
        "const auto corner = [&](int n) { const double v = __dmul_rn((double)number(n), "
        f"{number(attrs['spatial_scale'], 'double')}); return (i64)(v + (v < 0 ? -0.5 : 0.5)); }};",
    ]
    for axis, (near, far) in enumerate(((2, 4), (1, 3))):
        bins, size = attrs["output_size"][axis], x.shape[axis + 2]
        lines += [
            f"const i64 first{axis} = corner({near}); i64 length{axis} = corner({far}) - first{axis} + 1;",
            f"if (length{axis} < 1) length{axis} = 1;",
            f"i64 start{axis} = first{axis} + c{axis + 2} * length{axis} / {bins};",
            f"i64 end{axis} = first{axis} + ((c{axis + 2} + 1) * length{axis} + {bins - 1}) / {bins};",
            *(f"{e}{axis} = {e}{axis} < 0 ? 0 : {e}{axis} > {size} ? {size} : {e}{axis};" for e in ("start", "end")),
        ]
    lines += [
        f"{c} most = {number(-math.inf, c)};",
        "for (i64 i = start0; i < end0; i++) for (i64 j = start1; j < end1; j++)",
        f"most = greatest(most, get(from[i * {x.strides[2]} + j * {x.strides[3]}]));",
        f"put(y[{at(y)}], start0 < end0 && start1 < end1 ? most : 0);",
    ]
    parameters = [written("y", y), read("x", x), read("regions", regions)]
    nbytes = x.nbytes + y.nbytes
    yield Candidate("bins", (per_position(parameters, y.size, lines, nbytes, flops_of(task), 128, ctype),))


def _lower_col2im(task: Task) -> Iterator[Candidate]:
    """Each element of the image adds up the blocks that it is in."""
    x, y, attrs = operand(task), result(task), task.node.attrs
    if not has_types(task.node) or x.dtype.kind is Kind.COMPLEX:
        return
    block, image = attrs["block"], y.shape[2:]
    windows = window_counts(image, block, attrs["strides"], attrs["pads"], attrs["dilations"])
    wide = wide_type(x.dtype) if x.dtype.is_float else x.dtype
    c, ctype = computed(wide), reach_type((x, y))
    lines = [*index_lines("c", "p", y.shape, ctype), f"{c} sum = 0;"]
    flat, column = "0", "0"
    for axis, size in enumerate(block):
        step, dilation = attrs["strides"][axis], attrs["dilations"][axis]
        lines += [
            f"for (int k{axis} = 0; k{axis} < {size}; k{axis}++) {{",
            f"const i64 r{axis} = (i64)c{axis + 2} + {attrs['pads'][axis]} - (i64)k{axis} * {dilation};",
            f"if (r{axis} < 0 || r{axis} % {step} || r{axis} / {step} >= {windows[axis]}) continue;",
        ]
        flat = f"({flat}) * {size} + k{axis}"
        column = f"({column}) * {windows[axis]} + r{axis} / {step}"
    offset = (
        f"c0 * {x.strides[0]} + ((i64)c1 * {math.prod(block)} + {flat}) * {x.strides[1]} + ({column}) * {x.strides[2]}"
    )
    lines += [
        f"sum += ({c})get(x[{offset}]);",
        "}" * len(block),
        f"put(y[{at(y)}], {converted(Name('sum', wide), y.dtype)});",
    ]
    parameters = [written("y", y), read("x", x)]
    yield Candidate("blocks", (per_position(parameters, y.size, lines, x.nbytes + y.nbytes, x.size, 128, ctype),))


LOWERINGS: Mapping[str, Lowering] = {
    "roi_align": _lower_roi_align,
    "max_roi_pool": _lower_max_roi_pool,
    "col2im": _lower_col2im,
}
"""Pools over regions, and blocks that overlap."""
