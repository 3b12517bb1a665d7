"""The pointwise work behind a product, as code for one element: what generated kernels write instead of the sum.

It is computed in f32 throughout and rounded once, when it is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...ir.graph import Node, Value
from ...ir.op import Trait
from .codegen.expressions import EXPRESSIONS, expression
from .codegen.types import Name, literals, number, stored
from .indexing import index_type
from .regions import Region, Source, body_of, source_of, static_shape


@dataclass(frozen=True)
class Tail:
    """What follows a sum: `operands` are read and `results` written, each by its name in the code.

    `shape` is that of the heavy node's result, whose elements have a row (all axes but the last) and a column.
    """

    region: Region
    shape: tuple[int, ...]
    operands: Mapping[str, Source] = field(default_factory=dict[str, Source])
    results: Mapping[str, Source] = field(default_factory=dict[str, Source])

    @property
    def parameters(self) -> list[str]:
        """The kernel's parameters for them; results may lie over operands."""
        read = [f"const {stored(source.dtype)}* {name}" for name, source in self.operands.items()]
        return [*read, *(f"{stored(source.dtype)}* {name}" for name, source in self.results.items())]

    @property
    def sources(self) -> list[Source]:
        """Their memory, in the order of the parameters."""
        return [*self.operands.values(), *self.results.values()]

    def code(self, total: str, row: str, column: str) -> str:
        """Statements that take the sum named `total` (a float) and write all results of the element."""
        return "\n".join(_Writer(self, row, column).lines(total))

    def place(self, name: str, row: str, column: str) -> str:
        """The element of an operand or result that belongs to a row and a column, as an expression."""
        source = self.operands.get(name) or self.results[name]
        return f"{name}[{element_offset(source, self.shape, row, column)}]"


def tail_of(region: Region) -> Tail | None:
    """The pointwise work of a whole region; None if there is other work in it, or it has sizes of its own."""
    shape = static_shape(region.anchor.output)
    nodes = list(_after(region))
    if not all(_is_pointwise(node, shape) for node in nodes):
        return None
    made = {region.anchor.output, *(node.output for node in nodes)}
    read = dict.fromkeys(value for node in nodes for value in node.operands if value not in made)
    if any(value not in region.sources for value in read) or any(value not in made for value in region.results):
        return None
    operands = {f"p{i}": region.sources[value] for i, value in enumerate(read) if not _is_literal(region, value)}
    c = region.operand(2) if region.anchor.op.name == "gemm" else None
    if c is not None:
        operands["c"] = c
    results = {f"y{i}": source_of(view) for i, view in enumerate(region.task.results)}
    return Tail(region, shape, operands, results)


def _after(region: Region) -> Iterator[Node]:
    if region.is_alone:
        return
    for node in body_of(region.task.node).nodes:
        if node is not region.anchor and node.inputs:
            yield node


def _is_pointwise(node: Node, shape: tuple[int, ...]) -> bool:
    return (
        node.op.has(Trait.ELEMENTWISE)
        and node.op.name in EXPRESSIONS
        and len(node.outputs) == 1
        and static_shape(node.output) == shape
    )


def _is_literal(region: Region, value: Value) -> bool:
    constant = region.sources[value].constant
    return constant is not None and constant.size == 1


class _Writer:
    def __init__(self, tail: Tail, row: str, column: str) -> None:
        self.tail = tail
        self.row, self.column = row, column
        self.names: dict[Value, Name] = {}

    def lines(self, total: str) -> Iterator[str]:
        region = self.tail.region
        yield from self._anchor(total)
        yield from self._operands()
        for index, node in enumerate(_after(region)):
            operands = [self.names[value] if value is not None else None for value in node.inputs]
            made = expression(node.op.name, operands, node.attrs, node.output.tensor.dtype)
            yield f"const {made.ctype} v{index} = {made.text};"
            self.names[node.output] = Name(f"v{index}", made.dtype)
        for index, value in enumerate(region.results):
            yield f"put({self.tail.place(f'y{index}', self.row, self.column)}, {self.names[value].text});"

    def _anchor(self, total: str) -> Iterator[str]:
        node = self.tail.region.anchor
        text = total
        if node.op.name == "gemm":
            text = f"{number(node.attrs['alpha'], 'float')} * {total}"
            if "c" in self.tail.operands:
                text += f" + {number(node.attrs['beta'], 'float')} * get({self.tail.place('c', self.row, self.column)})"
        yield f"const float product = {text};"
        self.names[node.output] = Name("product", node.output.tensor.dtype)

    def _operands(self) -> Iterator[str]:
        region = self.tail.region
        places = {id(source): name for name, source in self.tail.operands.items()}
        for value, source in region.sources.items():
            if id(source) in places and places[id(source)] != "c":
                name = places[id(source)]
                made = Name(f"{name}_", source.dtype)
                yield f"const {made.ctype} {made.text} = get({self.tail.place(name, self.row, self.column)});"
                self.names[value] = made
            elif source.constant is not None and source.constant.size == 1:
                self.names[value] = Name(literals(source.constant)[0], source.dtype)


def element_offset(source: Source, shape: Sequence[int], row: str, column: str) -> str:
    """Where the element of a row and column of a tensor of `shape` lies in a tensor that broadcasts to it."""
    full = broadcast_to(source, shape)
    terms = list(_row_terms(full.shape[:-1], full.strides[:-1], row))
    if full.strides and full.strides[-1]:
        terms.append(f"{column} * {full.strides[-1]}" if full.strides[-1] != 1 else column)
    wide = index_type(source) != "int"
    return " + ".join(f"(i64){term}" if wide else term for term in terms) or "0"


def _row_terms(sizes: Sequence[int], strides: Sequence[int], row: str) -> Iterator[str]:
    """`row` taken apart along the leading axes; axes that lie one behind another stay together."""
    runs: list[tuple[int, int, int]] = []  # size, stride, rows behind
    behind = 1
    for size, stride in reversed(list(zip(sizes, strides, strict=True))):
        if runs and size != 1 and stride == runs[-1][0] * runs[-1][1]:
            last = runs.pop()
            runs.append((last[0] * size, last[1], last[2]))
        elif size != 1:
            runs.append((size, stride, behind))
        behind *= size
    for size, stride, rows_behind in runs:
        if stride:
            index = row if rows_behind == 1 else f"{row} / {rows_behind}"
            index = index if size * rows_behind == behind else f"{index} % {size}"
            yield f"({index}) * {stride}"


def broadcast_to(source: Source, shape: Sequence[int]) -> Source:
    """The same memory as a tensor of `shape`, with strides of 0 where it is repeated."""
    missing = len(shape) - len(source.shape)
    own = [
        0 if size == 1 and wanted != 1 else stride
        for size, stride, wanted in zip(source.shape, source.strides, shape[missing:], strict=True)
    ]
    return replace(source, shape=tuple(shape), strides=(*(0,) * missing, *own))
