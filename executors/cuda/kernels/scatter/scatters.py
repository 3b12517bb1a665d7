"""Writes at indices: scatter_elements, scatter_nd, and tensor_scatter, which writes a cache.

The operand is copied first unless the result lies over it. Results do not change from run to run: without a reduction
the last update of a slice stays, found by a maximum of slot numbers; with one, updates that meet are combined by atomic
operations where those do not depend on the order (integers), in shared memory (`lines.py`) or by segments
(`segments.py`) otherwise. Few updates need no list: the thread of the first (or last) of those that meet finds the
others. An index outside of its axis writes nothing: rows of padding may hold anything.
"""

from collections.abc import Iterator, Mapping

from .....ir.ops.rules import normal_axis
from .....ir.types import DType, Kind
from ...kernel_ir.copies import copied
from ...kernel_ir.kernels import (
    Parameter,
    at,
    common_type,
    narrowed,
    ordered_like,
    per_position,
    reach_type,
    read,
    widest,
)
from ...kernel_ir.launch import BufferPlace, Candidate, KernelLaunch, Lowering, Task
from ...kernel_ir.layouts import Layout, layout_of
from ...kernel_ir.moving import operand, result
from ...kernel_ir.pointwise import has_types
from ...kernel_ir.program import raw
from ...kernel_ir.regions import flops_of
from ...kernel_ir.types import computed, unsigned
from .lines import by_lines
from .segments import segments
from .slots import Slots, slots_of_elements, slots_of_tuples

FEW_SLOTS = 32
"""Up to how many updates each looks at all others."""

WIDE_ROWS = 16
MANY_SLOTS = 1024
"""So many updates of rows as wide are better looked at by rows than by lines across them."""

MOST_COMPARISONS = 2**36
"""How many pairs of indices are compared at most: more would take longer than the host."""


def _moved_first(task: Task) -> tuple[KernelLaunch, ...]:
    """Brings the operand to where the result lies, if it does not lie there already."""
    source, target = task.operands[0], task.results[0]
    assert source is not None
    if (source.buffer, source.offset) == (target.buffer, target.offset) and layout_of(source) == layout_of(target):
        return ()
    return copied(source, target, task.chip)


def _lower(task: Task, slots: Slots) -> Iterator[Candidate]:
    if not has_types(task.node):
        return
    copies = _moved_first(task)
    if not slots.count or not slots.rest or not slots.slices:
        yield Candidate("scatter", copies)
        return
    if not slots.is_countable:
        return
    reduction, dtype = task.node.attrs["reduction"], slots.target.dtype
    candidates: list[Candidate | None] = []
    if reduction == "none":
        candidates.append(_last_of_each(task, slots.moved(), copies))
    elif dtype.kind is Kind.BOOL or (dtype.is_integer and dtype.bits >= 32):
        candidates.append(_atomic(task, slots, copies))
    else:
        candidates.append(segments(task, slots, operand(task), copies))
    if task.node.op.name == "scatter_elements":
        candidates.insert(
            len(candidates) if slots.rest >= WIDE_ROWS and slots.count >= MANY_SLOTS else 0, by_lines(task)
        )
    if slots.count * slots.count * slots.rest <= MOST_COMPARISONS:
        candidates.insert(0 if slots.count <= FEW_SLOTS else len(candidates), _compared(task, slots, copies))
    yield from filter(None, candidates)


def _elements(slots: Slots, statements: str) -> list[str]:
    """`statements` for element `p` of all updates: its slot `own`, slice `mine` (skipped outside of the target)."""
    return [
        *slots.functions(),
        f"const unsigned own = p / {slots.rest}u;",
        "const int mine = slice_of(own); if (mine < 0) return;",
        *slots.rest_lines(f"p % {slots.rest}u"),
        "const auto to = target_at((unsigned)mine) + of_target; const auto from = update_at(own) + of_update;",
        statements,
    ]


def _nbytes(slots: Slots) -> int:
    return slots.indices.nbytes + 2 * slots.updates.size * slots.updates.itemsize


def _last_of_each(task: Task, slots: Slots, copies: tuple[KernelLaunch, ...]) -> Candidate | None:
    """Each slice is told the last slot that names it."""
    nbytes = 4 * slots.slices
    if task.scratch is None or nbytes > task.scratch_bytes:
        return None
    last = Parameter("int*", "last", BufferPlace(task.scratch.buffer, task.scratch.offset))
    indices = read("indices", slots.indices)
    tell = [*slots.functions(), "const int mine = slice_of(p); if (mine >= 0) atomicMax(last + mine, (int)p + 1);"]
    launches = (
        *copies,
        per_position([last], slots.slices, ["last[p] = 0;"], nbytes),
        per_position([last, indices], slots.count, tell, slots.indices.nbytes + 4 * slots.count),
        per_position(
            [*slots.parameters, last],
            slots.count * slots.rest,
            _elements(slots, "if (last[mine] == (int)own + 1) r[to] = updates[from];"),
            _nbytes(slots) * slots.width,
        ),
    )
    return Candidate("last", launches, nbytes)


def _atomic(task: Task, slots: Slots, copies: tuple[KernelLaunch, ...]) -> Candidate | None:
    """Integers in place: their sums and products wrap, so that no order shows; any true or false decides for bool."""
    reduction, dtype = task.node.attrs["reduction"], slots.target.dtype
    if dtype.kind is Kind.BOOL:
        decides = "true" if reduction in ("add", "max") else "false"
        statement = f"if (get(updates[from]) == {decides}) put(r[to], {decides});"
    elif reduction == "mul":
        wide = unsigned(dtype)
        statement = (
            f"{wide}* at = ({wide}*)(r + to); {wide} seen = *at, was; const {wide} by = ({wide})updates[from];"
            "do { was = seen; seen = atomicCAS(at, was, was * by); } while (seen != was);"
        )
    else:
        wide = unsigned(dtype) if reduction == "add" or dtype in (DType.U32, DType.U64) else _SIGNED[dtype.bits]
        name = {"add": "Add", "max": "Max", "min": "Min"}[reduction]
        statement = f"atomic{name}(({wide}*)(r + to), ({wide})updates[from]);"
    elements = per_position(
        slots.parameters, slots.count * slots.rest, _elements(slots, statement), _nbytes(slots), flops_of(task)
    )
    return Candidate("atomic", (*copies, elements))


_SIGNED = {32: "int", 64: "i64"}


def _compared(task: Task, slots: Slots, copies: tuple[KernelLaunch, ...]) -> Candidate:
    """The thread of the first slot of a slice (without a reduction: the last) finds the others."""
    reduction, dtype, count = task.node.attrs["reduction"], slots.target.dtype, slots.count
    if reduction == "none":
        slots = slots.moved()
        statements = f"for (int k = own + 1; k < {count}; k++) if (slice_of(k) == mine) return; r[to] = updates[from];"
    else:
        ctype, combined = _pair(reduction, dtype)
        statements = (
            "for (int k = 0; k < (int)own; k++) if (slice_of(k) == mine) return;"
            f"{ctype} acc = get(r[to]);"
            f"for (int k = own; k < {count}; k++) if (slice_of(k) == mine) {{"
            f"const {ctype} next = get(updates[update_at(k) + of_update]); acc = {combined}; }}"
            f"put(r[to], ({computed(dtype)})acc);"
        )
    elements = per_position(
        slots.parameters, count * slots.rest, _elements(slots, statements), _nbytes(slots) * slots.width, flops_of(task)
    )
    return Candidate("scatter", (*copies, elements))


def _pair(reduction: str, dtype: DType) -> tuple[str, str]:
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


def _lower_elements(task: Task) -> Iterator[Candidate]:
    yield from _lower(task, slots_of_elements(task))


def _lower_tuples(task: Task) -> Iterator[Candidate]:
    yield from _lower(task, slots_of_tuples(task))


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
    "scatter_nd": _lower_tuples,
    "tensor_scatter": _lower_cache,
}
"""Ops that write at indices."""
