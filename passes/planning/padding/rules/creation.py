"""Values from nothing: what only uses the dim as a shape may be padded, what gives it as a number may not."""

from collections.abc import Sequence

import numpy as np

from .....ir.constant import Constant
from .....ir.dims import Dim, Truth, is_at_least
from .....ir.types import DType, Kind
from .facts import Case, Fact, Number, Rules, Unsafe, free_tails, prefix_tails

SMALL = 64
"""Constants up to this size are looked at for equal elements."""
LARGEST_INDICES = 1 << 20
"""Constants of integers up to this size are looked at for bounds."""


def constant(case: Case) -> list[Fact]:
    """Constants have fixed sizes."""
    content = case.node.attrs["value"]
    assert isinstance(content, Constant)
    lowest, greatest = _bounds(content)
    return [Fact((None,) * content.type.rank, _number(content), natural=lowest >= 0, most=greatest)]


def _number(content: Constant) -> Number | None:
    if not content.is_at_hand or not 0 < content.size <= SMALL or content.dtype.kind in (Kind.STRING, Kind.COMPLEX):
        return None
    elements = content.array.reshape(-1)
    first = elements[0].item()
    return first if isinstance(first, bool | int | float) and bool(np.all(elements == elements[0])) else None


def _bounds(content: Constant) -> tuple[int, int | None]:
    """The least and greatest element of what may be indices; (-1, None) for anything else."""
    if content.dtype not in (DType.I32, DType.I64) or not 0 < content.size <= LARGEST_INDICES or not content.is_at_hand:
        return -1, None
    return int(content.array.min()), int(content.array.max())


def full(case: Case) -> list[Fact]:
    """Equal elements, however many."""
    number = _number(case.node.attrs["value"])
    lowest, greatest = _bounds(case.node.attrs["value"])
    return [Fact(free_tails(case.result_shape(), case.symbol, number), number, natural=lowest >= 0, most=greatest)]


def arange(case: Case) -> list[Fact]:
    """A count that starts at a fixed number has the same first elements when it goes further."""
    start, step = case.node.attrs["start"], case.node.attrs["step"]
    if case.mentions(start) or step < 0:
        raise Unsafe(f"its elements depend on {case.symbol}")
    tails = prefix_tails(case.result_shape(), case.symbol)
    is_natural = is_at_least(start, 0) is Truth.YES
    counts = start == 0 and step == 1 and tails[0] is not None
    return [Fact(tails, counts=counts, natural=is_natural, most=case.node.attrs["limit"] - 1)]


def dim(case: Case) -> list[Fact]:
    """A size as a number: the padded size where the real one is meant."""
    size = case.node.attrs["value"]
    if case.mentions(size):
        reason = f"it gives the padded size {size} as a number"
        raise Unsafe(reason, replace=lambda insertion, node: insertion.use_real_size(node))
    return [Fact((), natural=is_at_least(size, 0) is Truth.YES, most=size)]


def dims(case: Case) -> list[Fact]:
    """Sizes as numbers."""
    return [_sizes(case, case.node.attrs["values"])]


def shape(case: Case) -> list[Fact]:
    """The sizes of an operand as numbers."""
    sizes = case.shape(0)[slice(case.node.attrs["start"], case.node.attrs["end"])]
    if any(map(case.mentions, sizes)):
        reason = f"it gives a padded size of [{', '.join(map(str, sizes))}] as a number"
        raise Unsafe(reason, replace=lambda insertion, node: insertion.use_real_sizes(node, sizes))
    return [_sizes(case, sizes)]


def size(case: Case) -> list[Fact]:
    """The number of elements of an operand."""
    if case.facts[0] is not None and case.fact(0).is_padded:
        raise Unsafe("it counts padded elements")
    return [Fact((), natural=True)]


def _sizes(case: Case, sizes: Sequence[Dim]) -> Fact:
    if any(map(case.mentions, sizes)):
        raise Unsafe(f"it gives a padded size of [{', '.join(map(str, sizes))}] as a number")
    return Fact((None,), natural=all(is_at_least(size, 0) is Truth.YES for size in sizes))


def eye_like(case: Case) -> list[Fact]:
    """Ones on a diagonal that starts at a fixed place."""
    return [Fact(prefix_tails(case.result_shape(), case.symbol))]


RULES: Rules = {
    "constant": constant,
    "full": full,
    "arange": arange,
    "dim": dim,
    "dims": dims,
    "shape": shape,
    "size": size,
    "eye_like": eye_like,
}
