"""Work with parameters by channel: batch_norm, lrn, and linear quantization."""

from collections.abc import Iterator, Mapping

from ....ir.ops.rules import normal_axis
from ....ir.types import DType, Kind
from ..kernel_ir.kernels import at, ordered_like, per_position, reach_type, read, written
from ..kernel_ir.launch import Candidate, Lowering, Task
from ..kernel_ir.layouts import Layout
from ..kernel_ir.moving import lower_programs, operand, result
from ..kernel_ir.program import KernelProgram
from ..kernel_ir.regions import flops_of
from ..kernel_ir.types import Name, computed, number


def _per_channel(layout: Layout, rank: int) -> Layout:
    for _ in range(rank - 2):
        layout = layout.inserted(len(layout.shape), 1)
    return layout


def _batch_norm(task: Task) -> KernelProgram:
    x, target = operand(task), result(task)
    program = KernelProgram(target.shape)
    dtype = DType.F64 if x.dtype is DType.F64 else DType.F32
    ctype, suffix = computed(dtype), "" if dtype is DType.F64 else "f"
    value = program.load(x)
    scale, bias, mean, var = (
        program.define(dtype, f"({ctype})$0", program.load(_per_channel(operand(task, index), len(x.shape))))
        for index in range(1, 5)
    )
    epsilon = number(task.node.attrs["epsilon"], ctype)
    factor = program.define(dtype, f"$0 / sqrt{suffix}($1 + ({epsilon}))", scale, var)
    centered = program.define(dtype, f"({ctype})$0 - $1", value, mean)
    program.store(program.define(dtype, "$0 * $1 + $2", centered, factor, bias), target)
    return program


def _lower_lrn(task: Task) -> Iterator[Candidate]:
    """A thread for each element, which reads its neighbors: not in place."""
    x, y, attrs = operand(task), result(task), task.node.attrs
    ctype, wide = reach_type((x, y)), computed(x.dtype)
    suffix = "" if x.dtype is DType.F64 else "f"
    size, channels = attrs["size"], x.shape[1]
    alpha, beta, bias = (number(value, wide) for value in (attrs["alpha"] / size, attrs["beta"], attrs["bias"]))
    lines = [
        *ordered_like(y).lines("p", ctype),
        f"const {x.ctype}* from = x + ({at(x, without=[1])});",
        f"{wide} total = 0;",
        f"for (int c = (int)c1 - {(size - 1) // 2}; c <= (int)c1 + {size // 2}; c++) if (c >= 0 && c < {channels}) {{",
        f"const {wide} near = get(from[({ctype})c * {x.strides[1]}]); total += near * near; }}",
        f"const {wide} own = get(from[c1 * {x.strides[1]}]);",
        f"put(y[{at(y)}], own / pow{suffix}({bias} + {alpha} * total, {beta}));",
    ]
    nbytes = x.nbytes + y.nbytes
    launch = per_position([written("y", y), read("x", x)], y.size, lines, nbytes, flops_of(task), ctype=ctype)
    yield Candidate("neighbors", (launch,) if y.size else ())


# ---- quantization


def _spread(parameter: Layout, shape: tuple[int, ...], axis: int, block_size: int) -> tuple[Layout, bool]:
    """A scale or zero point over `shape`, and whether blocks of `axis` share its elements."""
    if parameter.size == 1 and not block_size:
        return parameter.without(range(len(parameter.shape))), False
    if block_size:
        return parameter, True
    for _ in shape[axis + 1 :]:
        parameter = parameter.inserted(len(parameter.shape), 1)
    return parameter, False


def _parameter(program: KernelProgram, task: Task, index: int, axis: int) -> Name | None:
    if index >= len(task.operands) or task.operands[index] is None:
        return None
    block_size = task.node.attrs["block_size"]
    layout, is_blocked = _spread(operand(task, index), program.domain, axis, block_size)
    if not is_blocked:
        return program.load(layout)
    strides = tuple(0 if other == axis else stride for other, stride in enumerate(layout.strides))
    seen = Layout(layout.dtype, program.domain, strides, layout.place, layout.alignment)
    block = program.coordinate(axis)
    return program.fetch(seen, f"$0 / {block_size}ll * {layout.strides[axis]}", block)


def _axis(task: Task) -> int:
    rank = len(operand(task).shape)
    return normal_axis(task.node.attrs["axis"], rank) if rank and -rank <= task.node.attrs["axis"] < rank else 0


_REAL = (DType.F16, DType.BF16, DType.F32)


def _quantized(task: Task) -> KernelProgram:
    attrs, target = task.node.attrs, result(task)
    program = KernelProgram(target.shape)
    x = program.load(operand(task))
    scale, zero = (_parameter(program, task, index, _axis(task)) for index in (1, 2))
    assert scale is not None
    working = attrs["precision"] or next((d for d in (scale.dtype, x.dtype) if d in _REAL), DType.F32)
    wide = [program.convert(each, working) for each in (x, scale)]
    rounded = program.convert(program.define(DType.F32, "$0 / $1", *wide), working)
    to: DType = attrs["to"]
    if to.is_integer:
        low = -(2 ** (to.bits - 1)) if to.kind is Kind.INT else 0
        high = 2 ** (to.bits - (to.kind is Kind.INT)) - 1
        offset = "0.0f" if zero is None else "(float)$1"
        moved = program.define(DType.F32, f"rintf($0) + {offset}", rounded, zero)
        held = program.define(DType.F32, f"least(greatest($0, {low}.0f), {high}.0f)", moved)
    else:
        held = program.define(DType.F32, "$0" if zero is None else "$0 + (float)$1", rounded, zero)
    program.store(program.convert(held, to, saturate=attrs["saturate"]), target)
    return program


def _dequantized(task: Task) -> KernelProgram:
    target = result(task)
    program = KernelProgram(target.shape)
    x = program.load(operand(task))
    scale, zero = (_parameter(program, task, index, _axis(task)) for index in (1, 2))
    assert scale is not None
    form = f"((float)$0{'' if zero is None else ' - (float)$2'}) * (float)$1"
    program.store(program.define(DType.F32, form, x, scale, zero), target)
    return program


LOWERINGS: Mapping[str, Lowering] = {
    "batch_norm": lower_programs(_batch_norm, "pointwise"),
    "lrn": _lower_lrn,
    "quantize_linear": lower_programs(_quantized, "pointwise"),
    "dequantize_linear": lower_programs(_dequantized, "pointwise"),
}
"""Ops with parameters by channel."""
