"""Softmax, norms, reductions and regions with them: which group works on a row, and whether a row is split.

Rows that lie along memory get lanes of a warp or a block, rows across memory columns of threads, so that neighboring
threads read neighboring elements. Where there are too few rows for the chip they are split over blocks.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..kernel_ir.launch import Argument, BufferPlace, Candidate, Kernel, KernelLaunch, Lowering, Task
from ..kernel_ir.pointwise import has_types
from ..kernel_ir.program import KernelProgram
from ..kernel_ir.reduction_schedule import ReductionSchedule
from ..kernel_ir.regions import FusedRegion, region_of
from ..kernel_ir.row_kernel import RowKernel, SplitStage, batch_of, share_of
from ..kernel_ir.thread_groups import COLUMNS, THREADS, ThreadGroup, block, columns, lanes
from .reductions import REDUCTIONS, quantizing_program, reduction_program, top_one_program

MOST_REGISTERS = 64
"""How many words of a thread's registers may hold elements."""
MOST_COLUMN_THREADS = 16
COLUMN_BYTES = 8
"""What a thread reads of neighboring columns at once: more is slower, as fewer rows are read side by side."""
MOST_COLUMNS = 4
COLUMN_BLOCK = 512
"""Threads of a block where columns are split over blocks."""
LONG_SHARE = 32 << 10
"""From so many bytes for each block on, two larger blocks a multiprocessor read faster than four."""
MOST_GATHERING = 32
"""Threads for each column that combine what blocks found."""
MOST_ROUNDS = 8
"""Vectors that each of 1024 threads may read of a row before the row is better shared by several blocks."""
LONG_COLUMN = 512
"""The same for rows across memory, in elements."""
SMALL_SHARE = 4096
"""Bytes that are not worth a block of their own."""
MOST_PARTS = 512
_BUSY = 4
"""Blocks for each multiprocessor that keep it busy; twice as many where they read columns once."""

_BYTES = {"float": 4, "int": 4, "unsigned": 4, "double": 8, "i64": 8, "u64": 8}
_MOST_CARRIED = 16


def carried_bytes(ctype: str) -> int:
    """Bytes of what a reduction carries, at most: a number, or a number with its index."""
    return _BYTES.get(ctype, _MOST_CARRIED)


@dataclass(frozen=True)
class RowSchedule:
    """One kernel for a program: who works on a row, in vectors of which width, and where elements wait."""

    analysis: ReductionSchedule
    group: ThreadGroup
    width: int
    in_registers: bool

    def candidate(self, flops: int) -> Candidate:
        """The launch."""
        kernel = RowKernel(self.analysis, self.group, self.width, self.in_registers)
        program = self.analysis.program
        name = f"{self.group.name}{'' if self.in_registers else '-passes'}"
        made = Kernel(kernel.text(), kernel.grid(), (*self.group.block, 1))
        return Candidate(name, (KernelLaunch(made, program.arguments(), program.nbytes, flops, may_overlap=True),))


@dataclass(frozen=True)
class SplitSchedule:
    """A kernel for each stage, with each row split into parts of `share` vectors and `scratch` between the kernels."""

    analysis: ReductionSchedule
    group: ThreadGroup
    width: int
    share: int
    scratch: BufferPlace

    @property
    def count(self) -> int:
        """Blocks for each row."""
        vectors = self.analysis.row_length // (1 if self.group.is_column else self.width)
        return -(-vectors // self.share)

    def candidate(self, flops: int) -> Candidate:
        """The launches, in order."""
        program, last = self.analysis.program, self.analysis.last
        partials: list[Argument] = []
        used = 0
        for reduction in program.reductions:
            partials.append(BufferPlace(self.scratch.buffer, self.scratch.offset + used))
            used += -(-self.count * self.analysis.row_count * carried_bytes(reduction.ctype) // 256) * 256
        arguments = (*program.arguments(), *partials)
        launches: list[KernelLaunch] = []
        for stage in range(last + 1):
            reads_elements = stage < last or bool(self.analysis.element_stores)
            group, width = (self.group, self.width) if reads_elements else (self._gathering_group(), 1)
            kernel = RowKernel(
                self.analysis, group, width, in_registers=False, part=SplitStage(stage, self.count, self.share)
            )
            blocks, parts, _ = kernel.grid()
            made = Kernel(kernel.text(), (blocks, parts if reads_elements else 1, 1), (*group.block, 1))
            nbytes = program.nbytes if reads_elements else used
            launches.append(KernelLaunch(made, arguments, nbytes, flops // (last + 1), may_overlap=True))
        return Candidate(f"split{self.count}-{self.group.name}", tuple(launches), used)

    def _gathering_group(self) -> ThreadGroup:
        """Who combines what the blocks found, where no element is read again."""
        return columns(min(MOST_GATHERING, _power_of_two(self.count) // 2)) if self.group.is_column else self.group


def row_candidates(program: KernelProgram, task: Task, flops: int) -> Iterator[Candidate]:
    """The candidates to run a program with reductions, best guess first."""
    if not _writes(program):
        yield Candidate("nothing", ())
        return
    analysis = ReductionSchedule(program)
    is_across = _lies_across(analysis)
    schedules: list[RowSchedule | SplitSchedule] = [
        *(_column_schedules(analysis, task) if is_across else _row_schedules(analysis, task))
    ]
    split = _split_schedule(analysis, task, is_across)
    if split is not None:
        schedules.insert(0 if _is_long(analysis, is_across, task) else 1, split)
    yield from (schedule.candidate(flops) for schedule in schedules)


def _writes(program: KernelProgram) -> bool:
    """Whether any result has elements."""
    rows = math.prod(size for axis, size in enumerate(program.domain) if axis not in program.reduced)
    return bool(rows and program.stores)


def _lies_across(analysis: ReductionSchedule) -> bool:
    """Whether neighbors in memory belong to different rows."""
    leader = analysis.leader
    return analysis.row_length > 1 and analysis.elements.inner(leader) != 1 and analysis.rows.inner(leader) == 1


def _words(analysis: ReductionSchedule) -> float:
    """Words of registers that one element of a row takes."""
    program = analysis.program
    loaded = sum(load.layout.itemsize for load in program.loads if analysis.is_element(load)) / 4
    return max(loaded + analysis.held(), 1.0)


# ---- rows along memory


def _row_schedules(analysis: ReductionSchedule, task: Task) -> Iterator[RowSchedule]:
    width, words = analysis.width(), _words(analysis)
    while width > 1 and width * words > MOST_REGISTERS:
        width //= 2
    vectors = analysis.row_length // width
    rounds = max(1, int(MOST_REGISTERS / (width * words)))
    found: list[RowSchedule] = []
    count = min(32, _power_of_two(vectors))
    if -(-vectors // count) <= rounds:
        found.append(
            RowSchedule(analysis, lanes(count, _lane_threads(analysis, count, task)), width, in_registers=True)
        )
    threads = _block_threads(vectors, rounds, analysis.row_count >= 4 * task.chip.multiprocessors)
    if threads and vectors > 32:
        found.append(RowSchedule(analysis, block(threads), width, in_registers=True))
    if len(found) == 2 and analysis.row_count < 8 * task.chip.multiprocessors:
        found.reverse()
    yield from found
    if not found:
        yield RowSchedule(analysis, block(1024 if vectors >= 2048 else 256), width, in_registers=False)


def _power_of_two(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << max(count - 1, 0).bit_length()


def _lane_threads(analysis: ReductionSchedule, count: int, task: Task) -> int:
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


def _column_schedules(analysis: ReductionSchedule, task: Task) -> Iterator[RowSchedule]:
    widest = _columns_of_a_thread(analysis, task)
    found = [_column_schedule(analysis, task, each) for each in dict.fromkeys((widest, 1))]
    if analysis.passes > 1:
        found.sort(key=lambda schedule: not schedule.in_registers)
    yield from found


def _columns_of_a_thread(analysis: ReductionSchedule, task: Task) -> int:
    """How many columns a thread takes: a vector of them, or fewer where rows are read several times by few blocks."""
    itemsize = analysis.program.layouts[analysis.leader].itemsize
    each = min(analysis.width_across(), max(COLUMN_BYTES // itemsize, 1), MOST_COLUMNS)
    while each > 1 and each * _words(analysis) > MOST_REGISTERS // 2:
        each //= 2
    while (
        each > 1 and analysis.passes > 1 and analysis.row_count // (COLUMNS * each) < _BUSY * task.chip.multiprocessors
    ):
        each //= 2
    return each


def _column_schedule(analysis: ReductionSchedule, task: Task, each: int) -> RowSchedule:
    lanes = _lanes_across(analysis, each)
    length, blocks = analysis.row_length, -(-analysis.row_count // (lanes * each))
    most = MOST_COLUMN_THREADS * COLUMNS // lanes
    threads = 1
    while threads < most and length >= 8 * threads and _is_idle(blocks * threads * lanes, length // threads, task):
        threads *= 2
    in_registers = -(-length // threads) * each * _words(analysis) <= MOST_REGISTERS
    return RowSchedule(analysis, columns(threads, each, lanes), each, in_registers)


def _lanes_across(analysis: ReductionSchedule, each: int) -> int:
    """How many threads of a block lie side by side: no more than have columns."""
    return min(COLUMNS, _power_of_two(-(-analysis.row_count // each)))


def _is_idle(threads: int, length: int, task: Task) -> bool:
    return threads < 512 * task.chip.multiprocessors or length > 64


# ---- split rows


def _is_long(analysis: ReductionSchedule, is_across: bool, task: Task) -> bool:
    """Whether one block would read a row for much longer than launching another kernel takes."""
    if is_across:
        return analysis.row_length > LONG_COLUMN
    has_few_rows = 2 * analysis.row_count < 3 * task.chip.multiprocessors
    return has_few_rows and analysis.row_length // analysis.width() > MOST_ROUNDS * 1024


def _split_schedule(analysis: ReductionSchedule, task: Task, is_across: bool) -> SplitSchedule | None:
    """Rows shared by so many blocks that all multiprocessors have work, where there are too few rows for that."""
    group, busy = _split_group(analysis, task) if is_across else _block_for_parts(analysis, task)
    blocks = -(-analysis.row_count // group.rows)
    itemsize = analysis.program.layouts[analysis.leader].itemsize
    wanted = -(-busy * task.chip.multiprocessors // blocks)
    count = min(wanted, analysis.row_length * itemsize * group.rows // SMALL_SHARE, MOST_PARTS)
    if count <= 2 or task.scratch is None or not analysis.program.reductions:
        return None
    width = group.each if is_across else analysis.width()
    vectors = analysis.row_length // (1 if is_across else width)
    share = share_of(vectors, count, batch_of(analysis, width) * group.size)
    return SplitSchedule(analysis, group, width, share, task.scratch)


def _split_group(analysis: ReductionSchedule, task: Task) -> tuple[ThreadGroup, int]:
    """Who reads a part of neighboring columns, and how many such blocks a multiprocessor wants."""
    each = _columns_of_a_thread(analysis, task)
    lanes = _lanes_across(analysis, each)
    return columns(COLUMN_BLOCK // lanes, each, lanes), 2 * _BUSY if analysis.passes == 1 else _BUSY


def _block_for_parts(analysis: ReductionSchedule, task: Task) -> tuple[ThreadGroup, int]:
    """Who reads a part of a row, and how many such blocks a multiprocessor wants."""
    total = analysis.row_length * analysis.row_count * analysis.program.layouts[analysis.leader].itemsize
    is_long = total >= LONG_SHARE * 2 * task.chip.multiprocessors
    return (block(512), _BUSY // 2) if is_long else (block(256), _BUSY)


# ---- ops


def lower_reductions(task: Task) -> Iterator[Candidate]:
    """A node or region with reductions over the axes of one shape."""
    yield from _lowered(task, reduction_program)


def _lower_quantizing(task: Task) -> Iterator[Candidate]:
    yield from _lowered(task, quantizing_program)


def _lower_top_one(task: Task) -> Iterator[Candidate]:
    if task.node.attrs["k"] == 1:
        yield from _lowered(task, top_one_program)


def _lowered(task: Task, program_of: Callable[[FusedRegion], KernelProgram]) -> Iterator[Candidate]:
    region = region_of(task)
    if all(has_types(node) for node in region.nodes):
        yield from row_candidates(program_of(region), task, region.flops)


LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(REDUCTIONS, lower_reductions),
    "dynamic_quantize_linear": _lower_quantizing,
    "top_k": _lower_top_one,
}
"""Ops with reductions."""
