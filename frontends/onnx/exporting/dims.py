"""Symbolic sizes as ONNX nodes: shapes of the values that bind the symbols, and arithmetic on them.

The importer follows such chains back to the same dims, so what is written here reads back as what it was.
"""

from collections.abc import Sequence
from functools import partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....ir.constant import Constant
from ....ir.dims import Dim, SymDim, Truth, is_at_least
from ....ir.dims.atoms import Atom, Extremum, Min, Monomial, Symbol
from ....ir.errors import InternalError
from ....ir.graph import Value
from ....ir.types import DType, TensorType

if TYPE_CHECKING:
    from .graph_writer import GraphWriter


_SHAPE_OF_PARTS = 15  # the opset from which on Shape gives a part of the sizes
_EXTREMA_OF_INTEGERS = 12  # the opset from which on Min and Max take integers


class Binder(NamedTuple):
    """Axis `axis` of the value with ONNX name `name` has the size `factor * symbol + offset`."""

    name: str
    axis: int
    factor: int
    offset: int


class DimWriter:
    """Writes sizes into one ONNX graph; every size is computed once, as a tensor i64[1]."""

    def __init__(self, writer: "GraphWriter", outer: "DimWriter | None") -> None:
        self._writer = writer
        self._outer = outer
        self._binders: dict[str, Binder] = {}
        self._places: dict[Dim, tuple[str, int]] = {}  # the value and axis that have a size which is no symbol
        self._written: dict[Dim | tuple[Dim, ...], str] = {}
        self._scalars: dict[Dim, str] = {}
        self._shapes: dict[str, str] = {}
        self._dims: dict[str, tuple[Dim, ...]] = {}  # of values that bind symbols

    def bind(self, value: Value, name: str) -> None:
        """Notes which symbols can be read off the shape of `value`; the first value that binds a symbol serves."""
        if not isinstance(value.type, TensorType) or value.type.is_static or value.type.shape is None:
            return
        for axis, dim in enumerate(value.type.shape):
            found = _linear(dim)
            if isinstance(dim, SymDim) and (found is None or found[1:] != (1, 0)):
                self._places.setdefault(dim, (name, axis))
            if found is None:
                continue
            of, factor, offset = found
            known = self._binders.get(of)
            if known is None or (factor, offset) == (1, 0) != (known.factor, known.offset):
                self._binders[of] = Binder(name, axis, factor, offset)
                self._dims[name] = value.type.shape

    def vector(self, dims: Sequence[Dim], operands: Sequence[Value] = ()) -> str:
        """The name of a tensor i64[n] with these sizes."""
        key = tuple(dims)
        if not any(isinstance(dim, SymDim) for dim in key):
            return self._constant(key)
        found = self._written.get(key)
        if found is None:
            found = self._shape_of_one(key, operands) or self._gathered(key) or self._concatenated(key)
            self._written[key] = found
        return found

    def scalar(self, dim: Dim, operands: Sequence[Value] = ()) -> str:
        """The name of a tensor i64[] with this size."""
        if isinstance(dim, int):
            return self._writer.constant(Constant(np.array(dim, np.int64)))
        found = self._scalars.get(dim)
        if found is None:
            found = self._scalars[dim] = self._gathered_scalar(dim) or self._reshaped(dim, operands)
        return found

    def value_of(self, dims: Sequence[Dim]) -> str | None:
        """The name of a value that binds symbols and has just these sizes, None when there is none."""
        found = next((name for name, shape in self._dims.items() if shape == tuple(dims)), None)
        return found if found is not None or self._outer is None else self._outer.value_of(dims)

    def _reshaped(self, dim: Dim, operands: Sequence[Value]) -> str:
        shape = self._writer.constant(Constant(np.zeros(0, np.int64)))
        return self._node("Reshape", self.vector((dim,), operands), shape)

    def _gathered_scalar(self, dim: SymDim) -> str | None:
        """A size that stands in a shape, None where another form of it takes fewer nodes."""
        linear = _linear(dim)
        if linear is None or linear[1:] != (1, 0) or (dim,) in self._written:
            return None
        binder = self._find(linear[0])
        if (binder.factor, binder.offset) != (1, 0) or not (self._reads_wholes or binder.name in self._shapes):
            return None
        index = self._writer.constant(Constant(np.array(binder.axis, np.int64)))
        return self._node("Gather", self._whole_shape(binder.name), index, axis=0)

    def _constant(self, dims: Sequence[Dim]) -> str:
        return self._writer.constant(Constant(np.array(dims, dtype=np.int64).reshape(len(dims)), DType.I64))

    def _node(self, op_type: str, *inputs: str, **attributes: int) -> str:
        result = self._writer.new_name(f"size_{op_type.lower()}")
        self._writer.emit(None, op_type, inputs, [result], "", attributes)
        return result

    def _shape_of_one(self, dims: tuple[Dim, ...], operands: Sequence[Value]) -> str | None:
        """The sizes as consecutive ones of a single operand, None when there is no such operand."""
        for value in operands:
            if isinstance(value.type, TensorType) and value.type.shape is not None:
                shape = value.type.shape
                for start in range(len(shape) - len(dims) + 1):
                    if shape[start : start + len(dims)] == dims:
                        return self._shape(self._writer.name(value), start, start + len(dims), len(shape))
        return None

    def _shape(self, name: str, start: int, end: int, rank: int | None = None) -> str:
        if start == 0 and end == rank:
            return self._whole_shape(name)
        if not self._reads_wholes:
            return self._node("Shape", name, start=start, end=end)
        return self._node("Gather", self._whole_shape(name), self._constant(range(start, end)), axis=0)

    @property
    def _reads_wholes(self) -> bool:
        """Whether the opset gives sizes by whole shapes alone."""
        return self._writer.opset < _SHAPE_OF_PARTS

    def _whole_shape(self, name: str) -> str:
        found = self._shapes.get(name)
        if found is None:
            found = self._shapes[name] = self._node("Shape", name)
        return found

    def _gathered(self, dims: tuple[Dim, ...]) -> str | None:
        """Several sizes that all stand in the shape of one value, None where joining them takes fewer nodes."""
        unwritten = [dim for dim in dict.fromkeys(dims) if isinstance(dim, SymDim) and (dim,) not in self._written]
        symbols = [linear[0] for linear in map(_linear, unwritten) if linear is not None]
        for name in dict.fromkeys(self._find(each).name for each in symbols):
            shape = self._dims_of(name)
            if all(dim in shape for dim in dims) and len(unwritten) + (name in self._shapes) > 1:
                places = self._constant([shape.index(dim) for dim in dims])
                return self._node("Gather", self._whole_shape(name), places, axis=0)
        return None

    def _dims_of(self, name: str) -> tuple[Dim, ...]:
        if name in self._dims or self._outer is None:
            return self._dims[name]
        return self._outer._dims_of(name)

    def _concatenated(self, dims: tuple[Dim, ...]) -> str:
        if len(dims) == 1:
            return self._size(dims[0])
        parts: list[str] = []
        for plain, group in groupby(dims, key=lambda dim: isinstance(dim, int)):
            run = tuple(group)
            parts += [self._constant(run)] if plain else [self._size(dim) for dim in run]
        return self._node("Concat", *parts, axis=0)

    def _size(self, dim: Dim) -> str:
        if isinstance(dim, int):
            return self._constant((dim,))
        found = self._written.get((dim,))
        if found is None:
            place = self._place(dim)
            found = self._sum(dim) if place is None else self._shape(place[0], place[1], place[1] + 1)
            self._written[dim,] = found
        return found

    def _place(self, dim: SymDim) -> tuple[str, int] | None:
        """Where a size can be read that takes more than one operation to compute."""
        linear = _linear(dim)
        if linear is not None and (linear[1] == 1 or linear[2] == 0):
            return None
        found = self._places.get(dim)
        return found if found is not None or self._outer is None else self._outer._place(dim)

    def _sum(self, dim: SymDim) -> str:
        terms = sorted(dim.terms, key=lambda term: term[1] < 0)  # a subtraction needs something to subtract from
        (monomial, coefficient), *others = terms
        total = self._term(monomial, coefficient)
        for monomial, coefficient in others:
            operation = "Add" if coefficient > 0 else "Sub"
            total = self._node(operation, total, self._term(monomial, abs(coefficient)))
        if dim.constant:
            operation = "Add" if dim.constant > 0 else "Sub"
            total = self._node(operation, total, self._constant((abs(dim.constant),)))
        return total

    def _term(self, monomial: Monomial, coefficient: int) -> str:
        product = self._product(monomial)
        return product if coefficient == 1 else self._node("Mul", product, self._constant((coefficient,)))

    def _product(self, monomial: Monomial) -> str:
        key = SymDim(((monomial, 1),), 0)
        found = self._written.get((key,))
        if found is None:
            *rest, last = monomial
            found = (
                self._atom(last) if not rest else self._node("Mul", self._product(tuple(rest)), self._product((last,)))
            )
            self._written[key,] = found
        return found

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return self._symbol(atom.name)
        operands = [self._size(operand) for operand in atom.operands]
        if isinstance(atom, Extremum):
            return reduce(partial(self._extremum, "Min" if isinstance(atom, Min) else "Max"), operands)
        return self._quotient(atom.operands[0], *operands)

    def _quotient(self, numerator: Dim, top: str, bottom: str) -> str:
        # ONNX's Div rounds towards zero, dims round down: if the numerator may be negative, the remainder goes first.
        if is_at_least(numerator, 0) is not Truth.YES:
            top = self._node("Sub", top, self._node("Mod", top, bottom))
        quotient = self._node("Div", top, bottom)
        # ONNX Runtime takes 1 // n * m for m // n, of integers too, where one reads the other directly.
        return quotient if numerator != 1 else self._extremum("Max", quotient, self._constant((0,)))

    def _extremum(self, op_type: str, one: str, other: str) -> str:
        if self._writer.opset >= _EXTREMA_OF_INTEGERS:
            return self._node(op_type, one, other)
        pair = (one, other) if op_type == "Min" else (other, one)
        return self._node("Where", self._node("Less", *pair), one, other)

    def _symbol(self, name: str) -> str:
        binder = self._find(name)
        size = self._shape(binder.name, binder.axis, binder.axis + 1)
        if binder.offset:
            size = self._node("Sub", size, self._constant((binder.offset,)))
        return size if binder.factor == 1 else self._node("Div", size, self._constant((binder.factor,)))

    def _find(self, name: str) -> Binder:
        found = self._binders.get(name)
        if found is not None:
            return found
        if self._outer is None:
            raise InternalError(f"no value binds the symbol {name}", remedy="report it with the text form of the graph")
        return self._outer._find(name)


def _linear(dim: Dim) -> tuple[str, int, int] | None:
    """The (symbol, factor, offset) of a dim of the form `factor*symbol + offset`, None for any other."""
    if isinstance(dim, int) or len(dim.terms) != 1:
        return None
    (monomial, factor), *_ = dim.terms
    if len(monomial) != 1 or not isinstance(monomial[0], Symbol):
        return None
    return monomial[0].name, factor, dim.constant
