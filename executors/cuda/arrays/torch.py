"""Tensors of torch on a CUDA device, read and made without a copy."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

import numpy as np

from ....ir.constant import Array
from ....ir.errors import InputError, UnsupportedError
from ....ir.plan import contiguous_strides
from ....ir.types import DType
from .protocol import DeviceArray, Shape


class TorchArrays:
    """Tensors of torch on the CUDA device `index`: a `Framework`."""

    def __init__(self, index: int, download: Callable[[DeviceArray], Array]) -> None:
        import torch

        self._torch = torch
        self._index = index
        self.has_device: bool = torch.cuda.is_available()
        self._empty_strided = _maker(torch, is_cuda=self.has_device)
        self._device = torch.device("cuda", index) if self.has_device else torch.device("cpu")
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
        native = like.native
        made = self._empty_strided(like.shape, native.stride(), native.dtype)
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

    def has_dtype(self, dtype: np.dtype[Any]) -> bool:
        """See `Framework.has_dtype`."""
        return dtype in self._torch_dtypes

    def wraps(self, native: Any) -> bool:
        """See `Framework.wraps`."""
        return isinstance(native, self._torch.Tensor)

    def on_stream(self, stream: int) -> AbstractContextManager[object]:
        """See `Framework.on_stream`."""
        if stream == self.stream():
            return nullcontext()
        cuda = self._torch.cuda
        given = cuda.ExternalStream(stream, self._device) if stream else cuda.default_stream(self._device)
        entered: AbstractContextManager[object] = cuda.stream(given)
        return entered

    def _stream_of(self, torch: Any) -> Callable[[], int]:
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # quicker than the public way
        if raw is not None:
            return partial(raw, self._index)
        return lambda: int(torch.cuda.current_stream(self._index).cuda_stream)

    def _named(self, dtype: np.dtype[Any]) -> Any:
        if dtype not in self._torch_dtypes:
            raise UnsupportedError(f"torch has no dtype for {dtype}", remedy="pass NumPy or CuPy arrays")
        return self._torch_dtypes[dtype]


class _Bytes:
    """Bytes on the device, as torch reads them."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _maker(torch: Any, *, is_cuda: bool) -> Callable[[Shape, Shape, Any], Any]:
    """Makes new tensors of a shape, strides and dtype; on the present GPU without the dispatcher, as inductor does."""
    quick = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None) if is_cuda else None
    if quick is not None:
        found: Callable[[Shape, Shape, Any], Any] = quick
        return found
    device = "cuda" if is_cuda else "cpu"
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device)


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
