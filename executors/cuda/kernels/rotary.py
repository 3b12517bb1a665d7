"""Rotary position embedding: a thread for each pair that is rotated, or for two elements that are not.

Where elements lie beside each other a thread has as many pairs as are moved as one.
"""

from collections.abc import Iterator, Mapping, Sequence

from ..kernel_ir.kernels import per_position, reach_type, read, widest, written
from ..kernel_ir.launch import Candidate, KernelLaunch, Lowering, Task
from ..kernel_ir.layouts import ALIGNMENT, Layout, index_lines, offset_text
from ..kernel_ir.moving import operand, result
from ..kernel_ir.regions import flops_of
from ..kernel_ir.types import computed

_FEW = 256
"""Below so many elements a multiprocessor more threads may be worth more than wide loads: 4,096 elements took 0.87 us
by pairs and 0.96 by vectors on an H200, 655,360 took 3.76 and 1.67."""


def _by_head(layout: Layout, heads: int) -> Layout:
    """[B, H, T, D], whether heads are an axis or lie side by side in the last one."""
    if len(layout.shape) == 4:
        return layout
    return layout.split(2, (heads, layout.shape[2] // heads)).permuted((0, 2, 1, 3))


def lower_rotary(task: Task) -> Iterator[Candidate]:
    """One kernel; it may work in place, as a thread reads both elements of its pairs before it writes them."""
    attrs = task.node.attrs
    x, y = (_by_head(layout, attrs["heads"]) for layout in (operand(task), result(task)))
    if not x.size:
        yield Candidate("nothing", ())
        return
    half = (attrs["rotary_dim"] or x.shape[3]) // 2
    width = _width(x, y, half, is_interleaved=attrs["interleaved"])
    if width == 1 or x.size < _FEW * task.chip.multiprocessors:
        yield Candidate("pairs", (_rotation(task, x, y, half, 1),))
    if width > 1:
        yield Candidate("vectors", (_rotation(task, x, y, half, width),))


def _rotation(task: Task, x: Layout, y: Layout, half: int, width: int) -> KernelLaunch:
    """The kernel that moves `width` elements as one."""
    attrs = task.node.attrs
    batch, heads, steps, depth = x.shape
    tables = [_table(task, index, (batch, steps)) for index in (1, 2)]
    ctype = reach_type((x, y))
    parameters = [written("y", y), read("x", x), read("cosines", tables[0]), read("sines", tables[1])]
    row, angle = "", "c0 * {} + c2 * {} + {} * i"
    if len(task.operands) > 3 and task.operands[3] is not None:
        positions = operand(task, 3).broadcast((batch, steps))
        parameters.append(read("positions", positions))
        rows = operand(task, 1).shape[0]
        row = f"const i64 row = place_of(positions[{offset_text('c', _spread(positions))}], {rows});"
        angle = "row * {1} + {2} * i"
    angles = [angle.format(*_strides(table)) for table in tables]
    if width > 1:
        pairs = width // 2 if attrs["interleaved"] else width
        chunks = half // pairs + (depth - 2 * half) // width
        kept = _kept_vectors(x, half, width, half // pairs) if depth > 2 * half else []
        turned = _turned_vectors(x, tables, angles, half, width, is_interleaved=attrs["interleaved"])
    else:
        chunks = half + (depth - 2 * half + 1) // 2
        kept = _kept_pairs(x, y, half)
        turned = _turned_pairs(x, y, angles, half, is_interleaved=attrs["interleaved"])
    lines = [
        *index_lines("c", "p", (batch, heads, steps, chunks), ctype),
        f"const {x.ctype}* from = x + ({offset_text('c', x.strides[:3])});",
        f"{y.ctype}* to = y + ({offset_text('c', y.strides[:3])});",
        *kept,
        row,
        *turned,
    ]
    nbytes = 2 * x.size * x.itemsize + sum(table.nbytes for table in tables)
    return per_position(parameters, batch * heads * steps * chunks, lines, nbytes, flops_of(task), 128, ctype)


def _width(x: Layout, y: Layout, half: int, *, is_interleaved: bool) -> int:
    """How many elements are moved as one, both of what is rotated and of what is not."""
    parts = [(0, 2 * half)] if is_interleaved else [(0, half), (half, half)]
    rest = x.shape[3] - 2 * half
    parts += [(2 * half, rest)] if rest else []
    return widest([each.part(3, *part) for each in (x, y) for part in parts], 3)


def _kept_pairs(x: Layout, y: Layout, half: int) -> list[str]:
    return [
        f"if (c3 >= {half}) {{",
        f"const int d = {2 * half} + 2 * (c3 - {half}); const {x.ctype} kept = from[d * {x.strides[3]}];",
        f"if (d + 1 < {x.shape[3]}) to[(d + 1) * {y.strides[3]}] = from[(d + 1) * {x.strides[3]}];",
        f"to[d * {y.strides[3]}] = kept; return; }}",
    ]


def _turned_pairs(x: Layout, y: Layout, angles: Sequence[str], half: int, *, is_interleaved: bool) -> list[str]:
    wide = computed(x.dtype)
    first, second = ("2 * i", "2 * i + 1") if is_interleaved else ("i", f"i + {half}")
    return [
        f"const int i = c3, j = {first}, k = {second};",
        f"const {wide} cosine = get(cosines[{angles[0]}]), sine = get(sines[{angles[1]}]);",
        f"const {wide} a = get(from[j * {x.strides[3]}]), b = get(from[k * {x.strides[3]}]);",
        f"put(to[j * {y.strides[3]}], a * cosine - b * sine);",
        f"put(to[k * {y.strides[3]}], a * sine + b * cosine);",
    ]


def _kept_vectors(x: Layout, half: int, width: int, first: int) -> list[str]:
    kind = f"pack<{x.ctype}, {width}>"
    return [
        f"if (c3 >= {first}) {{",
        f"const int d = {2 * half} + {width} * (c3 - {first});",
        f"*({kind}*)(to + d) = *(const {kind}*)(from + d); return; }}",
    ]


def _turned_vectors(
    x: Layout, tables: Sequence[Layout], angles: Sequence[str], half: int, width: int, *, is_interleaved: bool
) -> list[str]:
    wide, kind = computed(x.dtype), f"pack<{x.ctype}, {width}>"
    if is_interleaved:
        pairs, first, second = width // 2, "a.v[2 * k]", "a.v[2 * k + 1]"
        places = {"a": "2 * i"}
    else:
        pairs, first, second = width, "a.v[k]", "b.v[k]"
        places = {"a": "i", "b": f"{half} + i"}
    read, cosine = _read_angles("cosines", tables[0], angles[0], pairs)
    read_too, sine = _read_angles("sines", tables[1], angles[1], pairs)
    return [
        f"const int i = {pairs} * c3;",
        *(f"{kind} {name} = *(const {kind}*)(from + {place});" for name, place in places.items()),
        *read,
        *read_too,
        "#pragma unroll",
        f"for (int k = 0; k < {pairs}; ++k) {{",
        f"const {wide} cosine = get({cosine}), sine = get({sine});",
        f"const {wide} u = get({first}), v = get({second});",
        f"put({first}, u * cosine - v * sine);",
        f"put({second}, u * sine + v * cosine);",
        "}",
        *(f"*({kind}*)(to + {place}) = {name};" for name, place in places.items()),
    ]


def _read_angles(name: str, table: Layout, angle: str, pairs: int) -> tuple[list[str], str]:
    """Statements that read as many angles in vectors, if they lie so, and what angle `k` is then."""
    last = len(table.shape) - 1
    if widest([table], last) < min(pairs, ALIGNMENT // table.itemsize):
        return [], f"{name}[{angle} + k * {table.strides[last]}]"
    kind = f"pack<{table.ctype}, {pairs}>"
    return [f"const {kind} row_of_{name} = *(const {kind}*)({name} + {angle});"], f"row_of_{name}.v[k]"


def _table(task: Task, index: int, shape: tuple[int, int]) -> Layout:
    """Cosines or sines: [B, T, R/2], or [max, R/2] where positions say which row."""
    layout = operand(task, index)
    if len(layout.shape) == 2:
        return layout
    return layout.broadcast((*shape, layout.shape[2]))


def _strides(table: Layout) -> tuple[int, int, int]:
    if len(table.shape) == 2:
        return 0, table.strides[0], table.strides[1]
    return table.strides[0], table.strides[1], table.strides[2]


def _spread(positions: Layout) -> tuple[int, int, int]:
    return positions.strides[0], 0, positions.strides[1]


LOWERINGS: Mapping[str, Lowering] = {"rotary_embedding": lower_rotary}
"""Position embeddings."""
