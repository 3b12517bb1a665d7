"""Who works on a row: some lanes of a warp, a block, or a column of threads beside others."""

from dataclasses import dataclass

THREADS = (32, 64, 96, 128, 256, 512, 1024)
"""Sizes of blocks that a reduction of the prelude takes: up to four warps, or a power of two of them."""
COLUMNS = 32


@dataclass(frozen=True, slots=True)
class ThreadGroup:
    """`size` threads for each row; `rows` rows in a block of `block` threads in x and y.

    `reduce` is the template of the prelude that reduces over the group. Each reduction needs `shared` elements of
    shared memory. A thread has `each` rows, which lie side by side in memory.
    """

    name: str
    size: int
    rows: int
    block: tuple[int, int]
    rank: str
    row: str
    reduce: str
    shared: int
    each: int = 1

    @property
    def is_column(self) -> bool:
        """Whether neighboring threads have neighboring rows."""
        return self.reduce.startswith("column_reduce")

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.block[0] * self.block[1]


def lanes(count: int, threads: int) -> ThreadGroup:
    """`count` lanes of a warp (a power of two), in blocks of `threads`."""
    rows = threads // count
    row = f"blockIdx.x * {rows} + threadIdx.x / {count}"
    return ThreadGroup(
        f"lanes{count}", count, rows, (threads, 1), f"threadIdx.x % {count}", row, f"warp_reduce<{{}}, {count}>", 0
    )


def block(threads: int) -> ThreadGroup:
    """A block of `threads` threads."""
    warps = threads // 32
    shared = warps if warps > 1 else 0
    return ThreadGroup(
        f"block{threads}", threads, 1, (threads, 1), "threadIdx.x", "blockIdx.x", f"block_reduce<{{}}, {warps}>", shared
    )


def columns(threads: int, each: int = 1, lanes: int = COLUMNS) -> ThreadGroup:
    """`threads` threads in y for each of `lanes` (a power of two) times `each` rows that lie side by side."""
    rows = lanes * each
    shared = rows * threads if threads > 1 else 0
    first = f"blockIdx.x * {lanes} + threadIdx.x"
    return ThreadGroup(
        f"columns{threads}" + (f"x{each}" if each > 1 else "") + (f"of{lanes}" if lanes != COLUMNS else ""),
        threads,
        rows,
        (lanes, threads),
        "threadIdx.y",
        f"({first}) * {each}" if each > 1 else first,
        f"column_reduce<{{}}, {threads}, {lanes}>",
        shared,
        each,
    )
