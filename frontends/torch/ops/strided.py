"""What strides reach: elements at places in memory, whichever tensors lie there."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ....ir.constant import Array
from ....ir.dims import Dim, product
from ....ir.errors import UnsupportedError
from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering, SourceMemory
from ..memory import memory_order, shares_elements


def as_strided(c: Call, _x: Any, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Value:
    """Elements at places in memory, as PyTorch lays out the tensor that made it; complex ones as pairs."""
    fake, memory = c.fake("self"), c.memory("self")
    start: Any = c.sizes.dim(fake.storage_offset()) if offset is None else offset
    if not _are_numbers(*size, *stride, start, *memory.fake.shape, *memory.fake.stride()):
        return _at_computed_places(c, memory, size, stride, start)
    places = _places(size, stride, start)
    inside = None if offset is not None and memory.around is not None else _elements_at(memory.fake, places)
    if inside is not None:
        return c.op("gather", _flat(c, memory.value, memory.fake), c.constant(inside, DType.I64), axis=0)
    if memory.around is None:
        raise UnsupportedError(
            "as_strided reaches memory around a tensor that cannot be handed over", remedy="take it of the whole tensor"
        )
    if offset is None:
        places = places - memory.fake.storage_offset()
    around = memory.around(int(places.max(initial=-1)) + 1, offset is None)
    return c.op("gather", around, c.constant(places, DType.I64), axis=0)


def _flat(c: Call, x: Value, fake: Any) -> Value:
    """All elements along one axis; those of a complex tensor stay pairs."""
    rank = fake.dim()
    return c.reshape(x, (product(x.shape[:rank]), *x.shape[rank:]))


def _are_numbers(*given: Any) -> bool:
    return all(isinstance(each, int) for each in given)


def _places(size: Sequence[int], stride: Sequence[int], offset: int) -> Array:
    """Where the elements of a tensor with these strides lie, in its shape."""
    places = np.asarray(offset)
    for count, step in zip(size, stride, strict=True):
        places = np.add.outer(places, np.arange(count) * step)
    return places


def _elements_at(fake: Any, places: Array) -> Array | None:
    """The elements of a tensor, counted row-major, that lie at these places; None where another lies at one."""
    own = _places(fake.shape, fake.stride(), fake.storage_offset()).reshape(-1)
    order = np.argsort(own, kind="stable")
    if not own.size:
        return None if places.size else places
    found = order[np.searchsorted(own, places, sorter=order).clip(max=own.size - 1)]
    return found if np.array_equal(own[found], places) else None


def _at_computed_places(c: Call, memory: SourceMemory, size: Sequence[Dim], stride: Sequence[Dim], start: Dim) -> Value:
    order = memory_order(memory.fake, c.sizes)
    if order is None or memory.fake.storage_offset() != 0:
        raise UnsupportedError(
            "as_strided with symbolic sizes reads memory with gaps", remedy="take it of a tensor that is contiguous"
        )
    parts = range(len(order), memory.value.tensor.rank)
    flat = _flat(c, c.transpose(memory.value, [*order, *parts]), memory.fake)
    places = c.value(start, DType.I64)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        along = c.op("mul", c.op("arange", limit=count), c.value(step, DType.I64))
        places = c.op("add", places, c.unsqueeze(along, *range(1, len(size) - axis)))
    return c.op("gather", flat, places, axis=0)


def as_strided_scatter(
    c: Call, x: Value, source: Value, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> Value:
    """`x` with `source` written where its elements lie at the places that the strides reach; the last write counts.

    Both may be pairs of the parts of complex numbers.
    """
    fake = c.fake("self")
    if 0 in fake.stride():
        fake = torch.empty_like(fake)  # the copy of an expanded tensor is dense
    start = fake.storage_offset() if offset is None else offset
    if not _are_numbers(*size, *stride, start, *fake.shape, *fake.stride(), fake.storage_offset()):
        raise UnsupportedError("a write by strides to symbolic sizes", remedy="write to a slice or a transposed view")
    written = {place: index for index, place in enumerate(_places(size, stride, start).reshape(-1).tolist())}
    own = _places(fake.shape, fake.stride(), fake.storage_offset())
    origin = np.asarray([written.get(place, -1) for place in own.reshape(-1).tolist()], np.int64).reshape(own.shape)
    if not (origin >= 0).any():
        return x
    flat = _flat(c, c.cast(source, x.tensor.dtype), c.fake("src"))
    taken = c.op("gather", flat, c.constant(origin.clip(min=0), DType.I64), axis=0)
    reached = c.unsqueeze(c.constant(origin >= 0), *range(fake.dim(), x.tensor.rank))
    return c.op("where", reached, taken, x)


def written_for_all(c: Call, x: Value, source: Value, view: Callable[[Any], Any]) -> Value | None:
    """`x` with `source` written to a view of it, for all elements that lie there; None where each has its own place."""
    fake = c.fake("self")
    if not shares_elements(fake):
        return None
    written = view(fake)
    return as_strided_scatter(c, x, source, written.shape, written.stride(), written.storage_offset())


def _resize(c: Call, x: Value, size: Sequence[Dim], *_: Any) -> Value:
    """The elements as a copy of `x` lies in memory, as many as there is room for; they lie as the result's.

    What lies behind them is unset: PyTorch fills it where it is told to.
    """
    fake, after = c.fake("self"), memory_order(c.results[0], c.sizes)
    count, room = product(x.shape), product(size)
    if after is None or not isinstance(count, int) or not isinstance(room, int):
        raise NoLowering("memory of an unknown size")
    before = sorted(range(fake.dim()), key=lambda axis: (-fake.stride(axis), axis))
    flat = c.reshape(c.transpose(x, before), (count,))
    kept = c.slice(flat, 0, 0, room) if room < count else flat
    if room > count:
        kept = c.op("concat", kept, c.full((room - count,), _unset(fake.dtype), x.tensor.dtype), axis=0)
    lying = c.reshape(kept, [size[axis] for axis in after])
    return c.transpose(lying, [after.index(axis) for axis in range(len(after))])


def _unset(dtype: torch.dtype) -> Any:
    """What PyTorch leaves in memory that nothing was written to."""
    if not (torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory):
        return 0
    if dtype.is_floating_point:
        return float("nan")
    return True if dtype is torch.bool else torch.iinfo(dtype).max


TABLE: dict[str, Lowering] = {
    "aten.as_strided": as_strided,
    "aten.as_strided_copy": as_strided,
    "aten.resize": _resize,
    "aten.as_strided_scatter": as_strided_scatter,
}
