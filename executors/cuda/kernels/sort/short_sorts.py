"""Short rows in order: a bitonic network over the registers of some lanes of a warp, with shuffles between lanes.

A network is not stable, so that an entry is a key with its index: one word where both fit into it.
"""

from ...kernel_ir.launch import KernelLaunch
from .ordered_rows import SortRows

THREADS = 128
MOST = 128
"""Elements of a row: four for each lane."""


def network(rows: SortRows) -> KernelLaunch:
    """Sorts rows of up to 32 lanes' registers, several rows in a block."""
    size = 1 << max(rows.length - 1, 0).bit_length()
    lanes = min(32, size)
    each = size // lanes
    per_block = THREADS // lanes
    key = rows.key
    entry = {8: "indexed<u64>", 4: "u64"}.get(key.nbytes, "unsigned")
    is_after = "a.value > b.value || (a.value == b.value && a.at > b.at)" if key.nbytes == 8 else "a > b"
    bits = 32 if key.nbytes == 4 else 16
    index = "mine[e].at" if key.nbytes == 8 else f"(int)(mine[e] & {(1 << bits) - 1}u)"
    made = f"{{{key.of('raw')}, n}}" if key.nbytes == 8 else f"({entry}){key.of('raw')} << {bits} | (unsigned)n"
    last = f"{{{key.last}, 0x7fffffff}}" if key.nbytes == 8 else f"~({entry})0"
    lines = [
        f"const unsigned row = blockIdx.x * {per_block}u + threadIdx.x / {lanes}u, lane = threadIdx.x % {lanes}u;",
        f"const bool is_row = row < {rows.row_count}u;",
        *rows.head(f"(is_row ? row : {rows.row_count - 1}u)"),
        f"typedef {entry} entry;",
        f"auto is_after = [](entry a, entry b) {{ return {is_after}; }};",
        f"entry mine[{each}];",
        "#pragma unroll",
        f"for (int e = 0; e < {each}; e++) {{ const int n = e * {lanes} + lane; mine[e] = {last};",
        f"if (n < {rows.length}) {{ const auto raw = {rows.element('n')}; mine[e] = {made}; }} }}",
        *_network(size, each),
        "#pragma unroll",
        f"for (int e = 0; e < {each}; e++) {{ const int s = lane * {each} + e, n = {index};",
        f"if (is_row && s < {rows.count}) {{ {rows.write('s', 'n')} }} }}",
    ]
    return rows.launch(lines, -(-rows.row_count // per_block), THREADS)


def _network(size: int, each: int) -> list[str]:
    """Statements that sort `size` entries, `each` of them in every lane's `mine`."""
    if size == 1:
        return []
    return [
        "#pragma unroll",
        f"for (int level = 1; level <= {size.bit_length() - 1}; level++)",
        "#pragma unroll",
        "for (int step = level - 1; step >= 0; step--)",
        "#pragma unroll",
        f"for (int e = 0; e < {each}; e++) {{ const unsigned apart = 1u << step;",
        f"const bool is_up = ((lane * {each} + e) >> level & 1) == 0;",
        f"if (apart >= {each}) {{ const entry other = other_lane(mine[e], (int)(apart / {each}));",
        f"const bool is_low = (lane & (apart / {each})) == 0;",
        "if (is_after(mine[e], other) == (is_up == is_low)) mine[e] = other; }",
        f"else if ((e & apart) == 0) {{ const int far = e + apart < {each} ? e + apart : e;",
        "const entry low = mine[e], high = mine[far];",
        "if (is_after(low, high) == is_up) { mine[e] = high; mine[far] = low; } } }",
    ]
