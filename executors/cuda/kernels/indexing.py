"""Reads at indices: gather and its relatives, one_hot.

An index outside of its axis reads the nearest element: rows of padding may hold anything, and nothing else may be read.
"""

from collections.abc import Mapping

from ....ir.ops.rules import normal_axis
from ....ir.types import DType
from ..kernel_ir.launch import Lowering, Task
from ..kernel_ir.layouts import Layout
from ..kernel_ir.moving import lower_programs, operand, result
from ..kernel_ir.pointwise import lookup_of
from ..kernel_ir.program import KernelProgram, Lookup, raw
from ..kernel_ir.types import Name

# ---- reads


def _gather(task: Task) -> KernelProgram:
    x, indices, target = raw(operand(task)), operand(task, 1), raw(result(task))
    table, lookup = lookup_of(x, indices, normal_axis(task.node.attrs["axis"], len(x.shape)))
    program = KernelProgram(target.shape)
    program.store(program.load(table, lookup), target)
    return program


def _gather_elements(task: Task) -> KernelProgram:
    x, indices, target = raw(operand(task)), operand(task, 1), raw(result(task))
    axis = normal_axis(task.node.attrs["axis"], len(x.shape))
    program = KernelProgram(target.shape)
    strides = tuple(0 if other == axis else stride for other, stride in enumerate(x.strides))
    rest = Layout(x.dtype, target.shape, strides, x.place, x.alignment)
    program.store(program.load(rest, Lookup(indices, x.shape[axis], x.strides[axis])), target)
    return program


def _gather_nd(task: Task) -> KernelProgram:
    x, indices, target = raw(operand(task)), operand(task, 1), raw(result(task))
    batch, depth = task.node.attrs["batch_dims"], indices.shape[-1]
    program = KernelProgram(target.shape)
    leading = len(indices.shape) - 1
    spread = (0,) * (len(target.shape) - leading)
    at: list[Name] = []
    for position in range(depth):
        one = indices.part(leading, position, 1).without([leading])
        at.append(program.load(Layout(one.dtype, target.shape, (*one.strides, *spread), one.place, one.alignment)))
    terms = [f"place_of(${each}, {x.shape[batch + each]}) * {x.strides[batch + each]}" for each in range(depth)]
    strides = (*x.strides[:batch], *(0,) * (leading - batch), *x.strides[batch + depth :])
    seen = Layout(x.dtype, target.shape, strides, x.place, x.alignment)
    program.store(program.fetch(seen, " + ".join(terms), *at), target)
    return program


def _one_hot(task: Task) -> KernelProgram:
    indices, values, target = operand(task), raw(operand(task, 1)), raw(result(task))
    axis, depth = normal_axis(task.node.attrs["axis"], len(target.shape)), task.node.attrs["depth"]
    program = KernelProgram(target.shape)
    at = program.coordinate(axis)
    index = program.load(indices.inserted(axis, depth))
    whole = program.convert(index, DType.I64)
    counted = program.define(DType.I64, f"$0 < 0 && $0 >= -{depth}ll ? $0 + {depth}ll : $0", whole)
    off, on = (program.load(values.part(0, place, 1).without([0])) for place in (0, 1))
    program.store(program.define(values.dtype, "$0 == $1 ? $2 : $3", counted, at, on, off), target)
    return program


LOWERINGS: Mapping[str, Lowering] = {
    "gather": lower_programs(_gather, "gather"),
    "gather_elements": lower_programs(_gather_elements, "gather"),
    "gather_nd": lower_programs(_gather_nd, "gather"),
    "one_hot": lower_programs(_one_hot, "one_hot"),
}
"""Ops that read or write at indices."""
