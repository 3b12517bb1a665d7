"""What is distinct, in ascending order, with a count on the device: `bounded_unique` of elements.

Elements are sorted (`radix.py`), and those that are others than the one before are brought side by side
(`compaction.py`). Only what is read of the results is made: where no index is asked for, none goes with its key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from .....ir.graph import Node
from .....ir.op import BOOLS, NUMBERS
from ...kernel_ir.kernels import Parameter, at, launch_of, per_position, reach_type, read, written
from ...kernel_ir.launch import BufferPlace, Candidate, KernelLaunch, Lowering, Task
from ...kernel_ir.layouts import Layout, contiguous, index_lines, index_type
from ...kernel_ir.moving import operand, result
from .compaction import Search, compacted
from .ordered_rows import INDEX_BYTES, LONGEST, Entries, Key, SortRows
from .radix import ChipSort, InTurns, Tile, in_block
from .sorting import LARGE_TILE, MANY_TILES, block_tile

KEY_TILE = Tile(512, 16)
"""What a block takes of keys that go alone."""
NONE = "0xffffffffu"


class _Elements(SortRows):
    """All elements of a tensor as one row, in row-major order, in ascending order of their keys."""

    def __init__(self, task: Task, *, has_indices: bool, firsts: BufferPlace) -> None:
        self.task, self.x = task, operand(task)
        self.values, self.places = result(task), result(task, 1)
        self.length = self.count = self.x.size
        self.key = Key(self.x.dtype, is_descending=False)
        self.ctype = reach_type((self.x,))
        self.row_count = 1
        self.has_indices = has_indices
        self.firsts = Parameter("unsigned*", "firsts", firsts)

    @property
    def tells_firsts(self) -> bool:
        """Whether elements with one key may differ (zeros, NaN), and no index says which one came first."""
        return self.key.dtype.is_float and not self.has_indices

    def head(self, row: str) -> list[str]:
        """Nothing: it is the only row."""
        return [f"(void){row};"]

    def element(self, index: str) -> str:
        """An element as it is stored."""
        if contiguous(self.x):
            return f"x[{index}]"
        lines = " ".join(index_lines("c", "place", self.x.shape, self.ctype))
        return f"[&] {{ const {self.ctype} place = {index}; {lines} return x[{at(self.x)}]; }}()"

    def launch(
        self,
        lines: list[str],
        blocks: int,
        threads: int,
        shared_bytes: int = 0,
        extra: tuple[Parameter, ...] = (),
    ) -> KernelLaunch:
        """A kernel that reads `x`, and has `extra` parameters."""
        grid, block = (blocks, 1, 1), (threads, 1, 1)
        return launch_of([read("x", self.x), *extra], lines, grid, block, 2 * self.x.nbytes, 0, shared_bytes)

    def distinct(self, place: str) -> str:
        """The element whose key lies at a place in order; of several with that key, the first one."""
        if self.has_indices:
            return self.element(f"indices[{place}]")
        return self.key.element(f"keys[{place}]", self.element(f"firsts[own == {self.key.last}]"))


@dataclass
class _Room:
    """Scratch memory, taken piece by piece."""

    scratch: BufferPlace
    used: int = 0

    def rest(self) -> BufferPlace:
        """What is left."""
        return BufferPlace(self.scratch.buffer, self.scratch.offset + self.used)

    def taken(self, nbytes: int) -> BufferPlace:
        """The next piece."""
        place = self.rest()
        self.used += -(-nbytes // 256) * 256
        return place


def _is_sorted(node: Node) -> bool:
    """Whether it asks for elements in ascending order, with room for all of them."""
    x = node.operands[0].tensor
    is_flat = node.attrs["axis"] is None or x.rank == 1
    return bool(node.attrs["sorted"]) and is_flat and x.dtype in NUMBERS | BOOLS


def _lower(task: Task) -> Iterator[Candidate]:
    x, size = operand(task), result(task).shape[0]
    if task.scratch is None or not _is_sorted(task.node) or not 0 < x.size == size < LONGEST:
        return
    wants_distinct, wants_first, wants_inverse, wants_counts, _ = (value.has_uses for value in task.node.outputs)
    room = _Room(task.scratch)
    has_indices = wants_first or wants_inverse or size <= LARGE_TILE.size
    rows = _Elements(task, has_indices=has_indices, firsts=room.taken(8))
    launches, places = _sorted(rows, room)
    starts = Parameter("unsigned*", "starts", room.taken(INDEX_BYTES * size if wants_counts else 0))
    kept = {
        "distinct": result(task) if wants_distinct else None,
        "origin": result(task, 1) if wants_first else None,
        "inverse": result(task, 2) if wants_inverse else None,
    }
    search = _search(rows, places, {name: layout for name, layout in kept.items() if layout is not None})
    if wants_counts:
        search = replace(search, written=[*search.written, starts], emit=[*search.emit, "starts[slot] = p;"])
    if rows.tells_firsts:
        launches.append(_told_firsts(rows))
    found, used = compacted(search, result(task, 4), room.rest())
    launches += found
    if wants_counts:
        launches.append(_counted(starts, result(task, 3), result(task, 4), x.size))
    yield Candidate("distinct", tuple(launches), room.used + used)


def _sorted(rows: _Elements, room: _Room) -> tuple[list[KernelLaunch], InTurns]:
    """Kernels that sort, and where the entries are then."""
    launches = [_begun(rows)] if rows.tells_firsts else []
    if rows.length <= LARGE_TILE.size:
        found = Entries(room.taken(rows.length * rows.key.nbytes), room.taken(rows.length * INDEX_BYTES))
        launches.append(in_block(rows, block_tile(rows.length), rows.length, found=found))
        return launches, InTurns((found,), None, 1)
    is_alone = not rows.has_indices and rows.key.nbytes <= INDEX_BYTES
    sort = ChipSort(KEY_TILE if is_alone else LARGE_TILE, MANY_TILES)
    made, used, places = sort.entries(rows, room.rest())
    room.used += used
    return [*launches, *made], places


def _begun(rows: _Elements) -> KernelLaunch:
    """No zero and no NaN is known."""
    return per_position([rows.firsts], 2, [f"firsts[p] = {NONE};"], 8, threads=32)


def _told_firsts(rows: _Elements) -> KernelLaunch:
    """The indices of the first zero and of the first NaN."""
    threads, items, zero = 256, 16, f"(({rows.key.computed})1 << {rows.key.bits - 1})"
    stretch = threads * items
    lines = [
        "__shared__ unsigned least[2];",
        f"if (threadIdx.x < 2) least[threadIdx.x] = {NONE};",
        "__syncthreads();",
        f"unsigned zero = {NONE}, nan = {NONE};",
        "#pragma unroll",
        f"for (int i = {items - 1}; i >= 0; i--) {{",
        f"const unsigned n = blockIdx.x * {stretch}u + i * {threads} + threadIdx.x;",
        f"if (n < {rows.length}u) {{ const auto raw = {rows.element('n')};",
        f"const {rows.key.computed} key = {rows.key.of('raw')};",
        f"if (key == {zero}) zero = n; if (key == {rows.key.last}) nan = n; }} }}",
        f"if (zero != {NONE}) atomicMin(least, zero);",
        f"if (nan != {NONE}) atomicMin(least + 1, nan);",
        "__syncthreads();",
        "if (threadIdx.x < 2 && least[threadIdx.x] < firsts[threadIdx.x])",
        "atomicMin(firsts + threadIdx.x, least[threadIdx.x]);",
    ]
    grid = (-(-rows.length // stretch), 1, 1)
    return launch_of([rows.firsts, read("x", rows.x)], lines, grid, (threads, 1, 1), rows.x.nbytes)


def _search(rows: _Elements, places: InTurns, kept: Mapping[str, Layout]) -> Search:
    """What is to be found among sorted entries, and the results that are kept of it."""
    ctype = index_type([rows.length, *(layout.reach for layout in kept.values())])
    emit, clear, number = [], list[str](), list[str]()
    spots = {name: f"{name}[({ctype})slot * {layout.strides[0]}]" for name, layout in kept.items()}
    if "distinct" in kept:
        emit.append(f"{spots['distinct']} = {rows.distinct('p')};")
        clear.append(f"{spots['distinct']} = {{}};")
    if "origin" in kept:
        emit.append(f"{spots['origin']} = indices[p];")
        clear.append(f"{spots['origin']} = 0;")
    if "inverse" in kept:
        number.append(f"inverse[({ctype})indices[p] * {kept['inverse'].strides[0]}] = upto - 1;")
    given = [*places.parameters(rows), *([rows.firsts] if rows.tells_firsts else []), read("x", rows.x)]
    return Search(
        rows.length,
        rows.length,
        given,
        [written(name, layout) for name, layout in kept.items()],
        ["is_found = p == 0 || keys[p] != keys[p - 1];"],
        emit,
        clear,
        rows.x.nbytes + sum(layout.nbytes for layout in kept.values()),
        [*places.head(rows), *(["(void)indices;"] if rows.has_indices else [])],
        number,
    )


def _counted(starts: Parameter, counts: Layout, count: Layout, length: int) -> KernelLaunch:
    """How far it is from each start to the next one, or to the end."""
    ctype = reach_type((counts,))
    lines = [
        "const i64 total = *count; i64 found = 0;",
        f"if ((i64)p < total) found = (i64)((i64)p + 1 < total ? starts[p + 1] : {length}u) - starts[p];",
        f"counts[({ctype})p * {counts.strides[0]}] = found;",
    ]
    parameters = [written("counts", counts), read("count", count), starts]
    return per_position(parameters, length, lines, counts.nbytes, ctype=ctype)


LOWERINGS: Mapping[str, Lowering] = {"bounded_unique": _lower}
"""Ops that tell what is distinct."""
