"""Who works on a row: some lanes of a warp, a block, or a column of threads beside 31 others."""

from dataclasses import dataclass

THREADS = (32, 64, 96, 128, 256, 512, 1024)
"""Sizes of blocks that a fold of the prelude takes: up to four warps, or a power of two of them."""
COLUMNS = 32


@dataclass(frozen=True, slots=True)
class Team:
    """`size` threads for each row; `rows` rows in a block of `block` threads in x and y.

    `fold` is the template of the prelude that folds over the team, `shared` how many elements of shared memory each
    fold needs.
    """

    name: str
    size: int
    rows: int
    block: tuple[int, int]
    rank: str
    row: str
    fold: str
    shared: int

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.block[0] * self.block[1]


def lanes(count: int, threads: int) -> Team:
    """`count` lanes of a warp (a power of two), in blocks of `threads`."""
    rows = threads // count
    row = f"blockIdx.x * {rows} + threadIdx.x / {count}"
    return Team(
        f"lanes{count}", count, rows, (threads, 1), f"threadIdx.x % {count}", row, f"warp_fold<{{}}, {count}>", 0
    )


def block(threads: int) -> Team:
    """A block of `threads` threads."""
    warps = threads // 32
    shared = warps if warps > 1 else 0
    return Team(
        f"block{threads}", threads, 1, (threads, 1), "threadIdx.x", "blockIdx.x", f"block_fold<{{}}, {warps}>", shared
    )


def columns(threads: int) -> Team:
    """`threads` threads in y for each of 32 rows that lie side by side."""
    shared = COLUMNS * threads if threads > 1 else 0
    row = f"blockIdx.x * {COLUMNS} + threadIdx.x"
    return Team(
        f"columns{threads}",
        threads,
        COLUMNS,
        (COLUMNS, threads),
        "threadIdx.y",
        row,
        f"column_fold<{{}}, {threads}>",
        shared,
    )
