"""Scatters with a reduction and many updates: the updates of a slice are brought together, then combined by one thread.

Slots are counted by slice, each slice gets a stretch of a list, and slots write their numbers there, all by atomic
operations. The order within a stretch is that in which threads came, so what combines it must not depend on the order:
greatest and least do not, integers wrap, and floats are added in fixed point. Its unit comes from the largest number of
the sum, so that the sum is rounded once: of 2^22 updates in f32 it has 39 bits, doubles have twice as many. Halves are
whole numbers of 2^-24 and need no such look. Only products of floats are made in the order of slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .....ir.types import DType
from ...kernel_ir.kernels import THREADS, Parameter, at, launch_of, per_position, reach_type, read
from ...kernel_ir.launch import BufferPlace, Candidate, KernelLaunch, Task
from ...kernel_ir.layouts import Layout, index_lines
from ...kernel_ir.regions import flops_of
from ...kernel_ir.types import computed
from .slots import Slots

MOST_ALONE = 32
"""So many updates of a slice, on average, are combined by one thread; more of few slices by a block."""
FEW_ELEMENTS = 1 << 16

FEW_SLOTS = 1 << 14
FEW_SLICES = 1 << 13
"""Up to these, each block lists the slots of its slices in shared memory; where many updates meet, one block lists
all: one launch takes less than four."""

FIXED_BITS = 62
"""How many bits a sum in fixed point has, those for the number of terms included."""

_HALF_BITS = 41
"""Of the largest half in units of the smallest."""

_EACH = 8
_KEPT = 8
_THREADS_OF_A_BLOCK = 1024


def segments(task: Task, slots: Slots, source: Layout, copies: Sequence[KernelLaunch]) -> Candidate | None:
    """By segments; `source` is the operand, which `copies` bring to the result. None for want of scratch."""
    by_slice = slots.covers_slices and slots.slices <= 4 * slots.count
    is_few = slots.count <= FEW_SLOTS and slots.slices <= FEW_SLICES
    if by_slice and is_few and slots.count < MOST_ALONE * slots.slices:
        return Candidate("segments", (_by_blocks(task, slots, source),))
    slices = -(-slots.slices // _EACH) * _EACH
    nbytes = 4 * (2 * slices + _EACH + slots.count)
    if task.scratch is None or nbytes > task.scratch_bytes:
        return None
    begin = task.scratch
    count, start, cursor, listed = (
        Parameter("int*", name, BufferPlace(begin.buffer, begin.offset + 4 * before))
        for name, before in (("count", 0), ("start", slices), ("cursor", 2 * slices), ("listed", 2 * slices + _EACH))
    )
    lists = [count, start, cursor, listed]
    listing = _listed_at_once if is_few else _listed
    combined = _combined(task, slots, source if by_slice else None, lists)
    return Candidate("segments", (*(() if by_slice else copies), *listing(slots, lists, slices), combined), nbytes)


def _by_blocks(task: Task, slots: Slots, source: Layout) -> KernelLaunch:
    """One launch: each block looks through all slots for those of its own slices, and lists them in shared memory."""
    threads = _THREADS_OF_A_BLOCK
    per, own = -(-slots.slices // task.chip.multiprocessors), -(-slots.count // threads)
    loop = f'_Pragma("unroll") for (int i = 0; i < {own}; i++)'
    reduction, dtype = task.node.attrs["reduction"], slots.target.dtype
    lines = [
        *slots.functions(),
        f"__shared__ unsigned short listed[{slots.count}]; __shared__ int counted[{per}], ends[{per}];",
        f"const int t = threadIdx.x, base = blockIdx.x * {per}; int own[{own}], rank[{own}];",
        f"for (int i = t; i < {per}; i += {threads}) counted[i] = 0;",
        f"{loop} {{ const int s = t + i * {threads} < {slots.count} ? slice_of(t + i * {threads}) : -1;",
        f"own[i] = s >= base && s < base + {per} ? s - base : -1; }}",
        "__syncthreads();",
        f"{loop} if (own[i] >= 0) rank[i] = atomicAdd(counted + own[i], 1);",
        "__syncthreads();",
        f"int sum = 0; for (int i = t % 32; i < {-(-per // 32) * 32}; i += 32) {{",
        f"int mine = i < {per} ? counted[i] : 0;",
        "for (int step = 1; step < 32; step *= 2) {",
        "const int before = __shfl_up_sync(0xffffffffu, mine, step); if (t % 32 >= step) mine += before; }",
        f"if (t < {per} && t == i) ends[i] = sum + mine; sum += __shfl_sync(0xffffffffu, mine, 31); }}",
        "__syncthreads();",
        f"{loop} if (own[i] >= 0) listed[ends[own[i]] - counted[own[i]] + rank[i]] = t + i * {threads};",
        "__syncthreads();",
        f"for (unsigned e = t; e < {per * slots.rest}u; e += {threads}) {{",
        f"const unsigned slice = e / {slots.rest}u, first = base + slice; if (first >= {slots.slices}u) break;",
        *slots.rest_lines(f"e % {slots.rest}u"),
        *_slice_lines(slots, source),
        "const int end = ends[slice], begin = end - counted[slice];",
        f"const {slots.target.ctype}& held = x[from];",
        "const auto update = [&](int j) { return get(updates[update_at((unsigned)listed[j]) + of_update]); };",
        *_fold_lines(reduction, dtype, 1, slots.count + 1, kept=_KEPT),
        "}",
    ]
    blocks = -(-slots.slices // per)
    nbytes = slots.indices.nbytes + slots.updates.nbytes + source.nbytes + slots.target.nbytes
    parameters = [*slots.parameters, read("x", source)]
    return launch_of(parameters, lines, (blocks, 1, 1), (threads, 1, 1), nbytes, flops_of(task))


def _listed(slots: Slots, lists: Sequence[Parameter], slices: int) -> tuple[KernelLaunch, ...]:
    """The list and the ends of its stretches, `start` having moved there."""
    count, start, cursor, listed = lists
    place = f"const int at = atomicAdd(start + slice, 1); if (at < {slots.count})"  # not when timed again and again
    return (
        per_position([count, cursor], slices, ["count[p] = 0; if (p == 0) *cursor = 0;"], 4 * slices),
        _for_each_slot(slots, [count], "atomicAdd(count + slice, 1);"),
        _placed([count, start, cursor], slices),
        _for_each_slot(slots, [start, listed], f"{place} listed[at] = (int)p;"),
    )


def _listed_at_once(slots: Slots, lists: Sequence[Parameter], slices: int) -> tuple[KernelLaunch, ...]:
    """The same by one block, which counts in shared memory: what a slot finds there is its rank in its stretch."""
    threads = _THREADS_OF_A_BLOCK
    each, own = -(-slices // threads), -(-slots.count // threads)
    loop = f'_Pragma("unroll") for (int i = 0; i < {own}; i++)'
    lines = [
        *slots.functions(),
        f"__shared__ int held[{threads * each}]; __shared__ int sums[{threads}];",
        f"const int t = threadIdx.x, first = t * {each}; int mine = 0, slice[{own}], rank[{own}];",
        f"for (int i = t; i < {threads * each}; i += {threads}) held[i] = 0;",
        f"{loop} slice[i] = t + i * {threads} < {slots.count} ? slice_of(t + i * {threads}) : -1;",
        "__syncthreads();",
        f"{loop} if (slice[i] >= 0) rank[i] = atomicAdd(held + slice[i], 1);",
        "__syncthreads();",
        f"for (int i = 0; i < {each}; i++) mine += held[first + i];",
        *_scan_lines(threads),
        "int at = sums[t] - mine;",
        f"for (int i = first; i < first + {each} && i < {slices}; i++) {{",
        "const int n = held[i]; count[i] = n; held[i] = at; at += n; start[i] = at; }",
        f"if (t == {threads - 1}) *cursor = sums[t];",
        "__syncthreads();",
        f"{loop} if (slice[i] >= 0) listed[held[slice[i]] + rank[i]] = t + i * {threads};",
    ]
    parameters = [*lists, read("indices", slots.indices)]
    nbytes = slots.indices.nbytes + 4 * slots.count + 8 * slices
    return (launch_of(parameters, lines, (1, 1, 1), (threads, 1, 1), nbytes),)


def _scan_lines(threads: int) -> list[str]:
    """`sums` up to each thread `t`, of its `mine`."""
    return [
        "sums[t] = mine; __syncthreads();",
        f"for (int step = 1; step < {threads}; step *= 2) {{",
        "const int before = t >= step ? sums[t - step] : 0; __syncthreads(); sums[t] += before; __syncthreads(); }",
    ]


def _for_each_slot(slots: Slots, parameters: Sequence[Parameter], statement: str) -> KernelLaunch:
    lines = [*slots.functions(), "const int slice = slice_of(p); if (slice < 0) return;", statement]
    nbytes = slots.indices.nbytes + 8 * slots.count
    return per_position([*parameters, read("indices", slots.indices)], slots.count, lines, nbytes)


def _placed(parameters: Sequence[Parameter], slices: int) -> KernelLaunch:
    """A stretch of the list for each slice: within a block by a scan, the blocks in the order in which they come."""
    lines = [
        f"__shared__ int sums[{THREADS}]; __shared__ int base;",
        f"const int t = threadIdx.x, first = (blockIdx.x * {THREADS} + t) * {_EACH};",
        f"int own[{_EACH}], mine = 0;",
        f"for (int i = 0; i < {_EACH}; i++) {{ own[i] = first < {slices} ? count[first + i] : 0; mine += own[i]; }}",
        *_scan_lines(THREADS),
        f"if (t == {THREADS - 1}) base = atomicAdd(cursor, sums[t]);",
        "__syncthreads();",
        "int at = base + sums[t] - mine;",
        f"if (first < {slices}) for (int i = 0; i < {_EACH}; i++) {{ start[first + i] = at; at += own[i]; }}",
    ]
    blocks = -(-slices // (_EACH * THREADS))
    return launch_of(parameters, lines, (blocks, 1, 1), (THREADS, 1, 1), 8 * slices)


def _combined(task: Task, slots: Slots, source: Layout | None, lists: Sequence[Parameter]) -> KernelLaunch:
    """Each element of a slice that has updates; with a `source` every element, those of other slices too."""
    reduction, dtype = task.node.attrs["reduction"], slots.target.dtype
    elements = (slots.slices if source else slots.count) * slots.rest
    is_in_order = reduction == "mul" and dtype.is_float
    is_crowded = slots.count >= MOST_ALONE * slots.slices and elements <= FEW_ELEMENTS
    lanes = THREADS if source and is_crowded and not is_in_order else 1
    if lanes == 1 and reduction == "add" and dtype is DType.F16 and slots.count.bit_length() < FIXED_BITS - _HALF_BITS:
        return _combined_halves(task, slots, source, lists)
    lines = [
        f"const unsigned e = {'blockIdx.x' if lanes > 1 else 'p'}, first = e / {slots.rest}u;",
        *slots.functions(),
        *slots.rest_lines(f"e % {slots.rest}u"),
        *(_by_slice(slots, source) if source else _by_slot(slots)),
        f"const {slots.target.ctype}& held = {'x[from]' if source else 'r[to]'};",
        "const auto update = [&](int j) { return get(updates[update_at((unsigned)listed[j]) + of_update]); };",
        *_fold_lines(reduction, dtype, lanes, slots.count + 1),
    ]
    parameters = [*slots.parameters, *lists, *([read("x", source)] if source else [])]
    nbytes = slots.updates.nbytes + 2 * elements * slots.target.itemsize + 4 * slots.count
    if lanes == 1:
        return per_position(parameters, elements, lines, nbytes, flops_of(task))
    return launch_of(parameters, lines, (elements, 1, 1), (lanes, 1, 1), nbytes, flops_of(task))


def _combined_halves(task: Task, slots: Slots, source: Layout | None, lists: Sequence[Parameter]) -> KernelLaunch:
    """The same for sums of halves, which are exact: a thread has as many side by side as are moved as one."""
    words = slots.moved(*([source] if source else []))
    width, kind = words.width, f"pack<{slots.target.ctype}, {words.width}>"
    each = f'_Pragma("unroll") for (int i = 0; i < {width}; i++)'
    lines = [
        f"const unsigned e = p, first = e / {words.rest}u;",
        *words.functions(),
        *words.rest_lines(f"e % {words.rest}u"),
        *(_by_slice(words, words.in_words(source)) if source else _by_slot(words)),
        f"{kind} held = ((const {kind}*){'x)[from]' if source else 'r)[to]'};",
        f"i64 whole[{width}] = {{}}; float spent[{width}] = {{}};",
        f"const auto take = [&](const {kind}& given) {{",
        f"{each} {{ const float v = get(given.v[i]); {_half_taken('[i]')} }} }};",
        "take(held);",
        f"{_loop(1)} take(((const {kind}*)updates)[update_at((unsigned)listed[j]) + of_update]);",
        f"{each} put(held.v[i], {_half_found('[i]')});",
        f"(({kind}*)r)[to] = held;",
    ]
    parameters = [*slots.parameters, *lists, *([read("x", source)] if source else [])]
    elements = (slots.slices if source else slots.count) * words.rest
    nbytes = slots.updates.nbytes + 2 * elements * width * slots.target.itemsize + 4 * slots.count
    return per_position(parameters, elements, lines, nbytes, flops_of(task))


def _by_slice(slots: Slots, source: Layout) -> list[str]:
    return [*_slice_lines(slots, source), "const int end = start[first], begin = end - count[first];"]


def _slice_lines(slots: Slots, source: Layout) -> list[str]:
    """Where the element of slice `first` lies in the operand and in the result."""
    ctype = reach_type((source, slots.target))
    shape = [slots.target.shape[axis] for axis in slots.leading]
    return [
        *index_lines("h", "first", shape, ctype),
        f"const {ctype} from = {at(source.permuted(slots.leading), 'h')} + {at(source.without(slots.leading), 's')};",
        "const auto to = target_at(first) + of_target;",
    ]


def _by_slot(slots: Slots) -> list[str]:
    """The first of the slots that are listed for a slice does it."""
    return [
        "if ((int)first >= *cursor) return;",
        "const int slice = slice_of((unsigned)listed[first]), end = start[slice], begin = end - count[slice];",
        "if (begin != (int)first) return;",
        "const auto to = target_at((unsigned)slice) + of_target;",
    ]


def _fold_lines(reduction: str, dtype: DType, lanes: int, terms: int, kept: int = 0) -> list[str]:
    """Statements that combine `held` with the updates from `begin` to `end`, and write the result.

    Of a sum that reads updates twice, the first `kept` stay in registers: less is waited for, and more are held.
    """
    if reduction == "mul" and dtype.is_float:
        return _in_order(computed(dtype))
    if reduction == "add" and dtype.is_float:
        return _fixed_point(dtype, lanes, terms, kept)
    name = {"add": "sum", "mul": "prod", "max": "max_of", "min": "min_of"}[reduction]
    ctype = computed(dtype)
    wide = "unsigned" if reduction in ("add", "mul") else ctype if dtype.is_float else "int"
    neutral = {"add": "0", "mul": "1"}.get(reduction, f"({wide})get(held)")
    return [
        f"{wide} acc = {_at_first(lanes, f'({wide})get(held)', neutral)};",
        f"{_loop(lanes)} acc = {name}::of(acc, ({wide})update(j));",
        *_over_block(name, "acc", wide, lanes),
        _written(lanes, f"put(r[to], ({ctype})acc);"),
    ]


def _fixed_point(dtype: DType, lanes: int, terms: int, kept: int) -> list[str]:
    """A sum that does not depend on the order: the largest exponent, then integers in a unit that it gives.

    `spent` collects infinities and NaN. With `guard` bits for the number of terms none of the integers overflows.
    """
    room = FIXED_BITS - terms.bit_length()
    if dtype is DType.F16 and room > _HALF_BITS:
        return _of_halves(lanes)
    form = _fixed_f64(room) if dtype is DType.F64 else _FIXED_F32
    wide, top = form.ctype, form.top
    exponent = f"(int)(bits_as<{form.bits}>(v) >> {form.mantissa} & {top})"
    return [
        f"int most = 1; {wide} spent = 0;",
        f"const auto look = [&]({wide} v) {{ const int e = {exponent}; if (e == {top}) spent += v;",
        "else if (e > most) most = e; };",
        f"if ({_is_first(lanes)}) look(get(held));",
        *_each(lanes, wide, "look", kept),
        *_over_block("max_of", "most", "int", lanes),
        *_over_block("sum", "spent", wide, lanes),
        f"const int shift = {room + form.least} - most; i64 whole = 0, part = 0;",
        *form.unit,
        f"const auto take = [&]({wide} v) {{ if ({exponent} != {top}) {{ {form.taken} }} }};",
        f"if ({_is_first(lanes)}) take(get(held));",
        *_each(lanes, "", "take", kept),
        *_over_block("sum", "whole", "i64", lanes),
        *(_over_block("sum", "part", "i64", lanes) if form.has_part else ()),
        _written(lanes, f"put(r[to], spent != 0 ? spent : {form.found});"),
    ]


def _of_halves(lanes: int) -> list[str]:
    """The exact sum: each is a whole number of 2^-24, so that updates are read once."""
    return [
        "i64 whole = 0; float spent = 0;",
        f"const auto take = [&](float v) {{ {_half_taken()} }};",
        f"if ({_is_first(lanes)}) take(get(held));",
        *_each(lanes, "", "take", 0),
        *_over_block("sum", "spent", "float", lanes),
        *_over_block("sum", "whole", "i64", lanes),
        _written(lanes, f"put(r[to], {_half_found()});"),
    ]


def _half_taken(at: str = "") -> str:
    """Adds the half `v` to `whole`, or to `spent` if it is not finite; `at` is an index into both."""
    return f"if ((bits_as<unsigned>(v) >> 23 & 255) == 255) spent{at} += v; else whole{at} += (i64)(v * 16777216.0f);"


def _half_found(at: str = "") -> str:
    return f"spent{at} != 0 ? spent{at} : (float)((double)whole{at} / 16777216.0)"


@dataclass(frozen=True)
class _FixedForm:
    """How floats become integers in a unit, `whole` and `part`, and a float again.

    `mantissa` bits stand below the exponent, which is `top` for infinities and NaN; `least` is that of the unit.
    """

    ctype: str
    bits: str
    mantissa: int
    top: int
    least: int
    unit: tuple[str, ...]
    taken: str
    found: str
    has_part: bool


_FIXED_F32 = _FixedForm(
    ctype="float",
    bits="unsigned",
    mantissa=23,
    top=255,
    least=126,
    unit=("const double unit = bits_as<double>((u64)(shift + 1023) << 52);",),
    taken="const double y = (double)v * unit; whole += (i64)rint(y);",
    found="(float)((double)whole * bits_as<double>((u64)(1023 - shift) << 52))",
    has_part=False,
)


def _fixed_f64(room: int) -> _FixedForm:
    """In f64 what is left below the unit is counted in `part`, `room` bits further down."""
    return _FixedForm(
        ctype="double",
        bits="u64",
        mantissa=52,
        top=2047,
        least=1022,
        unit=(),
        taken="const double y = ldexp(v, shift); "
        f"const i64 n = (i64)y; whole += n; part += (i64)ldexp(y - (double)n, {room});",
        found=f"ldexp((double)whole, -shift) + ldexp((double)part, -shift - {room})",
        has_part=True,
    )


def _in_order(ctype: str) -> list[str]:
    """By the numbers of the slots, each the least that is above the one before."""
    return [
        f"{ctype} acc = get(held); int before = -1;",
        "for (int turn = begin; turn < end; turn++) {",
        "int j = -1;",
        "for (int i = begin; i < end; i++) if (listed[i] > before && (j < 0 || listed[i] < listed[j])) j = i;",
        "acc = acc * update(j); before = listed[j]; }",
        "put(r[to], acc);",
    ]


def _loop(lanes: int) -> str:
    first = "begin" if lanes == 1 else "begin + (int)threadIdx.x"
    return f'_Pragma("unroll 4") for (int j = {first}; j < end; j += {lanes})'


def _each(lanes: int, ctype: str, function: str, kept: int) -> list[str]:
    """Calls a function with each update. The first `kept` are read at once where `ctype` is given."""
    if not kept:
        return [f"{_loop(lanes)} {function}(update(j));"]
    every = f'_Pragma("unroll") for (int u = 0; u < {kept}; u++)'
    reads = (
        [f"{ctype} held_here[{kept}]; {every} held_here[u] = begin + u < end ? update(begin + u) : 0;"] if ctype else []
    )
    rest = f'_Pragma("unroll 4") for (int j = begin + {kept}; j < end; j++) {function}(update(j));'
    return [*reads, f"{every} {function}(held_here[u]);", rest]


def _is_first(lanes: int) -> str:
    return "true" if lanes == 1 else "threadIdx.x == 0"


def _at_first(lanes: int, first: str, other: str) -> str:
    return first if lanes == 1 else f"threadIdx.x == 0 ? {first} : {other}"


def _over_block(reduction: str, name: str, ctype: str, lanes: int) -> list[str]:
    if lanes == 1:
        return []
    warps = lanes // 32
    return [f"__shared__ {ctype} {name}s[{warps}]; {name} = block_reduce<{reduction}, {warps}>({name}, {name}s);"]


def _written(lanes: int, statement: str) -> str:
    return statement if lanes == 1 else f"if (threadIdx.x == 0) {statement}"
