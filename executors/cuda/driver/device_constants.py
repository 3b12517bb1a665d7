"""Constants that lie on the device already: read where they are, or put into another layout there.

Nothing passes through main memory. A transposed weight is the same bytes by other strides, and weights side by side
are put into one piece once; elements of the pieces that are next to each other in memory stay so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ....ir.constant import Constant
from ....ir.ops.rules import normal_axes, normal_axis
from ....ir.plan import contiguous_strides
from ..kernel_ir.launch import Packed
from .held import Held, Shape
from .protocol import Driver, Memory
from .resident_nibbles import resident_nibbles


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


_RULES: Mapping[str, Callable[[DeviceConstants, Sequence[Held], Mapping[str, Any], Shape], Held]] = {
    "transpose": _transpose,
    "reshape": _reshape,
    "squeeze": _reshape,
    "unsqueeze": _reshape,
    "concat": _concat,
}
"""How content on the device is laid out anew, by the op that it is derived with."""
