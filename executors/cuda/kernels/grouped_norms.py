"""Norms over groups of channels (group_norm, instance_norm), with the elementwise work behind them.

A group that one block holds in its registers is a row of `rows.py`. Larger ones take three launches, which read the
operand twice. Blocks find the mean and the sum of squared distances from it of their part of each column: a channel
where channels lie side by side in memory, else a group. The parts of a group are then combined by Chan's rule (Chan,
Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979). The last launch is
elementwise work on elements, means and factors.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from ....ir.types import DType
from ..kernel_ir import flat
from ..kernel_ir.includes.warp_code import moments_joined
from ..kernel_ir.kernels import Parameter, launch_of, reach_type, read, written
from ..kernel_ir.launch import BufferPlace, Candidate, KernelLaunch, Lowering, Task
from ..kernel_ir.layouts import ALIGNMENT, Layout
from ..kernel_ir.pointwise import has_types
from ..kernel_ir.program import KernelProgram
from ..kernel_ir.regions import FusedRegion, region_of, shape_of
from ..kernel_ir.types import computed, number
from .reductions import ReductionBuilder, grouped_norm_of, grouped_program, groups_of
from .rows import row_candidates

LARGEST_ROW = 1 << 15
"""Elements of a group that 1024 threads hold in registers."""

MOST_ROWS = (1 << 16) - 1
"""Of the second axis of a grid."""

_THREADS = 256
_BATCH = 4
"""Vectors that a thread has on their way; their mean and squares are found together."""
_BLOCKS = 4
"""Blocks for each multiprocessor that keep memory busy."""
_COMBINING = 128

_UNROLL = '_Pragma("unroll")'


@dataclass(frozen=True, slots=True)
class _Columns:
    """An operand as `rows` rows of `columns` columns that are `length` long, a vector of `width` elements at a time.

    Columns lie side by side, or are one for each row, whose elements lie side by side (`is_one`).
    """

    rows: int
    columns: int
    length: int
    row_stride: int
    step: int
    width: int
    is_one: bool

    @property
    def lanes(self) -> int:
        """Threads that lie side by side over the columns."""
        return 1 if self.is_one else self.columns // self.width

    @property
    def down(self) -> int:
        """Threads of a block that share a column, a power of two."""
        return 1 << (_THREADS // self.lanes).bit_length() - 1

    @property
    def vectors(self) -> int:
        """Vectors of a column, or of the row that is one."""
        return self.length // self.width if self.is_one else self.length


def lower_grouped(task: Task) -> Iterator[Candidate]:
    """A norm over groups of channels, or a region that begins with one."""
    region = region_of(task)
    if not all(has_types(node) for node in region.nodes):
        return
    node = grouped_norm_of(region)
    shape, groups = shape_of(node.operands[0]), groups_of(node)
    found = list(row_candidates(grouped_program(region), task, region.flops))
    size = math.prod(shape[1:]) // max(groups, 1)
    moments = _by_moments(task, region, shape, groups) if size and shape[0] else None
    if moments is not None:
        found.insert(0 if size > LARGEST_ROW else len(found), moments)
    yield from found


def _by_moments(task: Task, region: FusedRegion, shape: tuple[int, ...], groups: int) -> Candidate | None:
    """For large groups; None where there is no scratch, the operand is a constant, or places lie at no step."""
    node = grouped_norm_of(region)
    x = region.sources.get(node.operands[0])
    columns = _columns_of(x, groups) if x is not None else None
    if x is None or columns is None or task.scratch is None or columns.rows > MOST_ROWS:
        return None
    share = -(-columns.vectors // _parts(columns, task.chip.multiprocessors))
    parts = -(-columns.vectors // share)
    dtype = DType.F64 if x.dtype is DType.F64 else DType.F32
    sizes = (2 * columns.rows * parts * columns.columns, shape[0] * shape[1], shape[0] * shape[1])
    places: list[BufferPlace] = []
    used = 0
    for size in sizes:
        places.append(BufferPlace(task.scratch.buffer, task.scratch.offset + used))
        used += -(-size * dtype.bits // 8 // 256) * 256
    seen, strides = (*shape[:2], *(1 for _ in shape[2:])), (shape[1], 1, *(0 for _ in shape[2:]))
    mean, factor = (Layout(dtype, seen, strides, place, ALIGNMENT) for place in places[1:])
    moments = Parameter(f"{computed(dtype)}*", "moments", places[0])
    launches = (
        _found(x, columns, moments, parts, share),
        _combined(columns, moments, (mean, factor), node.attrs["epsilon"], groups, parts, share),
        *flat.launch([_behind(region, mean, factor)], task.chip, region.flops),
    )
    return Candidate("moments", launches, used)


def _columns_of(x: Layout, groups: int) -> _Columns | None:
    """How the operand is gone through; None where its places are not a fixed step apart."""
    places = [(size, stride) for size, stride in zip(x.shape[2:], x.strides[2:], strict=True) if size != 1]
    length, step = math.prod(x.shape[2:]), places[-1][1] if places else 1
    if any(outer != size * inner for (_, outer), (size, inner) in pairwise(places)):
        return None
    width, samples, channels = ALIGNMENT // x.itemsize, x.shape[0], x.shape[1]
    while width > 1 and x.alignment % (width * x.itemsize):
        width //= 2
    if x.strides[1] == 1 and channels > 1:
        while width > 1 and (channels % width or step % width or x.strides[0] % width):
            width //= 2
        found = _Columns(samples, channels, length, x.strides[0], step, width, is_one=False)
        return found if found.lanes <= _THREADS else None
    each, stride = channels // groups, x.strides[1]
    if (
        step != 1
        or (each > 1 and stride != length)
        or (samples > 1 and groups > 1 and x.strides[0] != channels * stride)
    ):
        return None
    row = x.strides[0] if groups == 1 else each * stride
    length *= each
    while width > 1 and (length % width or row % width):
        width //= 2
    return _Columns(samples * groups, 1, length, row, 1, width, is_one=True)


def _parts(columns: _Columns, multiprocessors: int) -> int:
    """Blocks for each row: enough for the chip, none without a batch of its own."""
    wanted = -(-_BLOCKS * multiprocessors // columns.rows)
    return max(1, min(wanted, columns.vectors // (columns.down * _BATCH)))


def _found(x: Layout, columns: _Columns, moments: Parameter, parts: int, share: int) -> KernelLaunch:
    """The moments of each column in each part of a row."""
    real, width, lanes, down = computed(x.dtype), columns.width, columns.lanes, columns.down
    held = 1 if columns.is_one else width
    every = f"{_UNROLL} for (int c = 0; c < {held}; c++)"
    batch, kind = f"{_UNROLL} for (int u = 0; u < {_BATCH}; u++)", f"pack<{x.ctype}, {width}>"
    terms, inner = (
        (f"{_BATCH * width}", f"{_UNROLL} for (int w = 0; w < {width}; w++)") if columns.is_one else (f"{_BATCH}", "")
    )
    at = "w" if columns.is_one else "c"
    step = columns.step * (width if columns.is_one else 1)
    ctype = reach_type((x,))
    lines = [
        f"const int t = threadIdx.x, lane = t % {lanes}, row = t / {lanes}, first = blockIdx.x * {share};",
        f"const int upto = least(first + {share}, {columns.vectors});",
        f"const {x.ctype}* from = x + ({ctype})blockIdx.y * {columns.row_stride} + lane * {width};",
        f"const auto vector = [&](int p) {{ return *(const {kind}*)(from + ({ctype})p * {step}); }};",
        f"{real} mean[{held}] = {{}}, spread[{held}] = {{}}, count = 0; int p = first + row;",
        f"for (; p + {(_BATCH - 1) * down} < upto; p += {_BATCH * down}) {{",
        f"{kind} v[{_BATCH}]; {batch} v[u] = vector(p + u * {down});",
        f"const {real} ratio = ({real}){terms} / (count + {terms});",
        f"{every} {{ {real} sum = 0, squares = 0;",
        f"{batch} {inner} sum += get(v[u].v[{at}]);",
        f"const {real} middle = sum / {terms};",
        f"{batch} {inner} {{ const {real} apart = get(v[u].v[{at}]) - middle; squares += apart * apart; }}",
        "NAME_join(mean[c], spread[c], count, ratio, middle, squares); }",
        f"count += {terms}; }}",
        f"for (; p < upto; p += {down}) {{ const {kind} v = vector(p);",
        f"{inner} {{ const {real} ratio = 1 / (count + 1);",
        f"{every} NAME_join(mean[c], spread[c], count, ratio, get(v.v[{at}]), 0); count += 1; }} }}",
        *_joined_rows(real, down, lanes, held),
        f"if (row == 0) {every} {{ const int column = lane * {held} + c;",
        f"{real}* to = moments + 2 * (((i64)blockIdx.y * {parts} + blockIdx.x) * {columns.columns} + column);",
        "to[0] = mean[c]; to[1] = spread[c]; }",
    ]
    grid, block = (parts, columns.rows, 1), (down * lanes, 1, 1)
    return _with_join(launch_of([moments, read("x", x)], lines, grid, block, x.nbytes), real)


def _joined_rows(real: str, down: int, lanes: int, held: int) -> list[str]:
    """`mean`, `spread` and `count` of the first of `down` rows of threads, over all of them."""
    every = f"{_UNROLL} for (int c = 0; c < {held}; c++)"
    kept = f"{every} {{ means[t * {held} + c] = mean[c]; spreads[t * {held} + c] = spread[c]; }} counts[t] = count;"
    return [
        f"__shared__ {real} means[{down * lanes * held}], spreads[{down * lanes * held}], counts[{down * lanes}];",
        kept,
        f"for (int half = {down // 2}; half; half /= 2) {{ __syncthreads(); if (row < half) {{",
        f"const int other = t + half * {lanes}; const {real} more = counts[other], all = count + more;",
        f"const {real} ratio = all > 0 ? more / all : 0; {every}",
        f"NAME_join(mean[c], spread[c], count, ratio, means[other * {held} + c], spreads[other * {held} + c]);",
        f"count = all; {kept} }} }}",
    ]


def _combined(
    columns: _Columns,
    moments: Parameter,
    found: tuple[Layout, Layout],
    epsilon: float,
    groups: int,
    parts: int,
    share: int,
) -> KernelLaunch:
    """A block for each group: its mean, and 1 / sqrt(variance + epsilon), written for each of its channels."""
    mean, factor = found
    samples, channels = mean.shape[:2]
    each, real = channels // groups, computed(mean.dtype)
    inner, unit = (1, columns.width) if columns.is_one else (each, 1)
    row, column = (
        ("blockIdx.x", "0") if columns.is_one else (f"blockIdx.x / {groups}", f"blockIdx.x % {groups} * {each}")
    )
    total, root = columns.vectors * unit * inner, "sqrt" if real == "double" else "sqrtf"
    lines = [
        "const int t = threadIdx.x, row = t;",
        f"const {real}* from = moments + 2 * ((i64)({row}) * {parts * columns.columns} + {column});",
        f"{real} mean[1] = {{}}, spread[1] = {{}}, count = 0;",
        f"for (int i = t; i < {parts * inner}; i += {_COMBINING}) {{ const int part = i / {inner};",
        f"const {real} more = least({columns.vectors} - part * {share}, {share}) * {unit}, all = count + more;",
        f"const {real}* other = from + 2 * (part * {columns.columns} + i % {inner});",
        "NAME_join(mean[0], spread[0], count, more / all, other[0], other[1]); count = all; }",
        *_joined_rows(real, _COMBINING, 1, 1),
        "__syncthreads();",
        f"const {real} y = 1 / {root}(spreads[0] / {total} + ({number(epsilon, real)}));",
        f"for (int c = t; c < {each}; c += {_COMBINING}) {{ const int at = blockIdx.x * {each} + c;",
        "to_mean[at] = means[0]; to_factor[at] = y; }",
    ]
    parameters = [moments, written("to_mean", mean), written("to_factor", factor)]
    nbytes = 2 * columns.rows * parts * columns.columns * mean.itemsize + 2 * mean.nbytes
    launch = launch_of(parameters, lines, (samples * groups, 1, 1), (_COMBINING, 1, 1), nbytes)
    return _with_join(launch, real)


def _with_join(launch: KernelLaunch, real: str) -> KernelLaunch:
    return replace(launch, kernel=replace(launch.kernel, body=moments_joined(real) + launch.kernel.body))


def _behind(region: FusedRegion, mean: Layout, factor: Layout) -> KernelProgram:
    """Elements with the mean taken off, times the factor, scaled and moved; and what follows."""
    node = grouped_norm_of(region)
    shape = shape_of(node.output)
    b = ReductionBuilder(region, KernelProgram(shape), shape)
    x, scale, bias = b.name(node.operands[0]), *(b.per_channel(value) for value in node.operands[1:])
    middle, by = b.program.load(mean), b.program.load(factor)
    form = "($0 - $1) * $2 * $3 + $4"
    b.names[node.output] = b.program.define(x.dtype, form, x, middle, by, scale, bias)
    b.finish()
    return b.program


LOWERINGS: Mapping[str, Lowering] = dict.fromkeys(("instance_norm", "group_norm"), lower_grouped)
"""Norms over groups of channels."""
