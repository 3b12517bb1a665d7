"""Device memory of a program: arenas, constants that all plans share, pinned memory on the way to and from the host."""

import weakref
from collections.abc import Hashable

import numpy as np

from ....ir.constant import Array, Constant
from ....ir.errors import ResourceError
from ...memory import size_text
from ..kernel_ir.launch import Packed
from .device_constants import DeviceConstants
from .packing import packed_bytes
from .protocol import Driver, Memory

MOST_STAGED = 64 << 20
"""Larger arrays are copied from where they are: pinning as much memory again costs more than it saves."""

_FIRST_STAGE = 1 << 20


class DeviceArena:
    """Bytes that plans share in turn: an `Arena`."""

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self._memory: Memory | None = memory
        self.nbytes = nbytes
        self.address = memory.address

    def close(self) -> None:
        """See `Arena.close`."""
        self._memory = None
        self.address = 0


class Arenas:
    """Hands out arenas of one program, whose plans never run at the same time: all lie in one piece if it suffices."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._largest: weakref.ref[Memory] | None = None

    def reserve(self, nbytes: int) -> DeviceArena:
        """An arena. Raises `ResourceError`, with the numbers, when there is not that much memory."""
        shared = self._largest() if self._largest is not None else None
        if shared is None or shared.nbytes < nbytes:
            shared = self._allocated(nbytes)
            self._largest = weakref.ref(shared)
        return DeviceArena(shared, nbytes)

    def holds(self, arena: DeviceArena) -> bool:
        """Whether an arena lies in the piece that new ones lie in."""
        shared = self._largest() if self._largest is not None else None
        return shared is not None and arena.address == shared.address

    def covers(self, address: int) -> bool:
        """Whether an address lies in the piece that new arenas lie in."""
        shared = self._largest() if self._largest is not None else None
        return shared is not None and shared.address <= address < shared.address + shared.nbytes

    @property
    def nbytes(self) -> int:
        """The size of the piece that new arenas lie in."""
        shared = self._largest() if self._largest is not None else None
        return 0 if shared is None else shared.nbytes

    def _allocated(self, nbytes: int) -> Memory:
        free = self._driver.available_bytes()
        if nbytes > free:
            raise ResourceError(
                f"the arena takes {size_text(nbytes)}, but {size_text(free)} are free on the device",
                remedy="allow smaller sizes or fewer buckets, or give device memory back",
            )
        return self._driver.allocate(max(nbytes, 1))


class Constants:
    """Contents on one device, kept while some plan holds them: uploaded once, or read where they lie there already."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._residents = DeviceConstants(driver)
        self._kept: weakref.WeakValueDictionary[Hashable, Memory] = weakref.WeakValueDictionary()

    def plain(self, content: Constant) -> Memory:
        """A constant as it is."""
        return self.packed(Packed(content, "contiguous"))

    def packed(self, packed: Packed) -> Memory:
        """A constant in its packing."""
        key = (packed.constant.digest, packed.packing, packed.options)
        found = self._kept.get(key)
        if found is None:
            found = self._residents.memory(packed) or self._uploaded(packed_bytes(packed))
            self._kept[key] = found
        return found

    def _uploaded(self, content: Array) -> Memory:
        memory = self._driver.allocate(max(content.nbytes, 1))
        self._driver.copy(memory.address, content.ctypes.data, content.nbytes, 0)
        self._driver.synchronize(0)
        return memory

    @property
    def nbytes(self) -> int:
        """What all of them take."""
        return sum(memory.nbytes for memory in self._kept.values())


class Staging:
    """Pinned memory that arrays of the host pass through. `rewind` says that what passed before has arrived."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._bytes: Array = np.empty(0, dtype=np.uint8)
        self._used = 0
        self.stream: int | None = None
        """The stream of copies that may still be under way, None when there are none."""

    def rewind(self) -> None:
        """Makes all of it free again, after waiting for what is under way."""
        if self.stream is not None:
            self._driver.synchronize(self.stream)
            self.stream = None
        self._used = 0

    def upload(self, address: int, array: Array, stream: int) -> None:
        """Copies a whole array to a contiguous place on the device; the array may change at once."""
        if array.nbytes > MOST_STAGED:
            whole = np.ascontiguousarray(array)
            self._driver.copy(address, whole.ctypes.data, whole.nbytes, stream)
            self._driver.synchronize(stream)
            return
        staged = self._taken(array.nbytes)
        np.copyto(np.ndarray(array.shape, array.dtype, staged), array)
        self._driver.copy(address, staged.ctypes.data, array.nbytes, stream)
        self.stream = stream

    def download(self, address: int, nbytes: int, stream: int) -> Array:
        """Bytes of the device, u8[nbytes], after waiting for the stream; valid until more is staged."""
        target = self._taken(nbytes) if nbytes <= MOST_STAGED else np.empty(nbytes, dtype=np.uint8)
        self._driver.copy(target.ctypes.data, address, nbytes, stream)
        self._driver.synchronize(stream)
        self.stream = None
        self._used = 0
        return target

    def _taken(self, nbytes: int) -> Array:
        start = -(-self._used // 64) * 64
        if start + nbytes > self._bytes.nbytes:
            self.rewind()
            start = 0
            if nbytes > self._bytes.nbytes:
                self._bytes = self._driver.pinned(max(nbytes, 2 * self._bytes.nbytes, _FIRST_STAGE))
        self._used = start + nbytes
        return self._bytes[start : start + nbytes]
