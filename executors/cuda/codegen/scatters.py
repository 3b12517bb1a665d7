"""Writes at indices: scatter_elements, scatter_nd, and tensor_scatter, which writes a cache.

The operand is copied first unless the result lies over it. Updates of one place are found and combined by the thread of
the first (or, without a reduction, of the last) of them in their order, so results do not change from run to run. An
index outside of its axis writes nothing: rows of padding may hold anything.
"""

import math
from collections.abc import Iterator, Mapping

from ....ir.ops.rules import normal_axis
from ....ir.types import DType, Kind
from ..launch import Candidate, KernelLaunch, Lowering, Task
from .copies import copied
from .kernels import Parameter, at, common_type, narrowed, ordered_like, per_position, reach_type, read, widest, written
from .layouts import Layout, index_lines, layout_of
from .moving import operand, result
from .pointwise import has_types
from .program import raw
from .regions import flops_of
from .types import computed, unsigned

MOST_COMPARISONS = 2**36
"""How many pairs of indices are compared at most: more would take longer than the host."""


def _moved_first(task: Task) -> tuple[KernelLaunch, ...]:
    """Brings the operand to where the result lies, if it does not lie there already."""
    source, target = task.operands[0], task.results[0]
    assert source is not None
    if (source.buffer, source.offset) == (target.buffer, target.offset) and layout_of(source) == layout_of(target):
        return ()
    return copied(source, target, task.chip)


def _combined(reduction: str, dtype: DType) -> tuple[str, str]:
    """The type in which updates are combined, and the text that combines `acc` and `next`."""
    ctype = "int" if dtype.bits < 32 and not dtype.is_float else computed(dtype)
    if reduction in ("max", "min"):
        return ctype, f"{'greatest' if reduction == 'max' else 'least'}(acc, next)"
    symbol = "+" if reduction == "add" else "*"
    if dtype.kind is Kind.BOOL:
        return "bool", "acc || next" if reduction == "add" else "acc && next"
    if dtype.is_integer:
        wide = unsigned(dtype)
        return ctype, f"({ctype})(({wide})acc {symbol} ({wide})next)"
    return ctype, f"acc {symbol} next"


def _rank_lines(reduction: str, dtype: DType, count: int, mine: str, key: str, update: str, target: str) -> list[str]:
    """Statements that write the update of index number `own`, or nothing where another thread combines it.

    `key` is the place that index number `k` names and `update` the update's element, both as texts.
    """
    if reduction == "none":
        return [
            f"for (int k = own + 1; k < {count}; k++) if ({key} == {mine}) return;",
            f"{target} = {update.replace('@', 'own')};",
        ]
    ctype, combined = _combined(reduction, dtype)
    return [
        f"for (int k = 0; k < own; k++) if ({key} == {mine}) return;",
        f"{ctype} acc = get({target});",
        f"for (int k = own; k < {count}; k++) if ({key} == {mine}) {{",
        f"const {ctype} next = get({update.replace('@', 'k')}); acc = {combined};",
        "}",
        f"put({target}, ({computed(dtype)})acc);",
    ]


def _layouts(task: Task) -> tuple[Layout, Layout, Layout]:
    """Indices, updates and the result; as unsigned numbers where they are only moved."""
    indices, updates, target = operand(task, 1), operand(task, 2), result(task)
    if task.node.attrs["reduction"] == "none":
        updates, target = raw(updates), raw(target)
    return indices, updates, target


def _parameters(indices: Layout, updates: Layout, target: Layout) -> list[Parameter]:
    return [written("r", target), read("indices", indices), read("updates", updates)]


def _lower_elements(task: Task) -> Iterator[Candidate]:
    indices, updates, target = _layouts(task)
    axis = normal_axis(task.node.attrs["axis"], len(target.shape))
    count = indices.shape[axis] if indices.size else 0
    if not has_types(task.node) or indices.size * count > MOST_COMPARISONS:
        return
    launches = list(_moved_first(task))
    if indices.size:
        ctype = reach_type((indices, updates, target))
        size = target.shape[axis]
        lines = [
            *index_lines("c", "p", indices.shape, ctype),
            f"const {ctype} line = {at(indices, without=[axis])}; const int own = c{axis};",
            f"const i64 mine = counted(indices[line + own * {indices.strides[axis]}], {size});",
            f"if (mine < 0 || mine >= {size}) return;",
            *_rank_lines(
                task.node.attrs["reduction"],
                target.dtype,
                count,
                "mine",
                f"counted(indices[line + k * {indices.strides[axis]}], {size})",
                f"updates[{at(updates, without=[axis])} + @ * {updates.strides[axis]}]",
                f"r[{at(target, without=[axis])} + mine * {target.strides[axis]}]",
            ),
        ]
        nbytes = indices.nbytes + 2 * updates.nbytes
        launches.append(
            per_position(_parameters(indices, updates, target), indices.size, lines, nbytes, flops_of(task))
        )
    yield Candidate("scatter", tuple(launches))


def _lower_nd(task: Task) -> Iterator[Candidate]:
    indices, updates, target = _layouts(task)
    leading = indices.shape[:-1]
    count, depth = math.prod(leading), indices.shape[-1]
    if not has_types(task.node) or updates.size * count * depth > MOST_COMPARISONS:
        return
    launches = list(_moved_first(task))
    if updates.size:
        lines = _nd_lines(task, indices, updates, target)
        nbytes = indices.nbytes + 2 * updates.nbytes
        launches.append(
            per_position(_parameters(indices, updates, target), updates.size, lines, nbytes, flops_of(task))
        )
    yield Candidate("scatter", tuple(launches))


def _nd_lines(task: Task, indices: Layout, updates: Layout, target: Layout) -> list[str]:
    leading, depth = indices.shape[:-1], indices.shape[-1]
    inner = target.shape[depth:]
    count, rest = math.prod(leading), math.prod(inner)
    ctype = reach_type((indices, updates, target))
    tuples = Layout(indices.dtype, leading, indices.strides[:-1], indices.place, indices.alignment)
    slices = Layout(updates.dtype, leading, updates.strides[: len(leading)], updates.place, updates.alignment)
    place = [
        f"const i64 i{n} = counted(indices[from + {n * indices.strides[-1]}], {target.shape[n]});" for n in range(depth)
    ]
    inside = " && ".join(f"i{n} >= 0 && i{n} < {target.shape[n]}" for n in range(depth))
    offset = " + ".join(f"i{n} * {target.strides[n]}" for n in range(depth))
    return [
        f"const int own = p / {rest}u; const unsigned q = p % {rest}u;",
        *index_lines("s", "q", inner, ctype),
        "// The offset of the slice that index number k names, negative where it lies outside.",
        "const auto slice_of = [&](int k) -> i64 {",
        *index_lines("t", "(unsigned)k", leading, ctype),
        f"const {ctype} from = {at(tuples, 't')};",
        *place,
        f"return {inside} ? {offset} : -1; }};",
        "const auto update_of = [&](int k) {",
        *index_lines("t", "(unsigned)k", leading, ctype),
        f"return updates[{at(slices, 't')} + {_rest_offset(updates, len(leading))}]; }};",
        "const i64 mine = slice_of(own); if (mine < 0) return;",
        *_rank_lines(
            task.node.attrs["reduction"],
            target.dtype,
            count,
            "mine",
            "slice_of(k)",
            "update_of(@)",
            f"r[mine + {_rest_offset(target, depth)}]",
        ),
    ]


def _rest_offset(layout: Layout, first: int) -> str:
    terms = [f"s{axis} * {stride}" for axis, stride in enumerate(layout.strides[first:]) if stride]
    return " + ".join(terms) or "0"


# ---- caches


def _lower_cache(task: Task) -> Iterator[Candidate]:
    update, target = raw(operand(task, 1)), raw(result(task))
    positions = operand(task, 2) if len(task.operands) > 2 and task.operands[2] is not None else None
    axis = normal_axis(task.node.attrs["axis"], len(target.shape))
    if not has_types(task.node):
        return
    launches = list(_moved_first(task))
    if update.size:
        launches.append(_cache_write(update, target, positions, axis, task.node.attrs["mode"] == "circular"))
    yield Candidate("cache", tuple(launches))


def _cache_write(
    update: Layout, target: Layout, positions: Layout | None, axis: int, is_circular: bool
) -> KernelLaunch:
    size, itemsize, last = target.shape[axis], target.itemsize, len(target.shape) - 1
    width = widest((update, target), last) if axis != last else 1
    nbytes = 2 * update.nbytes
    if width > 1:
        update, target = narrowed(update, last, width), narrowed(target, last, width)
    ctype, word = reach_type((update, target)), common_type(width * itemsize)
    first = "0" if positions is None else f"positions[c0 * {positions.strides[0]}]"
    held = f"remainder_of(asked, {size}ll)" if is_circular else "asked"
    lines = [
        *ordered_like(update).lines("p", ctype),
        f"const i64 asked = {first} + (i64)c{axis}; const i64 place = {held};",
        f"if (place < 0 || place >= {size}) return;",
        f"r[{at(target, without=[axis])} + place * {target.strides[axis]}] = update[{at(update)}];",
    ]
    parameters = [Parameter(f"{word}*", "r", target.place), Parameter(f"const {word}*", "update", update.place)]
    if positions is not None:
        parameters.append(read("positions", positions))
    return per_position(parameters, update.size, lines, nbytes, threads=128)


LOWERINGS: Mapping[str, Lowering] = {
    "scatter_elements": _lower_elements,
    "scatter_nd": _lower_nd,
    "tensor_scatter": _lower_cache,
}
"""Ops that write at indices."""
