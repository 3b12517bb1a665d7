"""Tensors in memory as kernels address them: sizes, strides in elements, and the argument that the first one is at."""

import math
from dataclasses import dataclass, replace

from ....ir.constant import Constant
from ....ir.plan import View, contiguous_strides, element_bytes
from ....ir.types import DType
from .launch import Argument, BufferPlace, Packed


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor in memory: sizes, strides in elements, and the argument that its first element is at."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    argument: Argument
    constant: Constant | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, each counted once."""
        distinct = [size for size, stride in zip(self.shape, self.strides, strict=True) if stride]
        return math.prod(distinct) * element_bytes(self.dtype)

    @property
    def starts_a_piece(self) -> bool:
        """Whether its first element may be read in a piece of 16 bytes."""
        return not isinstance(self.argument, BufferPlace) or self.argument.offset % 16 == 0

    def at(self, elements: int) -> "Source":
        """The same tensor, begun `elements` later."""
        if not elements or not isinstance(self.argument, BufferPlace):
            return self
        place = BufferPlace(self.argument.buffer, self.argument.offset + elements * element_bytes(self.dtype))
        return replace(self, argument=place)


def source_of(view: View, constant: Constant | None = None) -> Source:
    """The tensor of a view of the plan."""
    itemsize = element_bytes(view.dtype)
    strides = tuple(stride // itemsize for stride in view.strides)
    return Source(view.dtype, view.shape, strides, BufferPlace(view.buffer, view.offset), constant)


def source_of_constant(constant: Constant) -> Source:
    """The tensor of a constant that has no place in the plan: it stands in a body."""
    strides = contiguous_strides(constant.shape, 1)
    return Source(constant.dtype, constant.shape, strides, Packed(constant, "contiguous"), constant)


def view_of(source: Source) -> View | None:
    """The view of the plan that a tensor is, None for a packed constant."""
    if not isinstance(source.argument, BufferPlace):
        return None
    itemsize = element_bytes(source.dtype)
    strides = tuple(stride * itemsize for stride in source.strides)
    return View(source.argument.buffer, source.argument.offset, source.dtype, source.shape, strides)
