"""Resize: each output element from a few input elements, by tables of indices and weights for each axis.

The tables come from the op's own meaning and are constants on the device. Axes are summed up in the op's order, so that
integers, which are computed in f64 and truncated, come out the same.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ....ir.constant import Array, Constant
from ....ir.ops.resize import resize_samples
from ....ir.types import DType, Kind
from ..launch import Candidate, Lowering, Packed, Task
from .casts import converted
from .kernels import Parameter, at, ordered_like, per_position, reach_type, read, written
from .layouts import Layout
from .moving import operand, result
from .pointwise import has_types
from .program import raw
from .regions import flops_of
from .types import Name, computed

_CROP = "tf_crop_and_resize"

Samples = Sequence[tuple[int, Array, Array]]


def lower_resize(task: Task) -> Iterator[Candidate]:
    """One kernel; none for a region, which is known only while running, and for sums of complex numbers."""
    attrs = task.node.attrs
    x, y = operand(task), result(task)
    is_complex = x.dtype.kind is Kind.COMPLEX and attrs["mode"] != "nearest"
    if not has_types(task.node) or attrs["coordinate_mode"] == _CROP or is_complex:
        return
    if not y.size or not x.size:
        yield Candidate("nothing", ())
        return
    modes = {name: attrs[name] for name in attrs if name not in ("axes", "sizes", "scales")}
    samples = resize_samples(x.shape, axes=attrs["axes"], sizes=attrs["sizes"], scales=attrs["scales"], **modes)
    if attrs["mode"] == "nearest":
        x, y = raw(x), raw(y)
    lines, parameters = _text(x, y, samples, is_nearest=attrs["mode"] == "nearest")
    nbytes = x.nbytes + y.nbytes
    launch = per_position(
        [written("y", y), read("x", x), *parameters], y.size, lines, nbytes, flops_of(task), 128, reach_type((x, y))
    )
    yield Candidate("taps", (launch,))


def _wide(dtype: DType) -> DType:
    """The type in which elements are summed."""
    if dtype.is_small_float:
        return DType.F32
    return dtype if dtype.is_float else DType.F64


def _text(x: Layout, y: Layout, samples: Samples, is_nearest: bool) -> tuple[list[str], list[Parameter]]:
    ctype = reach_type((x, y))
    lines = ordered_like(y).lines("p", ctype)
    changed = [axis for axis, _, _ in samples]
    lines.append(f"const {x.ctype}* from = x + ({at(x, without=changed)});")
    parameters: list[Parameter] = []
    wide = DType.F32 if is_nearest else _wide(x.dtype)
    for number, (_, indices, weights) in enumerate(samples):
        parameters.append(Parameter("const int*", f"at{number}", _table(indices.astype(np.int32))))
        if not is_nearest:
            table = _table(weights.astype(wide.numpy))
            parameters.append(Parameter(f"const {computed(wide)}*", f"weights{number}", table))
    if is_nearest:
        places = [f"({ctype})at{n}[c{axis}] * {x.strides[axis]}" for n, axis in enumerate(changed)]
        return [*lines, f"y[{at(y)}] = from[{' + '.join(places) or '0'}];"], parameters
    lines += _sums(x, samples, wide, ctype)
    done = Name(f"sum{len(samples)}", wide)
    return [*lines, f"put(y[{at(y)}], {converted(done, x.dtype) if x.dtype.is_integer else done.text});"], parameters


def _sums(x: Layout, samples: Samples, wide: DType, ctype: str) -> list[str]:
    """Nested loops: the last axis outermost, so that the first is summed up first."""
    c = computed(wide)
    suffix = "d" if wide is DType.F64 else "f"
    lines: list[str] = []
    for number, (axis, indices, _) in reversed(list(enumerate(samples))):
        taps = indices.shape[1]
        lines += [
            f"{c} sum{number + 1} = 0;",
            f"for (int t{number} = 0; t{number} < {taps}; t{number}++) {{",
            f"const int e{number} = c{axis} * {taps} + t{number};",
        ]
    places = [f"({ctype})at{n}[e{n}] * {x.strides[axis]}" for n, (axis, _, _) in enumerate(samples)]
    lines.append(f"const {c} sum0 = ({c})get(from[{' + '.join(places) or '0'}]);")
    for number in range(len(samples)):
        term = f"__{suffix}mul_rn(sum{number}, weights{number}[e{number}])"
        lines.append(f"sum{number + 1} = __{suffix}add_rn(sum{number + 1}, {term}); }}")
    return lines


def _table(content: Array) -> Packed:
    return Packed(Constant(np.ascontiguousarray(content)), "contiguous")


LOWERINGS: Mapping[str, Lowering] = {"resize": lower_resize}
"""Resampling."""
