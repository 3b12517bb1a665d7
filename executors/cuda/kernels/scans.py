"""Cumulative sums and products. Along memory some lanes of a warp or a block have a line, across memory a thread.

Where lines are few and long they are cut into segments: a first kernel reduces each segment, a second one scans it from
what those before it come to. So the order in which floats are added is fixed, as it would not be with a single pass
that takes whatever its neighbors have finished.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....ir.ops.rules import normal_axis
from ....ir.types import DType
from ..kernel_ir.kernels import (
    Ordered,
    Parameter,
    at,
    launch_of,
    ordered_like,
    per_position,
    reach_type,
    read,
    widest,
    written,
)
from ..kernel_ir.launch import BufferPlace, Candidate, KernelLaunch, Lowering, Task
from ..kernel_ir.layouts import Layout
from ..kernel_ir.moving import operand, result
from ..kernel_ir.regions import flops_of
from ..kernel_ir.types import computed, unsigned

LANES_THREADS = 128
BLOCK_THREADS = 256
LANE_BYTES, BLOCK_BYTES = 32, 16
"""What a thread reads at a time as a lane or in a block, from 2 to `MOST_ITEMS` elements."""
MOST_ITEMS = 16
ENOUGH_BLOCKS = 264
"""From so many lines on a block for each keeps the chip busy."""
MOST_SEGMENTS = 2048
ACROSS_THREADS = 65536
"""Threads for lines across memory that keep the chip busy."""
SHORTEST_SEGMENT = 16
MOST_SEGMENTS_ACROSS = 256


def _scan(functor: str, identity: str) -> Lowering:
    def lower(task: Task) -> Iterator[Candidate]:
        x, y = operand(task), result(task)
        if not x.size:
            yield Candidate("nothing", ())
            return
        scan = _Scan(task, x, y, functor, identity)
        yield from scan.across() if scan.is_across else scan.along()

    return lower


@dataclass(frozen=True, slots=True)
class _ThreadGroup:
    """`threads` threads for a line, `items` neighboring elements for each at a time, `width` of them in a vector."""

    threads: int
    items: int
    width: int

    @property
    def chunk(self) -> int:
        """Elements at a time."""
        return self.threads * self.items

    @property
    def is_block(self) -> bool:
        """Whether it is more than a warp."""
        return self.threads > 32

    @property
    def block(self) -> int:
        """The threads of a block, of one or several groups."""
        return self.threads if self.is_block else LANES_THREADS

    @property
    def lines(self) -> int:
        """The lines of a block."""
        return self.block // self.threads


class _Scan:
    """One cumulative op over the lines along an axis."""

    def __init__(self, task: Task, x: Layout, y: Layout, functor: str, identity: str) -> None:
        attrs = task.node.attrs
        self.x, self.y, self.axis = x, y, normal_axis(attrs["axis"], len(x.shape))
        self.functor, self.identity, self.scratch = functor, identity, task.scratch
        self.length = x.shape[self.axis]
        self.lines = x.size // self.length
        self.is_exclusive, self.is_reverse = attrs["exclusive"], attrs["reverse"]
        self.carried = _carried(x.dtype)
        self.ctype = reach_type((x, y))
        self.flops = flops_of(task)
        rest = (other for other in ordered_like(y).order if other != self.axis)
        shape = tuple(1 if other == self.axis else size for other, size in enumerate(x.shape))
        self.outer = Ordered(shape, (self.axis, *rest))
        steps = (abs(layout.strides[self.axis]) for layout in (x, y))
        self.is_across = self.length > 1 and any(step != 1 for step in steps) and self.lines >= 32

    # ---- what the kernels have in common

    def _bases(self, position: str) -> list[str]:
        return [
            *self.outer.lines(position, self.ctype),
            f"const {self.x.ctype}* from = x + ({at(self.x, without=[self.axis])});",
            f"{self.y.ctype}* to = y + ({at(self.y, without=[self.axis])});",
        ]

    def _place(self, step: str) -> str:
        return f"{self.length - 1} - ({step})" if self.is_reverse else step

    def _read(self, step: str) -> str:
        place = f"({self.ctype})({self._place(step)}) * {self.x.strides[self.axis]}"
        return f"({self.carried})get(from[{place}])"

    def _write(self, step: str, value: str) -> str:
        place = f"({self.ctype})({self._place(step)}) * {self.y.strides[self.axis]}"
        return f"put(to[{place}], ({computed(self.y.dtype)})({value}));"

    def _of(self, left: str, right: str) -> str:
        return f"{self.functor}::of({left}, {right})"

    def _item_bytes(self) -> int:
        return 8 if self.carried in ("double", "u64") else 4

    # ---- along memory

    def along(self) -> Iterator[Candidate]:
        """Lanes or a block for each line, or blocks for its segments."""
        width = 1 if self.is_reverse else widest((self.x, self.y), self.axis)
        if self.x.itemsize != self.y.itemsize:
            width = 1
        nbytes = LANE_BYTES if self.length <= 32 * LANE_BYTES // self.x.itemsize else BLOCK_BYTES
        items = max(2, min(MOST_ITEMS, nbytes // self.x.itemsize))
        width = min(width, items)
        lanes = 1 << max(-(-self.length // items) - 1, 0).bit_length()
        group = _ThreadGroup(min(BLOCK_THREADS, lanes), items, width)
        segments = self._segments(group)
        if segments > 1 and self.scratch is not None:
            nbytes = self.lines * segments * self._item_bytes()
            per_segment = -(-self.length // (segments * group.chunk)) * group.chunk
            launches = (
                self._totals(group, segments, per_segment, self.scratch),
                self._along(group, segments, per_segment, self.scratch),
            )
            yield Candidate("segments", launches, nbytes)
        else:
            name = "blocks" if group.is_block else "lanes"
            yield Candidate(name, (self._along(group, 1, self.length, None),))

    def _segments(self, group: _ThreadGroup) -> int:
        """Into how many segments a line is cut: whole chunks of its group, the last one excepted."""
        chunks = -(-self.length // group.chunk)
        if self.lines >= ENOUGH_BLOCKS or chunks < 3:
            return 1
        wanted = min(chunks, max(1, MOST_SEGMENTS // self.lines))
        return -(-chunks // -(-chunks // wanted))

    def _segment(self, group: _ThreadGroup, segments: int, per_segment: int, block: str = "blockIdx.x") -> list[str]:
        """Statements that find the line of a thread, and where its segment begins and ends."""
        if segments == 1:
            line = f"blockIdx.x * {group.lines}u + threadIdx.x / {group.threads}u"
            position = "line" if group.is_block else f"(is_line ? line : {self.lines - 1}u)"
            return [
                f"const unsigned line = {line}; const bool is_line = line < {self.lines}u;",
                f"const int begin_at = 0, end_at = {self.length};",
                *self._bases(position),
            ]
        return [
            f"const unsigned line = {block} / {segments}u; const int segment = {block} % {segments}u;",
            f"const bool is_line = true; const int begin_at = segment * {per_segment};",
            f"const int end_at = begin_at + {per_segment} < {self.length} ? begin_at + {per_segment} : {self.length};",
            *self._bases("line"),
        ]

    def _load(self, group: _ThreadGroup) -> list[str]:
        """Statements that read `mine`, the items of a thread from `s0` on."""
        lines = [
            f"{self.carried} mine[{group.items}];",
            "#pragma unroll",
            f"for (int i = 0; i < {group.items}; i += {group.width}) {{ const int s = s0 + i;",
        ]
        if group.width == 1:
            return [*lines, f"mine[i] = s < end_at ? {self._read('s')} : ({self.carried}){self.identity}; }}"]
        vector = f"pack<{self.x.ctype}, {group.width}>"
        return [
            *lines,
            f"if (s < end_at) {{ const auto found = *(const {vector}*)(from + s);",
            "#pragma unroll",
            f"for (int k = 0; k < {group.width}; k++) mine[i + k] = ({self.carried})get(found.v[k]); }} else {{",
            "#pragma unroll",
            f"for (int k = 0; k < {group.width}; k++) mine[i + k] = {self.identity}; }} }}",
        ]

    def _store(self, group: _ThreadGroup) -> list[str]:
        """Statements that write what was scanned: `mine` up to each item, after `before`."""
        at, behind = ("i", "(i ? i - 1 : 0)") if group.width == 1 else ("i + k", "i + k ? i + k - 1 : 0")
        value = self._of("before", f"mine[{behind if self.is_exclusive else at}]")
        if self.is_exclusive:
            value = f"{at} == 0 ? before : {value}"
        lines = [
            "#pragma unroll",
            f"for (int i = 0; i < {group.items}; i += {group.width}) {{ const int s = s0 + i;",
        ]
        if group.width == 1:
            return [*lines, f"if (is_line && s < end_at) {self._write('s', value)} }}"]
        vector = f"pack<{self.y.ctype}, {group.width}>"
        return [
            *lines,
            f"{vector} made;",
            "#pragma unroll",
            f"for (int k = 0; k < {group.width}; k++) put(made.v[k], ({computed(self.y.dtype)})({value}));",
            f"if (is_line && s < end_at) *({vector}*)(to + s) = made; }}",
        ]

    def _totals(self, group: _ThreadGroup, segments: int, per_segment: int, scratch: BufferPlace) -> KernelLaunch:
        """What each segment comes to."""
        warps = group.threads // 32
        lines = [
            *self._segment(group, segments, per_segment),
            f"__shared__ {self.carried} shared[{warps}]; {self.carried} total = {self.identity};",
            f"for (int s0 = begin_at + threadIdx.x * {group.items}; s0 < end_at; s0 += {group.chunk}) {{",
            *self._load(group),
            "#pragma unroll",
            f"for (int i = 0; i < {group.items}; i++) total = {self._of('total', 'mine[i]')}; }}",
            f"total = block_reduce<{self.functor}, {warps}>(total, shared);",
            "if (threadIdx.x == 0) totals[blockIdx.x] = total;",
        ]
        return self._launch(lines, self.lines * segments, group.threads, scratch)

    def _along(self, group: _ThreadGroup, segments: int, per_segment: int, scratch: BufferPlace | None) -> KernelLaunch:
        """A chunk at a time: each thread scans its items, a warp the sums of its lanes, a block those of its warps."""
        warps, lanes = group.threads // 32, min(32, group.threads)
        backward = "(gridDim.x - 1 - blockIdx.x)"  # what the totals were made of last is still in the cache
        lines = [
            *self._segment(group, segments, per_segment, backward),
            f"const int rank = threadIdx.x % {group.threads};",
            f"{self.carried} carry = {self.identity};",
        ]
        if group.is_block:
            lines.append(f"__shared__ {self.carried} ends[{warps}];")
        if scratch is not None:
            lines += [
                f"__shared__ {self.carried} shared[{warps}];",
                f"for (int n = threadIdx.x; n < segment; n += {group.threads})",
                f"carry = {self._of('carry', f'totals[line * {segments}u + n]')};",
                f"carry = block_reduce<{self.functor}, {warps}>(carry, shared);",
            ]
        lines += [
            f"for (int start = begin_at; start < end_at; start += {group.chunk}) {{",
            f"const int s0 = start + rank * {group.items};",
            *self._load(group),
            "#pragma unroll",
            f"for (int i = 1; i < {group.items}; i++) mine[i] = {self._of('mine[i - 1]', 'mine[i]')};",
            f"{self.carried} upto = mine[{group.items - 1}], before = carry;",
            "#pragma unroll",
            f"for (int far = 1; far < {lanes}; far *= 2) {{",
            f"const {self.carried} lower = __shfl_up_sync(0xffffffffu, upto, far);",
            f"if (rank % 32 >= far) upto = {self._of('lower', 'upto')}; }}",
            f"const {self.carried} left = __shfl_up_sync(0xffffffffu, upto, 1);",
        ]
        if group.is_block:
            lines += [
                "if (rank % 32 == 31) ends[rank / 32] = upto;",
                "__syncthreads();",
                f"for (int w = 0; w < {warps}; w++) {{ if (w < rank / 32) before = {self._of('before', 'ends[w]')};",
                f"carry = {self._of('carry', 'ends[w]')}; }}",
            ]
        lines += [
            f"if (rank % 32 > 0) before = {self._of('before', 'left')};",
            *self._store(group),
            "__syncthreads(); }" if group.is_block else "}",
        ]
        return self._launch(lines, -(-self.lines * segments // group.lines), group.block, scratch)

    def _launch(self, lines: list[str], blocks: int, threads: int, scratch: BufferPlace | None) -> KernelLaunch:
        nbytes = self.x.nbytes + self.y.nbytes
        return launch_of(self._parameters(scratch), lines, (blocks, 1, 1), (threads, 1, 1), nbytes, self.flops)

    def _parameters(self, scratch: BufferPlace | None) -> list[Parameter]:
        extra = [] if scratch is None else [Parameter(f"{self.carried}*", "totals", scratch)]
        return [written("y", self.y), read("x", self.x), *extra]

    # ---- across memory

    def across(self) -> Iterator[Candidate]:
        """A thread for each line, or for each of its segments."""
        wanted = min(MOST_SEGMENTS_ACROSS, self.length // SHORTEST_SEGMENT, ACROSS_THREADS // self.lines)
        if wanted < 2 or self.scratch is None:
            yield Candidate("across", (self._across(1, self.length, None),))
            return
        per_segment = -(-self.length // wanted)
        segments = -(-self.length // per_segment)
        nbytes = self.lines * segments * self._item_bytes()
        launches = (
            self._totals_across(segments, per_segment, self.scratch),
            self._across(segments, per_segment, self.scratch),
        )
        yield Candidate("across-segments", launches, nbytes)

    def _segment_across(self, segments: int, per_segment: int) -> list[str]:
        end = f"(begin_at + {per_segment} < {self.length} ? begin_at + {per_segment} : {self.length})"
        if segments == 1:
            end = str(self.length)
        return [
            f"const unsigned line = p % {self.lines}u; const int segment = p / {self.lines}u;",
            f"const int begin_at = segment * {per_segment}, end_at = {end};",
            *self._bases("line"),
            f"{self.carried} total = {self.identity};",
        ]

    def _totals_across(self, segments: int, per_segment: int, scratch: BufferPlace) -> KernelLaunch:
        lines = [
            *self._segment_across(segments, per_segment),
            "#pragma unroll 8",
            f"for (int s = begin_at; s < end_at; s++) total = {self._of('total', self._read('s'))};",
            "totals[p] = total;",
        ]
        return self._per_line(lines, segments, scratch)

    def _across(self, segments: int, per_segment: int, scratch: BufferPlace | None) -> KernelLaunch:
        before = [
            "#pragma unroll 8",
            f"for (int n = 0; n < segment; n++) total = {self._of('total', f'totals[n * {self.lines}u + line]')};",
        ]
        step = [f"total = {self._of('total', 'next')};"]
        wrote = [self._write("s", "total")]
        lines = [
            *self._segment_across(segments, per_segment),
            *(before if scratch is not None else []),
            "#pragma unroll 8",
            f"for (int s = begin_at; s < end_at; s++) {{ const {self.carried} next = {self._read('s')};",
            *(wrote + step if self.is_exclusive else step + wrote),
            "}",
        ]
        return self._per_line(lines, segments, scratch)

    def _per_line(self, lines: list[str], segments: int, scratch: BufferPlace | None) -> KernelLaunch:
        nbytes = self.x.nbytes + self.y.nbytes
        parameters = self._parameters(scratch)
        return per_position(parameters, self.lines * segments, lines, nbytes, self.flops, 64, self.ctype)


def _carried(dtype: DType) -> str:
    """The type in which totals are carried; integers wrap around."""
    return unsigned(dtype) if dtype.is_integer else computed(dtype)


LOWERINGS: Mapping[str, Lowering] = {"cumsum": _scan("sum", "0"), "cumprod": _scan("prod", "1")}
"""Cumulative ops."""
