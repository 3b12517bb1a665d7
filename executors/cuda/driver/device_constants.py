"""Constants that lie on the device already: read where they are, or put into another layout there.

Nothing passes through main memory. A transposed weight is the same bytes by other strides, and weights side by side
are put into one piece once; elements of the pieces that are next to each other in memory stay so.

A model that keeps two numbers in a byte says so by a mask, a shift and a concat of both, low half first; reshapes, a
transpose and concats of several weights may follow. The bytes are what the packing "nibbles" would make of the numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ....ir.constant import Constant
from ....ir.op import Trait
from ....ir.ops import native
from ....ir.ops.known import BITWISE_AND, CAST, CONCAT, SHIFT_RIGHT, TRANSPOSE
from ....ir.ops.rules import normal_axes, normal_axis
from ....ir.plan import contiguous_strides
from ..kernel_ir.launch import Packed
from .protocol import Driver, Memory

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Held:
    """Content on the device by strides in bytes; `owner` keeps the memory."""

    address: int
    shape: Shape
    strides: Shape
    itemsize: int
    owner: object

    @property
    def nbytes(self) -> int:
        """What the elements take without gaps."""
        return prod(self.shape) * self.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return self.strides == contiguous_strides(self.shape, self.itemsize)


class Borrowed:
    """Memory of somebody else, who keeps it as long as `owner` lives: a `Memory`."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.address = address
        self.nbytes = nbytes
        self._owner = owner


class DeviceConstants:
    """Finds contents on one device."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._name = f"cuda:{driver.index}"

    def memory(self, packed: Packed) -> Memory | None:
        """A packed constant without a copy through main memory; None where that cannot be."""
        held = self._laid(packed)
        if held is None:
            return None
        whole = held if held.is_contiguous and held.address % ALIGNMENT == 0 else self.copied(held)
        return Borrowed(whole.address, whole.nbytes, whole.owner)

    def _laid(self, packed: Packed) -> Held | None:
        if packed.packing == "nibbles":
            return resident_nibbles(packed.constant, packed.options, self._held, self._joined)
        held = self._held(packed.constant)
        if held is None or packed.packing == "contiguous":
            return held
        return _permuted(held, packed.options) if packed.packing == "transposed" else None

    def _held(self, content: Constant) -> Held | None:
        if content.residence is not None:
            place = content.residence
            if place.device != self._name:
                return None
            return Held(place.address, content.shape, place.strides, content.dtype.numpy.itemsize, place.owner)
        derivation = content.derivation
        if derivation is None or derivation.op not in _RULES:
            return None
        operands = [self._held(each) for each in derivation.operands]
        present = [each for each in operands if each is not None]
        if len(present) < len(operands):
            return None
        return _RULES[derivation.op](self, present, derivation.attrs, content.shape)

    def copied(self, held: Held) -> Held:
        """In memory of its own, in row-major order."""
        return self._joined([held], 0, held.shape, range(len(held.shape)))

    def joined_as_they_lie(self, parts: Sequence[Held], axis: int, shape: Shape) -> Held:
        """Parts side by side in one piece, its axes in memory in the order that they have in the first part."""
        strides = parts[0].strides
        return self._joined(parts, axis, shape, sorted(range(len(shape)), key=lambda each: -strides[each]))

    def _joined(self, parts: Sequence[Held], axis: int, shape: Shape, order: Sequence[int]) -> Held:
        first = parts[0]
        laid = contiguous_strides([shape[each] for each in order], first.itemsize)
        strides = tuple(laid[order.index(each)] for each in range(len(shape)))
        memory = self._driver.allocate(max(prod(shape) * first.itemsize, 1))
        at = memory.address
        for part in parts:
            into, source = (at, strides), (part.address, part.strides)
            self._driver.copy_strided(into, source, part.shape, part.itemsize, 0)
            at += part.shape[axis] * strides[axis]
        self._driver.synchronize(0)
        return Held(memory.address, tuple(shape), strides, first.itemsize, memory)


ALIGNMENT = 256
"""Kernels may read constants in vectors, as far as what the driver allocates is aligned."""


def _permuted(held: Held, perm: Sequence[int]) -> Held:
    axes = normal_axes(tuple(perm), len(held.shape))
    shape, strides = (tuple(each[axis] for axis in axes) for each in (held.shape, held.strides))
    return replace(held, shape=shape, strides=strides)


def _transpose(_residents: DeviceConstants, operands: Sequence[Held], attrs: Mapping[str, Any], _shape: Shape) -> Held:
    return _permuted(operands[0], attrs["perm"])


def _reshape(constants: DeviceConstants, operands: Sequence[Held], _attrs: Mapping[str, Any], shape: Shape) -> Held:
    held = operands[0] if operands[0].is_contiguous else constants.copied(operands[0])
    return replace(held, shape=shape, strides=contiguous_strides(shape, held.itemsize))


def _concat(constants: DeviceConstants, operands: Sequence[Held], attrs: Mapping[str, Any], shape: Shape) -> Held:
    return constants.joined_as_they_lie(operands, normal_axis(attrs["axis"], len(shape)), shape)


def _slice(_constants: DeviceConstants, operands: Sequence[Held], attrs: Mapping[str, Any], shape: Shape) -> Held:
    held = operands[0]
    address, strides = held.address, list(held.strides)
    axes = normal_axes(attrs["axes"], len(held.shape))
    for axis, start, end, step in zip(axes, attrs["starts"], attrs["ends"], attrs["steps"], strict=True):
        first, _, _ = slice(start, end, step).indices(held.shape[axis])
        address += first * held.strides[axis]
        strides[axis] *= step
    return replace(held, address=address, shape=shape, strides=tuple(strides))


_RULES: Mapping[str, Callable[[DeviceConstants, Sequence[Held], Mapping[str, Any], Shape], Held]] = {
    "transpose": _transpose,
    "reshape": _reshape,
    "squeeze": _reshape,
    "unsqueeze": _reshape,
    "concat": _concat,
    "slice": _slice,
}
"""How content on the device is laid out anew, by the op that it is derived with."""


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
