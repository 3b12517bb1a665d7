"""Arrays of CuPy on a CUDA device, and what it reads by DLPack or `__cuda_array_interface__`, without a copy."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ....ir.constant import Array
from ....ir.errors import InputError
from .protocol import DeviceArray, Shape

_GPUS = (2, 10, 13)  # DLPack's numbers for memory of CUDA, of ROCm, and managed by CUDA


class CupyArrays:
    """Arrays of CuPy, and what CuPy can read without a copy, on the CUDA device `index`: a `Framework`."""

    failures: tuple[type[BaseException], ...] = ()
    has_device = True

    def __init__(self, index: int, download: Callable[[DeviceArray], Array]) -> None:
        import cupy

        self._cupy = cupy
        self._index = index
        self._download = download

    def wrap(self, given: Any) -> Any:
        """See `Framework.wrap`."""
        array = given if isinstance(given, self._cupy.ndarray) else self._read(given)
        if isinstance(array, np.ndarray):
            return array
        if array.device.id != self._index:
            raise InputError(
                f"an array lies on device {array.device.id}, but the program runs on {self._index}",
                remedy="copy it there",
            )
        return self._wrapped(array)

    def _read(self, given: Any) -> Any:
        try:
            return self._taken(given)
        except self._cupy.cuda.runtime.CUDARuntimeError:  # a RuntimeError, but no fault of the array
            raise
        except _REFUSALS as error:
            raise _refusal(given, error) from error

    def _taken(self, given: Any) -> Any:
        if hasattr(given, "__cuda_array_interface__"):  # a property, which fails for one in main memory
            return self._cupy.asarray(given)
        if is_exchanged(type(given)) and lies_on_gpu(given):
            return self._cupy.from_dlpack(given)  # has the present stream wait for who writes there
        if hasattr(given, "__array__") or not is_exchanged(type(given)):
            return np.asarray(given)
        return np.from_dlpack(given)

    def _wrapped(self, array: Any) -> DeviceArray:
        dtype = np.dtype(array.dtype)
        return DeviceArray(int(array.data.ptr), dtype, array.shape, array.strides, array, self._download)

    def address_like(self, given: Any, like: DeviceArray) -> int:
        """See `Framework.address_like`."""
        if type(given) is not self._cupy.ndarray or given.dtype != like.dtype or given.shape != like.shape:
            return 0
        found: int = given.data.ptr if given.flags.c_contiguous and given.data.device_id == self._index else 0
        return found

    def copy_of(self, array: DeviceArray) -> Any:
        """See `Framework.copy_of`."""
        return array.native.copy()

    def fresh(self, like: DeviceArray) -> tuple[Any, int]:
        """See `Framework.fresh`."""
        made = self._cupy.ndarray(like.shape, like.dtype)
        return made, made.data.ptr

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """See `Framework.empty`."""
        return self._wrapped(self._cupy.empty(shape, dtype))

    def over(self, address: int, shape: Shape, strides: Shape, dtype: np.dtype[Any]) -> Any:
        """See `Framework.over`."""
        memory = self._cupy.cuda.UnownedMemory(address, 0, None, self._index)
        return self._cupy.ndarray(shape, dtype, self._cupy.cuda.MemoryPointer(memory, 0), strides)

    def from_host(self, given: Array) -> Any:
        """See `Framework.from_host`."""
        return self._cupy.asarray(given)

    def has_dtype(self, dtype: np.dtype[Any]) -> bool:
        """See `Framework.has_dtype`."""
        return dtype.isbuiltin == 1 and not dtype.hasobject

    def wraps(self, native: Any) -> bool:
        """See `Framework.wraps`."""
        return isinstance(native, self._cupy.ndarray)

    def on_stream(self, stream: int) -> AbstractContextManager[object]:
        """See `Framework.on_stream`."""
        entered: AbstractContextManager[object] = self._cupy.cuda.ExternalStream(stream, self._index)
        return entered

    def stream(self) -> int:
        """See `Framework.stream`."""
        return int(self._cupy.cuda.get_current_stream().ptr)


def is_exchanged(kind: type) -> bool:
    """Whether arrays of a class are handed from one framework to another by DLPack."""
    return hasattr(kind, "__dlpack_device__") and hasattr(kind, "__dlpack__")


def lies_on_gpu(given: Any) -> bool:
    """Where an array lies that is exchanged by DLPack. Raises `InputError` for one that does not say so."""
    try:
        return given.__dlpack_device__()[0] in _GPUS
    except _REFUSALS as error:
        raise _refusal(given, error) from error


_REFUSALS = (TypeError, ValueError, BufferError, RuntimeError)
"""What DLPack and `__cuda_array_interface__` raise: other dtypes, versions and devices, arrays in several places."""


def _refusal(given: Any, error: Exception) -> InputError:
    kind = type(given)
    return InputError(
        f"a {kind.__module__}.{kind.__qualname__} cannot be read where it lies: {error}",
        remedy="pass an array of torch or CuPy on the same device, or a NumPy array",
    )
