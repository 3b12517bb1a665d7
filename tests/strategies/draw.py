"""`GraphDraw`: a graph under construction, and what a sampler can ask it for.

A sampler draws the operands and attributes of one op:

    def softmax(d: GraphDraw, op: Op) -> Sample:
        x = d.value(d.dtypes(op)["x"], ranks=(1, 2, 3))
        return sample(x, axis=d.axis(x))

Values are taken from those that exist or made by new sources: inputs, constants, fills, casts. Operands that steer a
node (indices, lengths, a k) come from `steering`, so that they are valid in most runs: an input that steers has its
range in the graph's metadata, where `inputs_for` finds it.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from capgraph.ir.attrs import AttrKind
from capgraph.ir.constant import Constant
from capgraph.ir.dims import Dim, SymDim, Truth, compare, is_at_least, solve, symbol, symbols
from capgraph.ir.errors import CapgraphError, ShapeError
from capgraph.ir.graph import Graph, Node, Value
from capgraph.ir.op import Op
from capgraph.ir.ops import native
from capgraph.ir.types import DType, Kind, TensorType, type_symbols

from tests.strategies.chooser import Chooser
from tests.strategies.sizes import HOME, MAX_ELEMENTS, at_home, elements_at_home, types_with_sizes
from tests.strategies.values import contents

RANKS = (2, 1, 3, 0, 4)
ORDERED_DTYPES = (DType.F32, DType.I64, *(dtype for dtype in DType if dtype not in (DType.F32, DType.I64)))
"""All dtypes, the simplest first."""
MAX_SOURCE = 96
"""The most elements, at `HOME`, of an input or constant."""
ODD_NAMES = ("a b", "1", "café", "x:0", 'say "hi"', "%", "u0", "none", "/layer.0/out")
FLOATS_DRAWN = (0.5, 1.0, 0.0, 2.0, 0.01, 1e-05)
STEERING = "range of "
"""Metadata key, followed by an input's name: the half-open range of its elements as `low:high`, two dims."""


class Sample(NamedTuple):
    """Operands and attributes for a node that is to be made."""

    inputs: tuple[Value | None, ...]
    attrs: dict[str, Any]


Sampler = Callable[["GraphDraw", Op], Sample]


def sample(*inputs: Value | None, **attrs: Any) -> Sample:
    return Sample(inputs, attrs)


class Subject(NamedTuple):
    """An op that is to be drawn, with this dtype for the operand of this name (empty: for none in particular)."""

    op: str
    operand: str = ""
    dtype: DType | None = None


class Mark(NamedTuple):
    """How far a graph had grown."""

    last: Node | None
    inputs: int
    bound: set[str]


class GraphDraw:
    """A graph, a chooser, and the ways to get values."""

    def __init__(
        self, choose: Chooser, grow: Callable[["GraphDraw"], None], *, graph: Graph | None = None, symbolic: bool = True
    ) -> None:
        self.choose = choose
        self.graph = graph if graph is not None else Graph()
        self.subject: Subject | None = None
        self.refusals: Counter[str] = Counter()
        self.depth = 0
        self._grow = grow
        self._symbolic = symbolic
        self._bound: set[str] = set()
        self._values: dict[DType, list[Value]] = {}

    def grow(self) -> None:
        """Adds a node of any op that may stand here."""
        self._grow(self)

    # ---- nodes

    def counts(self, name: str, inputs: Sequence[Value | None], attrs: dict[str, Any]) -> tuple[Dim, ...]:
        """The spatial sizes of what op `name` would give."""
        op = native(name)
        types = op.result_types([v.type if v is not None else None for v in inputs], op.complete_attrs(attrs))
        first = types[0]
        assert isinstance(first, TensorType)  # native ops give tensors
        return first.dims[2:]

    def emit(self, name: str, *inputs: Value | None, **attrs: Any) -> Value:
        """The only result of a new node."""
        return self.add(native(name), sample(*inputs, **attrs)).output

    def add(self, op: Op, drawn: Sample) -> Node:
        """A new node. Raises `TypeRuleError` or `ShapeError` when the rule refuses it, also at the sizes `HOME`."""
        operands = [value.type if value is not None else None for value in drawn.inputs]
        results = types_with_sizes(op, operands, op.complete_attrs(drawn.attrs), HOME)
        if any(isinstance(ty, TensorType) and elements_at_home(ty) > MAX_ELEMENTS for ty in results):
            raise ShapeError(f"{op.name} would give more than {MAX_ELEMENTS} elements")
        names = [self._wish() for _ in results]
        node = self.graph.append(op, drawn.inputs, drawn.attrs, names=names)
        for value in node.outputs:
            self._register(value)
        return node

    def mark(self) -> "Mark":
        """Where the graph stands, for `roll_back`."""
        return Mark(self.graph.last, len(self.graph.inputs), self._bound)

    def roll_back(self, mark: "Mark") -> None:
        """Takes away what was added since `mark`."""
        for node in self.graph.reversed_nodes:
            if node is mark.last:
                break
            self._forget(node.outputs)
            self.graph.erase(node)
        self._remove_inputs(mark.inputs)
        self._bound = mark.bound

    def _forget(self, values: Sequence[Value]) -> None:
        for value in values:
            self._values[value.tensor.dtype].remove(value)

    def _remove_inputs(self, kept: int) -> None:
        surplus = self.graph.inputs[kept:]
        self._forget(surplus)
        for value in reversed(surplus):
            self.graph.remove_input(value)
            self.graph.metadata.pop(f"{STEERING}{value.name}", None)

    def note_refusal(self, op: Op, error: CapgraphError) -> None:
        """Counts a sample that the rule of `op` refused."""
        self.refusals[f"{op.name}: {error.message}"] += 1

    def _wish(self) -> str | None:
        return self.choose.pick(ODD_NAMES) if self.choose.chance(4) else None

    def _register(self, value: Value) -> Value:
        self._values.setdefault(value.tensor.dtype, []).append(value)
        return value

    @property
    def values(self) -> list[Value]:
        """Every value, in no particular order."""
        return [value for values in self._values.values() for value in values]

    # ---- dtypes, dims, attributes

    def dtypes(self, op: Op) -> dict[str, DType]:
        """A dtype for each operand by name: the subject's where it says one, one of existing values or any other."""
        wished = self.subject if self.subject is not None and self.subject.op == op.name else None
        by_var: dict[str, DType] = {}
        if wished is not None and wished.dtype is not None:
            wanted = next(operand for operand in op.operands if operand.name == wished.operand)
            by_var[wanted.var or wanted.name] = wished.dtype
        return {
            operand.name: by_var.setdefault(operand.var or operand.name, self.dtype(operand.dtypes))
            for operand in op.operands
        }

    def dtype(self, admitted: frozenset[DType]) -> DType:
        """One of the admitted dtypes, more often one that values have."""
        known = [dtype for dtype in self._values if dtype in admitted]
        if known and self.choose.chance(70):
            return self.choose.pick(known)
        return self.choose.pick(_ordered(admitted))

    def options(self, op: Op, *names: str) -> dict[str, Any]:
        """Values for the switches (BOOL), modes (STRING with choices) and numbers (FLOAT) of `op`: all, or `names`."""
        drawn: dict[str, Any] = {}
        for name in names or op.attrs:
            attribute = op.attrs[name]
            if attribute.kind is AttrKind.BOOL:
                drawn[name] = self.choose.chance(50)
            elif attribute.choices:
                drawn[name] = self.choose.pick(attribute.choices)
            elif attribute.kind is AttrKind.FLOAT and (attribute.is_required or self.choose.chance(50)):
                drawn[name] = self.choose.pick(FLOATS_DRAWN)
        return drawn

    def ints(self, count: int, low: int, high: int) -> tuple[int, ...]:
        """`count` integers in [low, high]."""
        return tuple(self.choose.integer(low, high) for _ in range(count))

    def dim(self) -> Dim:
        """A size for an input: an int up to 5, a symbol, or a symbol times or plus something."""
        if self._symbolic and self.choose.chance(40):
            return self._affine(symbol(self.choose.pick(tuple(HOME))))
        return 0 if self.choose.chance(6) else self.choose.integer(1, 5)

    def _affine(self, dim: Dim) -> Dim:
        form = self.choose.integer(0, 9)
        if form == 8:
            return 2 * dim
        return dim + 1 if form == 9 else dim

    def known_dim(self, *visible: Value) -> Dim:
        """A size for an attribute: an int, or an expression of symbols that the inputs or these operands bind."""
        names = sorted(self.bound_symbols | set[str]().union(*(type_symbols(value.type) for value in visible)))
        if not names or not self.choose.chance(50):
            return 0 if self.choose.chance(6) else self.choose.integer(1, 4)
        dim = self._affine(symbol(self.choose.pick(names)))
        return dim * symbol(self.choose.pick(names)) if self.choose.chance(5) else dim

    @property
    def bound_symbols(self) -> set[str]:
        """The symbols that the graph's inputs bind."""
        return self._bound

    def shape(self, rank: int) -> tuple[Dim, ...]:
        """The shape of a source: not too many elements."""
        dims: list[Dim] = [self.dim() for _ in range(rank)]
        while elements_at_home(TensorType(DType.BOOL, tuple(dims))) > MAX_SOURCE:
            dims[self.choose.integer(0, rank - 1)] = 1
        return tuple(dims)

    def axis(self, x: Value) -> int:
        """An axis of `x`, from either end."""
        rank = len(x.shape)
        axis = self.choose.integer(0, rank - 1)
        return axis - rank if self.choose.chance(30) else axis

    def axes(self, rank: int, count: int | None = None) -> tuple[int, ...]:
        """`count` different axes (by default some of them), in any order, from either end."""
        left = list(range(rank))
        taken = [
            left.pop(self.choose.integer(0, len(left) - 1))
            for _ in range(self.choose.integer(0, rank) if count is None else count)
        ]
        return tuple(axis - rank if self.choose.chance(20) else axis for axis in taken)

    # ---- values

    def value(
        self, dtype: DType, ranks: Sequence[int] = RANKS, fits: Callable[[tuple[Dim, ...]], bool] | None = None
    ) -> Value:
        """A value of this dtype, of one of the ranks, and of a shape that `fits`."""
        found = [v for v in self._values.get(dtype, ()) if len(v.shape) in ranks and (fits is None or fits(v.shape))]
        if found and self.choose.chance(65):
            return self.choose.pick(found)
        for _ in range(4):
            shape = self.shape(self.choose.pick(ranks))
            if fits is None or fits(shape):
                return self.source(dtype, shape)
        return self.source(dtype, (2,) * ranks[0])

    def shaped(self, dtype: DType, shape: Sequence[Dim]) -> Value:
        """A value of exactly this type. Raises `ShapeError` when nothing here can have a size that depends on data."""
        wanted = TensorType(dtype, tuple(shape))
        found = [value for value in self._values.get(dtype, ()) if value.type == wanted]
        return self.choose.pick(found) if found and self.choose.chance(65) else self.source(dtype, shape)

    def maybe(self, dtype: DType, shape: Sequence[Dim]) -> Value | None:
        """An optional operand of this type: absent, or `shaped`."""
        return self.shaped(dtype, shape) if self.choose.chance(50) else None

    def broadcastable(self, dtype: DType, shape: Sequence[Dim], *, to: bool = False) -> Value:
        """A value that broadcasts with `shape`; `to`: that broadcasts to it."""
        found = [v for v in self._values.get(dtype, ()) if _broadcasts(v.shape, shape, to)]
        if found and self.choose.chance(65):
            return self.choose.pick(found)
        wanted = [1 if self.choose.chance(15) else dim for dim in shape]
        if self.choose.chance(30):
            wanted = wanted[self.choose.integer(0, len(wanted)) :]
        if not to:
            wanted = [self.choose.integer(1, 3) if dim == 1 and self.choose.chance(20) else dim for dim in wanted]
            leading = len(wanted) == len(shape) < 4 and self.choose.chance(10)
            wanted = [self.choose.integer(1, 3), *wanted] if leading else wanted
        return self.source(dtype, wanted)

    # ---- sources

    def source(self, dtype: DType, shape: Sequence[Dim]) -> Value:
        """A new value of this type: an input, a constant, a fill, or a cast of what exists."""
        ty = TensorType(dtype, tuple(shape))
        if self._depends_on_data(ty):
            return self._from_carrier(ty)
        alike = [v for v in self.values if v.shape == ty.shape and _is_castable(v.tensor.dtype, dtype)]
        if alike and self.choose.chance(25):
            return self.emit("cast", self.choose.pick(alike), to=dtype)
        if ty.is_static and elements_at_home(ty) <= MAX_SOURCE and self.choose.chance(30):
            return self.constant(contents(self.choose, dtype, tuple(map(int, ty.dims))), dtype)  # type: ignore[arg-type]
        if type_symbols(ty) <= self.bound_symbols and self.choose.chance(15):
            return self.emit("full", shape=ty.dims, value=Constant(contents(self.choose, dtype, ()), dtype))
        return self.input(ty)

    def _depends_on_data(self, ty: TensorType) -> bool:
        return any(at_home(dim) is None for dim in ty.dims)

    def _from_carrier(self, ty: TensorType) -> Value:
        """A value whose type mentions a data-dependent size: only a value that has the size can be cast to it."""
        carriers = [v for v in self.values if v.shape == ty.shape and _is_castable(v.tensor.dtype, ty.dtype)]
        if not carriers:
            raise ShapeError(f"nothing here has the sizes of {ty}")
        return self.emit("cast", self.choose.pick(carriers), to=ty.dtype)

    def input(self, ty: TensorType) -> Value:
        """A new input of the graph."""
        bound = self.bound_symbols.union(*(symbols(dim) for dim in ty.dims if _is_solvable(dim)))
        if not type_symbols(ty) <= bound:
            raise ShapeError(f"an input {ty} would not tell the size of each of its symbols")
        name = self.choose.pick(ODD_NAMES) if self.choose.chance(4) else f"x{len(self.graph.inputs)}"
        value = self.graph.add_input(self.graph.unused_name(name), ty)
        self._bound = bound
        return self._register(value)

    def constant(self, content: Any, dtype: DType) -> Value:
        """A constant node."""
        return self.emit("constant", value=Constant(np.asarray(content, dtype=dtype.numpy), dtype))

    def scalar(self, dtype: DType, number: Any) -> Value:
        """A constant of rank 0."""
        return self.constant(number, dtype)

    def steering(self, dtype: DType, shape: Sequence[Dim], low: Dim, high: Dim) -> Value:
        """Integers (or whole floats) in [low, high), mostly an input, else a constant."""
        ty = TensorType(dtype, tuple(shape))
        if dtype.kind is Kind.UINT and is_at_least(low, 0) is not Truth.YES:
            low = 0
        least, end = at_home(low), at_home(high)
        if self._depends_on_data(ty):
            raise ShapeError(f"no input can have the type {ty}")
        first = 0 if least is None else least
        if isinstance(low, int) and isinstance(high, int) and low >= high:
            high = low + 1  # nothing is valid
        if end is None or not (ty.is_static and self.choose.chance(40)):
            if end is None or least is None:
                low, high = first, first + 1
            return self.steering_input(ty, low, high)
        sizes = tuple(int(dim) for dim in ty.dims if isinstance(dim, int))
        is_open = not (isinstance(low, int) and isinstance(high, int))
        last = max(first, min(end - 1, 0 if is_open else end - 1))  # 0 is valid whatever the size
        first = min(last, max(first, -1)) if is_open else first
        return self.constant(self.choose.generator().integers(first, last, sizes, endpoint=True), dtype)

    def steering_input(self, ty: TensorType, low: Dim, high: Dim) -> Value:
        """A new input with elements in [low, high)."""
        value = self.input(ty)
        self.graph.metadata[f"{STEERING}{value.name}"] = f"{low}:{high}"
        return value

    def sizes(self, shape: Sequence[int], low: int, high: int) -> Value:
        """Numbers i64 of rank 0 or 1 in [low, high), or sizes."""
        if len(shape) > 1 or not self.choose.chance(35):
            return self.steering(DType.I64, shape, low, high)
        drawn = tuple(self.known_dim() for _ in range(math.prod(shape)))
        return self.dims(drawn) if shape else self.emit("dim", value=drawn[0])

    def dims(self, sizes: Sequence[Dim]) -> Value:
        """The sizes as i64[n]: a constant, or a `dims` node where they are symbolic."""
        if all(isinstance(dim, int) for dim in sizes) and self.choose.chance(50):
            return self.constant(np.array(sizes, dtype=np.int64), DType.I64)
        return self.emit("dims", values=tuple(sizes))


class BodyDraw(GraphDraw):
    """A region under construction: what would be a graph's input is a further operand of the node that owns it."""

    def __init__(self, outer: GraphDraw, name: str) -> None:
        super().__init__(outer.choose, outer._grow, graph=Graph(name, symbols=outer.graph.symbols))
        self.outer = outer
        self.depth = outer.depth + 1
        self._symbolic = outer._symbolic
        self._bound = set(outer.bound_symbols)
        self.captured: list[Value] = []

    def parameter(self, ty: TensorType) -> Value:
        """An input that the owner gives on its own account, such as a carried value."""
        return self._register(self.graph.add_input(f"p{len(self.graph.inputs)}", ty))

    def capture(self, outer_value: Value) -> Value:
        """An input that stands for a value of the graph around."""
        self.captured.append(outer_value)
        return self.parameter(outer_value.tensor)

    def _remove_inputs(self, kept: int) -> None:
        del self.captured[len(self.captured) - (len(self.graph.inputs) - kept) :]
        super()._remove_inputs(kept)

    def input(self, ty: TensorType) -> Value:
        return self.capture(self.outer.shaped(ty.dtype, ty.dims))

    def steering_input(self, ty: TensorType, low: Dim, high: Dim) -> Value:
        return self.capture(self.outer.steering(ty.dtype, ty.dims, low, high))


def _is_solvable(dim: Dim) -> bool:
    """Whether a call's inputs tell the size of the one symbol in `dim`."""
    size = at_home(dim)
    return isinstance(dim, SymDim) and size is not None and solve(dim, size, {}) is not None


def _is_castable(source: DType, to: DType) -> bool:
    """Whether every element of `source` has a meaning as `to`."""
    if source is to or (source.kind is Kind.COMPLEX and to.kind is Kind.STRING):
        return False
    return source.kind is not Kind.STRING or to.is_float


@cache
def _ordered(dtypes: frozenset[DType]) -> tuple[DType, ...]:
    return tuple(dtype for dtype in ORDERED_DTYPES if dtype in dtypes)


def _broadcasts(shape: Sequence[Dim], other: Sequence[Dim], to: bool) -> bool:
    if to and len(shape) > len(other):
        return False
    pairs = zip(reversed(shape), reversed(other), strict=False)
    return all(a == 1 or (b == 1 and not to) or compare(a, b) is Truth.YES for a, b in pairs)


def positive(dim: Dim) -> bool:
    """Whether a size is known to be at least 1 at `HOME`."""
    size = at_home(dim)
    return size is not None and size > 0
