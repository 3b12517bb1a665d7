"""What a lowering sees of the call that it turns into native nodes, and how it makes them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from ...ir.attrs import AttrValue
from ...ir.builder import Emitter
from ...ir.constant import Constant
from ...ir.dims import Dim, SymDim, symbol, symbols
from ...ir.dims.atoms import Symbol, atoms_of, only_atom
from ...ir.errors import UnsupportedError
from ...ir.graph import Graph, Node, Origin, Value
from ...ir.op import FRESH, Op
from ...ir.ops import native
from ...ir.types import DType, Kind, TensorType, Type, type_symbols
from .dtypes import cast_attrs, dtype_of
from .sizes import Sizes, UnknownSizeError

Number: TypeAlias = bool | int | float | complex
Scalar: TypeAlias = Number | SymDim
Operand: TypeAlias = Value | Scalar
"""What PyTorch takes where a tensor or a number may stand; a symbolic size is a number as well."""


class NoLowering(UnsupportedError):
    """A call that native ops cannot express: no error in a lowering, which gives way to a foreign node."""


@dataclass(frozen=True)
class SourceMemory:
    """The tensor that made the memory which another lies in, and its fake.

    `around` is there for an argument, of whose memory a caller may have more: it gives so many elements of it, from
    the argument's first, or from the first of all. One that is `placed` begins in its memory where its fake does: an
    argument that is written to, and what as_strided_scatter makes of it.
    """

    value: Value
    fake: Any
    around: Callable[[Dim, bool], Value] | None = None
    placed: bool = False


_UNKNOWN_REMEDY = "compute with tensors of the whole size and a mask, instead of the selected elements"


class Call(Emitter):
    """One call of an operator while it is lowered: what its results are, and ways to make nodes.

    `results` are PyTorch's fake tensors, None for a result that is no tensor.
    """

    def __init__(
        self,
        graph: Graph,
        sizes: Sizes,
        name: str,
        results: Sequence[Any],
        origin: Origin | None,
        unread: frozenset[int] = frozenset(),
        fakes: Mapping[str, Any] | None = None,
        memory: Callable[[str], SourceMemory] | None = None,
        *,
        reads_bits: bool = False,
    ) -> None:
        super().__init__(graph, origin=origin)
        self.sizes = sizes
        self.name = name
        self.results = tuple(results)
        self.reads_bits = reads_bits
        """Whether a node of the graph reads the bits of numbers, which tell -0.0 from 0."""
        self._unread = unread
        self._fakes = fakes or {}
        self._memory = memory

    def fake(self, name: str) -> Any:
        """PyTorch's fake tensor for the argument of that name, which knows how it lies in memory."""
        return self._fakes[name]

    def memory(self, name: str) -> SourceMemory:
        """What the argument of that name lies in. Raises `NoLowering` where nothing tells."""
        if self._memory is None:
            raise NoLowering("memory of an unknown tensor")
        return self._memory(name)

    # ---- results

    def wants(self, index: int) -> bool:
        """Whether anything reads that result of an operator with several."""
        return index not in self._unread

    @property
    def dtype(self) -> DType:
        """The dtype of the first result."""
        return dtype_of(self.results[0].dtype)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of the first result. Raises `UnknownSizeError` where only running tells it."""
        return self.sizes.dims(self.results[0].shape)

    @property
    def rank(self) -> int:
        """The rank of the first result."""
        return len(self.results[0].shape)

    # ---- nodes

    def declared(self, name: str, *inputs: Value | None, **attrs: Any) -> Value:
        """A native node that gives the first result, in the shape that PyTorch has found for it.

        PyTorch knows the ranges of sizes: `x[:n]` has n elements where its size is never less.
        """
        try:
            types = [TensorType(self.dtype, self.shape)]
        except UnknownSizeError:
            return self.op(name, *inputs, **attrs)
        return self.node(native(name), inputs, attrs, types).output

    def node(
        self,
        op: Op,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, AttrValue] | None = None,
        types: Sequence[Type] | None = None,
    ) -> Node:
        """A new node of any op. Raises `NoLowering` where `attrs` mention what only running tells."""
        mentioned = [dim for given in (attrs or {}).values() for dim in _dims_in(given)]
        if mentioned and not self.may_mention(mentioned, *(value for value in inputs if value is not None)):
            raise NoLowering(f"{op.name} takes a size that only running tells", remedy=_UNKNOWN_REMEDY)
        return super().node(op, inputs, attrs, types)

    def full(self, shape: Sequence[Dim], number: Scalar, dtype: DType) -> Value:
        """A tensor filled with a number."""
        if isinstance(number, SymDim) or not self.may_mention(shape):
            return self.expand(self.value(number, dtype), shape)
        return self.op("full", shape=tuple(shape), value=Constant(_in_dtype(number, dtype), dtype))

    def value(self, operand: Operand, dtype: DType) -> Value:
        """A tensor or number as a value of `dtype`; numbers have rank 0."""
        if isinstance(operand, Value):
            return self.cast(operand, dtype)
        if isinstance(operand, SymDim):
            return self.cast(self._size(operand), dtype)
        return self.constant(_in_dtype(operand, dtype), dtype)

    def _size(self, dim: SymDim) -> Value:
        """A size as a value i64[]: as the axis of a value that has it, or computed from its symbols."""
        teller = self.sizes.teller(dim)
        if teller is None or teller[0].graph is not self.graph:
            if self.may_mention((dim,)):
                return self.op("dim", value=dim)
            teller = self._value_with(dim)
        if teller is None:
            return self._computed_size(dim)
        value, axis = teller
        return self.reshape(self.op("shape", value, start=axis, end=axis + 1), ())

    def _computed_size(self, dim: SymDim) -> Value:
        """A polynomial over sizes of values. Raises `NoLowering` for another dim."""
        if only_atom(dim) is not None or not all(isinstance(atom, Symbol) for atom in atoms_of(dim)):
            raise NoLowering(f"the size {dim}, which only running tells, cannot be imported", remedy=_UNKNOWN_REMEDY)
        total = self.constant(dim.constant, DType.I64)
        for monomial, coefficient in dim.terms:
            term = self.constant(coefficient, DType.I64)
            for atom in cast(tuple[Symbol, ...], monomial):
                term = self.op("mul", term, self._size(symbol(atom.name)))
            total = self.op("add", total, term)
        return total

    def _value_with(self, dim: SymDim) -> tuple[Value, int] | None:
        """A value that has `dim` as a size, and at which axis."""
        for node in self.graph.reversed_nodes:
            for value in node.outputs:
                if isinstance(value.type, TensorType) and dim in value.shape:
                    return value, value.shape.index(dim)
        return None

    def cast(self, x: Value, dtype: DType) -> Value:
        """`x` in another dtype; itself if it has that already."""
        return x if x.tensor.dtype is dtype else self.op("cast", x, to=dtype, **cast_attrs(dtype))

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """`x` in another shape; itself if it has that already."""
        return x if x.shape == tuple(shape) else self.op("reshape", x, shape=tuple(shape))

    def expand(self, x: Value, shape: Sequence[Dim]) -> Value:
        """`x` broadcast to exactly `shape`; itself if it has that already."""
        if x.shape == tuple(shape):
            return x
        if self.may_mention(shape, x):
            return self.op("expand", x, shape=tuple(shape))
        spread = self._spread(x, shape)
        if spread is not None:
            return spread if spread.shape == tuple(shape) else self.op("expand", spread, shape=tuple(shape))
        sizes = self.op("concat", *(self.reshape(self.value(dim, DType.I64), (1,)) for dim in shape), axis=0)
        known = [dim if self.may_mention((dim,), x) else FRESH for dim in shape]
        return self.node(native("dynamic_expand"), (x, sizes), {}, [x.tensor.with_shape(tuple(known))]).output

    def _spread(self, x: Value, shape: Sequence[Dim]) -> Value | None:
        """`x` broadcast along the axes whose sizes only running tells: it meets values that have them.

        None where there is no such value.
        """
        for axis, dim in enumerate(shape):
            if not self.may_mention((dim,), x):
                line = self._line_of(dim)
                if line is None:
                    return None
                along = self.reshape(line, (dim, *(1 for _ in shape[axis + 1 :])))
                x = self.op("where", self.op("equal", along, along), x, x)
        return x

    def _line_of(self, dim: Dim) -> Value | None:
        """A vector of that size, taken out of any value that has it; None if there is none."""
        teller = self._value_with(dim) if isinstance(dim, SymDim) else None
        if teller is None:
            return None
        value, axis = teller
        others = [other for other in range(value.tensor.rank) if other != axis]
        if not all(isinstance(value.shape[other], int) and value.shape[other] != 0 for other in others):
            return None
        ends = tuple(1 for _ in others)
        starts = tuple(0 for _ in others)
        first = self.op("slice", value, axes=tuple(others), starts=starts, ends=ends, steps=ends) if others else value
        return self.reshape(first, (dim,))

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """`x` with its axes reordered; itself if they stay."""
        return x if list(perm) == list(range(len(perm))) else self.op("transpose", x, perm=tuple(perm))

    def swap(self, x: Value, first: int, second: int) -> Value:
        """`x` with two axes exchanged."""
        perm = list(range(x.tensor.rank))
        perm[first], perm[second] = perm[second], perm[first]
        return self.transpose(x, perm)

    def unsqueeze(self, x: Value, *axes: int) -> Value:
        """`x` with new axes of size 1 at these places of the result."""
        return self.op("unsqueeze", x, axes=axes) if axes else x

    def squeeze(self, x: Value, *axes: int) -> Value:
        """`x` without these axes, each of size 1."""
        return self.op("squeeze", x, axes=axes) if axes else x

    def slice(self, x: Value, axis: int, start: Dim, end: Dim, step: int = 1) -> Value:
        """The elements of `x` from `start` to `end` along one axis."""
        return self.op("slice", x, axes=(axis,), starts=(start,), ends=(end,), steps=(step,))

    def select(self, x: Value, axis: int, index: Dim) -> Value:
        """The slice of `x` at `index`, which is not negative, along one axis."""
        return self.squeeze(self.slice(x, axis, index, index + 1), axis)

    def full_like(self, x: Value, number: Scalar) -> Value:
        """A number with the dtype of `x`, of rank 0: elementwise ops broadcast it."""
        return self.value(number, x.tensor.dtype)

    def may_mention(self, dims: Sequence[Dim], *operands: Value) -> bool:
        """Whether a node with `operands` may have these dims in its attributes: none that only running tells, else."""
        mentioned = frozenset[str]().union(*(symbols(dim) for dim in dims))
        known = frozenset[str]().union(*(type_symbols(value.type) for value in (*self.graph.inputs, *operands)))
        return mentioned <= known


def _dims_in(given: Any) -> list[SymDim]:
    """The symbolic dims of an attribute: itself, or those in a list."""
    listed = given if isinstance(given, list | tuple) else (given,)
    return [each for each in listed if isinstance(each, SymDim)]


def _in_dtype(number: Number, dtype: DType) -> Any:
    """A Python number as an element; out of range it wraps, as PyTorch's does."""
    if dtype.is_integer and not isinstance(number, complex):
        return _wrapped(int(number), dtype)
    return np.asarray(number)


def _wrapped(number: int, dtype: DType) -> Any:
    modulus = 1 << dtype.bits
    least = 0 if dtype.kind is Kind.UINT else -(modulus >> 1)
    return np.asarray((number - least) % modulus + least, dtype=dtype.numpy)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; a rank of 0 has the axis 0."""
    return axis % max(rank, 1)


def axes_of(axes: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in order; all of them for None or none."""
    if isinstance(axes, int):
        axes = (axes,)
    return tuple(sorted(axis_of(axis, rank) for axis in axes)) if axes else tuple(range(rank))


def pair(given: Sequence[Any] | Any, count: int) -> tuple[Any, ...]:
    """A list that may have one entry for all axes, with an entry for each."""
    listed = tuple(given) if isinstance(given, Sequence) else (given,)
    return listed * count if len(listed) == 1 else listed


def tensor_type(x: Value) -> TensorType:
    """The type of a tensor value."""
    return x.tensor


Result: TypeAlias = Value | Sequence[Any] | Dim | None
Lowering: TypeAlias = Callable[..., Result]
"""Takes the `Call`, then the operator's arguments in the order of its schema, defaults filled in. Tensors come as
values, sizes as dims. Gives a value, or a sequence where the operator gives several."""
