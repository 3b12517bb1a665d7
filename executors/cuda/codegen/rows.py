"""Softmax, norms, reductions and regions with them: which team works on a row, and whether a row is split.

Rows that lie along memory get lanes of a warp or a block, rows across memory columns of threads, so that neighbouring
threads read neighbouring elements. Where there are too few rows for the chip they are split over blocks.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..launch import Argument, Candidate, Kernel, KernelLaunch, Lowering, Place, Task
from .folds import FOLDINGS, fold_program, grouped_program, quantising_program, top_one_program
from .levels import Analysis
from .pointwise import has_types
from .program import Program
from .regions import Region, region_of
from .row_kernel import Part, RowKernel
from .teams import COLUMNS, THREADS, Team, block, columns, lanes

MOST_REGISTERS = 64
"""How many words of a thread's registers may hold elements."""
MOST_COLUMN_THREADS = 16
MOST_ROUNDS = 8
"""Vectors that each of 1024 threads may read of a row before the row is better shared by several blocks."""
LONG_COLUMN = 512
"""The same for rows across memory, in elements."""
SMALL_SHARE = 4096
"""Bytes that are not worth a block of their own."""
MOST_PARTS = 512

_BYTES = {"float": 4, "int": 4, "unsigned": 4, "double": 8, "i64": 8, "u64": 8}
_LARGEST_FOLD = 16


def fold_bytes(ctype: str) -> int:
    """Bytes of what a fold carries, at most: a number, or a number with its index."""
    return _BYTES.get(ctype, _LARGEST_FOLD)


@dataclass(frozen=True)
class Way:
    """One kernel for a program: who works on a row, in vectors of which width, and where elements wait."""

    analysis: Analysis
    team: Team
    width: int
    in_registers: bool

    def candidate(self, flops: int) -> Candidate:
        """The launch."""
        kernel = RowKernel(self.analysis, self.team, self.width, self.in_registers)
        program = self.analysis.program
        name = f"{self.team.name}{'' if self.in_registers else '-passes'}"
        made = Kernel(kernel.text(), kernel.grid(), (*self.team.block, 1))
        return Candidate(name, (KernelLaunch(made, program.arguments(), program.nbytes, flops, may_overlap=True),))


@dataclass(frozen=True)
class SplitWay:
    """A kernel for each stage, with each row split over `count` blocks and `scratch` between the kernels."""

    analysis: Analysis
    team: Team
    width: int
    count: int
    scratch: Place

    def candidate(self, flops: int) -> Candidate:
        """The launches, in order."""
        program, last = self.analysis.program, self.analysis.last
        partials: list[Argument] = []
        used = 0
        for fold in program.folds:
            partials.append(Place(self.scratch.buffer, self.scratch.offset + used))
            used += -(-self.count * self.analysis.row_count * fold_bytes(fold.ctype) // 256) * 256
        arguments = (*program.arguments(), *partials)
        launches: list[KernelLaunch] = []
        for stage in range(last + 1):
            kernel = RowKernel(self.analysis, self.team, self.width, in_registers=False, part=Part(stage, self.count))
            blocks, parts, _ = kernel.grid()
            reads_elements = stage < last or bool(self.analysis.element_stores)
            made = Kernel(kernel.text(), (blocks, parts if reads_elements else 1, 1), (*self.team.block, 1))
            nbytes = program.nbytes if reads_elements else used
            launches.append(KernelLaunch(made, arguments, nbytes, flops // (last + 1), may_overlap=True))
        return Candidate(f"split{self.count}-{self.team.name}", tuple(launches), used)


def row_candidates(program: Program, task: Task, flops: int) -> Iterator[Candidate]:
    """The ways to run a program with folds, best guess first."""
    if not _writes(program):
        yield Candidate("nothing", ())
        return
    analysis = Analysis(program)
    is_across = _lies_across(analysis)
    ways: list[Way | SplitWay] = [*(_column_ways(analysis, task) if is_across else _row_ways(analysis, task))]
    split = _split_way(analysis, task, is_across)
    if split is not None:
        ways.insert(0 if _is_long(analysis, is_across) else 1, split)
    yield from (way.candidate(flops) for way in ways)


def _writes(program: Program) -> bool:
    """Whether any result has elements."""
    rows = math.prod(size for axis, size in enumerate(program.domain) if axis not in program.reduced)
    return bool(rows and program.stores)


def _lies_across(analysis: Analysis) -> bool:
    """Whether neighbours in memory belong to different rows."""
    leader = analysis.leader
    return analysis.row_length > 1 and analysis.elements.inner(leader) != 1 and analysis.rows.inner(leader) == 1


def _words(analysis: Analysis) -> float:
    """Words of registers that one element of a row takes."""
    program = analysis.program
    loaded = sum(load.layout.itemsize for load in program.loads if analysis.is_element(load.name)) / 4
    return max(loaded + analysis.held(), 1.0)


# ---- rows along memory


def _row_ways(analysis: Analysis, task: Task) -> Iterator[Way]:
    width, words = analysis.width(), _words(analysis)
    while width > 1 and width * words > MOST_REGISTERS:
        width //= 2
    vectors = analysis.row_length // width
    rounds = max(1, int(MOST_REGISTERS / (width * words)))
    found: list[Way] = []
    count = min(32, _power_of_two(vectors))
    if -(-vectors // count) <= rounds:
        found.append(Way(analysis, lanes(count, _lane_threads(analysis, count, task)), width, in_registers=True))
    threads = _block_threads(vectors, rounds, analysis.row_count >= 4 * task.chip.multiprocessors)
    if threads and vectors > 32:
        found.append(Way(analysis, block(threads), width, in_registers=True))
    if len(found) == 2 and analysis.row_count < 8 * task.chip.multiprocessors:
        found.reverse()
    yield from found
    if not found:
        yield Way(analysis, block(1024 if vectors >= 2048 else 256), width, in_registers=False)


def _power_of_two(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << max(count - 1, 0).bit_length()


def _lane_threads(analysis: Analysis, count: int, task: Task) -> int:
    """Threads of a block whose warps work on rows of their own: fewer where there are few rows."""
    for threads in (256, 128, 64):
        if analysis.row_count * count >= 2 * threads * task.chip.multiprocessors:
            return threads
    return 32


def _block_threads(vectors: int, rounds: int, has_many_rows: bool) -> int:
    """Threads of a block that holds a row in its registers, 0 where none does."""
    wanted = min(rounds, 2) if has_many_rows else 1
    for limit in (wanted, rounds):
        for threads in THREADS[1:]:
            if -(-vectors // threads) <= limit:
                return threads
    return 0


# ---- rows across memory


def _column_ways(analysis: Analysis, task: Task) -> Iterator[Way]:
    length, blocks = analysis.row_length, -(-analysis.row_count // COLUMNS)
    threads = 1
    while (
        threads < MOST_COLUMN_THREADS and length >= 8 * threads and _is_idle(blocks * threads, length // threads, task)
    ):
        threads *= 2
    in_registers = -(-length // threads) * _words(analysis) <= MOST_REGISTERS
    yield Way(analysis, columns(threads), 1, in_registers)


def _is_idle(warps: int, length: int, task: Task) -> bool:
    return warps < 16 * task.chip.multiprocessors or length > 64


# ---- split rows


def _is_long(analysis: Analysis, is_across: bool) -> bool:
    """Whether one block would read a row for much longer than launching another kernel takes."""
    if is_across:
        return analysis.row_length > LONG_COLUMN
    return analysis.row_length // analysis.width() > MOST_ROUNDS * 1024


def _split_way(analysis: Analysis, task: Task, is_across: bool) -> SplitWay | None:
    """Rows shared by so many blocks that all multiprocessors have work, where there are too few rows for that."""
    team = columns(8) if is_across else block(256)
    blocks = -(-analysis.row_count // team.rows)
    itemsize = analysis.program.layouts[analysis.leader].itemsize
    wanted = -(-4 * task.chip.multiprocessors // blocks)
    count = min(wanted, analysis.row_length * itemsize * team.rows // SMALL_SHARE, MOST_PARTS)
    if count <= 2 or task.scratch is None or not analysis.program.folds:
        return None
    return SplitWay(analysis, team, 1 if is_across else analysis.width(), count, task.scratch)


# ---- ops


def lower_folds(task: Task) -> Iterator[Candidate]:
    """A node or region with folds over the axes of one shape."""
    yield from _lowered(task, fold_program)


def _lower_grouped(task: Task) -> Iterator[Candidate]:
    yield from _lowered(task, grouped_program)


def _lower_quantising(task: Task) -> Iterator[Candidate]:
    yield from _lowered(task, quantising_program)


def _lower_top_one(task: Task) -> Iterator[Candidate]:
    if task.node.attrs["k"] == 1:
        yield from _lowered(task, top_one_program)


def _lowered(task: Task, program_of: Callable[[Region], Program]) -> Iterator[Candidate]:
    region = region_of(task)
    if all(has_types(node) for node in region.nodes):
        yield from row_candidates(program_of(region), task, region.flops)


LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(FOLDINGS, lower_folds),
    "instance_norm": _lower_grouped,
    "group_norm": _lower_grouped,
    "dynamic_quantize_linear": _lower_quantising,
    "top_k": _lower_top_one,
}
"""Ops with folds."""
