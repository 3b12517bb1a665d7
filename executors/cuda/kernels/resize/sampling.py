"""Sampling at fractional positions, with the arithmetic of `ir/ops/sampling.py`: grid_sample, affine_grid.

A thread has one place of the result and several channels of it, so that positions and weights are found once for them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product as cartesian

from .....ir.ops.sampling import CUBIC_COEFFICIENT
from .....ir.types import DType
from ...kernel_ir.casts import converted
from ...kernel_ir.kernels import per_position, reach_type, read, written
from ...kernel_ir.launch import Candidate, KernelLaunch, Lowering, Task
from ...kernel_ir.layouts import Layout, index_lines
from ...kernel_ir.moving import operand, result
from ...kernel_ir.pointwise import has_types
from ...kernel_ir.regions import flops_of
from ...kernel_ir.types import Name, computed, number

CHANNELS = 8
"""How many channels one thread does."""

FEW_PLACES = 1 << 17
"""With fewer threads than that, each does fewer channels."""

MOST_CORNERS = 64

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


def wide_type(dtype: DType) -> DType:
    """The type in which samples are weighed and added."""
    if dtype.is_small_float:
        return DType.F32
    return dtype if dtype.is_float else DType.F64


def channels_of_a_thread(channels: int, places: int) -> int:
    """How many channels of a place one thread does, so that there are threads enough."""
    count = CHANNELS
    while count > 1 and places * -(-channels // count) < FEW_PLACES:
        count //= 2
    return min(count, channels)


# ---- grid_sample


def _lower_grid_sample(task: Task) -> Iterator[Candidate]:
    x, y, attrs = operand(task), result(task), task.node.attrs
    corners = _TAPS[attrs["mode"]] ** (len(x.shape) - 2)
    if not has_types(task.node) or not x.size or corners > MOST_CORNERS:
        return
    parts = zip(x.components, y.components, strict=True)
    yield Candidate("samples", tuple(_sampled(task, part, made) for part, made in parts))


def _sampled(task: Task, x: Layout, y: Layout) -> KernelLaunch:
    grid, attrs = operand(task, 1), task.node.attrs
    rank = len(x.shape) - 2
    corners = _TAPS[attrs["mode"]] ** rank
    precision = DType.F64 if grid.dtype is DType.F64 else DType.F32
    images, channels, *outer = y.shape
    each = channels_of_a_thread(channels, images * math.prod(outer))
    parts = -(-channels // each)
    ctype = reach_type((x, grid, y))
    lines = [
        *index_lines("c", "p", (images, parts, *outer), ctype),
        f"const {grid.ctype}* asked = grid + ({_places('c', grid, (0, *range(2, rank + 2)))});",
    ]
    for axis in range(rank):
        coordinate = f"get(asked[{(rank - 1 - axis) * grid.strides[-1]}])"
        lines += _axis_lines(axis, x.shape[axis + 2], coordinate, precision, wide_type(x.dtype), attrs)
    lines += corner_lines(x, range(rank), _TAPS[attrs["mode"]], ctype, wide_type(x.dtype))
    lines += [
        f"const {x.ctype}* from = x + (c0 * {x.strides[0]} + c1 * {each * x.strides[1]});",
        f"{y.ctype}* to = y + ({_places('c', y, (0, None, *range(2, rank + 2)))} + c1 * {each * y.strides[1]});",
        '_Pragma("unroll")',
        f"for (int n = 0; n < {each}; n++) {{",
        f"if ({'false' if channels % each == 0 else f'(int)c1 * {each} + n >= {channels}'}) break;",
        *sum_lines(x, corners, f"n * {x.strides[1]}"),
        f"put(to[n * {y.strides[1]}], {converted(Name('sum', wide_type(x.dtype)), y.dtype)}); }}",
    ]
    nbytes = x.nbytes + grid.nbytes + y.nbytes
    count = images * parts * math.prod(outer)
    parameters = [written("y", y), read("x", x), read("grid", grid)]
    return per_position(parameters, count, lines, nbytes, flops_of(task), 128, ctype)


def _places(prefix: str, layout: Layout, axes: Sequence[int | None]) -> str:
    """The offset at indices `prefix0`, ...; axis n of `layout` for the n-th of `axes` that is not None."""
    terms = [
        f"{prefix}{axis} * {stride}"
        for axis, stride in zip(axes, layout.strides, strict=False)
        if axis is not None and stride
    ]
    return " + ".join(terms) or "0"


def _axis_lines(
    axis: int, size: int, coordinate: str, precision: DType, wide: DType, attrs: Mapping[str, object]
) -> list[str]:
    """Where along an axis the taps are, `i<axis>`, and what they weigh, `w<axis>`."""
    mode, padding, aligned = str(attrs["mode"]), str(attrs["padding"]), bool(attrs["align_corners"])
    c = computed(precision)
    f = "" if precision is DType.F64 else "f"
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    times = _exact_product(c)
    asked = (
        f"(g + 1) / 2 * {number(size - 1.0, c)}" if aligned else f"({times}(g + 1, {number(float(size), c)}) - 1) / 2"
    )
    taps, first = _TAPS[mode], -1 if mode == "cubic" else 0
    is_outside = f"at < {number(low, c)} || at > {number(high, c)}"
    near = f"at < -4 ? -4 : at > {number(size + 3.0, c)} ? {number(size + 3.0, c)} : at"
    held = {
        "zeros": near,
        "border": near
        if mode == "cubic"
        else f"{is_outside} ? (at < 0 ? 0 : at > {number(size - 1.0, c)} ? {number(size - 1.0, c)} : at) : at",
        "reflection": f"{is_outside} ? {_reflected('at', low, high, c)} : at",
    }[padding]
    return [
        f"int i{axis}[{taps}]; {computed(wide)} w{axis}[{taps}];",
        "{",
        f"const {c} g = ({c}){coordinate}; {c} at = {asked};",
        f"if (!(fabs{f}(at) < INFINITE)) at = -100;",
        *([f"at = rint{f}(at);"] if mode == "nearest" else []),
        f"at = {held};",
        f"const {c} below = floor{f}(at), ratio = at - below; const int whole = (int)below;",
        *_weight_lines(axis, mode, c, wide),
        f'_Pragma("unroll") for (int t = 0; t < {taps}; t++) {{',
        f"int index = whole + t + {first};",
        *inside_lines(axis, size, padding, aligned),
        "} }",
    ]


def _reflected(at_: str, low: float, high: float, c: str) -> str:
    span = high - low
    if span <= 0:
        return number(low, c)
    f = "f" if c == "float" else ""
    distance = f"fmod{f}(fabs{f}({at_} - {number(low, c)}), {number(2 * span, c)})"
    return f"{number(low, c)} + ({distance} > {number(span, c)} ? {number(2 * span, c)} - {distance} : {distance})"


def _exact_product(c: str) -> str:
    """A product that is rounded before anything is added: integers, which are cut off, show each last bit."""
    return "__dmul_rn" if c == "double" else "__fmul_rn"


def _weight_lines(axis: int, mode: str, c: str, wide: DType) -> list[str]:
    w = f"w{axis}"
    cast = f"({computed(wide)})"
    if mode == "nearest":
        return [f"{w}[0] = 1;"]
    if mode == "linear":
        return [f"{w}[0] = {cast}(1 - ratio); {w}[1] = {cast}ratio;"]
    a, times = CUBIC_COEFFICIENT, _exact_product(c)
    one, three, five, eight, four = (number(value, c) for value in (a + 2, a + 3, 5 * a, 8 * a, 4 * a))
    near = f"{times}({times}({times}({one}, d) - {three}, d), d) + 1"
    far = f"{times}({times}({times}({number(a, c)}, d) - {five}, d) + {eight}, d) - {four}"
    return [
        f"const auto cubic = [&]({c} d) -> {c} {{ return d <= 1 ? {near} : d < 2 ? {far} : ({c})0; }};",
        f"{w}[0] = {cast}cubic(ratio + 1); {w}[1] = {cast}cubic(ratio);",
        f"{w}[2] = {cast}cubic(1 - ratio); {w}[3] = {cast}cubic(2 - ratio);",
    ]


def inside_lines(axis: int, size: int, padding: str, aligned: bool) -> list[str]:
    """Brings `index` inside; with zeros outside, what is not there weighs nothing."""
    clipped = f"index < 0 ? 0 : index >= {size} ? {size - 1} : index"
    if padding == "zeros":
        return [f"if (index < 0 || index >= {size}) w{axis}[t] *= 0;", f"i{axis}[t] = {clipped};"]
    if padding == "border":
        return [f"i{axis}[t] = {clipped};"]
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    mirrored = _reflected("(double)index", low, high, "double")
    return [
        f"if (index < 0 || index >= {size}) index = (int)({mirrored});",
        f"i{axis}[t] = {clipped};",
    ]


def corner_lines(x: Layout, axes: Sequence[int], taps: int, ctype: str, wide: DType) -> list[str]:
    """The offset `o` and the weight `w` of each corner."""
    corners = list(cartesian(range(taps), repeat=len(axes)))
    lines = [f"{ctype} o[{len(corners)}]; {computed(wide)} w[{len(corners)}];"]
    for number_, corner in enumerate(corners):
        offset = " + ".join(
            f"({ctype})i{axis}[{tap}] * {x.strides[axis + 2]}" for axis, tap in zip(axes, corner, strict=True)
        )
        weight = " * ".join(f"w{axis}[{tap}]" for axis, tap in zip(axes, corner, strict=True))
        lines.append(f"o[{number_}] = {offset}; w[{number_}] = {weight};")
    return lines


def sum_lines(x: Layout, corners: int, offset: str) -> list[str]:
    """`sum` over the corners at `from`, `offset` further. A weight of 0 hides infinities nowhere, as in the meaning."""
    wide = computed(wide_type(x.dtype))
    term = f"({wide})get(from[o[k] + {offset}])"
    added = f"{_exact_product(wide)}({term}, w[k])" if x.dtype.is_integer else f"{term} * w[k]"
    return [f"{wide} sum = 0;", f'_Pragma("unroll") for (int k = 0; k < {corners}; k++) sum += {added};']


# ---- affine_grid


def _lower_affine_grid(task: Task) -> Iterator[Candidate]:
    theta, y, attrs = operand(task), result(task), task.node.attrs
    wide = wide_type(theta.dtype)
    c, size = computed(wide), y.shape[1:-1]
    lines = [*index_lines("c", "p", (y.shape[0], *size), reach_type((theta, y))), f"{c} at[{len(size)}];"]
    for axis, length in enumerate(size):
        divisor = max(length - 1, 1) if attrs["align_corners"] else max(length, 1)
        lines.append(
            f"at[{len(size) - 1 - axis}] = ({c})((double)(2 * (i64)c{axis + 1} - {length - 1}) / {divisor}.0);"
        )
    lines.append(f"const {theta.ctype}* matrix = theta + (c0 * {theta.strides[0]});")
    for row in range(len(size)):
        terms = [
            f"({c})get(matrix[{row * theta.strides[1] + column * theta.strides[2]}])"
            + (f" * at[{column}]" if column < len(size) else "")
            for column in range(len(size) + 1)
        ]
        place = f"{_places('c', y, range(len(size) + 1))} + {row * y.strides[-1]}"
        lines.append(f"{{ const {c} value = {' + '.join(terms)}; put(y[{place}], {_rounded(wide, y.dtype)}); }}")
    count = y.shape[0] * math.prod(size)
    parameters = [written("y", y), read("theta", theta)]
    ctype = reach_type((theta, y))
    yield Candidate("grid", (per_position(parameters, count, lines, theta.nbytes + y.nbytes, ctype=ctype),))


def _rounded(wide: DType, dtype: DType) -> str:
    return converted(Name("value", wide), dtype)


LOWERINGS: Mapping[str, Lowering] = {
    "grid_sample": _lower_grid_sample,
    "affine_grid": _lower_affine_grid,
}
"""Samples at positions that the model computes."""
