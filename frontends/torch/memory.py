"""Where tensors lie in memory, as PyTorch's fake tensors know it: results that are views, and what strides reach."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...ir.dims import Dim, evaluate, product
from ...ir.errors import UnsupportedError
from .sizes import Sizes, UnknownSizeError


@dataclass(frozen=True)
class View:
    """A result that lies in the memory of `source`: an argument, by position, or an output of the graph, by name.

    Shape, strides and offset are in elements of `dtype`; the offset counts from where the source begins.
    """

    source: int | str
    dtype: torch.dtype
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim
    is_conj: bool
    is_neg: bool

    def of(self, source: Any, sizes: Mapping[str, int]) -> Any:
        """The view of a tensor, for these sizes."""
        shape, strides = ([evaluate(dim, sizes) for dim in dims] for dims in (self.shape, self.strides))
        start = source.storage_offset()
        if source.dtype is not self.dtype:
            start = start * source.element_size() // self.dtype.itemsize
        offset = start + evaluate(self.offset, sizes)
        if source.dtype is self.dtype:
            found = source.as_strided(shape, strides, offset)
        else:
            found = source.new_empty(0, dtype=self.dtype).set_(source.untyped_storage(), offset, shape, strides)
        if self.is_conj != source.is_conj():
            found = found.conj()
        return torch._neg_view(found) if self.is_neg != source.is_neg() else found


def view_of(source: int | str, fake: Any, base: Any, sizes: Sizes) -> View | None:
    """The view that `fake` is of the fake tensor `base`; None where no dims say it."""
    ratio = base.element_size() / fake.element_size()
    try:
        begin = sizes.dim(base.storage_offset())
        if ratio != 1:
            begin = begin * int(ratio) if ratio > 1 else begin // int(1 / ratio)
        shape, strides = sizes.dims(fake.shape), sizes.dims(fake.stride())
        offset = sizes.dim(fake.storage_offset()) - begin
    except (UnknownSizeError, UnsupportedError):
        return None
    return View(source, fake.dtype, shape, strides, offset, fake.is_conj(), fake.is_neg())


def storage_of(value: Any) -> int | None:
    """What tells the memory of a fake tensor from others; None for what has none."""
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage()._cdata if is_dense else None


def owners(graph: Any) -> dict[int, Any]:
    """The node that made each piece of memory: the first whose tensor lies there."""
    found: dict[int, Any] = {}
    for node in graph.nodes:
        storage = storage_of(node.meta.get("val"))
        if storage is not None:
            found.setdefault(storage, node)
    return found


def memory_order(fake: Any, sizes: Sizes) -> tuple[int, ...] | None:
    """The order of axes in which a tensor lies row-major and without gaps; None where it does not, or none can say."""
    try:
        shape, strides = sizes.dims(fake.shape), sizes.dims(fake.stride())
    except (UnknownSizeError, UnsupportedError):
        return None
    hints = [hint for stride in fake.stride() if (hint := _hint(stride)) is not None]
    if len(hints) < len(shape):
        return None
    order = sorted(range(len(shape)), key=lambda axis: (-hints[axis], axis))
    wanted: Dim = 1
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] != wanted:
            return None
        wanted = wanted if shape[axis] == 0 else wanted * shape[axis]
    return tuple(order)


def is_whole(fake: Any, sizes: Sizes) -> bool:
    """Whether a tensor without gaps is all of its memory."""
    try:
        count, nbytes = product(sizes.dims(fake.shape)), sizes.dim(fake.untyped_storage().nbytes())
    except (UnknownSizeError, UnsupportedError):
        return False
    return bool(count * fake.element_size() == nbytes)


def _hint(stride: Any) -> int | None:
    return stride if isinstance(stride, int) else stride.node.hint
