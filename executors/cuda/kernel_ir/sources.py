"""Tensors in memory as kernels address them: sizes, strides in elements, and the argument that the first one is at."""

import math
from collections.abc import Sequence
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


def permuted(source: Source, order: Sequence[int]) -> Source:
    """The same tensor with its axes in another order."""
    shape, strides = (tuple(sizes[axis] for axis in order) for sizes in (source.shape, source.strides))
    return replace(source, shape=shape, strides=strides)


def transposed(source: Source) -> Source:
    """The last two axes exchanged."""
    return replace(
        source,
        shape=(*source.shape[:-2], source.shape[-1], source.shape[-2]),
        strides=(*source.strides[:-2], source.strides[-1], source.strides[-2]),
    )


def packed_weight(source: Source) -> Source:
    """A constant matrix [K, N], as [N, K] in memory and seen as [K, N]; anything else as it is."""
    constant = source.constant
    if constant is None or len(source.shape) != 2 or source.shape != constant.shape:
        return source
    if source.strides != (source.shape[1], 1) or 1 in source.shape:
        return source
    return replace(source, strides=(1, source.shape[0]), argument=Packed(constant, "transposed", (1, 0)))


def index_type(*sources: Source) -> str:
    """`int` where every element lies within 32 bits of the first, else `i64`."""
    reach = max(
        sum((size - 1) * abs(stride) for size, stride in zip(source.shape, source.strides, strict=True))
        for source in sources
    )
    return "int" if reach < 1 << 31 else "i64"


def split_index_code(name: str, parts: Sequence[str], sizes: Sequence[int], index: str) -> str:
    """Statements that take a row-major index apart into `parts`, one for each size; `name` is used up."""
    lines = [
        f"const {index} {part} = {name} % {size}; {name} /= {size};"
        for part, size in reversed(list(zip(parts, sizes, strict=True))[1:])
    ]
    if parts:
        lines.append(f"const {index} {parts[0]} = {name};")
    return " ".join(lines)


def offset_code(parts: Sequence[str], strides: Sequence[int]) -> str:
    """The sum of indices times strides."""
    return " + ".join(f"{part} * {stride}" for part, stride in zip(parts, strides, strict=True) if stride) or "0"
