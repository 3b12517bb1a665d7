"""The first few of long rows: a block finds those of a tile by their digits, from the first one on, without sorting it.

It counts digits among the entries that begin with those found so far, until it knows which entry is the last one wanted
(or that all with these digits are). What is taken keeps the order of its indices, so that ties stay in order; of the
last tile it is put in order, by counting for each entry how many come before.
"""

from ...kernel_ir.launch import KernelLaunch
from .ordered_rows import Entries, SortRows
from .radix import DIGITS, Tile, entry_lines, load, scan_lines

RANKED = 256
"""Up to so many entries are put in order by counting, one for each thread."""


def first_of_tiles(
    rows: SortRows, tile: Tile, length: int, parts: int, source: Entries | None, found: Entries | None
) -> KernelLaunch:
    """The first of each part of rows of `length` entries: to `found` by index, or as the results in order."""
    key = rows.key
    old = [f"old_keys += (u64)row * {length}u; old_indices += (u64)row * {length}u;"] if source else []
    if found is None:
        memory = [f"__shared__ {key.ctype} taken_keys[{rows.count}]; __shared__ unsigned taken_indices[{rows.count}];"]
        taken, ending = "taken_keys[place] = key[i]; taken_indices[place] = index[i];", _ranked(rows)
    else:
        memory = [f"new_keys += (u64)blockIdx.x * {rows.count}u; new_indices += (u64)blockIdx.x * {rows.count}u;"]
        taken, ending = "new_keys[place] = key[i]; new_indices[place] = index[i];", []
    lines = [
        f"const unsigned row = blockIdx.x / {parts}u; const int first = blockIdx.x % {parts}u * {tile.size};",
        *rows.head("row"),
        *old,
        *memory,
        f"__shared__ unsigned counts[{DIGITS}], ends[32], chosen[3];",
        "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
        f"{key.computed} key[{tile.items}]; unsigned index[{tile.items}];",
        *load(rows, tile, length, source),
        *_threshold(rows, tile),
        *_taken(tile, taken),
        *ending,
    ]
    extra = (*(rows.entries("old", source) if source else ()), *(rows.entries("new", found) if found else ()))
    return rows.launch(lines, rows.row_count * parts, tile.threads, 0, extra)


def _threshold(rows: SortRows, tile: Tile) -> list[str]:
    """Statements that find `until`, the leading digits (down to `shift`) of the last entry, and how many have them."""
    return [
        f"{rows.key.computed} until = 0; unsigned wanted = {rows.count}; int shift = {rows.key.bits - 8};",
        "for (;; shift -= 8) {",
        f"if (threadIdx.x < {DIGITS}) counts[threadIdx.x] = 0;",
        "__syncthreads();",
        *entry_lines(
            tile, "if (key[i] >> shift >> 8 == until) atomicAdd(counts + ((unsigned)(key[i] >> shift) & 255), 1u);"
        ),
        "__syncthreads();",
        f"const unsigned count = threadIdx.x < {DIGITS} ? counts[threadIdx.x] : 0;",
        *scan_lines("count", tile),
        f"if (threadIdx.x < {DIGITS} && start < wanted && wanted <= start + count) {{",
        "chosen[0] = threadIdx.x; chosen[1] = wanted - start; chosen[2] = count; }",
        "__syncthreads();",
        "until = until << 8 | chosen[0]; wanted = chosen[1];",
        "if (shift == 0 || chosen[2] == wanted) break; }",
    ]


def _taken(tile: Tile, taken: str) -> list[str]:
    """Statements that do `taken` for each entry before the threshold, and for the first of those that are at it."""
    warps = tile.threads // 32
    return [
        f"unsigned lower[{tile.items}], same[{tile.items}], all_lower = 0, all_same = 0;",
        *entry_lines(
            tile,
            "const unsigned is_lower = __ballot_sync(0xffffffffu, key[i] >> shift < until); "
            "const unsigned is_same = __ballot_sync(0xffffffffu, key[i] >> shift == until); "
            "const unsigned before = (1u << lane) - 1; "
            "lower[i] = all_lower + __popc(is_lower & before); same[i] = all_same + __popc(is_same & before); "
            "all_lower += __popc(is_lower); all_same += __popc(is_same);",
        ),
        "if (lane == 0) { counts[warp] = all_lower; counts[32 + warp] = all_same; }",
        "__syncthreads();",
        "unsigned lower_before = 0, same_before = 0;",
        f"for (int w = 0; w < {warps - 1}; w++) if (w < warp) {{ lower_before += counts[w]; "
        "same_before += counts[32 + w]; }",
        *entry_lines(
            tile,
            "const unsigned nth = same_before + same[i]; const bool is_lower = key[i] >> shift < until; "
            "if (is_lower || (key[i] >> shift == until && nth < wanted)) { "
            f"const unsigned place = lower_before + lower[i] + (nth < wanted ? nth : wanted); {taken} }}",
        ),
    ]


def _ranked(rows: SortRows) -> list[str]:
    """Statements that write what was taken in order: a thread for each entry."""
    return [
        "__syncthreads();",
        f"if (threadIdx.x < {rows.count}) {{",
        f"const {rows.key.computed} own = taken_keys[threadIdx.x]; unsigned place = 0;",
        "#pragma unroll 8",
        f"for (unsigned n = 0; n < {rows.count}u; n++) {{ const {rows.key.computed} other = taken_keys[n];",
        "place += other < own || (other == own && n < threadIdx.x); }",
        f"const unsigned n = taken_indices[threadIdx.x]; {rows.write('place', 'n')} }}",
    ]
