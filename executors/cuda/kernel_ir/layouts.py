"""Index spaces: how the tensors of a kernel lie behind their pointers, seen over one common shape.

A kernel walks a shape; each tensor has a stride for each of its axes, 0 where it is broadcast. Axes are put in the
order in which the results lie and joined where all tensors allow it, so that dense tensors that are permuted alike
(channels-last images, say) are walked as one flat axis.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ....ir.plan import View, element_bytes
from ....ir.types import DType
from .launch import BufferPlace
from .types import stored, word

ALIGNMENT = 16
"""What kernels rely on: buffers, also those of callers, begin at multiples of this many bytes."""
INT_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Layout:
    """A tensor behind a pointer to its first element: strides in elements, one for each axis of `shape`.

    `alignment` is a power of two that divides the address of the first element.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    place: BufferPlace
    alignment: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return element_bytes(self.dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that have to be moved to read or write it once: broadcast elements count once."""
        shown = (size for size, stride in zip(self.shape, self.strides, strict=True) if stride)
        return math.prod(shown) * self.itemsize

    @property
    def reach(self) -> int:
        """The greatest distance of an element from the first, in elements."""
        return sum(abs(stride) * max(size - 1, 0) for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def ctype(self) -> str:
        """The C++ type of a stored element."""
        return stored(self.dtype)

    @property
    def word(self) -> str:
        """The type as which its elements are moved unseen."""
        return word(self.dtype)

    def broadcast(self, shape: Sequence[int]) -> "Layout":
        """Seen with `shape`, to which it broadcasts as in NumPy."""
        missing = len(shape) - len(self.shape)
        own = zip(self.shape, self.strides, shape[missing:], strict=True)
        strides = (0,) * missing + tuple(0 if size == 1 and wanted != 1 else stride for size, stride, wanted in own)
        return replace(self, shape=tuple(shape), strides=strides)

    def permuted(self, order: Sequence[int]) -> "Layout":
        """With axis order[i] as axis i."""
        return replace(
            self, shape=tuple(self.shape[axis] for axis in order), strides=tuple(self.strides[axis] for axis in order)
        )

    def split(self, axis: int, sizes: Sequence[int]) -> "Layout":
        """With `axis` taken apart into axes of `sizes`, the first outermost."""
        inner = [math.prod(sizes[index + 1 :]) * self.strides[axis] for index in range(len(sizes))]
        return replace(
            self,
            shape=(*self.shape[:axis], *sizes, *self.shape[axis + 1 :]),
            strides=(*self.strides[:axis], *inner, *self.strides[axis + 1 :]),
        )

    def inserted(self, axis: int, size: int) -> "Layout":
        """With a new axis before `axis`, along which nothing moves."""
        return replace(
            self,
            shape=(*self.shape[:axis], size, *self.shape[axis:]),
            strides=(*self.strides[:axis], 0, *self.strides[axis:]),
        )

    def without(self, axes: Iterable[int]) -> "Layout":
        """Without some axes: what lies at their index 0."""
        gone = set(axes)
        kept = [axis for axis in range(len(self.shape)) if axis not in gone]
        return self.permuted(kept)

    def part(self, axis: int, start: int, size: int, step: int = 1) -> "Layout":
        """The elements start, start + step, ... of `axis`."""
        shape, strides = list(self.shape), list(self.strides)
        shape[axis], strides[axis] = size, strides[axis] * step
        moved = self.moved(start * self.strides[axis])
        return replace(moved, shape=tuple(shape), strides=tuple(strides))

    def moved(self, elements: int) -> "Layout":
        """With another first element, so many elements further."""
        offset = self.place.offset + elements * self.itemsize
        place = BufferPlace(self.place.buffer, offset)
        return replace(self, place=place, alignment=_alignment(offset))

    @property
    def components(self) -> tuple["Layout", ...]:
        """The real and the imaginary parts of complex numbers; of anything else itself."""
        real = {DType.C64: DType.F32, DType.C128: DType.F64}.get(self.dtype)
        if real is None:
            return (self,)
        parts = replace(self, dtype=real, strides=tuple(2 * stride for stride in self.strides))
        return parts, parts.moved(1)

    @property
    def is_dense(self) -> bool:
        """Whether it fills the memory that it spans, its axes in any order."""
        step = 1
        for stride, size in sorted((abs(s), n) for s, n in zip(self.strides, self.shape, strict=True) if n != 1):
            if stride != step:
                return False
            step *= size
        return True


def layout_of(view: View) -> Layout:
    """The layout of a planned value."""
    itemsize = element_bytes(view.dtype)
    strides = tuple(
        0 if size == 1 else stride // itemsize for size, stride in zip(view.shape, view.strides, strict=True)
    )
    place = BufferPlace(view.buffer, view.offset)
    return Layout(view.dtype, view.shape, strides, place, _alignment(view.offset))


def dense(dtype: DType, shape: Sequence[int], place: BufferPlace) -> Layout:
    """A tensor in row-major order, in scratch memory say."""
    strides = [math.prod(shape[axis + 1 :]) if size != 1 else 0 for axis, size in enumerate(shape)]
    return Layout(dtype, tuple(shape), tuple(strides), place, _alignment(place.offset))


def contiguous(layout: Layout) -> bool:
    """Whether its elements lie in row-major order without gaps."""
    return dense(layout.dtype, layout.shape, layout.place).strides == layout.strides


def _alignment(offset: int) -> int:
    return math.gcd(offset, ALIGNMENT)


@dataclass(frozen=True, slots=True)
class Space:
    """A shape, and for each of some tensors its strides over it."""

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """The number of indices."""
        return math.prod(self.shape)

    def ordered(self, leader: int) -> "Space":
        """Axes of size 1 dropped, the others by descending strides of the tensor `leader`."""
        axes = [axis for axis, size in enumerate(self.shape) if size != 1]
        axes.sort(key=lambda axis: -abs(self.strides[leader][axis]))
        return self.picked(axes)

    def joined(self) -> "Space":
        """Neighboring axes made one where every tensor steps over both as over one."""
        space = self.picked([axis for axis, size in enumerate(self.shape) if size != 1])
        axis = len(space.shape) - 1
        while axis > 0:
            space = space._with_joined(axis)
            axis -= 1
        return space

    def picked(self, axes: Sequence[int]) -> "Space":
        """Some of the axes, in this order."""
        return Space(
            tuple(self.shape[axis] for axis in axes),
            tuple(tuple(strides[axis] for axis in axes) for strides in self.strides),
        )

    def _with_joined(self, axis: int) -> "Space":
        size = self.shape[axis]
        if any(strides[axis - 1] != size * strides[axis] for strides in self.strides):
            return self
        shape = (*self.shape[: axis - 1], self.shape[axis - 1] * size, *self.shape[axis + 1 :])
        return Space(shape, tuple((*strides[: axis - 1], *strides[axis:]) for strides in self.strides))

    def inner(self, tensor: int) -> int:
        """The stride of a tensor along the last axis, 0 where there is none."""
        return self.strides[tensor][-1] if self.shape else 0


def index_type(sizes: Iterable[int]) -> str:
    """The C++ type that holds all of `sizes`: int where that is enough."""
    return "int" if all(size < INT_LIMIT for size in sizes) else "i64"


def index_lines(prefix: str, position: str, shape: Sequence[int], ctype: str) -> list[str]:
    """Statements that take `position`, row-major in `shape`, apart into `prefix0`, `prefix1`, ..."""
    if not shape:
        return []
    if len(shape) == 1:
        return [f"const {ctype} {prefix}0 = {position};"]
    wide = "unsigned" if ctype == "int" else "u64"
    lines = [f"{wide} {prefix}r = {position};"]
    for axis in range(len(shape) - 1, 0, -1):
        lines.append(f"const {ctype} {prefix}{axis} = {prefix}r % {shape[axis]}u; {prefix}r /= {shape[axis]}u;")
    return [*lines, f"const {ctype} {prefix}0 = {prefix}r;"]


def offset_text(prefix: str, strides: Sequence[int]) -> str:
    """The offset of the element at `prefix0`, `prefix1`, ..."""
    terms = [
        f"{prefix}{axis}" if stride == 1 else f"{prefix}{axis} * {stride}"
        for axis, stride in enumerate(strides)
        if stride
    ]
    return " + ".join(terms) or "0"
