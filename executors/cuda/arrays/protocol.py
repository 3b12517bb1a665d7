"""Arrays on the device, as programs see them, and what is asked of the frameworks whose arrays they are."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from ....ir.constant import Array
from ....ir.plan import contiguous_strides
from ...signature import ForeignArray

Shape = tuple[int, ...]


class Rows(NamedTuple):
    """Elements as rows of `width` bytes; how far rows are apart in the two places that they are copied between."""

    number: int
    width: int
    target_pitch: int
    source_pitch: int


_LEAST_WIDTH = 512
_MOST_PITCH = (1 << 31) - 1


def as_rows(shape: Shape, target: Shape, source: Shape, itemsize: int) -> Rows | None:
    """What one copy of rows does; None where elements lie otherwise by these strides in bytes, or in short rows."""
    axes = [each for each in zip(shape, target, source, strict=True) if each[0] != 1]
    width = itemsize
    while axes and axes[-1][1] == axes[-1][2] == width:
        width *= axes.pop()[0]
    if not axes:
        return Rows(1, width, width, width)
    count, *pitches = axes.pop()
    for size, *strides in reversed(axes):
        if strides != [count * pitch for pitch in pitches]:
            return None
        count *= size
    if width < _LEAST_WIDTH or not all(width <= pitch <= _MOST_PITCH for pitch in pitches):
        return None
    return Rows(count, width, *pitches)


class Flags(NamedTuple):
    """What NumPy's flags say of how an array lies."""

    c_contiguous: bool
    aligned: bool = True
    writeable: bool = True


class DeviceArray(ForeignArray):
    """Elements on the device at `address`; strides in bytes. `native` is the caller's array, which keeps the memory.

    `download` brings bytes to the host, for NumPy.
    """

    __slots__ = ("_download", "address", "dtype", "native", "shape", "strides")

    def __init__(
        self,
        address: int,
        dtype: np.dtype[Any],
        shape: Shape,
        strides: Shape,
        native: Any,
        download: Callable[["DeviceArray"], Array],
    ) -> None:
        self.address = address
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.native = native
        self._download = download

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps; strides of axes that have one element are free."""
        expected = contiguous_strides(self.shape, self.dtype.itemsize)
        if self.strides == expected or 0 in self.shape:
            return True
        steps = zip(self.shape, self.strides, expected, strict=True)
        return all(stride == wanted or size == 1 for size, stride, wanted in steps)

    @property
    def flags(self) -> Flags:
        return Flags(self.is_contiguous)

    @property
    def size(self) -> int:
        count = 1
        for each in self.shape:
            count *= each
        return count

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def detached(self) -> "DeviceArray":
        """The same without the caller's array: to compare others with."""
        kind = getattr(self.native, "dtype", None)
        return DeviceArray(self.address, self.dtype, self.shape, self.strides, _Typed(kind), self._download)

    def max(self) -> Any:
        """The largest element."""
        return np.asarray(self).max()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self._download(self), dtype=dtype)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} at {self.address:#x})"


class _Typed:
    """What is left of a caller's array when only its dtype matters."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype


class Framework(Protocol):
    """One kind of arrays on the device. `failures` is what it raises besides what the driver does.

    Without `has_device` it can have arrays in main memory only, as a torch without CUDA: of its methods `wrap` and
    `from_host` can be called, and the latter gives an array there.
    """

    failures: tuple[type[BaseException], ...]
    has_device: bool

    def wrap(self, given: Any) -> Any:
        """An array of this kind as a `DeviceArray`; one in main memory as a NumPy array."""
        ...

    def address_like(self, given: Any, like: DeviceArray) -> int:
        """The address of an array of the dtype and shape of `like`, contiguous on the same device; 0 of another."""
        ...

    def copy_of(self, array: DeviceArray) -> Any:
        """The elements of an array that `over` made as a new array, copied on the framework's present stream."""
        ...

    def fresh(self, like: DeviceArray) -> tuple[Any, int]:
        """A new array like one that `over` made, without its elements, on the present stream; and its address."""
        ...

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """A new array, made on the framework's present stream."""
        ...

    def over(self, address: int, shape: Shape, strides: Shape, dtype: np.dtype[Any]) -> Any:
        """The framework's own array over memory that somebody else keeps."""
        ...

    def from_host(self, given: Array) -> Any:
        """A NumPy array as one of this kind, on the device."""
        ...

    def has_dtype(self, dtype: np.dtype[Any]) -> bool:
        """Whether it has arrays of this dtype."""
        ...

    def wraps(self, native: Any) -> bool:
        """Whether an array is one of this kind."""
        ...

    def on_stream(self, stream: int) -> AbstractContextManager[object]:
        """While entered, the framework works on that stream of the device."""
        ...

    def stream(self) -> int:
        """The stream that the framework works on."""
        ...
