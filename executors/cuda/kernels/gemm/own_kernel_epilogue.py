"""The epilogue of an own kernel: elementwise work behind its anchor, as code for one element.

It is computed in f32 throughout and rounded once, when it is written.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .....ir.graph import Node, Value
from .....ir.op import Trait
from ...kernel_ir.expressions import EXPRESSIONS, expression
from ...kernel_ir.sources import Source, index_type, source_of
from ...kernel_ir.types import Name, computed, literals, number, stored
from .regions import AnchoredRegion, body_of, made_before, static_shape


@dataclass(frozen=True)
class OwnKernelEpilogue:
    """What follows a sum: `operands` are read and `results` written, each by its name in the code.

    `shape` is that of the heavy node's result.
    """

    region: AnchoredRegion
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

    def element(self, offset_of: "OffsetOf", suffix: str = "", places: Mapping[str, str] | None = None) -> "Element":
        """The code of one element; `suffix` keeps its names apart from those of another.

        `places` names operands and results whose element is elsewhere than in memory, by the expression that it is.
        """
        return Element(self, offset_of, suffix, places or {})

    def element_at(self, row: str, column: str, suffix: str = "") -> "Element":
        """`element` for a row (all axes but the last) and a column."""
        return self.element(lambda source: element_offset(source, self.shape, row, column), suffix)


OffsetOf = Callable[[Source], str]
"""Where the element lies in a tensor that broadcasts to the shape of the heavy node's result, as an expression."""


def own_kernel_epilogue(region: AnchoredRegion) -> OwnKernelEpilogue | None:
    """The pointwise work of a whole region; None if there is other work in it, or it has sizes of its own."""
    shape = static_shape(region.anchor.output)
    nodes = list(_after(region))
    if not all(_is_pointwise(node, shape) for node in nodes):
        return None
    anchors = [region.anchor] if region.partner is None else [region.anchor, region.partner]
    made = {node.output for node in (*anchors, *nodes)}
    read = dict.fromkeys(value for node in nodes for value in node.operands if value not in made)
    if any(value not in region.sources for value in read) or any(value not in made for value in region.results):
        return None
    operands = {f"p{i}": region.sources[value] for i, value in enumerate(read) if not _is_literal(region, value)}
    c = _addend(region)
    if c is not None:
        operands["addend"] = c
    results = {f"y{i}": source_of(view) for i, view in enumerate(region.task.results)}
    return OwnKernelEpilogue(region, shape, operands, results)


def _addend(region: AnchoredRegion) -> Source | None:
    """What the heavy node adds by itself, as a tensor that broadcasts to its result."""
    c = region.operand(2) if region.anchor.op.name != "matmul" else None
    if region.anchor.attrs.get("beta") == 0.0:  # not read
        return None
    if c is None or region.anchor.op.name == "gemm":
        return c
    axes = len(static_shape(region.anchor.output)) - 2
    return replace(c, shape=(*c.shape, *(1,) * axes), strides=(*c.strides, *(0,) * axes))


def _after(region: AnchoredRegion) -> Iterator[Node]:
    if region.is_alone:
        return
    before = made_before(region.anchor.output)
    if region.partner is not None:
        before |= made_before(region.partner.output)
    for node in body_of(region.task.node).nodes:
        if node not in before and node.inputs:
            yield node


def _is_pointwise(node: Node, shape: tuple[int, ...]) -> bool:
    return (
        node.op.has(Trait.ELEMENTWISE)
        and node.op.name in EXPRESSIONS
        and len(node.outputs) == 1
        and static_shape(node.output) == shape
    )


def _is_literal(region: AnchoredRegion, value: Value) -> bool:
    constant = region.sources[value].constant
    return constant is not None and constant.size == 1


class Element:
    """Code for one element in three parts: reads of constants, which need not wait, other reads, and the rest."""

    def __init__(
        self, epilogue: OwnKernelEpilogue, offset_of: OffsetOf, suffix: str, places: Mapping[str, str]
    ) -> None:
        self.epilogue = epilogue
        self.offset_of = offset_of
        self.suffix = suffix
        self.places = places

    @property
    def declarations(self) -> str:
        """Declarations of what is read, so that it may be read in a scope of its own."""
        return " ".join(f"{computed(s.dtype)} {self._read(name)} = {{}};" for name, s in self.epilogue.operands.items())

    @property
    def constants(self) -> str:
        """Statements that read constants."""
        return self._reads(of_constants=True)

    @property
    def others(self) -> str:
        """Statements that read what earlier kernels wrote."""
        return self._reads(of_constants=False)

    def finish(self, total: str) -> str:
        """Statements that take the sum named `total` (and `partner_total`) and write all results."""
        return "\n".join(self._finish(total))

    def code(self, total: str) -> str:
        """All of it."""
        return "\n".join([self.declarations, self.constants, self.others, self.finish(total)])

    def _read(self, name: str) -> str:
        return f"{name}_read{self.suffix}"

    def _reads(self, *, of_constants: bool) -> str:
        return " ".join(
            f"{self._read(name)} = get({self._place(name)});"
            for name, source in self.epilogue.operands.items()
            if (source.constant is not None) == of_constants
        )

    def _place(self, name: str) -> str:
        if name in self.places:
            return self.places[name]
        source = self.epilogue.operands.get(name) or self.epilogue.results[name]
        return f"{name}[{self.offset_of(source)}]"

    def _finish(self, total: str) -> Iterator[str]:
        region, suffix = self.epilogue.region, self.suffix
        names = self._names()
        yield self._anchor(total)
        names[region.anchor.output] = Name(f"anchor{suffix}", region.anchor.output.tensor.dtype)
        if region.partner is not None:
            names[region.partner.output] = Name("partner_total", region.partner.output.tensor.dtype)
        for index, node in enumerate(_after(region)):
            operands = [names[value] if value is not None else None for value in node.inputs]
            made = expression(node.op.name, operands, node.attrs, node.output.tensor.dtype)
            yield f"const {made.ctype} v{index}{suffix} = {made.text};"
            names[node.output] = Name(f"v{index}{suffix}", made.dtype)
        for index, value in enumerate(region.results):
            yield f"put({self._place(f'y{index}')}, {names[value].text});"

    def _anchor(self, total: str) -> str:
        node = self.epilogue.region.anchor
        alpha, beta = (node.attrs["alpha"], node.attrs["beta"]) if node.op.name == "gemm" else (1.0, 1.0)
        ctype = computed(node.output.tensor.dtype)
        text = total if alpha == 1.0 else f"{number(alpha, ctype)} * {total}"
        if "addend" in self.epilogue.operands:
            added = self._read("addend")
            text += f" + {added if beta == 1.0 else f'{number(beta, ctype)} * {added}'}"
        return f"const {ctype} anchor{self.suffix} = {text};"

    def _names(self) -> dict[Value, Name]:
        places = {id(source): name for name, source in self.epilogue.operands.items() if name != "addend"}
        names: dict[Value, Name] = {}
        for value, source in self.epilogue.region.sources.items():
            if id(source) in places:
                names[value] = Name(self._read(places[id(source)]), source.dtype)
            elif source.constant is not None and source.constant.size == 1:
                names[value] = Name(literals(source.constant)[0], source.dtype)
        return names


def offset_at(source: Source, shape: Sequence[int], coordinates: Sequence[str]) -> str:
    """Where the element of some coordinates of a tensor of `shape` lies in a tensor that broadcasts to it."""
    full = broadcast_to(source, shape)
    wide = "(i64)" if index_type(source) != "int" else ""
    pairs = zip(coordinates, full.strides, strict=True)
    return " + ".join(f"{wide}{name} * {stride}" for name, stride in pairs if stride) or "0"


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
