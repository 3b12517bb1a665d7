"""Rotary position embedding: a thread for each pair that is rotated, or for two elements that are not."""

from collections.abc import Iterator, Mapping

from ..kernel_ir.kernels import per_position, reach_type, read, written
from ..kernel_ir.launch import Candidate, Lowering, Task
from ..kernel_ir.layouts import Layout, index_lines, offset_text
from ..kernel_ir.moving import operand, result
from ..kernel_ir.regions import flops_of
from ..kernel_ir.types import computed


def _by_head(layout: Layout, heads: int) -> Layout:
    """[B, H, T, D], whether heads are an axis or lie side by side in the last one."""
    if len(layout.shape) == 4:
        return layout
    return layout.split(2, (heads, layout.shape[2] // heads)).permuted((0, 2, 1, 3))


def lower_rotary(task: Task) -> Iterator[Candidate]:
    """One kernel; it may work in place, as a thread reads both elements of a pair before it writes them."""
    attrs = task.node.attrs
    x, y = (_by_head(layout, attrs["heads"]) for layout in (operand(task), result(task)))
    batch, heads, steps, depth = x.shape
    if not x.size:
        yield Candidate("nothing", ())
        return
    half = (attrs["rotary_dim"] or depth) // 2
    pairs = half + (depth - 2 * half + 1) // 2
    tables = [_table(task, index, (batch, steps)) for index in (1, 2)]
    ctype = reach_type((x, y))
    wide = computed(x.dtype)
    first, second = ("2 * c3", "2 * c3 + 1") if attrs["interleaved"] else ("c3", f"c3 + {half}")
    angle = "c0 * {} + c2 * {} + c3 * {}"
    parameters = [written("y", y), read("x", x), read("cosines", tables[0]), read("sines", tables[1])]
    row = ""
    if len(task.operands) > 3 and task.operands[3] is not None:
        positions = operand(task, 3).broadcast((batch, steps))
        parameters.append(read("positions", positions))
        rows = operand(task, 1).shape[0]
        row = f"const i64 row = place_of(positions[{offset_text('c', _spread(positions))}], {rows});"
        angle = "row * {1} + c3 * {2}"
    angles = [angle.format(*_strides(table)) for table in tables]
    lines = [
        *index_lines("c", "p", (batch, heads, steps, pairs), ctype),
        f"const {x.ctype}* from = x + ({offset_text('c', x.strides[:3])});",
        f"{y.ctype}* to = y + ({offset_text('c', y.strides[:3])});",
        f"if (c3 >= {half}) {{",
        f"const int d = {2 * half} + 2 * (c3 - {half}); const {x.ctype} kept = from[d * {x.strides[3]}];",
        f"if (d + 1 < {depth}) to[(d + 1) * {y.strides[3]}] = from[(d + 1) * {x.strides[3]}];",
        f"to[d * {y.strides[3]}] = kept; return; }}",
        row,
        f"const {wide} cosine = get(cosines[{angles[0]}]), sine = get(sines[{angles[1]}]);",
        f"const int i = {first}, j = {second};",
        f"const {wide} a = get(from[i * {x.strides[3]}]), b = get(from[j * {x.strides[3]}]);",
        f"put(to[i * {y.strides[3]}], a * cosine - b * sine);",
        f"put(to[j * {y.strides[3]}], a * sine + b * cosine);",
    ]
    nbytes = 2 * x.size * x.itemsize + sum(table.nbytes for table in tables)
    count = batch * heads * steps * pairs
    yield Candidate("pairs", (per_position(parameters, count, lines, nbytes, flops_of(task), 128, ctype),))


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
