"""What a generated kernel computes at each index of a shape: loads, statements, reductions over axes, and stores.

A `KernelProgram` is made by the families and turned into text by `flat`, or by `row_kernel` where it has reductions.
Every value has a name; what a text uses is seen from the names in it.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ....ir.constant import Constant
from ....ir.types import DType
from .launch import Argument, BufferPlace
from .layouts import Layout, Space
from .types import Name, computed, literals

_NAMES = re.compile(r"\b(?:ld|at|v|fd|fx)[0-9]+\b")

RAW = {1: DType.U8, 2: DType.U16, 4: DType.U32, 8: DType.U64}


NOWHERE = BufferPlace(-1)


def raw(layout: Layout) -> Layout:
    """The layout of the same elements as unsigned numbers, for kernels that only move them."""
    return replace(layout, dtype=RAW.get(layout.itemsize, layout.dtype))


@dataclass(frozen=True, slots=True)
class Lookup:
    """Indices into one axis of a tensor: how they lie over the domain, the size of the axis, its stride."""

    layout: Layout
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class Load:
    """A tensor that is read at each index: from memory, through a `lookup`, or from literals in a `table`."""

    name: str
    layout: Layout
    lookup: Lookup | None = None
    table: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A sum of indices, each times its stride, such as the index along one axis; its layout has no memory behind it."""

    name: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class Statement:
    """A value of each index: `text`, of type `ctype`."""

    name: str
    ctype: str
    text: str

    @property
    def uses(self) -> frozenset[str]:
        """The names in its text."""
        return frozenset(_NAMES.findall(self.text))


@dataclass(frozen=True, slots=True)
class Fetch:
    """An element of a tensor at a computed place: `offset` elements from where its layout says.

    With a `condition`, what does not meet it is not read: `default` then.
    """

    name: str
    layout: Layout
    offset: str
    condition: str = ""
    default: str = ""

    @property
    def uses(self) -> frozenset[str]:
        """The names in its texts."""
        return frozenset(_NAMES.findall(f"{self.offset} {self.condition} {self.default}"))


@dataclass(frozen=True, slots=True)
class Reduction:
    """`text` of each index combined over the reduced axes by `functor`, a struct of the prelude, from `start`."""

    name: str
    ctype: str
    functor: str
    start: str
    text: str

    @property
    def uses(self) -> frozenset[str]:
        """The names in its text."""
        return frozenset(_NAMES.findall(self.text))


@dataclass(frozen=True, slots=True)
class Store:
    """A value that is written at each index, or once for all along the reduced axes that it does not depend on."""

    value: str
    layout: Layout


Item = Statement | Fetch | Reduction


@dataclass
class KernelProgram:
    """A computation over `domain`, with reductions over its `reduced` axes. All layouts have the domain's shape."""

    domain: tuple[int, ...]
    reduced: tuple[int, ...] = ()
    loads: list[Load] = field(default_factory=list[Load])
    coordinates: list[Coordinate] = field(default_factory=list[Coordinate])
    items: list[Item] = field(default_factory=list[Item])
    stores: list[Store] = field(default_factory=list[Store])

    def load(self, layout: Layout, lookup: Lookup | None = None) -> Name:
        """The elements of a tensor that broadcasts to the domain."""
        made = Load(f"ld{len(self.loads)}", layout.broadcast(self.domain), lookup)
        self.loads.append(made)
        return Name(made.name, layout.dtype)

    def table(self, constant: Constant, layout: Layout) -> Name:
        """The elements of a small constant, which `layout` spreads over the domain."""
        made = Load(f"ld{len(self.loads)}", layout.broadcast(self.domain), table=tuple(literals(constant)))
        self.loads.append(made)
        return Name(made.name, constant.dtype)

    def coordinate(self, axis: int) -> Name:
        """The index along an axis, as i64."""
        strides = tuple(int(other == axis) for other in range(len(self.domain)))
        return self.position(Layout(DType.I64, self.domain, strides, NOWHERE, 1))

    def position(self, layout: Layout) -> Name:
        """Where an element of `layout`, a tensor without memory, lies behind its first one, as i64."""
        layout = layout.broadcast(self.domain)
        for known in self.coordinates:
            if known.layout == layout:
                return Name(known.name, DType.I64)
        made = Coordinate(f"at{len(self.coordinates)}", layout)
        self.coordinates.append(made)
        return Name(made.name, DType.I64)

    def define(self, dtype: DType, text: str, ctype: str = "") -> Name:
        """A value computed from others."""
        made = Statement(f"v{len(self.items)}", ctype or computed(dtype), text)
        self.items.append(made)
        return Name(made.name, dtype)

    def fetch(self, layout: Layout, offset: str, *, condition: str = "", default: str = "") -> Name:
        """An element of a tensor at a computed offset from where `layout`, over the domain, says."""
        made = Fetch(f"fx{len(self.items)}", layout.broadcast(self.domain), offset, condition, default)
        self.items.append(made)
        return Name(made.name, layout.dtype)

    def reduce(self, functor: str, ctype: str, start: str, text: str, dtype: DType) -> Name:
        """Something of each index reduced over the reduced axes."""
        made = Reduction(f"fd{len(self.items)}", ctype, functor, start, text)
        self.items.append(made)
        return Name(made.name, dtype)

    def store(self, value: Name, layout: Layout) -> None:
        """Writes a value. A layout over the kept axes only has size 1 along the reduced ones."""
        self.stores.append(Store(value.text, layout.broadcast(self.domain)))

    # ---- what is known of it

    @property
    def fetches(self) -> list[Fetch]:
        """The loads at computed places."""
        return [item for item in self.items if isinstance(item, Fetch)]

    @property
    def reductions(self) -> list[Reduction]:
        """The reductions, in order."""
        return [item for item in self.items if isinstance(item, Reduction)]

    @property
    def layouts(self) -> list[Layout]:
        """Every tensor in the order of `tensors`: stores, loads, lookups, fetches, coordinates."""
        return [
            *(store.layout for store in self.stores),
            *(load.layout for load in self.loads),
            *(load.lookup.layout for load in self.loads if load.lookup is not None),
            *(fetch.layout for fetch in self.fetches),
            *(coordinate.layout for coordinate in self.coordinates),
        ]

    @property
    def tensors(self) -> list[str]:
        """A key for each of `layouts`: the pointer's name for what lies in memory."""
        return [
            *(f"r{index}" for index in range(len(self.stores))),
            *(f"p_{load.name}" for load in self.loads),
            *(f"i_{load.name}" for load in self.loads if load.lookup is not None),
            *(f"p_{fetch.name}" for fetch in self.fetches),
            *(coordinate.name for coordinate in self.coordinates),
        ]

    def pointers(self) -> Iterator[tuple[str, Layout, bool]]:
        """Name, layout and whether it is written, of each tensor that lies in memory."""
        tables = {f"p_{load.name}" for load in self.loads if load.table}
        own = {coordinate.name for coordinate in self.coordinates}
        for index, (name, layout) in enumerate(zip(self.tensors, self.layouts, strict=True)):
            if name not in tables and name not in own:
                yield name, layout, index < len(self.stores)

    def space(self) -> Space:
        """The domain with the strides of all tensors."""
        return Space(self.domain, tuple(layout.strides for layout in self.layouts))

    def arguments(self) -> tuple[Argument, ...]:
        """What its pointers point to."""
        return tuple(layout.place for _, layout, _ in self.pointers())

    def parameters(self, prefix: str = "") -> str:
        """The parameters of its kernel, with `prefix` before their names."""
        return ", ".join(f"{ctype} {prefix}{name}" for ctype, name in self._typed_pointers())

    def aliases(self, prefix: str) -> list[str]:
        """Statements that give parameters with a prefix their own names."""
        return [f"{ctype} {name} = {prefix}{name};" for ctype, name in self._typed_pointers()]

    def _typed_pointers(self) -> Iterator[tuple[str, str]]:
        for name, layout, is_written in self.pointers():
            yield f"{layout.ctype}*" if is_written else f"const {layout.ctype}*", name

    @property
    def nbytes(self) -> int:
        """Bytes that have to be moved at least: what is broadcast counts once, what is looked up as often as it is."""
        everywhere = math.prod(self.domain)
        total = sum(store.layout.nbytes for store in self.stores)
        total += sum(everywhere * fetch.layout.itemsize for fetch in self.fetches)
        for load in self.loads:
            if load.lookup is not None:
                total += load.lookup.layout.nbytes + _looked_up(load.layout, load.lookup.layout)
            elif not load.table:
                total += load.layout.nbytes
        return total


def _looked_up(table: Layout, indices: Layout) -> int:
    """Bytes of the elements that indices pick from a table, each index counted."""
    steps = zip(table.shape, table.strides, indices.strides, strict=True)
    return math.prod(size for size, own, step in steps if own or step) * table.itemsize
