"""Arrays on the device as callers have them: torch tensors and CuPy arrays, read and made without a copy.

A call speaks one framework: that of its first array that is not NumPy's. Its stream is the one that the framework
works on at the time, so nothing has to wait for anything.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...ir.constant import Array
from ...ir.errors import InputError, UnsupportedError
from ...ir.plan import contiguous_strides
from ...ir.types import DType
from ..signature import ForeignArray

Shape = tuple[int, ...]


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
    """One kind of arrays on the device. `failures` is what it raises besides what the driver does."""

    failures: tuple[type[BaseException], ...]

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

    def stream(self) -> int:
        """The stream that the framework works on."""
        ...


class TorchArrays:
    """Tensors of torch on the CUDA device `index`: a `Framework`."""

    def __init__(self, index: int, download: Callable[[DeviceArray], Array]) -> None:
        import torch

        self._torch = torch
        self._empty_like = torch.empty_like
        self._index = index
        self._device = torch.device("cuda", index)
        self._download = download
        self._dtypes = _torch_dtypes(torch)
        self._torch_dtypes = {dtype: each for each, dtype in self._dtypes.items()}
        self._tensors = (torch.Tensor, torch.nn.Parameter)
        self._strided = torch.strided
        lost: tuple[type[BaseException], ...] = (torch.AcceleratorError,) if hasattr(torch, "AcceleratorError") else ()
        self.failures: tuple[type[BaseException], ...] = (torch.cuda.OutOfMemoryError, *lost)
        self.stream: Callable[[], int] = self._stream_of(torch)
        """See `Framework.stream`."""

    def wrap(self, given: Any) -> Any:
        """See `Framework.wrap`."""
        dtype = self._dtypes.get(given.dtype)
        if dtype is None:
            raise InputError(f"a tensor of {given.dtype} is given, which no program takes", remedy="cast it")
        if given.layout is not self._strided or given.is_nested or given.device.type not in ("cuda", "cpu"):
            kind = "nested" if given.is_nested else f"{given.layout} on {given.device}"
            raise InputError(
                f"a tensor is given that has no plain memory: {kind}",
                remedy="make it a dense one on the host or the GPU: tensor.to_dense(), torch.nested.to_padded_tensor",
            )
        given = given.resolve_conj().resolve_neg()
        if not given.is_cuda:
            return _on_host(self._torch, given, dtype)
        if given.device.index != self._index:
            raise InputError(
                f"a tensor lies on {given.device}, but the program runs on cuda:{self._index}",
                remedy=f'move it there: tensor.to("cuda:{self._index}")',
            )
        item = dtype.itemsize
        strides = tuple([stride * item for stride in given.stride()])
        return DeviceArray(given.data_ptr(), dtype, tuple(given.shape), strides, given, self._download)

    def address_like(self, given: Any, like: DeviceArray) -> int:
        """See `Framework.address_like`."""
        expected = like.native
        if given is not expected and (
            type(given) not in self._tensors
            or given.get_device() != self._index
            or given.layout is not self._strided
            or given.is_neg()  # as with `is_conj`, memory then holds other numbers
            or given.is_conj()
        ):
            return 0
        if given.dtype is not expected.dtype or given.shape != like.shape or not given.is_contiguous():
            return 0
        found: int = given.data_ptr()
        return found

    def copy_of(self, array: DeviceArray) -> Any:
        """See `Framework.copy_of`."""
        return array.native.clone()

    def fresh(self, like: DeviceArray) -> tuple[Any, int]:
        """See `Framework.fresh`."""
        made = self._empty_like(like.native)
        return made, made.data_ptr()

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """See `Framework.empty`."""
        made = self._torch.empty(shape, dtype=self._named(dtype), device=self._device)
        strides = contiguous_strides(shape, dtype.itemsize)
        return DeviceArray(made.data_ptr(), dtype, shape, strides, made, self._download)

    def over(self, address: int, shape: Shape, strides: Shape, dtype: np.dtype[Any]) -> Any:
        """See `Framework.over`."""
        wanted = self._named(dtype)
        if 0 in shape:
            return self._torch.empty(shape, dtype=wanted, device=self._device)
        item = dtype.itemsize
        nbytes = item + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        plain = self._torch.as_tensor(_Bytes(address, nbytes), device=self._device)
        return plain.view(wanted).as_strided(shape, [stride // item for stride in strides])

    def from_host(self, given: Array) -> Any:
        """See `Framework.from_host`."""
        whole = np.ascontiguousarray(given).reshape(-1).view(np.uint8)
        plain = self._torch.from_numpy(whole if whole.flags.writeable else whole.copy()).to(self._device)
        return plain.view(self._named(given.dtype)).reshape(given.shape)

    def _stream_of(self, torch: Any) -> Callable[[], int]:
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # quicker than the public way
        if raw is not None:
            return partial(raw, self._index)
        return lambda: int(torch.cuda.current_stream(self._index).cuda_stream)

    def _named(self, dtype: np.dtype[Any]) -> Any:
        if dtype not in self._torch_dtypes:
            raise UnsupportedError(f"torch has no dtype for {dtype}", remedy="pass NumPy or CuPy arrays")
        return self._torch_dtypes[dtype]


class CupyArrays:
    """Arrays of CuPy, and what CuPy can read without a copy, on the CUDA device `index`: a `Framework`."""

    failures: tuple[type[BaseException], ...] = ()

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
        if hasattr(given, "__cuda_array_interface__"):  # a property, which fails for one in main memory
            return self._cupy.asarray(given)
        if is_exchanged(type(given)) and lies_on_gpu(given):
            return self._cupy.from_dlpack(given)  # has the present stream wait for who writes there
        return np.asarray(given)

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

    def stream(self) -> int:
        """See `Framework.stream`."""
        return int(self._cupy.cuda.get_current_stream().ptr)


class _Bytes:
    """Bytes on the device, as torch and CuPy read them."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


HOST_ARRAYS = "numpy"

_GPUS = (2, 10, 13)  # DLPack's numbers for memory of CUDA, of ROCm, and managed by CUDA


def framework_of(given: Any) -> str:
    """The framework of an array: "numpy" for everything that lies in main memory, "cupy" for what CuPy can read."""
    kind: Any = type(given)  # which mypy does not take for hashable
    found = _framework_of_kind(kind)
    if found:
        return found
    return "cupy" if lies_on_gpu(given) else HOST_ARRAYS


def is_exchanged(kind: type) -> bool:
    """Whether arrays of a class are handed from one framework to another by DLPack."""
    return hasattr(kind, "__dlpack_device__") and hasattr(kind, "__dlpack__")


def lies_on_gpu(given: Any) -> bool:
    """Where an array lies that is exchanged by DLPack."""
    return given.__dlpack_device__()[0] in _GPUS


@cache
def _framework_of_kind(kind: type) -> str:
    """That of all arrays of a class; "" where they lie here or there."""
    names = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if "torch" in names:
        return "torch"
    if "cupy" in names or hasattr(kind, "__cuda_array_interface__"):
        return "cupy"
    return "" if HOST_ARRAYS not in names and is_exchanged(kind) else HOST_ARRAYS


_FRAMEWORKS: Mapping[str, type[TorchArrays] | type[CupyArrays]] = {"torch": TorchArrays, "cupy": CupyArrays}


def open_framework(name: str, index: int, download: Callable[[DeviceArray], Array]) -> Framework:
    """The framework of that name on a device."""
    return _FRAMEWORKS[name](index, download)


@cache
def _torch_dtypes(torch: Any) -> dict[Any, np.dtype[Any]]:
    names = {
        "bool": DType.BOOL,
        "uint8": DType.U8,
        "uint16": DType.U16,
        "uint32": DType.U32,
        "uint64": DType.U64,
        "int8": DType.I8,
        "int16": DType.I16,
        "int32": DType.I32,
        "int64": DType.I64,
        "float16": DType.F16,
        "bfloat16": DType.BF16,
        "float32": DType.F32,
        "float64": DType.F64,
        "float8_e4m3fn": DType.F8E4M3FN,
        "float8_e4m3fnuz": DType.F8E4M3FNUZ,
        "float8_e5m2": DType.F8E5M2,
        "float8_e5m2fnuz": DType.F8E5M2FNUZ,
        "float8_e8m0fnu": DType.F8E8M0,
        "complex64": DType.C64,
        "complex128": DType.C128,
    }
    return {getattr(torch, name): dtype.numpy for name, dtype in names.items() if hasattr(torch, name)}


def _on_host(torch: Any, given: Any, dtype: np.dtype[Any]) -> Array:
    """A tensor in main memory as a NumPy array over the same bytes, also in dtypes that NumPy has not."""
    plain = given.detach()
    if dtype.kind != "V" and dtype.isbuiltin == 1:
        found: Array = plain.numpy()
        return found
    words = {1: torch.uint8, 2: torch.int16}[dtype.itemsize]
    return np.asarray(plain.view(words).numpy()).view(dtype)
