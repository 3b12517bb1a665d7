"""Content that lies on a device, by strides."""

from dataclasses import dataclass
from math import prod

from ....ir.plan import contiguous_strides

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Held:
    """Content on the device by strides in bytes; `owner` keeps the memory."""

    address: int
    shape: Shape
    strides: Shape
    itemsize: int
    owner: object

    @property
    def nbytes(self) -> int:
        """What the elements take without gaps."""
        return prod(self.shape) * self.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return self.strides == contiguous_strides(self.shape, self.itemsize)
