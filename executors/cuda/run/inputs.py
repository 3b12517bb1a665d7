"""Inputs that are smaller than their bucket: the real part is copied, the rest filled."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ....ir.constant import Constant
from ....ir.plan import View, contiguous_strides
from ..arrays.protocol import DeviceArray

if TYPE_CHECKING:
    from .device import CudaDevice


def load_padded(device: "CudaDevice", address: int, view: View, given: Any, fill: Any) -> None:
    """Copies `given` to the front of a contiguous place, and fills the rest with `fill` (None: it stays)."""
    if isinstance(given, DeviceArray):
        if fill is not None:
            _fill(device, address, view, fill)
        _copy_front(device, address, view, given)
        return
    dtype = view.dtype.numpy
    whole = np.full(view.shape, 0 if fill is None else fill, dtype)
    whole[tuple([slice(size) for size in given.shape])] = given
    device.staging.upload(address, whole, device.stream)


def _fill(device: "CudaDevice", address: int, view: View, fill: Any) -> None:
    if not np.asarray(fill, view.dtype.numpy).tobytes().strip(b"\0"):
        device.driver.fill(address, 0, view.extent, device.stream)
        return
    template = Constant(np.full(view.shape, fill, view.dtype.numpy))
    memory = device.shared_constant(template)
    device.driver.copy(address, memory.address, view.extent, device.stream)


def _copy_front(device: "CudaDevice", address: int, view: View, given: DeviceArray) -> None:
    if not given.size:
        return
    item = given.dtype.itemsize
    if given.is_contiguous and given.shape[1:] == view.shape[1:]:
        device.driver.copy(address, given.address, given.nbytes, device.stream)
        return
    into = (address, contiguous_strides(view.shape, item))
    device.driver.copy_strided(into, (given.address, given.strides), given.shape, item, device.stream)
