"""Tensors from nothing: fills, ranges, sizes, identity matrices, filters of mel bands."""

from collections.abc import Iterator, Mapping

import numpy as np

from ....ir.constant import Array, Constant
from ....ir.graph import Node
from ....ir.plan import View
from ....ir.types import DType
from ..kernel_ir import flat
from ..kernel_ir.casts import converted
from ..kernel_ir.kernels import at, per_position, read, written
from ..kernel_ir.launch import Candidate, Chip, KernelLaunch, Lowering, Task
from ..kernel_ir.layouts import dense, layout_of
from ..kernel_ir.moving import operand, result
from ..kernel_ir.program import KernelProgram
from ..kernel_ir.regions import dtype_of, shape_of
from ..kernel_ir.types import Name, literals

MOST_LITERALS = 64
"""Constants of up to this many elements are written by a kernel that holds them in its source."""


def filled_with(constant: Constant, view: View, chip: Chip) -> tuple[KernelLaunch, ...]:
    """Writes the elements of a small constant."""
    layout = layout_of(view)
    program = KernelProgram(layout.shape)
    if constant.array.size == 1:
        program.store(Name(literals(constant)[0], constant.dtype), layout)
    else:
        program.store(program.table(constant, dense(constant.dtype, layout.shape, layout.place)), layout)
    return flat.launch([program], chip)


def _lower_full(task: Task) -> Iterator[Candidate]:
    layout = layout_of(task.results[0])
    program = KernelProgram(layout.shape)
    program.store(Name(literals(task.node.attrs["value"])[0], layout.dtype), layout)
    yield Candidate("fill", flat.launch([program], task.chip))


def _lower_arange(task: Task) -> Iterator[Candidate]:
    attrs, layout = task.node.attrs, layout_of(task.results[0])
    program = KernelProgram(layout.shape)
    steps = program.coordinate(0)
    value = program.define(DType.I64, f"{attrs['start']}ll + $0 * {attrs['step']}ll", steps)
    program.store(program.convert(value, layout.dtype), layout)
    yield Candidate("range", flat.launch([program], task.chip))


def _lower_eye(task: Task) -> Iterator[Candidate]:
    layout = layout_of(task.results[0])
    program = KernelProgram(layout.shape)
    row, column = program.coordinate(0), program.coordinate(1)
    is_one = program.define(DType.BOOL, f"$0 - $1 == {task.node.attrs['diagonal']}ll", column, row)
    program.store(program.convert(is_one, layout.dtype), layout)
    yield Candidate("diagonal", flat.launch([program], task.chip))


def _lower_mel_weights(task: Task) -> Iterator[Candidate]:
    """A thread for each filter and frequency, in f64, with the arithmetic of the meaning."""
    rate, low, high, y, attrs = operand(task), operand(task, 1), operand(task, 2), result(task), task.node.attrs
    if not y.size:
        return
    bands, length = y.shape[1], attrs["dft_length"]
    lines = [
        f"const int bin = p / {bands}u, band = p % {bands}u, c0 = bin, c1 = band;",
        "const auto mel = [](double f) { return 2595 * log10(1 + f / 700); };",
        f"const double low_mel = mel(get(*low)), step = (mel(get(*high)) - low_mel) / {bands + 2};",
        "const auto point = [&](int n) { const double hertz = 700 * (exp10((low_mel + n * step) / 2595) - 1);",
        f"return (i64)floor({length + 1} * hertz / (double)(i64)get(*rate)); }};",
        "const i64 left = point(band), center = point(band + 1), right = point(band + 2);",
        "double weight = 0;",
        "const auto ratio = [](i64 part, i64 whole) { return (double)part / (double)whole; };",
        "if (bin >= left && bin <= center) weight = center > left ? ratio(bin - left, center - left) : bin == center;",
        "if (bin >= center && bin < right) weight = ratio(right - bin, right - center);",
        f"put(y[{at(y)}], {converted(Name('weight', DType.F64), y.dtype)});",
    ]
    parameters = [written("y", y), read("rate", rate), read("low", low), read("high", high)]
    yield Candidate("filters", (per_position(parameters, y.size, lines, y.nbytes),))


def _sizes(node: Node) -> Array:
    """What `dims`, `dim`, `shape` and `size` say, once sizes are known."""
    attrs = node.attrs
    if node.op.name == "dims":
        return np.array(attrs["values"], dtype=np.int64)
    if node.op.name == "dim":
        return np.array(attrs["value"], dtype=np.int64)
    shape = shape_of(node.operands[0])
    if node.op.name == "size":
        return np.array(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)
    return np.array(shape[attrs["start"] : attrs["end"]], dtype=np.int64)


def _lower_sizes(task: Task) -> Iterator[Candidate]:
    constant = Constant(_sizes(task.node))
    if constant.array.size <= MOST_LITERALS:
        yield Candidate("sizes", filled_with(constant, task.results[0], task.chip))


def _lower_constant(task: Task) -> Iterator[Candidate]:
    constant = task.node.attrs["value"]
    if dtype_of(task.node.output) is not DType.STRING and constant.array.size <= MOST_LITERALS:
        yield Candidate("literals", filled_with(constant, task.results[0], task.chip))


LOWERINGS: Mapping[str, Lowering] = {
    "constant": _lower_constant,
    "full": _lower_full,
    "arange": _lower_arange,
    "eye_like": _lower_eye,
    "mel_weight_matrix": _lower_mel_weights,
    "dims": _lower_sizes,
    "dim": _lower_sizes,
    "shape": _lower_sizes,
    "size": _lower_sizes,
}
"""Ops whose results follow from sizes, attributes and single numbers."""
