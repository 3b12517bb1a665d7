"""scatter_elements where a line of the target along the axis fits in shared memory: one launch.

A block has a line, or eight that lie side by side, which it reads in whole sectors.

What updates of a place come to is made there by atomic operations on integers, so that no order of threads shows: the
last slot that names it, the greatest or least as integers that are ordered alike, sums of integers, and sums of floats
in fixed point as `segments.py` has them, in two words. Then the line is written, its other elements from the operand.
"""

import math
from dataclasses import dataclass

from .....ir.ops.rules import normal_axis
from .....ir.types import DType, Kind
from ...kernel_ir.kernels import launch_of, reach_type, read, written
from ...kernel_ir.launch import Candidate, Task
from ...kernel_ir.layouts import Layout, index_lines, offset_text
from ...kernel_ir.moving import operand, result
from ...kernel_ir.program import raw
from ...kernel_ir.regions import flops_of
from ...kernel_ir.types import computed
from .segments import FIXED_BITS

FEWEST_LINES = 32
MOST_UPDATES = 1 << 15
"""A block goes through so many updates at most."""

_THREADS = 512
_ACROSS = 8


@dataclass(frozen=True)
class _Places:
    """What is kept of each place of a line: `words` words of 32 bits, in `held`, `held2`, ...

    `start` sets them for place `i` with operand `x`; `passes` take update `u` number `j` of place `i`, each pass over
    all of them; `finish` writes place `i` to `r`.
    """

    words: int
    start: str
    passes: tuple[str, ...]
    finish: str
    before: str = ""


def by_lines(task: Task) -> Candidate | None:
    """The candidate by lines; None where one is too long, or the updates of few would keep few blocks busy."""
    layouts = {"r": result(task), "x": operand(task), "indices": operand(task, 1), "updates": operand(task, 2)}
    reduction, target, indices = task.node.attrs["reduction"], layouts["r"], layouts["indices"]
    axis = normal_axis(task.node.attrs["axis"], len(target.shape))
    size, count = target.shape[axis], indices.shape[axis]
    others = [n for n in range(len(target.shape)) if n != axis]
    lines = math.prod(target.shape[n] for n in others)
    places = _places(reduction, target.dtype, count)
    if places is None or lines < FEWEST_LINES or count > MOST_UPDATES or _rest(indices, axis) != _rest(target, axis):
        return None
    if reduction == "none":
        layouts |= {name: raw(layouts[name]) for name in ("r", "x", "updates")}
    across = _ACROSS if others and target.strides[others[-1]] == 1 and target.shape[others[-1]] % _ACROSS == 0 else 1
    line_bytes = 4 * places.words * size
    if across * line_bytes > task.chip.shared_bytes:
        across = 1
    if line_bytes > task.chip.shared_bytes:
        return None
    threads = min(_THREADS, max(32, 1 << (across * max(size, count) // 4).bit_length()))
    text = _text(places, layouts, axis, across, threads)
    parameters = [written("r", layouts["r"]), *(read(name, layouts[name]) for name in ("x", "indices", "updates"))]
    nbytes = indices.nbytes + layouts["updates"].nbytes + 2 * target.nbytes
    sizes = (lines // across, 1, 1), (threads, 1, 1)
    return Candidate("lines", (launch_of(parameters, text, *sizes, nbytes, flops_of(task), across * line_bytes),))


def _rest(layout: Layout, axis: int) -> tuple[int, ...]:
    return (*layout.shape[:axis], *layout.shape[axis + 1 :])


def _text(places: _Places, layouts: dict[str, Layout], axis: int, across: int, threads: int) -> list[str]:
    """Place `i` of a block is place `i / across` of its line `w`."""
    target, count = layouts["r"], layouts["indices"].shape[axis]
    ctype, size = reach_type(list(layouts.values())), target.shape[axis]
    others = [n for n in range(len(target.shape)) if n != axis]
    inner = others[-1] if others else axis
    blocks = [target.shape[n] // (across if n == inner else 1) for n in others]

    def element(name: str, index: str) -> str:
        layout = layouts[name]
        lane = f" + w * {layout.strides[inner]}" if across > 1 else ""
        return f"{name}[({ctype}){index} * {layout.strides[axis]}{lane}]"

    def first(layout: Layout) -> str:
        steps = [layout.strides[n] * (across if n == inner else 1) for n in others]
        return offset_text("c", steps)

    each_place = f"for (int i = threadIdx.x; i < {size * across}; i += {threads}) {{ const int w = i % {across};"
    held = f"const auto& x_i = {element('x', f'(i / {across})')};"
    lines = [
        "extern __shared__ unsigned held[];",
        *(f"unsigned* held{n + 1} = held + {n * size * across};" for n in range(1, places.words)),
        *index_lines("c", "blockIdx.x", blocks, ctype),
        *(f"{name} += {first(layout)};" for name, layout in layouts.items()),
        f"const auto update = [&](int j, int w) {{ return {element('updates', 'j')}; }};",
        places.before,
        f"{each_place} {held} {places.start} }}",
        "__syncthreads();",
    ]
    for statements in places.passes:
        lines += [
            f"for (int n = threadIdx.x; n < {count * across}; n += {threads}) {{",
            f"const int w = n % {across}, j = n / {across};",
            f"const i64 place = counted({element('indices', 'j')}, {size});",
            f"if (place < 0 || place >= {size}) continue;",
            f"const int i = (int)place * {across} + w; const auto u = update(j, w);",
            f"{statements} }}",
            "__syncthreads();",
        ]
    return [*lines, f"{each_place} {held} auto& r_i = {element('r', f'(i / {across})')}; {places.finish} }}"]


def _places(reduction: str, dtype: DType, count: int) -> _Places | None:
    if reduction == "none":
        return _Places(
            1,
            "held[i] = 0;",
            ("atomicMax(held + i, (unsigned)j + 1);",),
            "const unsigned j = held[i]; r_i = j ? update((int)j - 1, w) : x_i;",
        )
    if dtype.kind is Kind.BOOL or dtype.bits > 32 or dtype.kind is Kind.COMPLEX or reduction == "mul":
        return None
    if reduction in ("max", "min"):
        return _extremes(reduction, dtype)
    return _fixed_point(dtype, count + 1) if dtype.is_float else _integers(dtype)


def _integers(dtype: DType) -> _Places:
    take = "atomicAdd(held + i, (unsigned)get(u));"
    return _Places(1, "held[i] = (unsigned)get(x_i);", (take,), f"put(r_i, ({computed(dtype)})held[i]);")


def _extremes(reduction: str, dtype: DType) -> _Places:
    """As unsigned numbers of the same order; NaN is beyond all others."""
    none = "0xffffffffu" if reduction == "max" else "0u"
    if dtype.is_float:
        key = (
            "const auto key = [](float v) -> unsigned { const unsigned b = as_bits(v);"
            f"return v != v ? {none} : b >> 31 ? ~b : b | 0x80000000u; }};"
        )
        back = f"k == {none} ? NOT_A_NUMBER : as_float(k >> 31 ? k & 0x7fffffffu : ~k)"
    else:
        turn = "0x80000000u" if dtype.kind is Kind.INT else "0u"
        key = f"const auto key = []({computed(dtype)} v) -> unsigned {{ return (unsigned)v ^ {turn}; }};"
        back = f"({computed(dtype)})(k ^ {turn})"
    name = "atomicMax" if reduction == "max" else "atomicMin"
    return _Places(
        1,
        "held[i] = key(get(x_i));",
        (f"{name}(held + i, key(get(u)));",),
        f"const unsigned k = held[i]; put(r_i, {back});",
        key,
    )


def _fixed_point(dtype: DType, terms: int) -> _Places:
    """`held` is the largest exponent of a place, with a bit for each infinity and for NaN above it."""
    room = FIXED_BITS - terms.bit_length() + 126
    unit = (
        f"const int shift = {room} - (int)(held[i] & 255);"
        "const double unit = bits_as<double>((u64)(shift + 1023) << 52);"
    )
    look = (
        "const auto look = [](float v) -> unsigned { const unsigned b = as_bits(v), e = b >> 23 & 255;"
        "return v != v ? 1024u : e == 255 ? (b >> 31 ? 512u : 256u) : e ? e : 1u; };"
    )
    most = "const unsigned e = look(get(u)); if (e < 256) atomicMax(held + i, e); else atomicOr(held + i, e);"
    add = (
        f"const float v = get(u); if (held[i] >= 256) continue; {unit}"
        "const u64 q = (u64)(i64)rint((double)v * unit); const unsigned low = (unsigned)q;"
        "const unsigned was = atomicAdd(held2 + i, low);"
        "atomicAdd(held3 + i, (unsigned)(q >> 32) + (was + low < was ? 1u : 0u));"
    )
    whole = "(double)((i64)((u64)held3[i] << 32 | held2[i]) + (i64)rint((double)get(x_i) * unit))"
    special = "kind == 1 ? INFINITE : kind == 2 ? -INFINITE : NOT_A_NUMBER"
    finish = (
        f"const unsigned kind = held[i] >> 8; if (kind) {{ put(r_i, {special}); continue; }} {unit}"
        f"put(r_i, (float)({whole} * bits_as<double>((u64)(1023 - shift) << 52)));"
    )
    return _Places(3, "held[i] = look(get(x_i)); held2[i] = 0; held3[i] = 0;", (most, add), finish, look)
