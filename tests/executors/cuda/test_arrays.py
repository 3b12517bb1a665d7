"""Whose arrays they are, and that they are read without a copy: on modules that are played."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from capgraph.executors.cuda import arrays
from capgraph.executors.cuda.arrays import CupyArrays, DeviceArray, TorchArrays, framework_of
from capgraph.executors.eager import EagerExecutor
from capgraph.ir.errors import InputError

from tests.executors.cuda.fake import FakeArrays, GpuArray, fake_device, meanings
from tests.executors.cuda.test_executable import recorded
from tests.executors.replay.programs import block, rows

CPU, CUDA, ROCM, MANAGED = 1, 2, 10, 13


class Exchanged:
    """An array of somebody who knows DLPack and nothing else."""

    def __init__(self, place: int, content: Any = None) -> None:
        self.place = place
        self.content = content

    def __dlpack__(self, **_named: Any) -> Any:
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place, 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.content, dtype)


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


def test_an_array_belongs_to_whom_its_class_or_its_place_says() -> None:
    class Interfaced:
        __cuda_array_interface__: Any = None

    tensor = type("Tensor", (), {"__module__": "torch.nn"})
    for given, expected in (
        (np.zeros(3), "numpy"),
        ([1.0], "numpy"),
        (tensor(), "torch"),
        (Interfaced(), "cupy"),
        (Exchanged(CPU), "numpy"),
        (Exchanged(CUDA), "cupy"),
        (Exchanged(ROCM), "cupy"),
        (Exchanged(MANAGED), "cupy"),
    ):
        assert framework_of(given) == expected


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


# ---- torch, whose tensors in main memory have all that is asked for here


NUMBERS = torch.tensor([1 + 2j, 3 - 1j])
LAZY = {"negated": NUMBERS.conj().imag, "conjugated": NUMBERS.conj()}


@pytest.mark.parametrize("name", LAZY)
def test_what_torch_puts_off_is_done_before_memory_is_read(name: str) -> None:
    given = LAZY[name]
    assert given.is_neg() or given.is_conj()
    expected = given.resolve_conj().resolve_neg()
    np.testing.assert_array_equal(TorchArrays(0, unused).wrap(given), expected.numpy())
    like = DeviceArray(1, expected.numpy().dtype, (2,), (expected.element_size(),), expected, unused)
    assert of_main_memory().address_like(expected.clone(), like) != 0
    assert of_main_memory().address_like(given, like) == 0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.eye(2).to_sparse(), "torch.sparse_coo on cpu"),
        (lambda: torch.empty(2, device="meta"), "torch.strided on meta"),
        (lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged), "nested"),
    ],
    ids=["sparse", "meta", "nested"],
)
def test_a_tensor_without_plain_memory_is_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(InputError, match=f"no plain memory: {text}"):
        TorchArrays(0, unused).wrap(make())
    like = DeviceArray(1, np.dtype(np.float32), (2, 2), (8, 4), torch.ones(2, 2), unused)
    assert of_main_memory().address_like(make(), like) == 0


def of_main_memory() -> TorchArrays:
    made = TorchArrays(0, unused)
    made._index = -1  # which is what `get_device` says of main memory
    return made


def unused(_array: DeviceArray) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((1, 3), (4, 4), True),
        ((3, 1), (4, 400), True),
        ((2, 1, 3), (12, 0, 4), True),
        ((0, 3), (1, 1), True),
        ((2, 3), (4, 8), False),
        ((2, 3), (24, 4), False),
        ((), (), True),
    ],
)
def test_axes_of_one_element_may_have_any_stride(shape: Any, strides: Any, expected: bool) -> None:
    made = DeviceArray(256, np.dtype(np.float32), shape, strides, None, unused)
    assert made.is_contiguous == expected


class Exchanging(FakeArrays):
    """A framework that reads what is exchanged."""

    def wrap(self, given: Any) -> DeviceArray:
        return super().wrap(given.content if isinstance(given, Exchanged) else given)


def test_a_program_takes_what_is_exchanged_and_gives_arrays_on_the_device(tmp_path: Path) -> None:
    oracle = EagerExecutor().compile(block())
    with meanings(), patch.object(arrays, "_FRAMEWORKS", {"cupy": Exchanging}):
        gpu = fake_device(tmp_path)
        program = recorded(block(), gpu, mode="full", dynamic={"B": (1, 8)}, buckets={"B": [4]})
        for call in range(4):
            content = rows(4, call)
            given = program.run({"x": Exchanged(CUDA, GpuArray(content))})["y"]
            assert isinstance(given, GpuArray)
            np.testing.assert_allclose(given.content, oracle.run({"x": content})["y"], rtol=1e-5)
        assert gpu.stream == FakeArrays.current
        assert program.stats().counters.replayed_calls == 3
