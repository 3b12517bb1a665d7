"""Integer tensors whose elements are a sum of their coordinates: positions, offsets, and what masks are made of.

`AffineValues` follows `arange`, views, slices, sums, gathers and their like. An element at the coordinates i is then
`start + strides[0] * i[0] + strides[1] * i[1] + ...`, start and strides being dims. That shows, say, that positions
never fall below 0, or that the difference of neighboring positions is always 1.

Claims hold for every tensor that has elements at all: sizes are compared for sizes of at least 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.dims import Dim, Truth, bind, compare, is_at_least, lower_bound, symbol, symbols, upper_bound
from ...ir.graph import Node, Value
from ...ir.ops.known import CONCAT, GATHER_ND
from ...ir.ops.rules import normal_axes, normal_axis
from ...ir.types import DType, TensorType

LARGEST = 1 << 40
"""Numbers beyond this are not followed, so that no sum of them leaves i64."""

_MAX_CONSTANT = 1 << 16
_FOLLOWED = (DType.I64, DType.BOOL)


@dataclass(frozen=True)
class Affine:
    """`start + sum(strides[axis] * coordinate[axis])`; the stride of an axis of size 1 is 0."""

    start: Dim
    strides: tuple[Dim, ...]

    @property
    def constant(self) -> int | None:
        """The number that all elements are, None when they are not one known number."""
        varies = any(stride != 0 for stride in self.strides)
        return self.start if isinstance(self.start, int) and not varies else None

    def plus(self, other: "Affine", sign: int) -> "Affine":
        """The sum, or with `sign` -1 the difference, with one of the same rank."""
        strides = (a + b * sign for a, b in zip(self.strides, other.strides, strict=True))
        return Affine(self.start + other.start * sign, tuple(strides))

    def times(self, factor: int) -> "Affine":
        return Affine(self.start * factor, tuple(stride * factor for stride in self.strides))


class AffineValues:
    """What is known of values of one graph; use a new one after an edit."""

    def __init__(self) -> None:
        self._known: dict[Value, Affine | None] = {}

    def of(self, value: Value) -> Affine | None:
        """How the elements of an i64 or bool tensor (true is 1) follow from their coordinates; None when not known."""
        pending = [value]
        while pending:
            current = pending[-1]
            missing = [operand for operand in _read(current) if operand not in self._known]
            if missing:
                pending += missing
                continue
            pending.pop()
            if current not in self._known:
                self._known[current] = self._computed(current)
        return self._known[value]

    def _computed(self, value: Value) -> Affine | None:
        node = value.producer
        if node is None or value.index != 0 or not _is_followed(value):
            return None
        rule = _RULES.get(node.op.name)
        operands = [self._known.get(operand) for operand in _sources(node)]
        found = rule(node, operands) if rule is not None else None
        return None if found is None else _checked(found, value)


def _is_followed(value: Value) -> bool:
    ty = value.type
    return isinstance(ty, TensorType) and ty.shape is not None and ty.dtype in _FOLLOWED


def _read(value: Value) -> Sequence[Value]:
    node = value.producer
    if node is None or node.op.name not in _RULES:
        return ()
    return [operand for operand in _sources(node) if _is_followed(operand)]


def _sources(node: Node) -> tuple[Value, ...]:
    """What a rule gets: the operands, but for the indices of gather_nd the pieces that they are joined from."""
    if node.op is not GATHER_ND:
        return node.operands
    data, indices = node.operands
    joined = indices.producer
    if joined is None or joined.op is not CONCAT or indices.shape[-1] != len(joined.operands):
        return node.operands
    is_by_component = normal_axis(joined.attrs["axis"], indices.tensor.rank) == indices.tensor.rank - 1
    return (data, *joined.operands) if is_by_component else node.operands


def _checked(found: Affine, value: Value) -> Affine | None:
    """`found` with strides of 0 at axes of size 1; None when numbers grow large."""
    numbers = (found.start, *found.strides)
    if any(isinstance(number, int) and abs(number) > LARGEST for number in numbers):
        return None
    strides = (0 if size == 1 else stride for stride, size in zip(found.strides, value.shape, strict=True))
    return Affine(found.start, tuple(strides))


# ---- claims about sizes


def same_size(a: Dim, b: Dim) -> bool:
    """Whether two dims are equal wherever all symbols are at least 1."""
    return compare(a, b) is Truth.YES or compare(_where_positive(a), _where_positive(b)) is Truth.YES


def _where_positive(dim: Dim) -> Dim:
    return bind(dim, {name: symbol(name) + 1 for name in symbols(dim)})


def is_empty_at_zero(shape: Sequence[Dim], names: frozenset[str]) -> bool:
    """Whether a tensor of this shape has no elements as soon as one of the symbols is 0."""
    return all(any(bind(dim, {name: 0}) == 0 for dim in shape) for name in names)


def _same_size_in(shape: Sequence[Dim], a: Dim, b: Dim) -> bool:
    """Whether two dims are equal wherever a tensor of `shape` has elements."""
    if compare(a, b) is Truth.YES:
        return True
    return same_size(a, b) and is_empty_at_zero(shape, symbols(a) | symbols(b))


def bounds_of(affine: Affine, shape: Sequence[Dim]) -> tuple[int | None, int | None]:
    """The least and the greatest element that can be shown, None where there is none."""
    low, high = affine.start, affine.start
    for stride, size in zip(affine.strides, shape, strict=True):
        if not isinstance(stride, int):
            return None, None
        reach = (size - 1) * stride
        low, high = (low, high + reach) if stride > 0 else (low + reach, high)
    return lower_bound(low), upper_bound(high)


# ---- rules


Rule = Callable[[Node, Sequence[Affine | None]], Affine | None]


def _constant(node: Node, _operands: Sequence[Affine | None]) -> Affine | None:
    content = constant_of(node.output)
    if content is None or not 0 < content.size <= _MAX_CONSTANT:
        return None
    array = content.array.astype(np.int64)
    origin = (0,) * array.ndim
    start = int(array[origin])
    strides = [
        int(array[(*origin[:axis], 1, *origin[axis + 1 :])]) - start if size > 1 else 0
        for axis, size in enumerate(array.shape)
    ]
    if max(map(abs, (start, *strides))) * content.size > LARGEST:
        return None
    made = np.full((), start, dtype=np.int64)
    for axis, (stride, size) in enumerate(zip(strides, array.shape, strict=True)):
        made = made + (np.arange(size, dtype=np.int64) * stride).reshape(-1, *(1,) * (array.ndim - axis - 1))
    return Affine(start, tuple(strides)) if np.array_equal(made, array) else None


def _dim(node: Node, _operands: Sequence[Affine | None]) -> Affine | None:
    return Affine(node.attrs["value"], ())


def _reshape(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    """Axes of size 1 come and go; any other change is followed only for a constant."""
    x, before, after = operands[0], node.operands[0].shape, node.output.shape
    if x is None:
        return None
    if x.constant is not None:
        return Affine(x.start, (0,) * len(after))
    kept = [stride for stride, size in zip(x.strides, before, strict=True) if size != 1]
    if [size for size in before if size != 1] != [size for size in after if size != 1]:
        return None
    remaining = iter(kept)
    return Affine(x.start, tuple(0 if size == 1 else next(remaining) for size in after))


def broadcast(x: Affine | None, shape: Sequence[Dim], wanted: Sequence[Dim]) -> Affine | None:
    """What `x` of `shape` is when broadcast to `wanted`; None when it is not clear which axes broadcast."""
    if x is None:
        return None
    missing = len(wanted) - len(shape)
    for stride, size, target in zip(x.strides, shape, wanted[missing:], strict=True):
        if stride != 0 and not _same_size_in(wanted, size, target):
            return None
    return Affine(x.start, (0,) * missing + x.strides)


def _transpose(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    x = operands[0]
    perm = normal_axes(node.attrs["perm"], node.output.tensor.rank)
    return None if x is None else Affine(x.start, tuple(x.strides[axis] for axis in perm))


def _slice(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    x, shape, attrs = operands[0], node.operands[0].shape, node.attrs
    if x is None:
        return None
    start, strides = x.start, list(x.strides)
    for axis, begin, step in zip(normal_axes(attrs["axes"], len(shape)), attrs["starts"], attrs["steps"], strict=True):
        if strides[axis] == 0:
            continue
        if step < 1 or is_at_least(begin, 0) is not Truth.YES:
            return None
        start, strides[axis] = start + strides[axis] * begin, strides[axis] * step
    return Affine(start, tuple(strides))


def _sum(sign: int) -> Rule:
    def rule(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
        a, b = _both(node, operands)
        return None if a is None or b is None else a.plus(b, sign)

    return rule


def _both(node: Node, operands: Sequence[Affine | None]) -> tuple[Affine | None, Affine | None]:
    shape = node.output.shape
    a, b = (broadcast(x, value.shape, shape) for x, value in zip(operands, node.operands, strict=True))
    return a, b


def _product(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    a, b = _both(node, operands)
    if a is None or b is None:
        return None
    if a.constant is not None:
        return b.times(a.constant)
    return a.times(b.constant) if b.constant is not None else None


def _cast(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    x = operands[0]
    if x is None or node.attrs["to"] is not DType.BOOL:
        return x
    return None if x.constant is None else Affine(int(x.constant != 0), x.strides)


def _inverted(_node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    x = operands[0]
    return None if x is None or x.constant is None else Affine(1 - x.constant, x.strides)


def _comparison(decide: Callable[[int | None, int | None], bool | None]) -> Rule:
    """A comparison that has one answer everywhere, by the bounds of the difference."""

    def rule(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
        a, b = _both(node, operands)
        if a is None or b is None:
            return None
        answer = decide(*bounds_of(a.plus(b, -1), node.output.shape))
        return None if answer is None else Affine(int(answer), (0,) * node.output.tensor.rank)

    return rule


def _equal(low: int | None, high: int | None) -> bool | None:
    if low == high == 0:
        return True
    return False if (low is not None and low > 0) or (high is not None and high < 0) else None


def _unequal(low: int | None, high: int | None) -> bool | None:
    answer = _equal(low, high)
    return None if answer is None else not answer


def _at_least(bound: int) -> Callable[[int | None, int | None], bool | None]:
    """Whether a difference is at least `bound`."""

    def decide(low: int | None, high: int | None) -> bool | None:
        if low is not None and low >= bound:
            return True
        return False if high is not None and high < bound else None

    return decide


def _below(bound: int) -> Callable[[int | None, int | None], bool | None]:
    at_least = _at_least(bound)

    def decide(low: int | None, high: int | None) -> bool | None:
        answer = at_least(low, high)
        return None if answer is None else not answer

    return decide


def _conjunction(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    constants = [x.constant for x in operands if x is not None]
    zero = (0,) * node.output.tensor.rank
    if 0 in constants:
        return Affine(0, zero)
    return Affine(1, zero) if len(constants) == 2 and None not in constants else None


def _concat(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    """Pieces that continue each other; one that is never longer than 1 along the axis goes with any stride."""
    rank, shape = node.output.tensor.rank, node.output.shape
    axis = normal_axis(node.attrs["axis"], rank)
    known = [x for x in operands if x is not None]
    if len(known) < len(node.operands):
        return None
    long = [x for x, value in zip(known, node.operands, strict=True) if not _is_short(value.shape[axis])]
    stride = long[0].strides[axis] if long else known[-1].start - known[0].start
    first, offset = known[0], node.operands[0].shape[axis]
    rest = _others(first.strides, axis)
    for x, value in zip(known[1:], node.operands[1:], strict=True):
        continues = _same_size_in(shape, x.start, first.start + stride * offset)
        own = x.strides[axis] == stride or _is_short(value.shape[axis])
        if not continues or not own or _others(x.strides, axis) != rest:
            return None
        offset = offset + value.shape[axis]
    return Affine(first.start, tuple(stride if index == axis else other for index, other in enumerate(first.strides)))


def _is_short(size: Dim) -> bool:
    return is_at_least(1 - size, 0) is Truth.YES


def _others(strides: Sequence[Dim], axis: int) -> tuple[Dim, ...]:
    return (*strides[:axis], *strides[axis + 1 :])


def _cumsum(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    x = operands[0]
    if x is None or x.constant is None or (x.constant and (node.attrs["reverse"] or node.attrs["exclusive"])):
        return None
    rank = node.output.tensor.rank
    axis = normal_axis(node.attrs["axis"], rank)
    return Affine(x.constant, tuple(x.constant if index == axis else 0 for index in range(rank)))


def _gather(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    data, indices = operands
    axis = normal_axis(node.attrs["axis"], node.operands[0].tensor.rank)
    if data is None or indices is None or not _never_negative(indices, node.operands[1]):
        return None
    stride = data.strides[axis]
    if not isinstance(stride, int):
        return None
    chosen = indices.times(stride)
    return Affine(data.start + chosen.start, (*data.strides[:axis], *chosen.strides, *data.strides[axis + 1 :]))


def _gather_elements(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    data, indices = operands
    axis = normal_axis(node.attrs["axis"], node.operands[0].tensor.rank)
    if data is None or indices is None or not _never_negative(indices, node.operands[1]):
        return None
    stride = data.strides[axis]
    if not isinstance(stride, int):
        return None
    chosen = indices.times(stride)
    others = (0 if index == axis else own for index, own in enumerate(data.strides))
    return chosen.plus(Affine(data.start, tuple(others)), 1)


def _gather_nd(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    """Indices that are joined from one piece for each indexed axis."""
    data, *pieces = operands
    count = node.operands[1].shape[-1]
    known = [piece for piece in pieces if piece is not None]
    if data is None or node.attrs["batch_dims"] or count != len(known) or len(known) != len(pieces):
        return None
    rest = data.strides[len(known) :]
    total = Affine(data.start, (*(0 for _ in known[0].strides[:-1]), *rest))
    for piece, stride, source in zip(known, data.strides, _sources(node)[1:], strict=False):
        if not isinstance(stride, int) or not _never_negative(piece, source):
            return None
        chosen = piece.times(stride)
        total = total.plus(Affine(chosen.start, (*chosen.strides[:-1], *(0 for _ in rest))), 1)
    return total


def _never_negative(indices: Affine, value: Value) -> bool:
    """Whether no index counts from the end."""
    low, _ = bounds_of(indices, value.shape)
    return low is not None and low >= 0


_RULES: dict[str, Rule] = {
    "neg": lambda _node, operands: None if operands[0] is None else operands[0].times(-1),
    "cast": _cast,
    "logical_not": _inverted,
    "cumsum": _cumsum,
    "constant": _constant,
    "full": lambda node, _operands: Affine(int(node.attrs["value"].array), (0,) * node.output.tensor.rank),
    "dim": _dim,
    "arange": lambda node, _operands: Affine(node.attrs["start"], (node.attrs["step"],)),
    "reshape": _reshape,
    "squeeze": _reshape,
    "unsqueeze": _reshape,
    "expand": lambda node, operands: broadcast(operands[0], node.operands[0].shape, node.output.shape),
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "add": _sum(1),
    "sub": _sum(-1),
    "mul": _product,
    "equal": _comparison(_equal),
    "not_equal": _comparison(_unequal),
    "greater_equal": _comparison(_at_least(0)),
    "greater": _comparison(_at_least(1)),
    "less": _comparison(_below(0)),
    "less_equal": _comparison(_below(1)),
    "logical_and": _conjunction,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
}
