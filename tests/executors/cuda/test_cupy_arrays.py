"""What CuPy hands over and reads without a copy: on a module that is played."""

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
from capgraph.executors.cuda.arrays.cupy import CupyArrays, lies_on_gpu
from capgraph.executors.cuda.arrays.protocol import DeviceArray
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


class CudaFailure(RuntimeError):
    """What CUDA raises through CuPy."""


@pytest.fixture
def cupy() -> Iterator[Any]:
    module: Any = ModuleType("cupy")
    module.ndarray = CupyArray
    module.cuda = SimpleNamespace(runtime=SimpleNamespace(CUDARuntimeError=CudaFailure))
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


@pytest.mark.parametrize(
    "error",
    [
        TypeError("dtype is not supported"),
        BufferError("DLPack exported too new major version"),
        ValueError("vector dtypes"),
        RuntimeError("CuPy is built against CUDA"),
        NotImplementedError("read-only"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_dlpack_refuses_is_told_of_the_input(error: Exception, cupy: CupyArrays) -> None:
    cupy._cupy.from_dlpack = Mock(side_effect=error)
    with pytest.raises(InputError, match=rf"exchange\.Exchanged cannot be read where it lies: {error}") as told:
        cupy.wrap(Exchanged(CUDA))
    assert "NumPy array" in (told.value.remedy or "")


def test_what_cuda_says_is_no_fault_of_the_array(cupy: CupyArrays) -> None:
    cupy._cupy.from_dlpack = Mock(side_effect=CudaFailure("an illegal memory access"))
    with pytest.raises(CudaFailure):
        cupy.wrap(Exchanged(CUDA))


def test_an_array_that_does_not_say_where_it_lies_is_refused() -> None:
    class Spread:
        def __dlpack__(self) -> Any: ...

        def __dlpack_device__(self) -> tuple[int, int]:
            raise BufferError("it lies on several devices")

    with pytest.raises(InputError, match=r"Spread cannot be read where it lies: it lies on several devices"):
        lies_on_gpu(Spread())


def test_what_only_dlpack_knows_in_main_memory_is_read_by_numpy(cupy: CupyArrays) -> None:
    content = np.arange(3, dtype=np.float32)

    class Bare:
        def __dlpack__(self, **named: Any) -> Any:
            return content.__dlpack__(**named)

        def __dlpack_device__(self) -> tuple[int, int]:
            return CPU, 0

    found = cupy.wrap(Bare())
    assert found.dtype == np.float32
    assert found.ctypes.data == content.ctypes.data


def test_an_array_of_another_device_is_refused(cupy: CupyArrays) -> None:
    with pytest.raises(InputError, match="lies on device 1, but the program runs on 0"):
        cupy.wrap(CupyArray(np.zeros(3), device=1))


def test_a_fast_path_takes_contiguous_arrays_of_the_same_kind_only(cupy: CupyArrays) -> None:
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
