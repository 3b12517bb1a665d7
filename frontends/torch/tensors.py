"""Tensors of PyTorch as NumPy arrays and back, over the same memory, and weights as constants.

NumPy does not have bf16 and the 8-bit floats of its own, so their bits change hands as integers.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from ...ir.constant import Array, Constant, Residence
from ...ir.errors import UnsupportedError
from ...ir.types import DType, TensorType
from .dtypes import NUMPY_LACKS, dtype_of, torch_dtype_of


def array_of(tensor: Any) -> Array:
    """A NumPy array over the memory of a dense tensor; of one on another device a copy in main memory."""
    require_dense(tensor, "a tensor")
    with unset_fake_temporarily():  # in a trace's fake mode a view of a real tensor is fake
        return _plain_array(tensor.detach().cpu().resolve_conj().resolve_neg())


def require_dense(tensor: Any, name: str) -> None:
    """Raises `UnsupportedError` for a tensor that is no array: nested, of another layout, or quantized."""
    if tensor.is_nested:
        raise UnsupportedError(f"{name} is nested, which no array is", remedy="pad it: .to_padded_tensor(0.0)")
    if tensor.layout is not torch.strided:
        raise UnsupportedError(f"{name} has the layout {tensor.layout} of no array", remedy="call .to_dense() first")
    if tensor.is_quantized:
        raise UnsupportedError(
            f"{name} is quantized by PyTorch ({tensor.dtype}), which no array is", remedy="call .dequantize() first"
        )


def _plain_array(plain: Any) -> Array:
    dtype = dtype_of(plain.dtype)
    bits = NUMPY_LACKS.get(dtype)
    if bits is None:
        return np.asarray(plain.numpy())
    return np.asarray(plain.view(bits).numpy()).view(dtype.numpy)


def tensor_of(array: Array) -> Any:
    """A tensor over the memory of an array; a copy where that may not be written to or runs backwards.

    One that is contiguous has PyTorch's strides also along axes that any stride steps over.
    """
    if not array.size:  # a memory that can grow, as that of PyTorch's own tensors
        return torch.empty(array.shape, dtype=torch_dtype_of(DType.of(array.dtype)))
    plain = array
    if not plain.flags.writeable or any(stride < 0 for stride in plain.strides):
        plain = plain.copy()
    if plain.flags.c_contiguous and 1 in plain.shape:
        plain = plain.reshape(-1).reshape(plain.shape)
    dtype = DType.of(plain.dtype)
    bits = NUMPY_LACKS.get(dtype)
    if bits is None:
        return torch.from_numpy(plain)
    carrier = np.int16 if bits is torch.int16 else np.uint8
    return torch.from_numpy(np.ascontiguousarray(plain).reshape(plain.shape).view(carrier)).view(torch_dtype_of(dtype))


def type_of(tensor: Any) -> TensorType:
    """The static type of a tensor."""
    return TensorType(dtype_of(tensor.dtype), tuple(int(size) for size in tensor.shape))


BROUGHT_BYTES = 1 << 20
"""Up to this size vectors and matrices on a device are read into main memory, so that passes can look at them."""
BROUGHT_KERNEL_BYTES = 64 << 20
"""The same for kernels of convolutions, which take up norms and change their layout."""


class SharedConstants:
    """Constants over the memory of tensors: one for all tensors that are the same memory, such as tied weights."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Constant] = {}

    def of(self, tensor: Any) -> Constant:
        """The constant of a tensor. One without content (fake, or on the device "meta") fails when it is read."""
        key = _memory_key(tensor)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = _constant(tensor)
        return found


def _has_content(tensor: Any) -> bool:
    return tensor.device.type != "meta" and not isinstance(tensor, FakeTensor)


def _memory_key(tensor: Any) -> Hashable:
    if not _has_content(tensor) or tensor.layout is not torch.strided:
        return id(tensor)
    return (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device, tensor.numel() == 0)


def _constant(tensor: Any) -> Constant:
    if not _has_content(tensor):
        return Constant.elsewhere(type_of(tensor), _no_content)
    if tensor.device.type != "cpu" and not is_brought(tensor):
        return Constant.elsewhere(type_of(tensor), lambda: array_of(tensor), _residence(tensor))
    return Constant(array_of(tensor))


def is_brought(tensor: Any) -> bool:
    """Whether a weight on a device is read into main memory, so that passes can look at it and change it."""
    nbytes = tensor.numel() * tensor.element_size()
    return bool(nbytes <= (BROUGHT_BYTES if tensor.dim() <= 2 else BROUGHT_KERNEL_BYTES))


def _residence(tensor: Any) -> Residence | None:
    if tensor.is_conj() or tensor.is_neg():
        return None  # its bytes are not its content
    item = tensor.element_size()
    strides = tuple([stride * item for stride in tensor.stride()])
    return Residence(str(tensor.device), tensor.data_ptr(), strides, tensor.detach())


def _no_content() -> Array:
    raise UnsupportedError(
        "a weight that is fake or on the device 'meta' has no content", remedy="load the weights before the model runs"
    )
