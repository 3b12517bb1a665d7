"""Order: which way rows are sorted, and the first of them found (`sort`, `top_k`).

Short rows: registers of a warp. Rows that fit into a block: radix sort in shared memory. Few elements of long rows: the
first of each part by a block of its own, then of what these found, and so on. Else: radix sort over the chip.
"""

from collections.abc import Iterator, Mapping

from .....ir.ops.rules import normal_axis
from ...kernel_ir.launch import BufferPlace, Candidate, KernelLaunch, Lowering, Task
from ...kernel_ir.layouts import Layout
from ...kernel_ir.moving import operand
from . import radix_select, short_sorts
from .ordered_rows import INDEX_BYTES, LONGEST, Entries, SortRows
from .radix import ChipSort, Tile, in_block
from .radix_select import first_of_tiles

LARGEST_BLOCK = Tile(512, 16)
SMALL_TILE, LARGE_TILE = Tile(256, 8), Tile(512, 8)
"""What a block takes of a long row."""
MANY_ENTRIES = 1 << 18
"""From so many entries in all on there are enough large tiles."""
MANY_ROWS = 128
"""From so many rows on a block for each keeps the chip busy."""
MANY_TILES = 64
FEW = 1024
"""Up to so many elements of a long row are found faster than the row is sorted."""


def block_tile(length: int) -> Tile:
    """The tile of a block that sorts a whole row."""
    threads = 256 if length <= 2048 else 512
    return Tile(threads, max(1, -(-length // threads)))


def chip_sort(rows: SortRows) -> ChipSort:
    """How rows are sorted over the chip: by small tiles where large ones are too few to keep it busy."""
    return ChipSort(_tile_of(rows), MANY_TILES)


def _tile_of(rows: SortRows) -> Tile:
    is_small = rows.row_count * rows.length < MANY_ENTRIES and rows.count not in range(SMALL_TILE.size // 4, FEW + 1)
    return SMALL_TILE if is_small else LARGE_TILE


def _first_of_parts(rows: SortRows, scratch: BufferPlace) -> tuple[tuple[KernelLaunch, ...], int]:
    """The first `count` of long rows: of each part by a block of its own, then of what these found, and so on."""
    launches: list[KernelLaunch] = []
    used, length, tile = 0, rows.length, _tile_of(rows)
    source: Entries | None = None
    is_ranked = rows.count <= radix_select.RANKED
    while length > LARGE_TILE.size or not is_ranked:
        parts = -(-length // tile.size)
        entries = rows.row_count * parts * rows.count
        key_bytes = -(-entries * rows.key.nbytes // 256) * 256
        place = scratch.offset + used
        found = Entries(BufferPlace(scratch.buffer, place), BufferPlace(scratch.buffer, place + key_bytes))
        launches.append(first_of_tiles(rows, tile, length, parts, source, found))
        used += key_bytes + -(-entries * INDEX_BYTES // 256) * 256
        source, length = found, parts * rows.count
        if parts == 1:
            launches.append(in_block(rows, block_tile(length), length, 1, source))
            return tuple(launches), used
    launches.append(first_of_tiles(rows, block_tile(length), length, 1, source, None))
    return tuple(launches), used


def _sorted_rows(rows: SortRows) -> Iterator[Candidate]:
    scratch = rows.task.scratch
    if not rows.row_count or not rows.count:
        yield Candidate("nothing", ())
    elif rows.length <= short_sorts.MOST:
        yield Candidate("warp", (short_sorts.network(rows),))
    elif rows.length <= LARGEST_BLOCK.size and rows.count <= min(radix_select.RANKED, rows.length // 2):
        yield Candidate("select", (first_of_tiles(rows, block_tile(rows.length), rows.length, 1, None, None),))
    elif rows.length > LARGE_TILE.size and rows.count <= FEW and scratch is not None:
        launches, nbytes = _first_of_parts(rows, scratch)
        yield Candidate("parts", launches, nbytes)
    elif rows.length <= (LARGEST_BLOCK if rows.row_count >= MANY_ROWS else LARGE_TILE).size:
        yield Candidate("block", (in_block(rows, block_tile(rows.length), rows.length),))
    elif scratch is not None and rows.length <= LONGEST:
        launches, nbytes = chip_sort(rows).launches(rows, scratch)
        yield Candidate("chip", launches, nbytes)


def _lower_sort(task: Task) -> Iterator[Candidate]:
    axis = _axis(task, operand(task))
    yield from _sorted_rows(
        SortRows(task, axis, operand(task).shape[axis], is_descending=task.node.attrs["descending"])
    )


def _lower_top_k(task: Task) -> Iterator[Candidate]:
    attrs = task.node.attrs
    yield from _sorted_rows(SortRows(task, _axis(task, operand(task)), attrs["k"], is_descending=attrs["largest"]))


def _axis(task: Task, x: Layout) -> int:
    return normal_axis(task.node.attrs["axis"], len(x.shape))


LOWERINGS: Mapping[str, Lowering] = {"sort": _lower_sort, "top_k": _lower_top_k}
"""Ops of order."""
