"""Arenas in one piece, constants once, and pinned memory on the way to the device."""

import gc
from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.driver.memory import MOST_STAGED, Arenas, Constants, Staging
from capgraph.executors.cuda.kernel_ir.launch import Packed
from capgraph.ir.constant import Array, Constant
from capgraph.ir.errors import ResourceError

from tests.executors.cuda.fake import FakeDriver, array_over, fake_device, meanings
from tests.executors.cuda.test_executable import recorded
from tests.executors.replay.programs import block, rows

STREAM = 5


class PinningDriver(FakeDriver):
    """Does not copy before it is waited for, as a GPU may."""

    def __init__(self) -> None:
        super().__init__()
        self.pinned_sizes: list[int] = []
        self.pinned_places: list[Array] = []
        self.pending: list[tuple[int, int, int]] = []

    def pinned(self, nbytes: int) -> Array:
        self.pinned_sizes.append(nbytes)
        self.pinned_places.append(super().pinned(nbytes))
        return self.pinned_places[-1]

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.pending.append((target, source, nbytes))

    def synchronize(self, stream: int) -> None:
        super().synchronize(stream)
        for target, source, nbytes in self.pending:
            super().copy(target, source, nbytes, stream)
        self.pending.clear()

    def is_pinned(self, address: int) -> bool:
        starts = [(each.ctypes.data, each.nbytes) for each in self.pinned_places]
        return any(start <= address < start + nbytes for start, nbytes in starts)


def test_arrays_pass_through_pinned_memory_and_may_change_at_once() -> None:
    driver = PinningDriver()
    staging, memory = Staging(driver), driver.allocate(4 * 4 * 100)
    contents = [np.arange(100, dtype=np.float32) + 1000 * index for index in range(4)]
    for index, each in enumerate(contents):
        given = each.copy()
        staging.upload(memory.address + 400 * index, given, STREAM)
        given[...] = -1
    assert all(driver.is_pinned(source) for _target, source, _nbytes in driver.pending)
    assert staging.stream == STREAM
    staging.rewind()
    assert staging.stream is None
    for index, each in enumerate(contents):
        there = array_over(memory.address + 400 * index, (100,), (4,), np.dtype(np.float32))
        np.testing.assert_array_equal(there, each)
    assert len(driver.pinned_sizes) == 1


def test_pinned_memory_that_is_full_is_waited_for_before_it_is_used_again() -> None:
    driver = PinningDriver()
    staging, nbytes = Staging(driver), 600 << 10
    memory = driver.allocate(3 * nbytes)
    contents = [np.full(nbytes, index + 1, np.uint8) for index in range(3)]
    for index, each in enumerate(contents):
        staging.upload(memory.address + index * nbytes, each, STREAM)
    staging.rewind()
    for index, each in enumerate(contents):
        np.testing.assert_array_equal(array_over(memory.address + index * nbytes, (nbytes,), (1,), each.dtype), each)
    assert driver.waits == 3
    assert len(driver.pinned_sizes) == 1


def test_what_does_not_fit_makes_it_larger() -> None:
    driver = PinningDriver()
    staging = Staging(driver)
    memory = driver.allocate(3 << 20)
    for mebibytes in (1, 3, 2):
        content = np.full(mebibytes << 20, mebibytes, np.uint8)
        staging.upload(memory.address, content, STREAM)
        staging.rewind()
        np.testing.assert_array_equal(array_over(memory.address, content.shape, (1,), content.dtype), content)
    assert driver.pinned_sizes == [1 << 20, 3 << 20]


def test_strided_and_large_arrays_arrive_whole() -> None:
    driver = PinningDriver()
    staging, memory = Staging(driver), driver.allocate(MOST_STAGED + 8)
    turned = np.arange(12, dtype=np.int16).reshape(3, 4).T
    staging.upload(memory.address, turned, STREAM)
    staging.rewind()
    np.testing.assert_array_equal(array_over(memory.address, (4, 3), (6, 2), turned.dtype), turned)
    large = np.zeros(MOST_STAGED + 8, np.uint8)
    large[-1] = 7
    staging.upload(memory.address, large, STREAM)
    large[-1] = 8
    assert array_over(memory.address + MOST_STAGED, (8,), (1,), large.dtype)[-1] == 7
    assert driver.pinned_sizes == [1 << 20]


def test_what_comes_down_was_waited_for() -> None:
    driver = PinningDriver()
    staging, memory = Staging(driver), driver.allocate(64)
    array_over(memory.address, (64,), (1,), np.dtype(np.uint8))[...] = 9
    assert (staging.download(memory.address, 64, STREAM) == 9).all()
    assert driver.is_pinned(staging.download(memory.address, 64, STREAM).ctypes.data)


# ---- arenas and constants


def test_smaller_arenas_lie_in_the_largest() -> None:
    arenas = Arenas(FakeDriver())
    large = arenas.reserve(4096)
    small = arenas.reserve(100)
    assert small.address == large.address
    assert arenas.nbytes == 4096
    larger = arenas.reserve(8192)
    assert arenas.holds(larger)
    assert not arenas.holds(small)
    for each in (large, small, larger):
        each.close()
    gc.collect()
    assert arenas.nbytes == 0, "nobody holds it"
    assert larger.address == 0


def test_an_arena_is_refused_before_memory_is_taken() -> None:
    driver = FakeDriver(limit=1000)
    with pytest.raises(ResourceError, match=r"the arena takes 2\.0 KiB, but 1000 B are free"):
        Arenas(driver).reserve(2048)
    assert Arenas(driver).reserve(1000).nbytes == 1000


def test_64_buckets_hold_one_arena_as_large_as_that_of_the_largest(tmp_path: Path) -> None:
    sizes = list(range(1, 65))
    with meanings():
        gpu = fake_device(tmp_path)
        program = recorded(block(), gpu, mode="full", dynamic={"B": (1, 64)}, buckets={"B": sizes}, up_front=True)
        assert len(program.stats().buckets) == 64
        many = gpu.arenas.nbytes
        alone = fake_device(tmp_path)
        single = recorded(block(), alone, mode="full", dynamic={"B": (64, 64)}, buckets={"B": [64]}, up_front=True)
        assert [bucket.sizes for bucket in single.stats().buckets] == [(("B", 64),)]
        assert many == alone.arenas.nbytes > 0
        given = program.run({"x": rows(64)})["y"]
        np.testing.assert_array_equal(given, single.run({"x": rows(64)})["y"])
        assert program.stats().arena_bytes == many


def test_a_constant_is_uploaded_once() -> None:
    driver = FakeDriver()
    constants = Constants(driver)
    one, same = (Constant(np.arange(5, dtype=np.float32)) for _ in range(2))
    held = constants.plain(one)
    assert constants.plain(same) is held
    assert constants.packed(Packed(same, "contiguous")) is held
    assert driver.copies == 1
    assert constants.nbytes == 20
    del held
    gc.collect()
    assert constants.nbytes == 0
