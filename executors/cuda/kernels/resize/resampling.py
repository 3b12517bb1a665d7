"""Resize: each output element from a few input elements, by tables of indices and weights for each axis.

The tables come from the op's own meaning and are constants on the device. Axes are summed up in the op's order, so that
integers, which are computed in f64 and truncated, come out the same.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from .....ir.constant import Array, Constant
from .....ir.ops.nn.resize import element_range, resize_samples
from .....ir.types import DType
from ...kernel_ir.casts import converted
from ...kernel_ir.kernels import Parameter, at, ordered_like, per_position, reach_type, read, widest, written
from ...kernel_ir.launch import Candidate, KernelLaunch, Lowering, Packed, Task
from ...kernel_ir.layouts import Layout
from ...kernel_ir.moving import operand, result
from ...kernel_ir.pointwise import has_types
from ...kernel_ir.program import raw
from ...kernel_ir.regions import flops_of
from ...kernel_ir.types import Name, computed, number
from .cropping import Axis, cropped_axes, extrapolation, extrapolation_bits, tables
from .sampling import wide_type

_CROP = "tf_crop_and_resize"

ENOUGH_THREADS = 1 << 16
"""From so many on a thread may write several elements."""

Samples = Sequence[tuple[int, Array, Array]]


def lower_resize(task: Task) -> Iterator[Candidate]:
    """One kernel; for a region, known only while running, one for each axis before it. Complex numbers are two."""
    attrs = task.node.attrs
    x, y = operand(task), result(task)
    is_crop = attrs["coordinate_mode"] == _CROP
    if not has_types(task.node):
        return
    if not y.size or not x.size:
        yield Candidate("nothing", ())
        return
    if is_crop:
        yield from _lower_crop(task, x, y)
        return
    modes = {name: attrs[name] for name in attrs if name not in ("axes", "sizes", "scales")}
    samples = resize_samples(x.shape, axes=attrs["axes"], sizes=attrs["sizes"], scales=attrs["scales"], **modes)
    if attrs["mode"] == "nearest" or not samples:  # elements are moved as they are
        x, y = raw(x), raw(y)
        width = _width(x, y, [axis for axis, _, _ in samples])
        launches = [_launch(task, x, y, *_nearest(x, y, samples, width), width)]
    else:
        parts = zip(x.components, y.components, strict=True)
        launches = [_launch(task, part, made, *_text(part, made, samples)) for part, made in parts]
    yield Candidate("taps", tuple(launches))


def _launch(
    task: Task, x: Layout, y: Layout, lines: list[str], parameters: Sequence[Parameter], width: int = 1
) -> KernelLaunch:
    given = [written("y", y), read("x", x), *parameters]
    nbytes, ctype = x.nbytes + y.nbytes, reach_type((x, y))
    return per_position(given, y.size // width, lines, nbytes, flops_of(task), 128, ctype)


def _lower_crop(task: Task, x: Layout, y: Layout) -> Iterator[Candidate]:
    attrs, wide = task.node.attrs, wide_type(x.components[0].dtype)
    if task.scratch is None or not attrs["axes"] or x.dtype is DType.F8E8M0:  # which has no zero
        return
    axes, used = cropped_axes(x.shape, attrs, wide, task.scratch)
    fills = attrs["extrapolation_value"], 0.0
    launches = [
        _cropped(task, part, made, axes, fill)
        for part, made, fill in zip(x.components, y.components, fills, strict=False)
    ]
    yield Candidate("region", (*tables(task, operand(task, 1), axes, wide), *launches), used)


def _cropped(task: Task, x: Layout, y: Layout, axes: Sequence[Axis], outside: float) -> KernelLaunch:
    """The sums over a region, `outside` of which stands a number."""
    attrs, wide, dtype = task.node.attrs, wide_type(x.dtype), x.dtype
    if attrs["mode"] == "nearest":
        x, y = raw(x), raw(y)
    ctype = reach_type((x, y))
    lines = [
        *ordered_like(y).lines("p", ctype),
        f"const {x.ctype}* from = x + ({at(x, without=[a.axis for a in axes])});",
    ]
    if attrs["mode"] == "nearest":
        taken = " + ".join(f"({ctype})at{n}[c{each.axis}] * {x.strides[each.axis]}" for n, each in enumerate(axes))
        is_outside = " || ".join(f"outside{n}[c{each.axis}]" for n, each in enumerate(axes))
        fill = extrapolation_bits(outside, dtype)
        lines.append(f"y[{at(y)}] = {is_outside} ? ({x.ctype}){fill} : from[{taken}];")
    else:
        samples = [(each.axis, each.taps) for each in axes]
        fill = extrapolation(outside, wide)
        lines += _sums(x, samples, wide, ctype, fill)
        done = Name(f"sum{len(samples)}", wide)
        lines.append(f"put(y[{at(y)}], {_as_element(done, x.dtype)});")
    return _launch(task, x, y, lines, [each for axis in axes for each in (axis.indices, axis.weights, axis.outside)])


def _width(x: Layout, y: Layout, changed: Sequence[int]) -> int:
    """How many neighboring elements a thread writes at once, where there are enough of them."""
    order = ordered_like(y).order
    if not order:
        return 1
    width = widest([y] if order[-1] in changed else [y, x], order[-1])
    while width > 1 and y.size < ENOUGH_THREADS * width:
        width //= 2
    return width


def _nearest(x: Layout, y: Layout, samples: Samples, width: int) -> tuple[list[str], list[Parameter]]:
    """Vectors of `width` elements along the axis that is contiguous in `y`, each from the place that a table names."""
    ctype, ordered = reach_type((x, y)), ordered_like(y)
    tables = {axis: number for number, (axis, _, _) in enumerate(samples)}
    parameters = [
        Parameter("const int*", f"at{tables[axis]}", _table(each.astype(np.int32))) for axis, each, _ in samples
    ]
    last = ordered.order[-1] if width > 1 else None
    outer = [f"({ctype})at{n}[c{axis}] * {x.strides[axis]}" for axis, n in tables.items() if axis != last]
    start = " + ".join([at(x, without=[*tables, *([] if last is None else [last])]), *outer])
    lines = [*ordered.lines("p", ctype, width), f"const {x.ctype}* from = x + ({start});"]
    if last is None:
        return [*lines, f"y[{at(y)}] = from[0];"], parameters
    pack = f"pack<{y.ctype}, {width}>"
    if last not in tables:
        lines.append(f"const {pack} taken = *(const {pack}*)(from + c{last});")
    else:
        lines += [
            f"const pack<int, {width}> places = *(const pack<int, {width}>*)(at{tables[last]} + c{last});",
            f"{pack} taken;",
            f'_Pragma("unroll") for (int w = 0; w < {width}; w++)',
            f"taken.v[w] = from[({ctype})places.v[w] * {x.strides[last]}];",
        ]
    return [*lines, f"*({pack}*)(y + {at(y)}) = taken;"], parameters


def _text(x: Layout, y: Layout, samples: Samples) -> tuple[list[str], list[Parameter]]:
    ctype = reach_type((x, y))
    lines = ordered_like(y).lines("p", ctype)
    changed = [axis for axis, _, _ in samples]
    lines.append(f"const {x.ctype}* from = x + ({at(x, without=changed)});")
    parameters: list[Parameter] = []
    wide = wide_type(x.dtype)
    for n, (_, indices, weights) in enumerate(samples):
        parameters.append(Parameter("const int*", f"at{n}", _table(indices.astype(np.int32))))
        table = _table(weights.astype(wide.numpy))
        parameters.append(Parameter(f"const {computed(wide)}*", f"weights{n}", table))
    lines += _sums(x, [(axis, indices.shape[1]) for axis, indices, _ in samples], wide, ctype)
    done = Name(f"sum{len(samples)}", wide)
    return [*lines, f"put(y[{at(y)}], {_as_element(done, x.dtype)});"], parameters


def _as_element(sum_: Name, dtype: DType) -> str:
    """A sum as an element; integers are cut off, and held in range."""
    if not dtype.is_integer:
        return sum_.text
    least, greatest = (number(each, computed(sum_.dtype)) for each in element_range(dtype.numpy))
    return converted(Name(f"fmin(fmax({sum_.text}, {least}), {greatest})", sum_.dtype), dtype)


def _sums(x: Layout, samples: Sequence[tuple[int, int]], wide: DType, ctype: str, fill: str = "") -> list[str]:
    """Nested loops: the last axis outermost, so that the first is summed up first. `fill` is what is outside."""
    c = computed(wide)
    suffix = "d" if wide is DType.F64 else "f"
    lines: list[str] = []
    for n, (axis, taps) in reversed(list(enumerate(samples))):
        lines += [
            f"{c} sum{n + 1} = 0;",
            f"for (int t{n} = 0; t{n} < {taps}; t{n}++) {{",
            f"const int e{n} = c{axis} * {taps} + t{n};",
        ]
    places = [f"({ctype})at{n}[e{n}] * {x.strides[axis]}" for n, (axis, _) in enumerate(samples)]
    lines.append(f"const {c} sum0 = ({c})get(from[{' + '.join(places) or '0'}]);")
    for n, (axis, _) in enumerate(samples):
        term = f"__{suffix}mul_rn(sum{n}, weights{n}[e{n}])"
        lines.append(f"sum{n + 1} = __{suffix}add_rn(sum{n + 1}, {term}); }}")
        if fill:
            lines.append(f"if (outside{n}[c{axis}]) sum{n + 1} = {fill};")
    return lines


def _table(content: Array) -> Packed:
    return Packed(Constant(np.ascontiguousarray(content)), "contiguous")


LOWERINGS: Mapping[str, Lowering] = {"resize": lower_resize}
"""Resampling."""
