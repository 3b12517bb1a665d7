"""Slots listed by segment, in order: counted and ranked by atomic operations, placed, and each segment put in order.

Ranks are those in which threads came, so that only the last kernel gives an order: a slot's place is how many of its
segment are less. A warp finds that for a short segment and a block for a longer one. Where that would take too long,
the block lists the segment anew from all indices.
"""

from collections.abc import Iterator, Mapping

from ...kernel_ir.kernels import THREADS, Parameter, launch_of, per_position, reach_type, read, written
from ...kernel_ir.launch import BufferPlace, Candidate, KernelLaunch, Lowering, Task
from ...kernel_ir.layouts import INT_LIMIT, Layout
from ...kernel_ir.moving import operand, result

_EACH = 8
"""How many slots of a segment a thread puts in order."""

_MOST = INT_LIMIT // 2
"""Below as many, what counts beyond them fits an int."""

_SCANNING = 1024
_MOST_BLOCKS = 64
"""Each block of the scan adds up all counts before its own."""


def _lower(task: Task) -> Iterator[Candidate]:
    indices, starts, slots = operand(task), result(task), result(task, 1)
    count, segments = slots.size, starts.size - 1
    nbytes = 4 * (segments + count)
    if task.scratch is None or nbytes > task.scratch_bytes or not 0 < count < _MOST or not 0 < segments < _MOST:
        return
    begin = task.scratch
    counts = Parameter("int*", "counts", begin)
    ranks = Parameter("int*", "ranks", BufferPlace(begin.buffer, begin.offset + 4 * segments))
    index, to_starts, to_slots = read("indices", indices), written("starts", starts), written("slots", slots)
    own = _segment_of(indices, segments)
    count_up = [own, "const int own = segment_of(p); ranks[p] = own < 0 ? -1 : atomicAdd(counts + own, 1);"]
    place = [own, "const int rank = ranks[p]; if (rank >= 0) slots[starts[segment_of(p)] + rank] = (int)p;"]
    launches = (
        per_position([counts], segments, ["counts[p] = 0;"], 4 * segments),
        per_position([counts, ranks, index], count, count_up, indices.nbytes + 8 * count),
        _scanned([counts, to_starts], segments),
        per_position([ranks, index, to_starts, to_slots], count, place, indices.nbytes + 12 * count),
        _ordered([index, to_starts, to_slots], own, count, segments),
    )
    yield Candidate("listed", launches, nbytes)


def _segment_of(indices: Layout, segments: int) -> str:
    """A lambda that gives the segment of a slot, -1 for an index that names none."""
    return (
        "const auto segment_of = [&](int k) {"
        f"const i64 at = counted(indices[({reach_type([indices])})k * {indices.strides[0]}], {segments});"
        f"return at >= 0 && at < {segments} ? (int)at : -1; }};"
    )


def _scanned(parameters: list[Parameter], segments: int) -> KernelLaunch:
    """Where each segment begins: each block adds up what is before it, so that none waits for another."""
    each = max(4, -(-segments // (_SCANNING * _MOST_BLOCKS)))
    blocks = -(-segments // (_SCANNING * each))
    lines = [
        "__shared__ int sums[32], before[32];",
        f"const int t = threadIdx.x, block = blockIdx.x * {_SCANNING * each}, first = block + t * {each};",
        f"int own[{each}], mine = 0, earlier = 0;",
        f'_Pragma("unroll 8") for (int i = t; i < block; i += {_SCANNING}) earlier += counts[i];',
        f'_Pragma("unroll") for (int i = 0; i < {each}; i++) {{',
        f"own[i] = first + i < {segments} ? counts[first + i] : 0; mine += own[i]; }}",
        f"earlier = block_reduce<sum, {_SCANNING // 32}>(earlier, before);",
        *_scan_lines(_SCANNING),
        "int at = earlier + sum_before;",
        f'_Pragma("unroll") for (int i = 0; i < {each}; i++) {{',
        f"if (first + i < {segments}) starts[first + i] = at; at += own[i];",
        f"if (first + i == {segments - 1}) starts[{segments}] = at; }}",
    ]
    return launch_of(parameters, lines, (blocks, 1, 1), (_SCANNING, 1, 1), 8 * segments)


def _scan_lines(threads: int) -> list[str]:
    """`sum_before` each thread of a block, of the `mine` of others, by `sums` in shared memory."""
    warps = threads // 32
    return [
        "int upto = mine;",
        '_Pragma("unroll") for (int step = 1; step < 32; step *= 2) {',
        "const int other = __shfl_up_sync(0xffffffffu, upto, step); if (threadIdx.x % 32 >= step) upto += other; }",
        "if (threadIdx.x % 32 == 31) sums[threadIdx.x / 32] = upto;",
        "__syncthreads();",
        "int sum_before = upto - mine;",
        f"for (int i = 0; i < {warps}; i++) if (i < (int)threadIdx.x / 32) sum_before += sums[i];",
    ]


def _ordered(parameters: list[Parameter], own: str, count: int, segments: int) -> KernelLaunch:
    warps, by_warp, by_block = THREADS // 32, 32 * _EACH, THREADS * _EACH
    every = f'_Pragma("unroll") for (int i = 0; i < {_EACH}; i++)'
    lines = [
        own,
        f"__shared__ int sums[{warps}];",
        f"const int t = threadIdx.x, first = blockIdx.x * {warps};",
        f"int held[{_EACH}], place[{_EACH}];",
        "const auto rank = [&](int begin, int end, int lane, int lanes) {",
        f"{every} {{ place[i] = begin; const int at = begin + lane + i * lanes; held[i] = at < end ? slots[at] : 0; }}",
        '_Pragma("unroll 4") for (int k = begin; k < end; k++) {',
        f"const int other = slots[k]; {every} place[i] += other < held[i]; }} }};",
        "const auto write = [&](int begin, int end, int lane, int lanes) {",
        f"{every} if (begin + lane + i * lanes < end) slots[place[i]] = held[i]; }};",
        f"const int mine = first + t / 32; const bool is_there = mine < {segments};",
        "const int begin = is_there ? starts[mine] : 0, end = is_there ? starts[mine + 1] : 0;",
        f"const bool is_long = end - begin > {by_warp}; const int upto = is_long ? begin : end;",
        "rank(begin, upto, t % 32, 32);",
        "__syncwarp();",
        "write(begin, upto, t % 32, 32);",
        "if (!__syncthreads_or(is_long)) return;",
        f"for (int n = first; n < first + {warps} && n < {segments}; n++) {{",
        f"int at = starts[n]; const int last = starts[n + 1]; if (last - at <= {by_warp}) continue;",
        f"if (last - at <= {by_block}) {{",
        f"rank(at, last, t, {THREADS}); __syncthreads(); write(at, last, t, {THREADS}); continue; }}",
        f"for (int k = t * {_EACH}; k - t * {_EACH} < {count}; k += {by_block}) {{",
        f"int mine = 0; {every} {{ held[i] = k + i < {count} && segment_of(k + i) == n; mine += held[i]; }}",
        "__syncthreads();",
        *_scan_lines(THREADS),
        f"int to = at + sum_before; {every} if (held[i]) slots[to++] = k + i;",
        f"for (int i = 0; i < {warps}; i++) at += sums[i]; }} }}",
    ]
    blocks = -(-segments // warps)
    return launch_of(parameters, lines, (blocks, 1, 1), (THREADS, 1, 1), 8 * count + 8 * segments)


LOWERINGS: Mapping[str, Lowering] = {"segment_slots": _lower}
"""Lists of slots."""
