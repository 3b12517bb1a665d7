"""Memory on the host: bytes at a fixed, aligned address."""

import numpy as np

from ...ir.constant import Array
from ...ir.errors import CaptureError, ResourceError, out_of_memory
from ...ir.plan import View
from ..memory import available_bytes, size_text

POISON = 0xFF
"""The byte that stands where nothing should be read: NaN in every float dtype, -1 in signed integers."""


class HostArena:
    """`nbytes` bytes at `address`, a multiple of `alignment`. They hold poison until something is written."""

    def __init__(self, nbytes: int, alignment: int) -> None:
        limit = available_bytes()
        if limit is not None and nbytes > limit:
            raise ResourceError(
                f"the arena takes {size_text(nbytes)}, but {size_text(limit)} are available",
                remedy="allow smaller sizes or fewer buckets",
            )
        try:
            memory = np.full(nbytes + alignment, POISON, dtype=np.uint8)
        except MemoryError as error:
            raise out_of_memory(f"an arena of {size_text(nbytes)}", remedy="allow smaller sizes") from error
        start = -address_of(memory) % alignment
        self._bytes: Array | None = memory[start : start + nbytes]
        self.nbytes = nbytes
        self.address = address_of(memory) + start

    @property
    def bytes(self) -> Array:
        """The memory, u8[nbytes]. Raises `CaptureError` once it was given back."""
        if self._bytes is None:
            raise CaptureError("the arena was given back", remedy="a program cannot run after close()")
        return self._bytes

    def close(self) -> None:
        """Gives the memory back; recordings that refer to it refuse to be replayed."""
        self._bytes = None
        self.address = 0


class ArenaPart:
    """`nbytes` bytes from `offset` on of another arena, which owns them."""

    def __init__(self, whole: "HostArena | ArenaPart", offset: int, nbytes: int) -> None:
        self._whole = whole
        self._offset = offset
        self.nbytes = nbytes

    @property
    def bytes(self) -> Array:
        """The memory, u8[nbytes]. Raises `CaptureError` once the arena was given back."""
        return self._whole.bytes[self._offset : self._offset + self.nbytes]

    @property
    def address(self) -> int:
        """Where it lies; 0 once the arena was given back."""
        return self._whole.address + self._offset if self._whole.address else 0

    def close(self) -> None:
        """Nothing: the arena is its owner's."""


def address_of(array: Array) -> int:
    """Where the first element lies."""
    return int(array.__array_interface__["data"][0])


def array_at(memory: Array, view: View) -> Array:
    """The array that `view` describes in the bytes of its buffer."""
    return np.ndarray(view.shape, view.dtype.numpy, memory, view.offset, view.strides)
