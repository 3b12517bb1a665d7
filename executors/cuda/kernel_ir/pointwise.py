"""Elementwise nodes and regions of them as one kernel: broadcasting, mixed dtypes, several results, gathers."""

import math
from collections.abc import Iterator, Mapping

from ....ir.errors import UnsupportedError
from ....ir.graph import Node, Value
from ....ir.op import Trait
from ....ir.ops import OPS
from ....ir.ops.rules import normal_axis
from ....ir.types import DType
from . import flat
from .draws import DRAWS, arguments_of
from .expressions import EXPRESSIONS, expression
from .launch import Candidate, Lowering, Task
from .layouts import Layout, dense
from .program import NOWHERE, KernelProgram, Lookup
from .regions import FusedRegion, dtype_of, region_of, shape_of
from .types import Name, has_code, hole, literals


class StatementBuilder:
    """Turns the nodes of a region into statements of a program, value by value."""

    def __init__(self, region: FusedRegion, program: KernelProgram) -> None:
        self.region = region
        self.program = program
        self.names: dict[Value, Name] = {}
        self.states: dict[Value, tuple[Name, Name]] = {}
        self.gathers = {node.output: node for node in region.nodes if node.op.name == "gather"}

    def name(self, value: Value) -> Name:
        """The name of a value: computed before, a literal, or loaded now."""
        if value not in self.names:
            self.names[value] = self._outer(value)
        return self.names[value]

    def optional(self, node: Node, index: int) -> Name | None:
        """The name of operand `index`, None where it is left out."""
        value = node.inputs[index] if index < len(node.inputs) else None
        return None if value is None else self.name(value)

    def _outer(self, value: Value) -> Name:
        constant = self.region.constants.get(value)
        if constant is not None and constant.array.size == 1:
            return Name(literals(constant)[0], constant.dtype)
        if constant is not None and value not in self.region.sources:
            return self.program.table(constant, self.seen(dense(constant.dtype, shape_of(value), NOWHERE)))
        if value in self.gathers:
            return self._gathered(self.gathers[value])
        return self.program.load(self.seen(self.source(value)))

    def source(self, value: Value) -> Layout:
        """Where a value from outside lies. Raises `UnsupportedError` for one that a node of the region computes."""
        if value not in self.region.sources:
            raise UnsupportedError(f"%{value.name} is computed where it should lie in memory")
        return self.region.sources[value]

    def seen(self, layout: Layout) -> Layout:
        """A tensor as the domain sees it; domains with axes split differently override this."""
        return layout

    def _gathered(self, node: Node) -> Name:
        x, indices = (self.source(value) for value in node.operands)
        table, lookup = lookup_of(x, indices, normal_axis(node.attrs["axis"], len(x.shape)))
        broadcast = lookup.layout.broadcast(self.program.domain)
        return self.program.load(table, Lookup(broadcast, lookup.size, lookup.stride))

    def elementwise(self, node: Node) -> None:
        """Defines the result of an elementwise node, or of one that draws an element for each place."""
        if node.op.name in DRAWS:
            self._draw(node)
            return
        operands = [None if value is None else self.name(value) for value in node.inputs]
        dtype = dtype_of(node.output)
        holes = [None if each is None else hole(index, each) for index, each in enumerate(operands)]
        form = expression(node.op.name, holes, node.attrs, dtype).text
        self.names[node.output] = self.program.define(dtype, form, *operands)

    def _draw(self, node: Node) -> None:
        *others, state = node.operands
        shape, stream = shape_of(node.output), node.attrs["stream"]
        assert isinstance(stream, int)
        place = self.program.position(self.seen(dense(DType.I64, shape, NOWHERE)))
        operands, dtype = (*self._state(state), place, *map(self.name, others)), dtype_of(node.output)
        key, count, at, *own = (hole(index, each) for index, each in enumerate(operands))
        form = DRAWS[node.op.name](arguments_of(key, count, at, math.prod(shape), stream), own, node.attrs, dtype)
        self.names[node.output] = self.program.define(dtype, form, *operands)

    def _state(self, state: Value) -> tuple[Name, Name]:
        """The key of a random state, and how many draws were made with it."""
        if state not in self.states:
            constant = self.region.constants.get(state)
            if constant is not None:
                key, count = (Name(text, DType.U64) for text in literals(constant))
            else:
                held = self.source(state)
                key, count = (self.program.load(held.part(0, index, 1).without([0])) for index in range(2))
            self.states[state] = key, count
        return self.states[state]


def lookup_of(x: Layout, indices: Layout, axis: int) -> tuple[Layout, Lookup]:
    """What `gather` reads, over the shape of its result: the rest of the table, and the indices into its `axis`."""
    outer, inner = x.shape[:axis], x.shape[axis + 1 :]
    table, places = x.without([axis]), indices
    for position, size in enumerate(indices.shape):
        table = table.inserted(axis + position, size)
    for size in reversed(outer):
        places = places.inserted(0, size)
    for size in inner:
        places = places.inserted(len(places.shape), size)
    return table, Lookup(places, x.shape[axis], x.strides[axis])


def is_pointwise(node: Node) -> bool:
    """Whether each element of its one result is an expression of its place and of an element of each operand."""
    return node.op.name in EXPRESSIONS or node.op.name in DRAWS


def has_types(node: Node) -> bool:
    """Whether kernels can hold all that a node takes and gives."""
    return all(has_code(dtype_of(value)) for value in (*node.operands, *node.outputs))


def pointwise_program(region: FusedRegion) -> KernelProgram:
    """The program of a region without reductions. Raises `UnsupportedError` where its results differ in shape."""
    domain = region.results[0][1].shape
    if any(layout.shape != domain for _, layout in region.results):
        raise UnsupportedError("the results of a pointwise region differ in shape")
    program = KernelProgram(domain)
    builder = StatementBuilder(region, program)
    for node in region.nodes:
        if is_pointwise(node):
            builder.elementwise(node)
        elif node.op.name != "gather":
            raise UnsupportedError(f"{node.op.name} is no pointwise work")
    for value, layout in region.results:
        program.store(builder.name(value), layout)
    return program


def lower_pointwise(task: Task) -> Iterator[Candidate]:
    """One kernel for an elementwise node or a region of such nodes and gathers."""
    region = region_of(task)
    if not all(has_types(node) for node in region.nodes):
        return
    launches = flat.launch([pointwise_program(region)], task.chip, region.flops)
    yield Candidate("pointwise", launches)


LOWERINGS: Mapping[str, Lowering] = {
    name: lower_pointwise
    for name, op in OPS.items()
    if (op.has(Trait.ELEMENTWISE) and name in EXPRESSIONS) or name in DRAWS
}
"""Elementwise ops, and those that draw random numbers."""
