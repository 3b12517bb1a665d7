"""Constants that lie on the device: read in place, by other strides, or put together there; never through the host."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.driver.memory import Constants
from capgraph.executors.cuda.driver.packing import packed_bytes
from capgraph.executors.cuda.kernel_ir.launch import Packed
from capgraph.ir.constant import Array, Constant, Residence
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.types import DType, TensorType
from capgraph.passes.framework.deferred import concatenated, deferred, transposed

from tests.executors.cuda.fake import FakeDriver, array_over


def unreadable() -> Array:
    raise UnsupportedError("a weight was read on the host")


class OnDevice:
    """Content in memory of the fake GPU, aligned as its allocations are."""

    def __init__(self, content: Array, device: str = "cuda:0") -> None:
        self.memory = FakeDriver().allocate(content.nbytes)
        array_over(self.memory.address, content.shape, content.strides, content.dtype)[...] = content
        ty = TensorType(DType.of(content.dtype), content.shape)
        residence = Residence(device, self.memory.address, content.strides, self.memory)
        self.constant = Constant.elsewhere(ty, unreadable, residence)


def counted(rows: int, columns: int, start: int = 0) -> Array:
    return np.arange(start, start + rows * columns, dtype=np.float32).reshape(rows, columns)


def content_of(memory: Any, shape: Sequence[int]) -> Array:
    return array_over(memory.address, shape, np.empty(tuple(shape), np.float32).strides, np.dtype(np.float32))


def test_a_weight_is_read_where_it_lies() -> None:
    weight = OnDevice(counted(3, 4))
    assert Constants(FakeDriver()).plain(weight.constant).address == weight.memory.address


def test_a_weight_that_is_transposed_twice_is_itself() -> None:
    weight = OnDevice(counted(3, 4))
    turned = transposed(weight.constant, (1, 0))
    assert turned.shape == (4, 3)
    assert Constants(FakeDriver()).packed(Packed(turned, "transposed", (1, 0))).address == weight.memory.address


def test_a_transposed_weight_is_copied_once() -> None:
    constants, weight = Constants(FakeDriver()), OnDevice(counted(3, 4))
    memory = constants.plain(transposed(weight.constant, (1, 0)))
    np.testing.assert_array_equal(content_of(memory, (4, 3)), counted(3, 4).T)
    assert constants.plain(transposed(weight.constant, (1, 0))) is memory, "derived alike: the same"


def test_weights_side_by_side_lie_in_one_piece_as_matmuls_read_them() -> None:
    parts = [OnDevice(counted(rows, 4, 100 * rows)) for rows in (3, 2, 5)]
    joined = concatenated([transposed(part.constant, (1, 0)) for part in parts], axis=1)
    assert joined.shape == (4, 10)
    driver = FakeDriver()
    memory = Constants(driver).packed(Packed(joined, "transposed", (1, 0)))
    expected = np.concatenate([counted(rows, 4, 100 * rows) for rows in (3, 2, 5)])
    np.testing.assert_array_equal(content_of(memory, (10, 4)), expected)
    plain = Constants(driver).plain(joined)
    np.testing.assert_array_equal(content_of(plain, (4, 10)), expected.T)


def test_a_reshaped_weight_is_the_same_bytes() -> None:
    weight = OnDevice(counted(3, 4))
    flat = deferred("reshape", [weight.constant], {"shape": (12,)})
    assert Constants(FakeDriver()).plain(flat).address == weight.memory.address


def test_a_part_of_a_table_is_copied_on_the_device() -> None:
    bounds = {"axes": (-1, 0), "starts": (1, -2), "ends": (4, 2**63 - 1), "steps": (2, 1)}
    part = deferred("slice", [OnDevice(counted(3, 4)).constant], bounds)
    found = content_of(Constants(FakeDriver()).plain(part), (2, 2))
    np.testing.assert_array_equal(found, counted(3, 4)[1:, 1::2])


def test_what_begins_in_the_middle_of_a_line_is_copied() -> None:
    weight = OnDevice(counted(3, 4))
    place = weight.constant.residence
    assert place is not None
    moved = Residence(place.device, place.address + 16, place.strides, place.owner)
    rows = Constant.elsewhere(TensorType(DType.F32, (2, 4)), unreadable, moved)
    memory = Constants(FakeDriver()).plain(rows)
    assert memory.address % 256 == 0
    np.testing.assert_array_equal(content_of(memory, (2, 4)), counted(2, 4, 4))


def test_other_layouts_and_devices_go_through_the_host() -> None:
    here, there = OnDevice(counted(3, 4)), OnDevice(counted(3, 4), "cuda:1")
    for packed in (Packed(here.constant, "cast", ("f16",)), Packed(there.constant, "contiguous")):
        with pytest.raises(UnsupportedError, match="on the host"):
            Constants(FakeDriver()).packed(packed)


def halves(weight: OnDevice) -> Constant:
    """The numbers of 4 bits in bytes, low half first, transposed: what a model computes, over blocks of two."""
    fifteen, four = Constant(np.uint8(15)), Constant(np.uint8(4))
    low, high = (
        deferred("unsqueeze", [deferred(op, [weight.constant, by], {})], {"axes": (2,)})
        for op, by in (("bitwise_and", fifteen), ("shift_right", four))
    )
    rows, columns = weight.constant.shape
    blocks = deferred("reshape", [deferred("concat", [low, high], {"axis": 2})], {"shape": (rows, columns, 1, 2)})
    codes = deferred("cast", [deferred("reshape", [blocks], {"shape": (rows, 2 * columns)})], {"to": DType.U4})
    return transposed(codes, (1, 0))


def test_numbers_that_are_halves_of_bytes_stay_where_they_lie() -> None:
    drawn = [np.random.default_rng(seed).integers(0, 256, (3, 4)).astype(np.uint8) for seed in (0, 1)]
    weights = [OnDevice(each) for each in drawn]
    packed = Packed(halves(weights[0]), "nibbles", (1, 0))
    assert Constants(FakeDriver()).packed(packed).address == weights[0].memory.address
    joined = Packed(concatenated([halves(each) for each in weights], axis=1), "nibbles", (1, 0))
    memory = Constants(FakeDriver()).packed(joined)
    found = array_over(memory.address, (6, 4), (4, 1), np.dtype(np.uint8))
    np.testing.assert_array_equal(found, np.concatenate(drawn))


def test_numbers_of_4_bits_are_packed_as_their_bytes_lie() -> None:
    drawn = np.random.default_rng(0).integers(0, 256, (3, 4)).astype(np.uint8)
    on_host = Constant(np.stack((drawn & 15, drawn >> 4), -1).reshape(3, 8).T.view(DType.U4.numpy))
    np.testing.assert_array_equal(packed_bytes(Packed(on_host, "nibbles", (1, 0))), drawn.reshape(-1))
