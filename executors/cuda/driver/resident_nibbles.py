"""Numbers of 4 bits that a model takes out of bytes on the device: where they lie as kernels read them, they stay.

A model that keeps two numbers in a byte says so by a mask, a shift and a concat of both, low half first; reshapes, a
transpose and concats of several weights may follow. The bytes are what the packing "nibbles" would make of the numbers.
"""

from collections.abc import Callable, Sequence
from math import prod

from ....ir.constant import Constant
from ....ir.op import Trait
from ....ir.ops import native
from ....ir.ops.known import BITWISE_AND, CAST, CONCAT, SHIFT_RIGHT, TRANSPOSE
from .held import Held

Find = Callable[[Constant], Held | None]
Join = Callable[[Sequence[Held], int, tuple[int, ...], Sequence[int]], Held]


def resident_nibbles(content: Constant, order: Sequence[int], find: Find, join: Join) -> Held | None:
    """The bytes of a matrix with its axes in `order`, rows in one piece each; None where they do not lie so.

    `find` gives a constant on the device, `join` puts rows below one another.
    """
    made = content.derivation
    if made is None or len(content.shape) != 2:
        return None
    if made.op == TRANSPOSE.name and tuple(made.attrs["perm"]) == (1, 0):
        return resident_nibbles(made.operands[0], order[::-1], find, join)
    if made.op == CONCAT.name and tuple(order).index(made.attrs["axis"] % 2) == 0:
        parts = [resident_nibbles(each, order, find, join) for each in made.operands]
        known = [each for each in parts if each is not None]
        rows, columns = (content.shape[axis] for axis in order)
        return join(known, 0, (rows, columns // 2), range(2)) if len(known) == len(parts) else None
    found = _bytes_of(content, find) if tuple(order) == (0, 1) and content.shape[1] % 2 == 0 else None
    if found is None or not found.is_contiguous:
        return None
    shape = (content.shape[0], content.shape[1] // 2)
    return Held(found.address, shape, (shape[1], 1), 1, found.owner) if prod(shape) == prod(found.shape) else None


def _bytes_of(content: Constant, find: Find) -> Held | None:
    """The bytes whose halves are the numbers in row-major order."""
    made = content.derivation
    if made is None:
        return None
    if made.op == CAST.name or native(made.op).has(Trait.RESHAPES):
        return _bytes_of(made.operands[0], find)
    if (
        made.op != CONCAT.name
        or len(made.operands) != 2
        or made.attrs["axis"] % len(content.shape) != len(content.shape) - 1
    ):
        return None
    if content.shape[-1] != 2:
        return None
    low, high = (_half(each) for each in made.operands)
    if low is None or high is None or low[0] is not high[0] or (low[1], high[1]) != tuple(_BY):
        return None
    return find(low[0])


def _half(content: Constant) -> tuple[Constant, str] | None:
    """The bytes that numbers are a half of, and the op that takes it out."""
    made = content.derivation
    if made is None:
        return None
    if native(made.op).has(Trait.RESHAPES):
        return _half(made.operands[0])
    if made.op not in _BY or len(made.operands) != 2:
        return None
    source, by = made.operands
    is_half = by.is_at_hand and by.size == 1 and int(by.array.reshape(-1)[0]) == _BY[made.op]
    return (source, made.op) if is_half and source.dtype.bits == 8 else None


_BY = {BITWISE_AND.name: 15, SHIFT_RIGHT.name: 4}
"""By what the low and the high half are taken out."""
