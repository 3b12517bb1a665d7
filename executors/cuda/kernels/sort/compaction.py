"""What is found, side by side and in order, with a count on the device: `bounded_non_zero` and `bounded_compress`.

Blocks count what is found in stretches of positions; then each adds up the counts of those before it, which gives its
first slot, and writes what it finds by ballots of its warps. So the order is that of the positions, and the same in
each run. Zeros go behind what was found.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .....ir.ops.rules import normal_axis
from ...kernel_ir.kernels import Parameter, at, launch_of, per_position, reach_type, read, written
from ...kernel_ir.launch import BufferPlace, Candidate, KernelLaunch, Lowering, Task
from ...kernel_ir.layouts import Layout, contiguous, index_lines, index_type
from ...kernel_ir.moving import operand, result

THREADS = 256
WARPS = THREADS // 32
ROUNDS = 8
"""How many positions each thread looks at."""
STRETCH = THREADS * ROUNDS
MOST_COUNTS = 4096
"""Up to how many counts each block adds up by itself; more are summed by a kernel of their own in between."""
SCANNING = 1024


@dataclass(frozen=True)
class Search:
    """What is looked for among `positions`, by parameters that the statements read.

    `head` comes first. `test` sets `is_found` for position `p`; `emit` writes what stands at `p` to `slot`, and `clear`
    zeros to `slot`, of which there are `size`. `number` is done for each `p`, with how many were found `upto` it.
    """

    positions: int
    size: int
    read: Sequence[Parameter]
    written: Sequence[Parameter]
    test: Sequence[str]
    emit: Sequence[str]
    clear: Sequence[str]
    nbytes: int
    head: Sequence[str] = ()
    number: Sequence[str] = ()


def compacted(search: Search, count: Layout, scratch: BufferPlace) -> tuple[list[KernelLaunch], int]:
    """Two launches that find, three where there are many positions, and the bytes of scratch that they take."""
    blocks = max(1, -(-search.positions // STRETCH))
    ctype = index_type([search.positions, search.size])
    counts = Parameter("int*", "counts", scratch)
    used = -(-4 * blocks // 256) * 256
    launches = [_counting(search, counts, blocks, ctype)]
    firsts: Parameter | None = None
    if blocks > MOST_COUNTS:
        firsts = Parameter(f"{ctype}*", "firsts", BufferPlace(scratch.buffer, scratch.offset + used))
        used += -(-8 * (blocks + 1) // 256) * 256
        launches.append(_summing(counts, firsts, blocks, ctype))
    launches.append(_writing(search, counts, firsts, count, blocks, ctype))
    return launches, used


def _position(ctype: str) -> str:
    """A statement for the position `p` of a thread in round `i`: those of a warp lie side by side."""
    of_block = f"(threadIdx.x / 32 * {ROUNDS} + i) * 32 + threadIdx.x % 32"
    return f"const {ctype} p = ({ctype})blockIdx.x * {STRETCH} + {of_block};"


def _round(search: Search, ctype: str) -> list[str]:
    """Statements that find out, in round `i`, whether something is at position `p`."""
    return [
        _position(ctype),
        "bool is_found = false;",
        f"if (p < {search.positions}) {{ {' '.join(search.test)} }}",
    ]


def _counting(search: Search, counts: Parameter, blocks: int, ctype: str) -> KernelLaunch:
    lines = [
        *search.head,
        f"__shared__ int parts[{WARPS}];",
        "int found = 0;",
        "#pragma unroll",
        f"for (int i = 0; i < {ROUNDS}; i++) {{",
        *_round(search, ctype),
        "found += is_found; }",
        f"found = block_reduce<sum, {WARPS}>(found, parts);",
        "if (threadIdx.x == 0) counts[blockIdx.x] = found;",
    ]
    return launch_of([counts, *search.read], lines, (blocks, 1, 1), (THREADS, 1, 1), search.nbytes)


def _summing(counts: Parameter, firsts: Parameter, blocks: int, ctype: str) -> KernelLaunch:
    """One block: `firsts` gets the sum of the counts before each, and of all behind the last."""
    warps = SCANNING // 32
    lines = [
        f"__shared__ {ctype} ends[{warps}];",
        f"{ctype} carry = 0;",
        f"for (int start = 0; start < {blocks}; start += {SCANNING}) {{",
        f"const int b = start + threadIdx.x; const {ctype} own = b < {blocks} ? counts[b] : 0;",
        f"{ctype} upto = own;",
        "for (int lane = 1; lane < 32; lane *= 2) {",
        f"const {ctype} lower = __shfl_up_sync(0xffffffffu, upto, lane);",
        "if (threadIdx.x % 32 >= lane) upto += lower; }",
        "if (threadIdx.x % 32 == 31) ends[threadIdx.x / 32] = upto;",
        "__syncthreads();",
        f"{ctype} before = carry + upto - own;",
        "for (int warp = 0; warp < (int)threadIdx.x / 32; warp++) before += ends[warp];",
        f"if (b < {blocks}) firsts[b] = before;",
        f"for (int warp = 0; warp < {warps}; warp++) carry += ends[warp];",
        "__syncthreads(); }",
        f"if (threadIdx.x == 0) firsts[{blocks}] = carry;",
    ]
    return launch_of([counts, firsts], lines, (1, 1, 1), (SCANNING, 1, 1), 12 * blocks)


def _first_slot(firsts: Parameter | None, blocks: int, ctype: str) -> list[str]:
    """Statements for `before`, what the blocks before found, and `total`, what all found."""
    if firsts is not None:
        return [f"const {ctype} before = firsts[blockIdx.x], total = firsts[{blocks}];"]
    return [
        f"__shared__ {ctype} parts[2 * {WARPS}];",
        f"{ctype} before = 0, total = 0;",
        f"for (int b = threadIdx.x; b < {blocks}; b += {THREADS}) {{",
        "const int own = counts[b]; total += own; if (b < (int)blockIdx.x) before += own; }",
        f"before = block_reduce<sum, {WARPS}>(before, parts);",
        f"total = block_reduce<sum, {WARPS}>(total, parts + {WARPS});",
    ]


def _writing(
    search: Search, counts: Parameter, firsts: Parameter | None, count: Layout, blocks: int, ctype: str
) -> KernelLaunch:
    lines = [
        *search.head,
        *_first_slot(firsts, blocks, ctype),
        f"__shared__ int ends[{WARPS}];",
        f"unsigned votes[{ROUNDS}]; int own = 0;",
        "#pragma unroll",
        f"for (int i = 0; i < {ROUNDS}; i++) {{",
        *_round(search, ctype),
        "votes[i] = __ballot_sync(0xffffffffu, is_found); own += __popc(votes[i]); }",
        "if (threadIdx.x % 32 == 0) ends[threadIdx.x / 32] = own;",
        "__syncthreads();",
        f"{ctype} first = before;",
        "for (int warp = 0; warp < (int)threadIdx.x / 32; warp++) first += ends[warp];",
        "#pragma unroll",
        f"for (int i = 0; i < {ROUNDS}; i++) {{",
        "if (votes[i] >> threadIdx.x % 32 & 1) {",
        _position(ctype),
        f"const {ctype} slot = first + __popc(votes[i] & ((1u << threadIdx.x % 32) - 1));",
        *search.emit,
        "}",
        *_numbered(search, ctype),
        "first += __popc(votes[i]); }",
    ]
    if search.clear:
        first, step = f"total + ({ctype})blockIdx.x * {THREADS} + threadIdx.x", blocks * THREADS
        lines += [f"for ({ctype} slot = {first}; slot < {search.size}; slot += {step}) {{", *search.clear, "}"]
    lines.append("if (blockIdx.x == 0 && threadIdx.x == 0) *count = total;")
    known = [counts] if firsts is None else [firsts]
    parameters = [*search.written, written("count", count), *known, *search.read]
    return launch_of(parameters, lines, (blocks, 1, 1), (THREADS, 1, 1), search.nbytes)


def _numbered(search: Search, ctype: str) -> list[str]:
    """Statements that do `number` in round `i`."""
    if not search.number:
        return []
    upto = f"const {ctype} upto = first + __popc(votes[i] & (0xffffffffu >> (31 - threadIdx.x % 32)));"
    return ["{", _position(ctype), f"if (p < {search.positions}) {{ {upto}", *search.number, "} }"]


# ---- what is looked for


def _flat(layout: Layout, ctype: str, position: str = "p") -> tuple[list[str], str]:
    """Statements that take a row-major position apart, and the offset of the element there."""
    if contiguous(layout) or not layout.size:
        return [], position if layout.shape else "0"
    return index_lines("c", position, layout.shape, ctype), at(layout)


def _lower_non_zero(task: Task) -> Iterator[Candidate]:
    x, found, count = operand(task), result(task), result(task, 1)
    if task.scratch is None:
        return
    size = found.shape[1]
    ctype = reach_type((x, found))
    lines, offset = _flat(x, ctype)
    rows = range(len(x.shape))
    places = [f"found[{row * found.strides[0]} + ({ctype})slot * {found.strides[1]}]" for row in rows]
    search = Search(
        x.size,
        size,
        [read("x", x)],
        [written("found", found)],
        [*lines, f"is_found = get(x[{offset}]) != 0;"],
        [*index_lines("c", "p", x.shape, ctype), *(f"{place} = c{row};" for row, place in enumerate(places))],
        [f"{place} = 0;" for place in places],
        x.nbytes + found.nbytes,
    )
    if not x.size:
        search = Search(0, size, search.read, search.written, [], [], search.clear, found.nbytes)
    launches, used = compacted(search, count, task.scratch)
    yield Candidate("compacted", tuple(launches), used)


def _word(name: str, layout: Layout, *, is_written: bool = False) -> Parameter:
    return Parameter(f"{'' if is_written else 'const '}{layout.word}*", name, layout.place)


def _lower_compress(task: Task) -> Iterator[Candidate]:
    x, condition, y, count = operand(task), operand(task, 1), result(task), result(task, 1)
    if task.scratch is None:
        return
    axis = task.node.attrs["axis"]
    where = 0 if axis is None else normal_axis(axis, len(x.shape))
    length = x.size if axis is None else x.shape[where]
    positions = min(length, condition.shape[0])
    test = [f"is_found = get(condition[({reach_type((condition,))})p * {condition.strides[0]}]);"]
    if axis is None or len(x.shape) == 1:
        lines, offset = _flat(x, reach_type((x, y)))
        place = f"y[({reach_type((y,))})slot * {y.strides[0]}]"
        search = Search(
            positions,
            y.shape[0],
            [_word("x", x), read("condition", condition)],
            [_word("y", y, is_written=True)],
            test,
            [*lines, f"{place} = x[{offset}];"],
            [f"{place} = {{}};"],
            condition.nbytes + x.nbytes + y.nbytes,
        )
        launches, used = compacted(search, count, task.scratch)
        yield Candidate("compacted", tuple(launches), used)
        return
    rows = Parameter("int*", "rows", task.scratch)
    taken = -(-4 * y.shape[where] // 256) * 256
    rest = BufferPlace(task.scratch.buffer, task.scratch.offset + taken)
    search = Search(
        positions,
        y.shape[where],
        [read("condition", condition)],
        [rows],
        test,
        ["rows[slot] = p;"],
        [],
        condition.nbytes,
    )
    launches, used = compacted(search, count, rest)
    if y.size:
        launches.append(_moving(x, y, where, rows, count))
    yield Candidate("compacted", tuple(launches), taken + used)


def _moving(x: Layout, y: Layout, axis: int, rows: Parameter, count: Layout) -> KernelLaunch:
    """Slices of `x` to their slots along `axis` of `y`, zeros behind them."""
    ctype = reach_type((x, y))
    lines = [
        *index_lines("c", "p", y.shape, ctype),
        f"{y.word} value = {{}};",
        f"if (c{axis} < *count) value = x[{at(x, without=[axis])} + ({ctype})rows[c{axis}] * {x.strides[axis]}];",
        f"y[{at(y)}] = value;",
    ]
    parameters = [_word("y", y, is_written=True), read("count", count), rows, _word("x", x)]
    return per_position(parameters, y.size, lines, 2 * y.nbytes, ctype=ctype)


LOWERINGS: Mapping[str, Lowering] = {"bounded_non_zero": _lower_non_zero, "bounded_compress": _lower_compress}
"""Ops that find elements."""
