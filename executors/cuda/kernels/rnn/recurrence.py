"""A recurrence with its memory, and how its rows are shared by warps."""

from collections.abc import Iterator
from dataclasses import dataclass

from .....ir.plan import element_bytes
from ...kernel_ir.launch import Argument, BufferPlace
from ...kernel_ir.sources import Source
from ...kernel_ir.types import computed, stored
from .cells import Cell


@dataclass(frozen=True)
class Recurrence:
    """A recurrence with its memory. `direction` counts directions, `row` samples.

    `r` is [D, G * H, H], `b` [D, 2 * G * H], `peepholes` [D, 3 * H], `lengths` [B]; `every` is seen as [T, D, B, H] and
    states, given and last, as [D, B, H]. `projected` holds the matmuls of all inputs as [.., D * G * H], with the
    strides `projected_strides` of steps and of samples; `states` has room for two hidden states, and `buffers` for what
    the cell keeps besides.
    """

    cell: Cell
    steps: int
    is_reversed: tuple[bool, ...]
    activations: str
    r: Source
    b: Source | None
    peepholes: Source | None
    lengths: Source | None
    initial: tuple[Source | None, ...]
    every: Source
    last: tuple[Source, ...]
    projected: BufferPlace | None
    projected_strides: tuple[int, int]
    states: BufferPlace
    buffers: tuple[BufferPlace, ...]

    @property
    def directions(self) -> int:
        return self.every.shape[1]

    @property
    def batch(self) -> int:
        return self.every.shape[2]

    @property
    def hidden(self) -> int:
        return self.every.shape[3]

    @property
    def real(self) -> str:
        """The type in which everything is computed."""
        return computed(self.every.dtype)

    @property
    def state_size(self) -> int:
        """Numbers of one state of all directions."""
        return self.directions * self.batch * self.hidden

    @property
    def is_fixed(self) -> bool:
        """Whether weights and biases are constants, which may be read before the kernel waits."""
        weights = [source for source in (self.r, self.b, self.peepholes) if source is not None]
        return all(source.constant is not None for source in weights)

    @property
    def width(self) -> int:
        """Weights that are read at a time."""
        width = 16 // element_bytes(self.r.dtype)
        while width > 1 and not self._has_pieces(width):
            width //= 2
        return width

    def _has_pieces(self, width: int) -> bool:
        place = self.r.argument
        begins = not isinstance(place, BufferPlace) or place.offset % (width * element_bytes(self.r.dtype)) == 0
        return (
            begins and self.r.strides[2] == 1 and not any(each % width for each in (self.hidden, *self.r.strides[:2]))
        )

    @property
    def pieces(self) -> int:
        """Pieces of a row of weights that a lane takes."""
        return -(-self.hidden // (32 * self.width))

    def parameters(self) -> Iterator[tuple[str, Argument]]:
        """The parameters that all kernels of steps have, with what is given for them."""
        kind = stored(self.every.dtype)
        if self.projected is not None:
            yield f"const {self.real}* projected", self.projected
        yield f"const {kind}* r", self.r.argument
        for name, source in (("b", self.b), ("peepholes", self.peepholes), ("lengths", self.lengths)):
            if source is not None:
                yield f"const {stored(source.dtype)}* {name}", source.argument
        yield from self.state_parameters()
        yield f"{kind}* every", self.every.argument

    def state_parameters(self) -> Iterator[tuple[str, Argument]]:
        """Those for states, at work and last."""
        yield f"{self.real}* states", self.states
        for name, place in zip(self.cell.buffers, self.buffers, strict=True):
            yield f"{self.real}* {name}", place
        for index, source in enumerate(self.last):
            yield f"{stored(source.dtype)}* last{index}", source.argument


def tiles_of(recurrence: Recurrence, most: int) -> tuple[int, int]:
    """Rows of the batch that a warp takes, and how many such tiles there are."""
    tiles = -(-recurrence.batch // most)
    rows = -(-recurrence.batch // tiles)
    return rows, -(-recurrence.batch // rows)
