"""What a generated kernel computes at each index of a shape: loads, statements, reductions over axes, and stores.

A `KernelProgram` is made by the families and turned into text by `flat`, or by `row_kernel` where it has reductions.
Every value is an object with a name. A computed one has a form, C++ with `$0`, `$1`, ... in the place of its operands,
which are other values or literals: they are put in when the text is printed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ....ir.constant import Constant
from ....ir.types import DType
from .casts import converted
from .launch import Argument, BufferPlace
from .layouts import Layout, Space
from .types import Name, filled, hole, literals

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


@dataclass(frozen=True, slots=True, eq=False)
class KernelValue(Name):
    """What a program knows by a name at each index."""

    operands: tuple[Name | None, ...] = field(default=(), kw_only=True)
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def uses(self) -> "list[KernelValue]":
        """The values among its operands."""
        return [each for each in self.operands if isinstance(each, KernelValue)]


@dataclass(frozen=True, slots=True, eq=False)
class Load(KernelValue):
    """A tensor that is read at each index: from memory, through a `lookup`, or from literals in a `table`."""

    layout: Layout
    lookup: Lookup | None = None
    table: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Coordinate(KernelValue):
    """A sum of indices, each times its stride, such as the index along one axis; its layout has no memory behind it."""

    layout: Layout


@dataclass(frozen=True, slots=True, eq=False)
class Item(KernelValue):
    """A value that is computed: `form` of its operands."""

    form: str

    @property
    def expression(self) -> str:
        """The form with its operands."""
        return self.of(self.form)

    def of(self, form: str) -> str:
        """Any form with its operands."""
        return filled(form, self.operands)


@dataclass(frozen=True, slots=True, eq=False)
class Fetch(Item):
    """An element of a tensor at a computed place: `form` elements from where its layout says.

    With a `condition`, what does not meet it is not read: `default` then. Both are forms of the same operands.
    """

    layout: Layout
    condition: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Reduction(Item):
    """`form` of each index combined over the reduced axes by `functor`, a struct of the prelude, from `start`."""

    functor: str
    accumulator: str
    start: str

    @property
    def ctype(self) -> str:
        """The C++ type in which it is combined."""
        return self.accumulator


@dataclass(frozen=True, slots=True)
class Store:
    """A value that is written at each index, or once for all along the reduced axes that it does not depend on."""

    value: Name
    layout: Layout


@dataclass
class KernelProgram:
    """A computation over `domain`, with reductions over its `reduced` axes. All layouts have the domain's shape."""

    domain: tuple[int, ...]
    reduced: tuple[int, ...] = ()
    loads: list[Load] = field(default_factory=list[Load])
    coordinates: list[Coordinate] = field(default_factory=list[Coordinate])
    items: list[Item] = field(default_factory=list[Item])
    stores: list[Store] = field(default_factory=list[Store])

    def load(self, layout: Layout, lookup: Lookup | None = None) -> Load:
        """The elements of a tensor that broadcasts to the domain."""
        self.loads.append(Load(f"ld{len(self.loads)}", layout.dtype, layout.broadcast(self.domain), lookup))
        return self.loads[-1]

    def table(self, constant: Constant, layout: Layout) -> Load:
        """The elements of a small constant, which `layout` spreads over the domain."""
        name, seen = f"ld{len(self.loads)}", layout.broadcast(self.domain)
        self.loads.append(Load(name, constant.dtype, seen, table=tuple(literals(constant))))
        return self.loads[-1]

    def coordinate(self, axis: int) -> Coordinate:
        """The index along an axis, as i64."""
        strides = tuple(int(other == axis) for other in range(len(self.domain)))
        return self.position(Layout(DType.I64, self.domain, strides, NOWHERE, 1))

    def position(self, layout: Layout) -> Coordinate:
        """Where an element of `layout`, a tensor without memory, lies behind its first one, as i64."""
        layout = layout.broadcast(self.domain)
        for known in self.coordinates:
            if known.layout == layout:
                return known
        self.coordinates.append(Coordinate(f"at{len(self.coordinates)}", DType.I64, layout))
        return self.coordinates[-1]

    def define(self, dtype: DType, form: str, *operands: Name | None) -> Item:
        """A value computed from others."""
        self.items.append(Item(f"v{len(self.items)}", dtype, form, operands=operands))
        return self.items[-1]

    def convert(self, value: Name, to: DType, *, saturate: bool = True) -> Item:
        """A value as another type: see the op `cast`."""
        return self.define(to, converted(hole(0, value), to, saturate=saturate), value)

    def fetch(
        self, layout: Layout, offset: str, *operands: Name | None, condition: str = "", default: str = ""
    ) -> Item:
        """An element of a tensor at a computed offset from where `layout`, over the domain, says."""
        name, seen = f"fx{len(self.items)}", layout.broadcast(self.domain)
        self.items.append(Fetch(name, layout.dtype, offset, seen, condition, default, operands=operands))
        return self.items[-1]

    def reduce(
        self, functor: str, accumulator: str, start: str, dtype: DType, form: str, *operands: Name | None
    ) -> Item:
        """Something of each index reduced over the reduced axes."""
        name = f"fd{len(self.items)}"
        self.items.append(Reduction(name, dtype, form, functor, accumulator, start, operands=operands))
        return self.items[-1]

    def store(self, value: Name, layout: Layout) -> None:
        """Writes a value. A layout over the kept axes only has size 1 along the reduced ones."""
        self.stores.append(Store(value, layout.broadcast(self.domain)))

    # ---- what is known of it

    @property
    def values(self) -> list[KernelValue]:
        """All values, each behind those that it uses."""
        return [*self.loads, *self.coordinates, *self.items]

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
            *(f"p_{load.text}" for load in self.loads),
            *(f"i_{load.text}" for load in self.loads if load.lookup is not None),
            *(f"p_{fetch.text}" for fetch in self.fetches),
            *(coordinate.text for coordinate in self.coordinates),
        ]

    def pointers(self) -> Iterator[tuple[str, Layout, bool]]:
        """Name, layout and whether it is written, of each tensor that lies in memory."""
        tables = {f"p_{load.text}" for load in self.loads if load.table}
        own = {coordinate.text for coordinate in self.coordinates}
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
