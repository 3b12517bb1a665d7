"""How a matmul of some rows is dealt to blocks, warps and lanes, and what that takes of shared memory."""

from dataclasses import dataclass

from ....kernel_ir.launch import Chip
from ..column_gemv import ColumnText, ColumnTiling

COLUMNS, ROWS, UNIT = 16, 8, 32
"""What two `mma` take: columns of the weight, rows, and numbers of each of them."""

PITCH = 20
"""Floats from column to column of a tile of sums, so that threads that end neighbors read from different banks."""

TILE = COLUMNS // 2 * PITCH
"""Floats of a tile of sums: 8 rows of two columns lie side by side."""

_SYSTEM_BYTES = 1 << 10
"""Shared memory that a block has besides its own."""

_MOST_SUMS = 40 << 10
"""Bytes of sums that may wait for those of the other blocks of a cluster."""


@dataclass(frozen=True, slots=True)
class RowTiling(ColumnTiling):
    """Blocks of `warps` warps, up to `blocks` of them on a multiprocessor; `splits` of them share the inner axis.

    A warp has `units` units of 16 columns in registers. Rows are `held` in shared memory or read again.
    """

    units: int
    blocks: int
    splits: int
    is_held: bool = True

    @property
    def name(self) -> str:
        again = "" if self.is_held else "-again"
        return f"rows-{self.warps}x{self.units}x{self.blocks}x{self.splits}{again}"


@dataclass(frozen=True)
class RowSizes(ColumnText):
    """The sizes of one tiling."""

    tiling: RowTiling
    chip: Chip

    @property
    def tiles(self) -> int:
        """Of eight rows."""
        return -(-self.rows // ROWS)

    @property
    def chunk(self) -> int:
        return self.tiling.units * self.tiling.warps * UNIT

    @property
    def chunks(self) -> int:
        return -(-self.inner // (self.chunk * self.tiling.splits))

    @property
    def is_ragged(self) -> bool:
        return self.inner % (self.chunk * self.chunks * self.tiling.splits) != 0

    @property
    def is_cut(self) -> bool:
        """Whether lanes of a unit may be beyond the end."""
        return self.inner % UNIT != 0

    @property
    def elements(self) -> int:
        """Results of a group of columns."""
        return self.rows * self.own

    @property
    def each(self) -> int:
        """Results of a group that a thread ends."""
        return -(-self.elements // self.tiling.threads)

    @property
    def rounds(self) -> int:
        """Groups of columns that a cluster has."""
        return -(-self.groups // max(1, self.tiling.blocks * self.chip.multiprocessors // self.tiling.splits))

    @property
    def clusters(self) -> int:
        if self.tiling.splits == 1:
            return min(self.groups, self.tiling.blocks * self.chip.multiprocessors)
        return -(-self.groups // self.rounds)

    @property
    def places(self) -> dict[str, int]:
        """Where parts of the shared memory begin, in bytes, and where it ends."""
        tiling, floats = self.tiling, 4
        sizes = {
            "rows": self.chunks * tiling.units * self.tiles * tiling.threads * 16 * tiling.is_held,
            "gains": self.chunks * self.chunk * 2 * bool(self.affine),
            "sums": 2 * tiling.warps * self.tiles * TILE * floats,
            "squares": tiling.warps * self.tiles * ROWS * floats * (self.norm is not None),
            "whole": self.rounds * self.elements * len(self.weights) * floats * (tiling.splits > 1),
            "whole_squares": self.rows * floats * (tiling.splits > 1),
        }
        found, end = dict[str, int](), 0
        for name, size in sizes.items():
            found[name], end = end, end + -(-size // 16) * 16
        return {**found, "end": end}

    @property
    def fits(self) -> bool:
        """Whether there is room for so many blocks, and each block of a cluster has some of the work."""
        places, tiling = self.places, self.tiling
        room = (self.chip.shared_bytes + _SYSTEM_BYTES) // tiling.blocks - _SYSTEM_BYTES
        is_small = tiling.splits == 1 or places["end"] - places["whole"] <= _MOST_SUMS
        return places["end"] <= room and is_small and self.chunk * self.chunks * (tiling.splits - 1) < self.inner

    @property
    def together(self) -> int:
        """How many blocks find room on a multiprocessor."""
        room = self.chip.shared_bytes + _SYSTEM_BYTES
        return min(self.tiling.together, room // (self.places["end"] + _SYSTEM_BYTES))

    @property
    def early_loads(self) -> int:
        if not self.is_weight:
            return 0
        return 2 * self.tiling.units + (1 if self.affine and self.is_affine_early else 0)
