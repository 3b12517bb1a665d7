"""What padding does to a value: which axes carry the padded dim, and what stands behind the real elements."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from .....ir.dims import Dim, Ranges, Truth, compare, symbols
from .....ir.graph import Graph, Node, Value
from .....ir.types import TensorType
from .sizes import is_below, narrowed

Number = bool | int | float


@dataclass(frozen=True, slots=True)
class Same:
    """The content of a tail that is the tail of graph input `input`: what an unwritten part of a state holds."""

    input: str


Fill = Number | Same | None


@dataclass(frozen=True, slots=True)
class Tail:
    """An axis that carries the padded dim: row-major [outer, extent, inner], merged into one axis.

    `extent` depends on the symbol; of its N(padded size) entries only the first n(real size) are real. `fill` is what
    all other elements of the value hold, None when that can be anything. `is_free` says that all elements along the
    axis are equal: each place may then count as a real one, so such a tail fits any other.
    """

    extent: Dim
    outer: Dim = 1
    inner: Dim = 1
    fill: Fill = None
    is_free: bool = False

    @property
    def is_prefix(self) -> bool:
        """Whether the real elements come first, with nothing behind them: the axis can be cut off."""
        return self.is_free or self.outer == 1

    @property
    def number(self) -> Number | None:
        """The fill where it is a known number."""
        return self.fill if isinstance(self.fill, bool | int | float) else None

    def filled(self, fill: Fill) -> "Tail":
        """The same structure with other content behind the real elements."""
        return replace(self, fill=fill)

    def fits(self, other: "Tail") -> bool:
        """Whether both have their real elements at the same places, given that their sizes are equal.

        Extents may be written differently: sizes that are equal for the padded and for the real call agree in both.
        """
        if self.is_free or other.is_free:
            return True
        return self.outer == other.outer and self.inner == other.inner


Tails = tuple[Tail | None, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of one value.

    `tails` has an entry for each axis. `number` is the value of every element where all are equal and known.
    `counts` says that elements are 0, 1, 2... along the only axis with a tail; `real_extent` that the value is a scalar
    which holds this dim at the real sizes. `natural` elements are never negative, and none is above `most`. `source` is
    the graph input that the elements are taken from unchanged (up to a cast). `columns` are facts of the elements with
    index 0, 1... along the last axis, where they were put together from such, `rows` along the first.
    """

    tails: Tails
    number: Number | None = None
    counts: bool = False
    real_extent: Dim | None = None
    natural: bool = False
    most: Dim | None = None
    source: str = ""
    columns: "tuple[Fact, ...]" = ()
    rows: "tuple[Fact, ...]" = ()

    @property
    def is_padded(self) -> bool:
        return any(tail is not None for tail in self.tails)

    def filled(self, axis: int, fill: Fill) -> "Fact":
        """After everything behind the real elements of `axis` was set to `fill`."""
        tails = tuple(
            tail.filled(fill) if i == axis and tail else _shared(tail, fill) for i, tail in enumerate(self.tails)
        )
        return replace(self, tails=tails, number=None, counts=False, columns=(), rows=(), source="")


def _shared(tail: Tail | None, fill: Fill) -> Tail | None:
    """Where two tails meet, the new content is written over what was known of the other one."""
    if tail is None or tail.fill == fill:
        return tail
    return tail.filled(None)


class Mask(NamedTuple):
    """Operand `operand` of a node needs `fill` behind the real elements of `axis`."""

    operand: int
    axis: int
    fill: Number


class Repairs(Protocol):
    """What a rule can ask for in place of its node, or in front of it; `MaskInsertion` of `repair.py` does it."""

    def split_mean(self, node: Node) -> None: ...
    def use_real_size(self, node: Node) -> None: ...
    def use_real_sizes(self, node: Node, sizes: Sequence[Dim]) -> None: ...
    def move_up(self, node: Node, axis: int, count: int) -> None: ...
    def mask_keys(self, node: Node, steps: int, keys: Tail) -> None: ...
    def give_lengths(self, node: Node, time: Tail) -> None: ...
    def repeat_last_row(self, node: Node, axis: int) -> None: ...
    def inline_body(self, node: Node) -> None: ...


class Unsafe(Exception):  # a verdict, no error: the walk catches it
    """The proof fails at a node. `masks`, or else `replace`, would make it hold there.

    `replace` is called with the `Repairs` and the node. It puts other nodes in its place, with the real size at hand.
    """

    def __init__(
        self, reason: str, masks: Sequence[Mask] = (), replace: Callable[[Repairs, Node], None] | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.masks = tuple(masks)
        self.replace = replace


@dataclass(frozen=True)
class Case:
    """One node with the facts of its operands, as a rule sees it. `fills` collects what inputs have to be filled with.

    `judge_body` gives the facts of a body's outputs from those of its inputs. `known` has the facts of all values so
    far, and `together` collects the nodes that a claim about this one holds with, beyond their facts.
    """

    node: Node
    facts: tuple[Fact | None, ...]
    symbol: str
    ranges: Ranges
    fills: dict[str, Number]
    judge_body: Callable[[Graph, Sequence[Fact]], tuple[Fact, ...]]
    known: Mapping[Value, Fact]
    together: list[Node]

    def fact(self, operand: int) -> Fact:
        """The fact of an operand that is present."""
        found = self.facts[operand]
        assert found is not None  # rules ask for operands that their op requires
        return found

    def optional(self, operand: int) -> Fact | None:
        """The fact of an operand; None when it is absent."""
        return self.facts[operand] if operand < len(self.facts) else None

    def value(self, operand: int) -> Value:
        """An operand that is present."""
        found = self.node.inputs[operand]
        assert found is not None
        return found

    def shape(self, operand: int) -> tuple[Dim, ...]:
        """The sizes of an operand that is present."""
        return tuple(narrowed(dim, self.ranges) for dim in self.value(operand).shape)

    def result_shape(self, result: int = 0) -> tuple[Dim, ...]:
        """The sizes of a result."""
        return tuple(narrowed(dim, self.ranges) for dim in self.node.outputs[result].shape)

    def tails(self, operand: int) -> Tails:
        """The tails of an operand that is present."""
        return self.fact(operand).tails

    def mentions(self, dim: Dim) -> bool:
        """Whether a dim depends on the padded symbol."""
        return self.symbol in symbols(narrowed(dim, self.ranges))

    def require_unpadded(self, *operands: int) -> None:
        """Raises `Unsafe` when one of these operands (where present) carries the dim."""
        for operand in operands:
            fact = self.optional(operand)
            if fact is not None and fact.is_padded:
                raise Unsafe(f"its operand {self.node.op.operand_at(operand).name} carries {self.symbol}")

    def can_be_empty(self, dim: Dim) -> bool:
        """Whether a dim may be 0 at the real sizes."""
        return not is_below(0, narrowed(dim, self.ranges), self.ranges)

    def require_in_range(self, operand: int) -> None:
        """Sees to it that behind the real elements of an operand of indices or counts stands a valid one, 0."""
        fact = self.fact(operand)
        for axis, tail in enumerate(fact.tails):
            if tail is None or tail.number == 0:
                continue
            if tail.is_free and not self.can_be_empty(tail.extent):
                continue
            if fact.source:
                self.fills[fact.source] = 0
                continue
            raise Unsafe("padded indices can be out of range", [Mask(operand, axis, 0)])

    def is_float(self, operand: int) -> bool:
        """Whether an operand can hold NaN and infinities."""
        return not self.value(operand).tensor.dtype.is_integer and self.value(operand).tensor.dtype.value != "bool"


Rule = Callable[[Case], Sequence[Fact]]
Rules = Mapping[str, Rule]


def plain(value: Value) -> Fact:
    """The fact of a value that does not carry the dim."""
    rank = value.tensor.rank if isinstance(value.type, TensorType) and value.type.shape is not None else 0
    return Fact((None,) * rank)


def prefix_tails(dims: Sequence[Dim], symbol: str) -> Tails:
    """Tails of axes whose first elements are the real ones, as many as the size says."""
    return tuple(Tail(dim) if symbol in symbols(dim) else None for dim in dims)


def free_tails(dims: Sequence[Dim], symbol: str, fill: Fill = None) -> Tails:
    """Tails of axes along which all elements are equal."""
    return tuple(Tail(dim, fill=fill, is_free=True) if symbol in symbols(dim) else None for dim in dims)


def met(tails: Sequence[Tail], what: str) -> Tail:
    """The one structure of axes that meet each other; without fill. Raises `Unsafe` when they differ."""
    bound = [tail for tail in tails if not tail.is_free] or list(tails)
    first = min(bound, key=lambda tail: len(str(tail.extent)))
    if not all(first.fits(tail) for tail in tails):
        raise Unsafe(f"{what} meet with their real elements at different places")
    return first.filled(None)


def is_equal(a: Dim, b: Dim) -> bool:
    """Whether two dims are equal for all sizes."""
    return compare(a, b) is Truth.YES
