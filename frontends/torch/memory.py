"""Where tensors lie in memory, as PyTorch's fake tensors know it: results that are views, and what strides reach."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from ...ir.dims import Dim, dim_max, evaluate, product
from ...ir.errors import UnsupportedError
from .sizes import Sizes, UnknownSizeError


@dataclass(frozen=True)
class ResultView:
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
        shape, strides, offset = self._fixed or self._for(sizes)
        start = source.storage_offset()
        if source.dtype is not self.dtype:
            start = start * source.element_size() // self.dtype.itemsize
        offset += start
        if source.dtype is self.dtype:
            found = source.as_strided(shape, strides, offset)
        else:
            found = source.new_empty(0, dtype=self.dtype).set_(source.untyped_storage(), offset, shape, strides)
        if self.is_conj != source.is_conj():
            found = found.conj()
        return torch._neg_view(found) if self.is_neg != source.is_neg() else found

    @cached_property
    def _fixed(self) -> tuple[Sequence[int], Sequence[int], int] | None:
        """Shape, strides and offset that are the same for all sizes, as nearly all are: this is asked in every call."""
        dims = (*self.shape, *self.strides, self.offset)
        return self._for({}) if all(isinstance(dim, int) for dim in dims) else None

    def _for(self, sizes: Mapping[str, int]) -> tuple[Sequence[int], Sequence[int], int]:
        shape, strides = ([evaluate(dim, sizes) for dim in dims] for dims in (self.shape, self.strides))
        return shape, strides, evaluate(self.offset, sizes)

    def beside(self, fake: Any) -> "ResultView":
        """The same view of memory that holds the numbers of `fake`, conjugated and negated as it says."""
        return replace(self, is_conj=self.is_conj != fake.is_conj(), is_neg=self.is_neg != fake.is_neg())

    def spread(self, content: Any, sizes: Mapping[str, int]) -> Any:
        """Memory in which `content` lies as this view."""
        shape, strides, offset = self._for(sizes)
        reach = sum(step * (size - 1) for size, step in zip(shape, strides, strict=True))
        memory = content.new_empty((offset + reach + 1) * (0 not in shape))
        self.of(memory, sizes).copy_(content)
        return memory


def view_of(source: int | str, fake: Any, sizes: Sizes, base: Any = None) -> ResultView | None:
    """The view that `fake` is of an output's memory, or of the fake argument `base`; None where no dims say it."""
    try:
        shape, strides = sizes.dims(fake.shape), sizes.dims(fake.stride())
        offset = sizes.dim(fake.storage_offset())
        if base is not None:
            offset -= sizes.dim(base.storage_offset()) * base.element_size() // fake.element_size()
    except (UnknownSizeError, UnsupportedError):
        return None
    return ResultView(source, fake.dtype, shape, strides, offset, fake.is_conj(), fake.is_neg())


def storage_of(value: Any) -> int | None:
    """What tells the memory of a fake tensor from others; None for what has none."""
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
    is_dense = is_dense and not torch._C._functorch.is_functorch_wrapped_tensor(value)
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
    """The order of axes in which a tensor, row-major and without gaps, is all of its memory from the start.

    None where it is not, or nothing can say.
    """
    try:
        shape = sizes.dims(fake.shape)
        offset, nbytes = sizes.dim(fake.storage_offset()), sizes.dim(fake.untyped_storage().nbytes())
    except (UnknownSizeError, UnsupportedError):
        return None
    is_all = nbytes == product(shape) * fake.element_size() or _ends_where_memory_ends(fake)
    return dense_order(fake, sizes) if offset == 0 and is_all else None


def is_all_of_memory(fake: Any) -> bool:
    """Whether a tensor of symbolic sizes is all of its memory, but for gaps between its elements."""
    offset = fake.storage_offset()
    return isinstance(offset, int) and offset == 0 and _ends_where_memory_ends(fake)


def _ends_where_memory_ends(fake: Any) -> bool:
    """Whether memory is written to be as long as sizes and strides reach, though guards make them simpler than it."""
    steps = zip(fake.shape, fake.stride(), strict=True)
    reached = (1 + sum((size - 1) * step for size, step in steps)) * fake.element_size()
    nbytes = fake.untyped_storage().nbytes()
    if isinstance(reached, int) or isinstance(nbytes, int):
        return False
    return bool((reached.node.expr - nbytes.node.expr).expand() == 0)


def dense_order(fake: Any, sizes: Sizes) -> tuple[int, ...] | None:
    """The order of axes in which a tensor is row-major and without gaps; None where none is, or nothing can say."""
    try:
        shape, strides = sizes.dims(fake.shape), sizes.dims(fake.stride())
    except (UnknownSizeError, UnsupportedError):
        return None
    hints = [hint for stride in fake.stride() if (hint := _hint(stride)) is not None]
    if len(hints) < len(shape):
        return None
    order = sorted(range(len(shape)), key=lambda axis: (-hints[axis], axis))
    wanted: Dim = 1
    counted: Dim = 1  # as PyTorch counts, to which no axis is shorter than 1: what open sizes are written with
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] not in (wanted, counted):
            return None
        wanted = wanted if shape[axis] == 0 else wanted * shape[axis]
        counted = counted * dim_max(shape[axis], 1)
    return tuple(order)


def _hint(size: Any) -> Any:
    """A size or a stride as it was traced; None where only running tells it."""
    return size if isinstance(size, int) else size.node.hint


def shares_elements(fake: Any) -> bool:
    """Whether elements of a tensor without an axis of stride 0 lie at one place, for the sizes that it was traced with.

    PyTorch's operators that write to a copy (`select_scatter` and others) keep such strides, where they make an
    expanded tensor dense.
    """
    shape, strides = map(_hint, fake.shape), map(_hint, fake.stride())
    steps = [(stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1]
    if any(not stride or not size for stride, size in steps):
        return False
    reach = 0
    for stride, size in sorted(steps):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False
