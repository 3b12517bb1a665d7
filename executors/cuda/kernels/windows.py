"""Pools over sliding windows: a thread for each window, or for several channels of it that lie side by side."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....ir.graph import Node
from ....ir.types import DType
from ..kernel_ir import flat
from ..kernel_ir.kernels import Parameter, at, ordered_like, per_position, reach_type, read, widest, written
from ..kernel_ir.launch import Candidate, KernelLaunch, Lowering, Task
from ..kernel_ir.layouts import Layout, contiguous, index_lines
from ..kernel_ir.moving import operand, result, zero
from ..kernel_ir.program import KernelProgram, raw
from ..kernel_ir.regions import flops_of
from ..kernel_ir.types import Name, computed, number

MOST_UNROLLED = 16
_AT_ONCE = 4


@dataclass(frozen=True)
class _Pool:
    """What a pool does with the elements of a window, in the names `acc`, `next`, `taken` (how many) and `inside`."""

    start: str
    take: str
    give: str


class _Windows:
    """The windows of a pool from `x` to `y`, `[N, C, D1, ...]`."""

    def __init__(self, node: Node, x: Layout, y: Layout) -> None:
        attrs = node.attrs
        self.x, self.y = x, y
        self.kernel, self.strides = attrs["kernel"], attrs["strides"]
        self.spatial = range(len(self.kernel))
        self.begins, self.ends = attrs["pads"][: len(self.kernel)], attrs["pads"][len(self.kernel) :]
        self.dilations = attrs["dilations"]
        self.ctype = reach_type((x, y))
        order = ordered_like(y)
        self.order = order
        is_channels_last = bool(order.order) and order.order[-1] == 1
        self.width = widest((y, x), 1) if is_channels_last else 1

    def head(self) -> list[str]:
        """Which window a thread has, and where it begins."""
        lines = self.order.lines("p", self.ctype, self.width)
        for d in self.spatial:
            lines.append(f"const int b{d} = (int)c{d + 2} * {self.strides[d]} - {self.begins[d]};")
        lines.append(f"const {self.x.ctype}* from = x + ({at(self.x, without=[d + 2 for d in self.spatial])});")
        return lines

    def loops(self, body: Sequence[str]) -> list[str]:
        """`body` for each element of the window that is not padding, at `from[place]`."""
        lines: list[str] = []
        unroll = '_Pragma("unroll") ' if math.prod(self.kernel) <= MOST_UNROLLED else ""
        for d in self.spatial:
            lines += [
                f"{unroll}for (int k{d} = 0; k{d} < {self.kernel[d]}; k{d}++) {{",
                f"const int a{d} = b{d} + k{d} * {self.dilations[d]};",
                f"if (a{d} < 0 || a{d} >= {self.x.shape[d + 2]}) continue;",
            ]
        terms = " + ".join(f"({self.ctype})a{d} * {self.x.strides[d + 2]}" for d in self.spatial)
        pack = f"pack<{self.x.ctype}, {self.width}>"
        lines.append(f"const {pack} v = *(const {pack}*)(from + ({terms}));")
        return [*lines, *body, "}" * len(self.kernel)]

    def padded_count(self) -> str:
        """How many elements of a window lie inside of the padded tensor."""
        counts: list[str] = []
        for d in self.spatial:
            limit = self.x.shape[d + 2] + self.ends[d]
            step = self.dilations[d]
            fitting = f"({limit} - b{d} + {step - 1}) / {step}"
            counts.append(f"({limit} <= b{d} ? 0 : {fitting} < {self.kernel[d]} ? {fitting} : {self.kernel[d]})")
        return " * ".join(counts)

    def launch(
        self, lines: Sequence[str], results: Sequence[Layout], flops: int, extra: Sequence[Parameter] = ()
    ) -> KernelLaunch:
        """A thread for each vector of windows."""
        parameters = [written("y", self.y), *extra, read("x", self.x)]
        nbytes = self.x.nbytes + sum(layout.nbytes for layout in results)
        return per_position(parameters, self.y.size // self.width, lines, nbytes, flops, threads=128, ctype=self.ctype)


def _least(dtype: DType) -> tuple[str, str]:
    """The type in which maxima are computed, and where they start."""
    if dtype.is_float:
        return computed(dtype), number(float("-inf"), computed(dtype))
    return "int", "0" if dtype is DType.U8 else "-128"


def _pool(task: Task, pool: _Pool, ctype: str) -> Iterator[Candidate]:
    windows = _Windows(task.node, operand(task), result(task))
    width, each = windows.width, f'_Pragma("unroll") for (int w = 0; w < {windows.width}; w++)'
    pack = f"pack<{windows.y.ctype}, {width}>"
    lines = [
        *windows.head(),
        f"{ctype} sums[{width}]; {each} sums[w] = {pool.start};",
        "int taken = 0;",
        *windows.loops(
            [f"taken++; {each} {{ const {ctype} next = get(v.v[w]); {ctype}& acc = sums[w]; {pool.take} }}"]
        ),
        f"const int inside = {windows.padded_count()};",
        f"{pack} done; {each} {{ const {ctype} acc = sums[w]; put(done.v[w], {pool.give}); }}",
        f"*({pack}*)(y + ({at(windows.y)})) = done;",
    ]
    yield Candidate(f"windows{width}", (windows.launch(lines, [windows.y], flops_of(task)),))


def _lower_max(task: Task) -> Iterator[Candidate]:
    ctype, start = _least(result(task).dtype)
    give = "acc" if result(task).dtype.is_float else f"({computed(result(task).dtype)})acc"
    yield from _pool(task, _Pool(start, "acc = greatest(acc, next);", give), ctype)


def _lower_average(task: Task) -> Iterator[Candidate]:
    ctype = computed(result(task).dtype)
    divisor = "inside" if task.node.attrs["count_include_pad"] else "taken"
    yield from _pool(task, _Pool("0", "acc += next;", f"acc / ({ctype}){divisor}"), ctype)


def _lower_lp(task: Task) -> Iterator[Candidate]:
    ctype, p = computed(result(task).dtype), task.node.attrs["p"]
    suffix = "" if ctype == "double" else "f"
    powers = {1: "magnitude(next)", 2: "next * next"}
    power = powers.get(p, f"pow{suffix}(magnitude(next), ({ctype}){p})")
    root = {1: "acc", 2: f"sqrt{suffix}(acc)"}.get(p, f"pow{suffix}(acc, {number(1 / p, ctype)})")
    yield from _pool(task, _Pool("0", f"acc += {power};", root), ctype)


def _lower_with_indices(task: Task) -> Iterator[Candidate]:
    x, y, places = operand(task), result(task), result(task, 1)
    windows = _Windows(task.node, x, y)
    windows.width = 1
    ctype, start = _least(y.dtype)
    sizes = x.shape[2:]
    order = reversed(windows.spatial) if task.node.attrs["column_major"] else windows.spatial
    flat_index = "0ll"
    for d in order:
        flat_index = f"({flat_index}) * {sizes[d]} + a{d}"
    image = f"((i64)c0 * {x.shape[1]} + c1) * {math.prod(sizes)}"
    better = "where < 0 || (!(next <= best) && best == best)"
    lines = [
        *windows.head(),
        f"{ctype} best = {start}; i64 where = -1;",
        *windows.loops(
            [f"const {ctype} next = get(v.v[0]);", f"if ({better}) {{ best = next; where = {flat_index}; }}"]
        ),
        f"put(y[{at(y)}], ({computed(y.dtype)})best);",
        f"places[{at(places)}] = (where < 0 ? 0 : where) + {image};",
    ]
    yield Candidate("windows", (windows.launch(lines, [y, places], flops_of(task), [written("places", places)]),))


def _lower_unpool(task: Task) -> Iterator[Candidate]:
    """Each place learns the last element that names it, then takes that one: also where indices are equal.

    What the places learn is a maximum of integers, which is the same in whichever order threads come.
    """
    x, indices, target, scratch = raw(operand(task)), operand(task, 1), raw(result(task)), task.scratch
    if not x.size:
        filled = KernelProgram(target.shape)
        filled.store(Name(zero(target), target.dtype), target)
        yield Candidate("zeros", flat.launch([filled], task.chip))
        return
    nbytes = 4 * _AT_ONCE * -(-target.size // _AT_ONCE)
    if scratch is None or nbytes > task.scratch_bytes or max(x.size, target.size) >= 2**31:
        return
    last = Parameter("int*", "last", scratch)
    is_dense = contiguous(target) and target.size % _AT_ONCE == target.alignment % (_AT_ONCE * target.itemsize) == 0
    width = _AT_ONCE if is_dense else 1
    clearing = [f"*(pack<int, {_AT_ONCE}>*)(last + {_AT_ONCE}ull * p) = {{}};"]
    cleared = per_position([last], -(-target.size // _AT_ONCE), clearing, nbytes)
    named = per_position([last, read("indices", indices)], x.size, _telling_lines(task), indices.nbytes + 4 * x.size)
    ctype = reach_type((x, target))
    to = f"y + {width}ull * p" if width > 1 else f"y + ({at(target, 't')})"
    taking = [
        *(index_lines("t", "p", target.shape, ctype) if width == 1 else []),
        f"const auto found = *(const pack<int, {width}>*)(last + {width}ull * p); pack<{target.ctype}, {width}> taken;",
        f'_Pragma("unroll") for (int w = 0; w < {width}; w++) {{ taken.v[w] = {zero(target)}; if (found.v[w]) {{',
        *index_lines("c", "(unsigned)(found.v[w] - 1)", x.shape, ctype),
        f"taken.v[w] = x[{at(x)}]; }} }}",
        f"*(pack<{target.ctype}, {width}>*)({to}) = taken;",
    ]
    parameters = [written("y", target), read("x", x), last]
    moved = x.nbytes + target.nbytes + nbytes
    taken = per_position(parameters, target.size // width, taking, moved, flops_of(task))
    yield Candidate("unpool", (cleared, named, taken), nbytes)


def _telling_lines(task: Task) -> list[str]:
    """Element number `p`, counted in row-major order, tells its place; an index outside of the image tells none."""
    indices, target, attrs = operand(task, 1), result(task), task.node.attrs
    count = len(attrs["kernel"])
    begins, ends = attrs["pads"][:count], attrs["pads"][count:]
    natural = [
        (indices.shape[d + 2] - 1) * attrs["strides"][d] + attrs["kernel"][d] - begins[d] - ends[d]
        for d in range(count)
    ]
    lines = [
        *index_lines("c", "p", indices.shape, reach_type((indices,))),
        f"i64 rest = indices[{at(indices)}]; if (rest < 0) return;",
    ]
    for axis, size in reversed(list(enumerate((*target.shape[:2], *natural)))):
        lines.append(f"const i64 t{axis} = rest % {max(size, 1)}; rest /= {max(size, 1)};")
    outside = " || ".join(["rest", *(f"t{d + 2} >= {target.shape[d + 2]}" for d in range(count))])
    place = "0"
    for axis, size in enumerate(target.shape):
        place = f"({place} * {size} + t{axis})"
    return [*lines, f"if ({outside}) return;", f"atomicMax(last + {place}, (int)p + 1);"]


LOWERINGS: Mapping[str, Lowering] = {
    "max_pool": _lower_max,
    "average_pool": _lower_average,
    "lp_pool": _lower_lp,
    "max_pool_with_indices": _lower_with_indices,
    "max_unpool": _lower_unpool,
}
"""Pools."""
