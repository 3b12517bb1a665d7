"""What CuPy hands over and reads without a copy: on a module that is played."""

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from capgraph.executors.cuda.arrays import DeviceArray
from capgraph.executors.cuda.cupy_arrays import CupyArrays
from capgraph.ir.errors import InputError

from tests.executors.cuda.exchange import CPU, CUDA, Exchanged


class CupyArray:
    """CuPy's array, as far as it is looked at."""

    def __init__(self, content: Any, device: int = 0) -> None:
        self.content = content
        self.dtype, self.shape, self.strides = content.dtype, content.shape, content.strides
        self.device = SimpleNamespace(id=device)
        self.data = SimpleNamespace(ptr=content.ctypes.data, device_id=device)
        self.flags = SimpleNamespace(c_contiguous=content.flags.c_contiguous)


@pytest.fixture
def cupy() -> Iterator[Any]:
    module: Any = ModuleType("cupy")
    module.ndarray = CupyArray
    module.from_dlpack = lambda given: CupyArray(given.content)
    module.asarray = lambda given: CupyArray(given.content)
    with patch.dict(sys.modules, {"cupy": module}):
        yield CupyArrays(0, lambda array: array.native.content)


def test_what_is_exchanged_is_read_where_it_lies(cupy: CupyArrays) -> None:
    content = np.arange(6, dtype=np.float32).reshape(2, 3)
    wrapped = cupy.wrap(Exchanged(CUDA, content))
    assert isinstance(wrapped, DeviceArray)
    assert wrapped.address == content.ctypes.data
    assert (wrapped.shape, wrapped.strides, wrapped.dtype) == (content.shape, content.strides, content.dtype)
    on_host = cupy.wrap(Exchanged(CPU, content))
    assert on_host is content


def test_an_array_of_another_device_is_refused(cupy: CupyArrays) -> None:
    with pytest.raises(InputError, match="lies on device 1, but the program runs on 0"):
        cupy.wrap(CupyArray(np.zeros(3), device=1))


def test_a_shortcut_takes_contiguous_arrays_of_the_same_kind_only(cupy: CupyArrays) -> None:
    content = np.zeros((2, 3), np.float32)
    like = cupy.wrap(CupyArray(content))
    assert cupy.address_like(CupyArray(content), like) == content.ctypes.data
    for other in (
        CupyArray(np.zeros((3, 2), np.float32)),
        CupyArray(np.zeros((2, 3), np.float16)),
        CupyArray(np.zeros((2, 6), np.float32)[:, ::2]),
        CupyArray(content, device=1),
        content,
        None,
    ):
        assert cupy.address_like(other, like) == 0
