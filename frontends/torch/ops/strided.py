"""What strides reach: elements at places in memory, whichever tensors lie there."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ....ir.constant import Array
from ....ir.dims import Dim, dim_max, product
from ....ir.errors import UnsupportedError
from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering, SourceMemory
from ..memory import is_all_of_memory, memory_order, shares_elements


def as_strided(c: Call, _x: Any, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Value:
    """Elements at places in memory, as PyTorch lays out the tensor that made it; complex ones as pairs."""
    fake, memory = c.fake("self"), c.memory("self")
    start: Any = fake.storage_offset() if offset is None else offset
    if not _are_numbers(*size, *stride, start, *_layout(memory.fake)):
        return _at_computed_places(c, memory, size, stride, offset)
    places = _places(size, stride, start)
    moves = memory.around is not None and not memory.placed
    inside = None if offset is not None and moves else _elements_at(memory.fake, places)
    if inside is not None:
        return c.op("gather", _flat(c, memory.value, memory.fake), c.constant(inside, DType.I64), axis=0)
    if memory.around is None:
        raise UnsupportedError(
            "as_strided reaches memory around a tensor that cannot be handed over", remedy="take it of the whole tensor"
        )
    from_own = offset is None and moves
    if from_own:
        places = places - memory.fake.storage_offset()
    around = memory.around(int(places.max(initial=-1)) + 1, from_own)
    return c.op("gather", around, c.constant(places, DType.I64), axis=0)


def _flat(c: Call, x: Value, fake: Any) -> Value:
    """All elements along one axis; those of a complex tensor stay pairs."""
    rank = fake.dim()
    return c.reshape(x, (product(x.shape[:rank]), *x.shape[rank:]))


def _layout(fake: Any) -> tuple[Any, ...]:
    return (*fake.shape, *fake.stride(), fake.storage_offset())


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


def _at_computed_places(
    c: Call, memory: SourceMemory, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None
) -> Value:
    """The same where sizes are symbolic."""
    start = c.sizes.dim(c.fake("self").storage_offset()) if offset is None else offset
    is_whole = memory_order(memory.fake, c.sizes) is not None
    if memory.around is not None and not (is_whole and (offset is None or memory.placed)):
        from_own = offset is None and not memory.placed
        start -= c.sizes.dim(memory.fake.storage_offset()) if from_own else 0
        flat = memory.around(_reach(size, stride, start), from_own)
    elif is_whole or is_all_of_memory(memory.fake):  # nothing is set between its elements
        flat = _memory_of(c, memory.value, memory.fake, _reach(size, stride, start))
    else:
        raise UnsupportedError(
            "as_strided with symbolic sizes reads memory around a tensor", remedy="take it of the whole tensor"
        )
    return c.op("gather", flat, _computed_places(c, size, stride, start), axis=0)


def _computed_places(c: Call, size: Sequence[Dim], stride: Sequence[Dim], start: Dim) -> Value:
    places = c.value(start, DType.I64)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        along = c.op("mul", c.op("arange", limit=count), c.value(step, DType.I64))
        places = c.op("add", places, c.unsqueeze(along, *range(1, len(size) - axis)))
    return places


def _reach(size: Sequence[Dim], stride: Sequence[Dim], start: Dim) -> Dim:
    """How many elements memory has up to the last one that these strides reach; some more where they reach none."""
    return start + sum(step * dim_max(count - 1, 0) for count, step in zip(size, stride, strict=True)) + 1


def _memory_of(c: Call, x: Value, fake: Any, least: Dim) -> Value:
    """Memory in which `x` lies as its fake does: from the start to its last element, and of at least so many."""
    order = memory_order(fake, c.sizes)
    if order is not None:
        return _flat(c, c.transpose(x, [*order, *range(len(order), x.tensor.rank)]), fake)
    shape, strides = c.sizes.dims(fake.shape), c.sizes.dims(fake.stride())
    start = c.sizes.dim(fake.storage_offset())
    room = dim_max(_reach(shape, strides, start), least)
    empty = c.full((room, *x.shape[fake.dim() :]), 0, x.tensor.dtype)
    return _written_at(c, empty, x, _computed_places(c, shape, strides, start))


def _written_at(c: Call, memory: Value, source: Value, places: Value) -> Value:
    """Memory with the elements of `source` at these places."""
    count = product(places.shape)
    flat = c.reshape(source, (count, *memory.shape[1:]))
    return c.op("scatter_nd", memory, c.reshape(places, (count, 1)), flat, reduction="none")


def written_in_memory(
    c: Call,
    memory: SourceMemory,
    source: Any,
    count: Dim,
    size: Sequence[Dim],
    stride: Sequence[Dim],
    offset: Dim | None,
) -> Value:
    """So many elements, or more, of the memory of an argument, with `source` written where these strides reach."""
    assert memory.around is not None
    start = c.sizes.dim(memory.fake.storage_offset()) if offset is None else offset
    flat = memory.around(dim_max(count, _reach(size, stride, start)), False)
    return _written_at(c, flat, c.cast(source, flat.tensor.dtype), _computed_places(c, size, stride, start))


def as_strided_scatter(
    c: Call, x: Value, source: Value, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> Value:
    """`x` with `source` written where its elements lie at the places that the strides reach; the last write counts.

    Both may be pairs of the parts of complex numbers.
    """
    fake = c.fake("self")
    if any(isinstance(step, int) and step == 0 for step in fake.stride()):
        fake = torch.empty_like(fake)  # the copy of an expanded tensor is dense
    start = fake.storage_offset() if offset is None else offset
    if not _are_numbers(*size, *stride, start, *_layout(fake)):
        return _scattered_to_computed_places(c, x, fake, source, size, stride, offset)
    written = {place: index for index, place in enumerate(_places(size, stride, start).reshape(-1).tolist())}
    own = _places(fake.shape, fake.stride(), fake.storage_offset())
    origin = np.asarray([written.get(place, -1) for place in own.reshape(-1).tolist()], np.int64).reshape(own.shape)
    if not (origin >= 0).any():
        return x
    flat = _flat(c, c.cast(source, x.tensor.dtype), c.fake("src"))
    taken = c.op("gather", flat, c.constant(origin.clip(min=0), DType.I64), axis=0)
    reached = c.unsqueeze(c.constant(origin >= 0), *range(fake.dim(), x.tensor.rank))
    return c.op("where", reached, taken, x)


def _scattered_to_computed_places(
    c: Call, x: Value, fake: Any, source: Value, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None
) -> Value:
    start = c.sizes.dim(fake.storage_offset()) if offset is None else offset
    memory = _memory_of(c, x, fake, _reach(size, stride, start))
    written = _written_at(c, memory, c.cast(source, x.tensor.dtype), _computed_places(c, size, stride, start))
    order, rank = memory_order(fake, c.sizes), x.tensor.rank
    if order is None:
        shape, strides = c.sizes.dims(fake.shape), c.sizes.dims(fake.stride())
        own = _computed_places(c, shape, strides, c.sizes.dim(fake.storage_offset()))
        return c.op("gather", written, own, axis=0)
    axes = [*order, *range(len(order), rank)]
    return c.transpose(c.reshape(written, [x.shape[axis] for axis in axes]), [axes.index(each) for each in range(rank)])


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
