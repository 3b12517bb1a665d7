"""Radix sorts of long rows by digits of 8 bits, from the last one on: in a block, or over the chip.

A block ranks a tile of entries: lanes of a warp with the same digit find one another, warps and digits are summed up,
and the tile, brought into order in shared memory, goes out digit by digit. Over the chip the tiles of a row first count
their digits in a kernel of their own; where they are many, a third kernel sums these counts up. Each pass is stable,
and nothing depends on which block comes first. Keys of 4 bytes and more tell the first pass which of their bits vary:
passes in between that would move nothing end at once, and the ones after them read where the last one wrote.
"""

from dataclasses import dataclass

from ...kernel_ir.kernels import Parameter, per_position
from ...kernel_ir.launch import BufferPlace, KernelLaunch, ScalarArgument
from .ordered_rows import INDEX_BYTES, Entries, SortRows

DIGITS = 256
HUGE_BYTES = 1 << 29
"""Entries twice over that take more than this lie partly in the memory of the results."""


@dataclass(frozen=True, slots=True)
class Tile:
    """`items` entries for each of a block's `threads`, of which there are as many as digits or more."""

    threads: int
    items: int

    @property
    def size(self) -> int:
        """Entries of a tile."""
        return self.threads * self.items

    def shared_bytes(self, entry_bytes: int) -> int:
        """Keys and indices in order, counts of the digits by warp, where digits begin, sums of warps."""
        counts = (self.threads // 32 + 1) * DIGITS + 32
        return self.size * entry_bytes + 4 * counts


# ---- what the kernels have in common


def _memory(rows: SortRows, tile: Tile) -> list[str]:
    """The shared memory of a block that ranks, the entries of each thread, and its place."""
    key, warps = rows.key, tile.threads // 32
    indices = "unsigned* counts = (unsigned*)"
    if rows.has_indices:
        indices = f"unsigned* indices = (unsigned*)(keys + {tile.size}); unsigned* counts = indices + "
    return [
        f"extern __shared__ u64 memory[]; {key.ctype}* keys = ({key.ctype}*)memory;",
        f"{indices}{tile.size};" if rows.has_indices else f"{indices}(keys + {tile.size});",
        f"unsigned* starts = counts + {warps * DIGITS}; unsigned* ends = starts + {DIGITS};",
        "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
        f"{key.computed} key[{tile.items}]; {f'unsigned index[{tile.items}];' if rows.has_indices else ''}",
    ]


def entry_lines(tile: Tile, lines: str) -> list[str]:
    """`lines` for every entry `i` of a thread, which is number `p` of its tile: the 32 of a warp lie side by side."""
    place = f"warp * {32 * tile.items} + i * 32 + lane"
    return ["#pragma unroll", f"for (int i = 0; i < {tile.items}; i++) {{ const int p = {place}; {lines} }}"]


def load(rows: SortRows, tile: Tile, length: int, source: Entries | None, *, with_index: bool = True) -> list[str]:
    """Reads the tile that begins at entry `first` of a row of `length`."""
    if source is None:
        found = f"const auto raw = {rows.element('n')}; key[i] = {rows.key.of('raw')}; index[i] = n;"
    else:
        found = "key[i] = old_keys[n]; index[i] = old_indices[n];"
    with_index = with_index and rows.has_indices
    if not with_index:
        found = found.rpartition("index[i]")[0]
    behind = f"key[i] = {rows.key.last}; {'index[i] = 0;' if with_index else ''}"
    return entry_lines(tile, f"const int n = first + p; {behind} if (n < {length}) {{ {found} }}")


def scan_lines(text: str, tile: Tile) -> list[str]:
    """Statements that leave in `start` the sum of `text` over the threads before."""
    return [
        f"unsigned upto = {text};",
        "#pragma unroll",
        "for (int far = 1; far < 32; far *= 2) { const unsigned lower = __shfl_up_sync(0xffffffffu, upto, far);",
        "if (lane >= far) upto += lower; }",
        "if (lane == 31) ends[warp] = upto;",
        "__syncthreads();",
        f"unsigned start = upto - ({text});",
        f"for (int w = 0; w < {min(tile.threads, DIGITS) // 32 - 1}; w++) if (w < warp) start += ends[w];",
    ]


def _rank(rows: SortRows, tile: Tile) -> list[str]:
    """Brings the tile into the order of the digit at `shift`: `keys`, `indices`, and `starts` of the digits in them."""
    warps = tile.threads // 32
    with_index = "indices[to_place] = index[i];" if rows.has_indices else ""
    return [
        f"for (int n = threadIdx.x; n < {warps * DIGITS}; n += {tile.threads}) counts[n] = 0;",
        "__syncthreads();",
        f"unsigned rank[{tile.items}];",
        *entry_lines(
            tile,
            f"const unsigned digit = (unsigned)(key[i] >> shift) & 255; "
            "unsigned alike = 0xffffffffu; for (int b = 0; b < 8; b++) "
            "alike &= __ballot_sync(0xffffffffu, digit >> b & 1) ^ ((digit >> b & 1) - 1); "
            f"unsigned* const count = counts + warp * {DIGITS} + digit; const unsigned before = *count; __syncwarp(); "
            "rank[i] = before + __popc(alike & ((1u << lane) - 1)); "
            "if (alike >> lane == 1) *count = rank[i] + 1; __syncwarp();",
        ),
        "__syncthreads();",
        "unsigned total = 0;",
        f"if (threadIdx.x < {DIGITS}) for (int w = 0; w < {warps}; w++) {{",
        f"unsigned* const count = counts + w * {DIGITS} + threadIdx.x;",
        "const unsigned found = *count; *count = total; total += found; }",
        *scan_lines("total", tile),
        f"if (threadIdx.x < {DIGITS}) starts[threadIdx.x] = start;",
        "__syncthreads();",
        *entry_lines(
            tile,
            f"const unsigned digit = (unsigned)(key[i] >> shift) & 255; "
            f"const unsigned to_place = starts[digit] + counts[warp * {DIGITS} + digit] + rank[i]; "
            f"keys[to_place] = key[i]; {with_index}",
        ),
        "__syncthreads();",
    ]


# ---- a block for each tile


def in_block(
    rows: SortRows,
    tile: Tile,
    length: int,
    parts: int = 1,
    source: Entries | None = None,
    found: Entries | None = None,
) -> KernelLaunch:
    """Sorts parts of rows of `length` entries, and writes the first of each part: to `found`, or as the results."""
    old = [f"old_keys += (u64)row * {length}u; old_indices += (u64)row * {length}u;"] if source else []
    if found is None:
        ending = f"for (int s = threadIdx.x; s < {rows.count}; s += {tile.threads}) {{ const unsigned n = indices[s]; "
        ending += f"{rows.write('s', 'n')} }}"
    else:
        place = f"(u64)blockIdx.x * {rows.count}u + s"
        ending = f"for (int s = threadIdx.x; s < {rows.count}; s += {tile.threads}) {{ "
        ending += f"new_keys[{place}] = keys[s]; new_indices[{place}] = indices[s]; }}"
    lines = [
        f"const unsigned row = blockIdx.x / {parts}u; const int first = blockIdx.x % {parts}u * {tile.size};",
        *rows.head("row"),
        *old,
        *_memory(rows, tile),
        *load(rows, tile, length, source),
        f"for (int shift = 0; shift < {rows.key.bits}; shift += 8) {{",
        *_rank(rows, tile),
        f"if (shift + 8 < {rows.key.bits}) {{",
        *entry_lines(tile, "key[i] = keys[p]; index[i] = indices[p];"),
        "} }",
        ending,
    ]
    extra = (*(rows.entries("old", source) if source else ()), *(rows.entries("new", found) if found else ()))
    return rows.launch(lines, rows.row_count * parts, tile.threads, tile.shared_bytes(rows.entry_bytes), extra)


# ---- all blocks for each pass


@dataclass(frozen=True, slots=True)
class InTurns:
    """Two places between which sorted entries may lie: in the second where an even number of passes moved them."""

    places: tuple[Entries, ...]
    state: BufferPlace | None
    passes: int

    def parameters(self, rows: SortRows) -> tuple[Parameter, ...]:
        """Both places, and which bits vary, where that decides between them."""
        given = (*rows.entries("a", self.places[0]), *rows.entries("b", self.places[-1]))
        return given if self.state is None else (*given, Parameter("u64*", "state", self.state))

    def head(self, rows: SortRows) -> list[str]:
        """Statements that name them `keys` and `indices`, of the only row."""
        if self.state is None:
            last = "ab"[(self.passes - 1) % 2]
            names = [f"const {rows.key.ctype}* keys = {last}_keys;"]
            return names + ([f"const unsigned* indices = {last}_indices;"] if rows.has_indices else [])
        return [
            f"const u64 varying = *state; {_done(str(8 * self.passes))}",
            f"const {rows.key.ctype}* keys = done % 2 ? a_keys : b_keys;",
            *(["const unsigned* indices = done % 2 ? a_indices : b_indices;"] if rows.has_indices else []),
        ]


def _done(shift: str) -> str:
    """Statements for the number of passes that moved something before that of the digit at `shift`."""
    return f"int done = 1; for (int s = 8; s < {shift}; s += 8) done += (varying >> s & 255) != 0;"


@dataclass(frozen=True, slots=True)
class ChipSort:
    """How rows are sorted over the chip.

    Up to `direct` tiles a row each block sums up the counts of all tiles; above, a kernel does. (To count the digits of
    the next pass while entries are written, by atomic additions, takes longer than the kernel that it saves.)
    """

    tile: Tile
    direct: int

    def launches(self, rows: SortRows, scratch: BufferPlace) -> tuple[tuple[KernelLaunch, ...], int]:
        """Its kernels, and the scratch memory that they take."""
        passes = _Passes(self, rows, scratch, into_results=True)
        return passes.made(), passes.used

    def entries(self, rows: SortRows, scratch: BufferPlace) -> tuple[tuple[KernelLaunch, ...], int, InTurns]:
        """Kernels that leave the entries of one row in scratch memory, how much of it they take, and where that is."""
        passes = _Passes(self, rows, scratch, into_results=False)
        return passes.made(), passes.used, InTurns(tuple(passes.kept), passes.state, passes.passes)


def _shift(number: int) -> Parameter:
    """Where the digit of a pass begins: not in the text, so that passes share their kernels."""
    return Parameter("int", "shift", ScalarArgument("int", 8 * number))


class _Passes:
    def __init__(self, how: ChipSort, rows: SortRows, scratch: BufferPlace, *, into_results: bool) -> None:
        self.how, self.rows, self.tile = how, rows, how.tile
        self.passes = rows.key.nbytes
        self.into_results = into_results
        self.parts = -(-rows.length // how.tile.size)
        self.is_direct = self.parts <= how.direct
        self.blocks = rows.row_count * self.parts
        self.scratch, self.used = scratch, 0
        self.kept = self._places(rows.row_count * rows.length)
        self.counts = self._memory(4 * DIGITS * self.blocks)
        self.totals = self._memory(4 * DIGITS * rows.row_count)
        skips = self.passes > 2 and not (into_results and self._is_huge())
        self.state = self._memory(8 * rows.row_count) if skips else None

    def _memory(self, nbytes: int) -> BufferPlace:
        place = BufferPlace(self.scratch.buffer, self.scratch.offset + self.used)
        self.used += -(-nbytes // 256) * 256
        return place

    def _places(self, count: int) -> list[Entries]:
        """Where passes leave entries, in turns."""
        if not self.into_results:
            return [self._entries(count) for _ in range(min(self.passes, 2))]
        kept = [self._entries(count)] if self.passes > 1 else []
        if self.passes > 2:
            results = Entries(self.rows.values.place, self.rows.places.place)  # written by the last pass, of the others
            kept.append(results if self._is_huge() else self._entries(count))
        return kept

    def _entries(self, count: int) -> Entries:
        keys = self._memory(count * self.rows.key.nbytes)
        return Entries(keys, self._memory(count * INDEX_BYTES) if self.rows.has_indices else None)

    def _is_huge(self) -> bool:
        """Whether scratch memory is saved: results have room for all keys and indices where they hold every element.

        Not for others, as results may turn out to lie apart once memory is planned, and more scratch is not there then.
        """
        rows, size = self.rows, self.rows.x.size
        is_large = 2 * size * (rows.key.nbytes + INDEX_BYTES) > HUGE_BYTES
        return is_large and all(each.is_dense and each.size == size for each in (rows.values, rows.places))

    def made(self) -> tuple[KernelLaunch, ...]:
        """The launches, in order."""
        launches = [self._begin(self.state)] if self.state is not None else []
        for number in range(self.passes):
            launches.append(self._count(number))
            if not self.is_direct:
                launches.append(self._sum(number))
            launches.append(self._scatter(number))
        return tuple(launches)

    def _begin(self, state: BufferPlace) -> KernelLaunch:
        """No bit is known to vary."""
        count = self.rows.row_count
        return per_position([Parameter("u64*", "state", state)], count, ["state[p] = 0;"], 8 * count, threads=64)

    def _writes_results(self, number: int) -> bool:
        return self.into_results and number + 1 == self.passes

    def _parameters(self, number: int) -> tuple[Parameter, ...]:
        """Where entries are read and written in a pass, and its shift."""
        if not number:
            return (_shift(number),)
        if self.state is None:
            return (*self.rows.entries("old", self.kept[(number - 1) % 2]), _shift(number))
        places = (*self.rows.entries("a", self.kept[0]), *self.rows.entries("b", self.kept[-1]))
        return (*places, Parameter("u64*", "state", self.state), _shift(number))

    def _head(self, number: int, *, writes: bool = False) -> list[str]:
        """Statements that find the tile of a block, and entries of its row as `old` and, with `writes`, `new` ones."""
        base = f"(u64)row * {self.rows.length}u"
        kinds = [("keys", self.rows.key.ctype), *([("indices", "unsigned")] if self.rows.has_indices else [])]
        lines = [
            f"const unsigned row = blockIdx.x / {self.parts}u; const int part = blockIdx.x % {self.parts}u;",
            f"const int first = part * {self.tile.size};",
            *self.rows.head("row"),
        ]
        if number and self.state is not None:
            lines += self._skipped(number)
            lines += [f"const {c}* old_{each} = (done % 2 ? a_{each} : b_{each}) + {base};" for each, c in kinds]
            if writes:
                lines += [f"{c}* new_{each} = (done % 2 ? b_{each} : a_{each}) + {base};" for each, c in kinds]
            return lines
        lines += [f"old_{each} += {base};" for each, _ in kinds] if number else []
        return lines + ([f"new_{each} += {base};" for each, _ in kinds] if writes else [])

    def _skipped(self, number: int) -> list[str]:
        """Statements that end a pass which would move nothing, and count those before that did."""
        ends = "" if self._writes_results(number) else "if ((varying >> shift & 255) == 0) return;"
        return [f"const u64 varying = state[row]; {ends} {_done('shift')}"]

    def _count_place(self, part: str, digit: str) -> str:
        """The number of a count in its table: side by side by digit where blocks read all parts, else by part."""
        if self.is_direct:
            return f"((u64)row * {self.parts}u + {part}) * {DIGITS} + {digit}"
        return f"((u64)row * {DIGITS} + {digit}) * {self.parts}u + {part}"

    def _count(self, number: int) -> KernelLaunch:
        """How often each tile has each digit."""
        tile, key, rows = self.tile, self.rows.key, self.rows
        source = self.kept[0] if number else None
        lines = [
            *self._head(number),
            f"__shared__ unsigned found[{DIGITS}]; const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            f"{key.computed} key[{tile.items}];",
            f"if (threadIdx.x < {DIGITS}) found[threadIdx.x] = 0;",
            *load(rows, tile, rows.length, source, with_index=False),
            "__syncthreads();",
            *entry_lines(
                tile,
                f"if (first + p < {rows.length}) atomicAdd(found + ((unsigned)(key[i] >> shift) & 255), 1u);",
            ),
            *(self._varying() if self.state is not None and not number else []),
            "__syncthreads();",
            f"if (threadIdx.x < {DIGITS}) table[{self._count_place('part', 'threadIdx.x')}] = found[threadIdx.x];",
        ]
        extra = [*self._parameters(number), Parameter("unsigned*", "table", self.counts)]
        if self.state is not None and not number:
            extra.append(Parameter("u64*", "state", self.state))
        return rows.launch(lines, self.blocks, tile.threads, 0, tuple(extra))

    def _varying(self) -> list[str]:
        """Statements that tell which bits of keys are not those of the first one."""
        key = self.rows.key
        return [
            f"const auto raw = {self.rows.element('0')}; const {key.computed} own = {key.of('raw')};",
            f"{key.computed} differs = 0;",
            *entry_lines(self.tile, f"if (first + p < {self.rows.length}) differs |= key[i] ^ own;"),
            "for (int far = 16; far > 0; far /= 2) differs |= __shfl_xor_sync(0xffffffffu, differs, far);",
            "if (lane == 0 && (differs & ~state[row])) atomicOr(state + row, (u64)differs);",
        ]

    def _sum(self, number: int) -> KernelLaunch:
        """For each digit of a row what the parts before each part have of it, and the total."""
        tile = Tile(DIGITS, 1)
        skips = self.state is not None and number and not self._writes_results(number)
        lines = [
            *([f"if ((state[blockIdx.x / {DIGITS}] >> shift & 255) == 0) return;"] if skips else []),
            "__shared__ unsigned ends[32]; const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            f"unsigned* const mine = table + (u64)blockIdx.x * {self.parts}u; unsigned carry = 0;",
            f"for (int first = 0; first < {self.parts}; first += {DIGITS}) {{ const int n = first + threadIdx.x;",
            f"const unsigned found = n < {self.parts} ? mine[n] : 0;",
            *scan_lines("found", tile),
            f"if (n < {self.parts}) mine[n] = carry + start;",
            f"for (int w = 0; w < {DIGITS // 32}; w++) carry += ends[w];",
            "__syncthreads(); }",
            "if (threadIdx.x == 0) totals[blockIdx.x] = carry;",
        ]
        extra = [
            Parameter("unsigned*", "table", self.counts),
            Parameter("unsigned*", "totals", self.totals),
        ]
        if self.state is not None and skips:
            extra += [Parameter("const u64*", "state", self.state), _shift(number)]
        return self.rows.launch(lines, self.rows.row_count * DIGITS, DIGITS, 0, tuple(extra))

    def _bases(self) -> list[str]:
        """Statements that turn `starts` into the distance from a place in the tile to one in the row, by digit."""
        digit = "threadIdx.x"
        if self.is_direct:
            found = [
                f"if (threadIdx.x < {DIGITS}) {{",
                "#pragma unroll 16",
                f"for (int n = 0; n < {self.parts}; n++) {{",
                f"const unsigned count = table[{self._count_place('n', digit)}];",
                "sum += count; before += n < part ? count : 0; } }",
            ]
        else:
            place = self._count_place("part", digit)
            found = [
                f"if (threadIdx.x < {DIGITS}) {{ before = table[{place}]; sum = totals[row * {DIGITS}u + {digit}]; }}"
            ]
        return ["unsigned sum = 0, before = 0;", *found]

    def _scatter(self, number: int) -> KernelLaunch:
        """One pass: every entry to its place by a digit."""
        rows, tile = self.rows, self.tile
        writes = not self._writes_results(number)
        moved = "new_keys[place] = keys[s];" + (" new_indices[place] = indices[s];" if rows.has_indices else "")
        if not writes:
            moved = (
                f"if (place < {rows.count}u) {{ const unsigned n = indices[s]; {rows.write('place', 'n', 'keys[s]')} }}"
            )
        lines = [
            *self._head(number, writes=writes),
            *_memory(rows, tile),
            *load(rows, tile, rows.length, self.kept[0] if number else None),
            *self._bases(),
            "{",
            *_rank(rows, tile),
            "}",
            "{",
            *scan_lines("sum", tile),
            f"if (threadIdx.x < {DIGITS}) starts[threadIdx.x] = start + before - starts[threadIdx.x];",
            "}",
            "__syncthreads();",
            f"for (int s = threadIdx.x; s < {tile.size}; s += {tile.threads}) if (first + s < {rows.length}) {{",
            f"const unsigned place = s + starts[(unsigned)(keys[s] >> shift) & 255]; {moved} }}",
        ]
        names_new = writes and not (number and self.state is not None)
        extra = (
            *self._parameters(number),
            *(rows.entries("new", self.kept[number % 2]) if names_new else ()),
            Parameter("const unsigned*", "table", self.counts),
            *(() if self.is_direct else (Parameter("const unsigned*", "totals", self.totals),)),
        )
        return rows.launch(lines, self.blocks, tile.threads, tile.shared_bytes(rows.entry_bytes), extra)
