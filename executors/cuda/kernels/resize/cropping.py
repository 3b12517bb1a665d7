"""Resize of a region that an operand gives: a kernel for each axis makes the tables, then elements are summed by them.

The tables are those of `ir/ops/nn/resize.py`, in f64 with its arithmetic, in scratch memory.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .....ir.constant import Array, Constant
from .....ir.ops.nn.resize import ResampledAxis, as_elements, resize_targets
from .....ir.types import DType
from ...kernel_ir.kernels import Parameter, per_position, read
from ...kernel_ir.launch import BufferPlace, KernelLaunch, Task
from ...kernel_ir.layouts import Layout
from ...kernel_ir.types import computed, literals, number

_ALIGNMENT = 16


@dataclass(frozen=True)
class Axis:
    """An axis that a region is resized along, and its tables: element `t` of result `i` is at `i * taps + t`.

    `outside` says which results get the extrapolation value.
    """

    axis: int
    before: int
    after: int
    scale: float | Fraction
    taps: int
    indices: Parameter
    weights: Parameter
    outside: Parameter


def cropped_axes(
    shape: Sequence[int], attrs: Mapping[str, Any], wide: DType, scratch: BufferPlace
) -> tuple[list[Axis], int]:
    """The axes with room for their tables in scratch memory, and how many bytes that takes."""
    modes = {name: attrs[name] for name in attrs if name not in ("axes", "sizes", "scales")}
    at, after, ratios = resize_targets(shape, attrs["axes"], attrs["sizes"], attrs["scales"], modes)
    found: list[Axis] = []
    used = 0

    def room(nbytes: int) -> BufferPlace:
        nonlocal used
        place = BufferPlace(scratch.buffer, scratch.offset + used)
        used += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return place

    for order, (axis, size, scale) in enumerate(zip(at, after, ratios, strict=True)):
        taps = 1 if attrs["mode"] == "nearest" else 2 - 2 * _first(scale, attrs)
        found.append(
            Axis(
                axis,
                shape[axis],
                size,
                scale,
                taps,
                Parameter("const int*", f"at{order}", room(4 * size * taps)),
                Parameter(f"const {computed(wide)}*", f"weights{order}", room(wide.numpy.itemsize * size * taps)),
                Parameter("const int*", f"outside{order}", room(4 * size)),
            )
        )
    return found, used


def extrapolation(value: float, dtype: DType) -> str:
    """The extrapolation value as a literal of a dtype."""
    return literals(Constant(_cast(value, dtype)))[0]


def extrapolation_bits(value: float, dtype: DType) -> str:
    """The bits of the extrapolation value in a dtype, as an integer."""
    array = _cast(value, dtype)
    return f"{int.from_bytes(array.tobytes(), 'little')}ull"


def _cast(value: float, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        return as_elements(np.array(value), dtype.numpy)


def tables(task: Task, roi: Layout, axes: Sequence[Axis], wide: DType) -> list[KernelLaunch]:
    """The launches that make the tables of each axis."""
    return [_table(task.node.attrs, roi, each, order, len(axes), wide) for order, each in enumerate(axes)]


def _first(scale: float | Fraction, attrs: Mapping[str, Any]) -> int:
    """The first tap, counted from the element before a position."""
    return math.floor(-(1 if attrs["mode"] == "linear" else 2) / _stretch(scale, attrs)) + 1


def _stretch(scale: float | Fraction, attrs: Mapping[str, Any]) -> float:
    return min(float(scale), 1.0) if attrs["antialias"] else 1.0


def _table(attrs: Mapping[str, Any], roi: Layout, axis: Axis, order: int, count: int, wide: DType) -> KernelLaunch:
    c, last, how = computed(wide), float(axis.before - 1), ResampledAxis(axis.before, axis.after, axis.scale)
    step = roi.strides[0]
    lines = [
        f"const double start = get(roi[{order * step}]), end = get(roi[{(count + order) * step}]);",
        *_position_lines(last, how),
        f"outside[p] = position < 0 || position > {number(last, 'double')};",
        f"const auto held = [](double i) {{ return (int)(i < 0 ? 0 : i > {number(last, 'double')}",
        f"? {number(last, 'double')} : i == i ? i : 0); }};",
    ]
    if attrs["mode"] == "nearest":
        lines.append(f"indices[p] = held({_NEAREST.get(attrs['nearest_mode'], _ROUNDED_UP)}); weights[p] = 1;")
    else:
        lines += _tap_lines(attrs, axis, c)
    parameters = [
        Parameter("int*", "indices", axis.indices.argument),
        Parameter(f"{c}*", "weights", axis.weights.argument),
        Parameter("int*", "outside", axis.outside.argument),
        read("roi", roi),
    ]
    return per_position(parameters, axis.after, lines, axis.after * axis.taps * (4 + wide.numpy.itemsize))


_NEAREST = {"floor": "floor(position)", "ceil": "ceil(position)", "round_prefer_floor": "ceil(position - 0.5)"}
_ROUNDED_UP = "floor(position + 0.5)"


def _position_lines(last: float, how: ResampledAxis) -> list[str]:
    """Products are rounded before they are added, as NumPy does: where a position ends up decides what is outside."""
    far = number(last, "double")
    if how.is_single:
        return [f"const double position = (start + end) * {far} / 2;"]
    whole = number(how.length - 1, "double")
    between = f"__dadd_rn(__dmul_rn({whole} - p, start), __dmul_rn((double)p, end))"
    return [f"const double position = __dmul_rn({between}, {far}) / {whole};"]


def _tap_lines(attrs: Mapping[str, Any], axis: Axis, c: str) -> list[str]:
    first, stretch, a = _first(axis.scale, attrs), _stretch(axis.scale, attrs), attrs["cubic_coefficient"]
    weight = "d < 1 ? 1 - d : 0"
    if attrs["mode"] != "linear":
        near = f"times(times(times({number(a + 2, 'double')}, d) - ({number(a + 3, 'double')}), d), d) + 1"
        five, eight, four = (number(by * a, "double") for by in (5, 8, 4))
        far = f"times(times(times({number(a, 'double')}, d) - ({five}), d) + ({eight}), d) - ({four})"
        weight = f"d <= 1 ? {near} : d < 2 ? {far} : 0"
    inside = f"i >= 0 && i < {axis.before}" if attrs["exclude_outside"] else "true"
    normal = ["for (int t = 0; t < TAPS; t++) w[t] /= total;"] if attrs["antialias"] else []
    kept = ["total = total == 0 ? 1 : total;", "for (int t = 0; t < TAPS; t++) w[t] /= total;"]
    lines = [
        f"const int TAPS = {axis.taps}; double w[{axis.taps}], total = 0;",
        "const double before = ceil(position) - 1, part = position - before;",
        "const auto times = [](double a, double b) { return __dmul_rn(a, b); };",  # rounded before anything is added
        "for (int t = 0; t < TAPS; t++) {",
        f"const double d = times(fabs({first} + t - part), {number(stretch, 'double')});",
        f"w[t] = {weight}; total += w[t]; }}",
        *normal,
    ]
    if attrs["exclude_outside"]:
        lines += [
            "total = 0;",
            f"for (int t = 0; t < TAPS; t++) {{ const double i = before + {first} + t; w[t] = {inside} ? w[t] : 0;",
            "total += w[t]; }",
            *kept,
        ]
    return [
        *lines,
        "for (int t = 0; t < TAPS; t++) {",
        f"indices[p * TAPS + t] = held(before + {first} + t); weights[p * TAPS + t] = ({c})w[t]; }}",
    ]
