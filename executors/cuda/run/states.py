"""Tensors of torch on a GPU as states: programs update them where they lie, and torch sees every update."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ....ir.constant import Array
from ..arrays.protocol import DeviceArray
from ..arrays.torch import TorchArrays

ALIGNMENT = 256
"""What kernels count on where a state begins."""


class DeviceState(DeviceArray):
    """A contiguous tensor as a state of a `StateStore`.

    Copies wait for the whole device: they are rare, and programs work on other streams than torch does.
    """

    __slots__ = ("_arrays",)

    def __init__(self, tensor: Any, arrays: TorchArrays) -> None:
        held = arrays.wrap(tensor)
        super().__init__(held.address, held.dtype, held.shape, held.strides, tensor, _downloaded)
        self._arrays = arrays

    def copy(self) -> "DeviceState":
        """The same content in memory of its own."""
        with waited(self.native):
            return DeviceState(self.native.clone(), self._arrays)

    def __setitem__(self, _everything: Any, content: Any) -> None:
        given = content.native if isinstance(content, DeviceArray) else self._arrays.from_host(np.asarray(content))
        with waited(self.native):
            self.native.copy_(given)


@contextmanager
def waited(tensor: Any) -> Iterator[None]:
    """Waits for the device of a tensor before and after what is done within."""
    import torch

    torch.cuda.synchronize(tensor.device)
    yield
    torch.cuda.synchronize(tensor.device)


def is_state(tensor: Any) -> bool:
    """Whether programs can update a tensor where it lies."""
    return bool(tensor.is_cuda and tensor.is_contiguous() and tensor.data_ptr() % ALIGNMENT == 0 and tensor.numel())


def device_state(tensor: Any) -> DeviceState:
    """A tensor for which `is_state` holds, as a state."""
    plain = tensor.detach()
    return DeviceState(plain, TorchArrays(plain.device.index, _downloaded))


def _downloaded(array: DeviceArray) -> Array:
    import torch

    plain = array.native.cpu().contiguous()
    words = plain.view(torch.uint8) if plain.dim() else plain.reshape(1).view(torch.uint8)
    return np.asarray(words.numpy()).view(array.dtype).reshape(array.shape)
