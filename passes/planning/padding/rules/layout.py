"""Shapes: the elements stay what they are and move to other places."""

from collections.abc import Sequence
from dataclasses import replace

from .....ir.dims import Dim, Truth, is_at_least
from .....ir.ops.rules import normal_axes, normal_axis
from .elementwise import aligned
from .facts import Case, Fact, Rules, Tail, Tails, Unsafe, free_tails, is_equal, met
from .reshaping import reshaped


def _moved(case: Case, tails: Tails) -> Fact:
    """The fact of a view of the first operand: what is known of every element stays true."""
    fact = case.fact(0)
    counts = fact.counts and sum(tail is not None for tail in tails) == 1
    return replace(fact, tails=tails, counts=counts, columns=(), rows=())


def reshape(case: Case) -> list[Fact]:
    """An axis may be split and merged as long as one result axis holds the dim."""
    fact, shape = case.fact(0), case.result_shape()
    if fact.number is not None:
        return [_moved(case, free_tails(shape, case.symbol, fact.number))]
    return [_moved(case, reshaped(fact.tails, case.shape(0), shape, case.symbol))]


def transpose(case: Case) -> list[Fact]:
    """Axes change places."""
    perm: tuple[int, ...] = case.node.attrs["perm"]
    moved, fact = _moved(case, tuple(case.tails(0)[axis] for axis in perm)), case.fact(0)
    return [replace(moved, columns=fact.rows, rows=fact.columns) if perm == (1, 0) else moved]


def squeeze(case: Case) -> list[Fact]:
    """Axes of size 1 go; one that was cut from the dim to size 1 has no element where the dim has none."""
    gone = normal_axes(case.node.attrs["axes"], len(case.tails(0)))
    if any(case.tails(0)[axis] is not None for axis in gone):
        raise Unsafe("it removes an axis whose only element need not be real")
    return [_moved(case, tuple(tail for axis, tail in enumerate(case.tails(0)) if axis not in gone))]


def unsqueeze(case: Case) -> list[Fact]:
    """New axes of size 1."""
    rank = case.node.output.tensor.rank
    new = normal_axes(case.node.attrs["axes"], rank)
    kept = iter(case.tails(0))
    return [_moved(case, tuple(None if axis in new else next(kept) for axis in range(rank)))]


def expand(case: Case) -> list[Fact]:
    """Repeating along a new axis gives equal elements, however many."""
    fact, dims = case.fact(0), case.result_shape()
    entries = aligned(fact.tails, case.shape(0), len(dims))
    tails: list[Tail | None] = []
    for (tail, size), dim in zip(entries, dims, strict=True):
        if tail is not None and not is_equal(size, dim):
            raise Unsafe(f"an axis of size {size} is taken to be {dim}")
        if tail is not None or not case.mentions(dim):
            tails.append(tail)
        elif size == 1:
            tails.append(Tail(dim, fill=fact.number, is_free=True))
        else:
            raise Unsafe(f"an axis of size {size} is taken to be {dim}")
    return [_moved(case, tuple(tails))]


def tile(case: Case) -> list[Fact]:
    """Whole copies: each copy of the dim has its own real elements."""
    tails: list[Tail | None] = []
    fact, repeats = case.fact(0), case.node.attrs["repeats"]
    for tail, size, count in zip(fact.tails, case.shape(0), repeats, strict=True):
        if tail is not None and case.mentions(count):
            raise Unsafe(f"it repeats an axis of size {size} {count} times")
        if tail is not None:
            tails.append(replace(tail, outer=tail.outer * count))
        else:
            tails.append(Tail(count, inner=size, is_free=size == 1) if case.mentions(count) else None)
    return [_moved(case, tuple(tails))]


def slice_(case: Case) -> list[Fact]:
    """A slice from a fixed place on, in steps forward, takes real elements first."""
    attrs, shape = case.node.attrs, case.shape(0)
    tails = list(case.tails(0))
    taken = normal_axes(attrs["axes"], len(shape))
    for axis, start, step in zip(taken, attrs["starts"], attrs["steps"], strict=True):
        tails[axis] = _sliced(case, axis, start, step)
    moved = _moved(case, tuple(tails))
    if len(taken) == 1 and case.result_shape()[taken[0]] == 1:
        lines = {0: case.fact(0).rows, len(shape) - 1: case.fact(0).columns}.get(taken[0], ())
        moved = _of_line(moved, lines, attrs["starts"][0])
    return [moved]


def _of_line(part: Fact, lines: Sequence[Fact], index: Dim) -> Fact:
    """What is known of a part that has one row or column only of a value that is known by `lines`."""
    if not isinstance(index, int) or not 0 <= index < len(lines):
        return part
    return replace(part, natural=lines[index].natural, most=lines[index].most)


def _sliced(case: Case, axis: int, start: Dim, step: int) -> Tail | None:
    tail, size, result = case.tails(0)[axis], case.shape(0)[axis], case.result_shape()[axis]
    if tail is None and not case.mentions(result) and not case.mentions(start):
        return None
    if tail is not None and step == 1 and result == size:
        return tail
    is_forward = step > 0 and not case.mentions(start) and is_at_least(start, 0) is Truth.YES
    if tail is not None and (not tail.is_prefix or tail.inner != 1) and not tail.is_free:
        raise Unsafe(f"it cuts axis {axis}, where the real elements of {case.symbol} are not the first")
    if not is_forward:
        raise Unsafe(f"where it starts or what it skips on axis {axis} depends on {case.symbol}")
    if tail is not None and case.mentions(result):
        return Tail(result, fill=tail.fill, is_free=tail.is_free)
    return Tail(result) if case.mentions(result) else None


def split(case: Case) -> list[Fact]:
    """Parts along an axis that does not carry the dim."""
    axis = normal_axis(case.node.attrs["axis"], len(case.tails(0)))
    if case.tails(0)[axis] is not None and len(case.node.outputs) > 1:
        raise Unsafe(f"it splits axis {axis}, which carries {case.symbol}")
    parts = [_moved(case, case.tails(0)) for _ in case.node.outputs]
    if axis or len(parts) != len(case.fact(0).rows):
        return parts
    return [_of_line(part, case.fact(0).rows, row) for row, part in enumerate(parts)]


def concat(case: Case) -> list[Fact]:
    """Along another axis the parts agree; along the dim only the last part may carry it."""
    rank = case.node.output.tensor.rank
    joined = normal_axis(case.node.attrs["axis"], rank)
    parts = range(len(case.facts))
    tails: list[Tail | None] = []
    for axis in range(rank):
        entries = [case.tails(part)[axis] for part in parts]
        present = [tail for tail in entries if tail is not None]
        if axis == joined:
            tails.append(_appended(case, entries, axis))
        elif present and len(present) != len(entries):
            raise Unsafe(f"only some of its operands carry {case.symbol} along axis {axis}")
        else:
            tails.append(met(present, "operands").filled(_common_fill(present)) if present else None)
    facts = [case.fact(part) for part in parts]
    is_by_columns = joined == rank - 1 and all(case.shape(part)[-1] == 1 for part in parts)
    columns = tuple(facts) if is_by_columns else ()
    return [Fact(tuple(tails), natural=all(fact.natural for fact in facts), columns=columns)]


def _common_fill(tails: list[Tail]) -> float | None:
    return tails[0].number if all(tail.number == tails[0].number for tail in tails) else None


def _appended(case: Case, entries: list[Tail | None], axis: int) -> Tail | None:
    *others, last = entries
    if any(tail is not None for tail in others):
        reason = f"its result would have padding of {case.symbol} in the middle"
        count = _followers(entries, [case.shape(part)[axis] for part in range(len(entries))])
        if count is None:
            raise Unsafe(reason)
        raise Unsafe(reason, replace=lambda insertion, node: insertion.move_up(node, axis, count))
    if last is None or not others:
        return last
    if not last.is_prefix or last.inner != 1:
        raise Unsafe(f"the real elements of {case.symbol} are not the first of its last operand")
    return Tail(case.result_shape()[axis])


def _followers(entries: list[Tail | None], sizes: list[Dim]) -> int | None:
    """How many elements stand behind the one part with padding, where its real ones are first; None unless known."""
    carrying = [part for part, tail in enumerate(entries) if tail is not None]
    tail = entries[carrying[0]]
    behind = [size for size in sizes[carrying[0] + 1 :] if isinstance(size, int) and size > 0]
    is_first = tail is not None and tail.is_prefix and tail.inner == 1
    is_known = len(carrying) == 1 and len(behind) == len(sizes) - carrying[0] - 1
    return sum(behind) if is_first and is_known else None


def pad(case: Case) -> list[Fact]:
    """Padding axes that do not carry the dim; in front of one that does it only moves the elements."""
    rank, pads = len(case.tails(0)), case.node.attrs["pads"]
    tails: list[Tail | None] = []
    if case.optional(1) is not None:
        case.require_unpadded(1)
    for axis, tail in enumerate(case.tails(0)):
        before, after = pads[axis], pads[axis + rank]
        if case.mentions(before) or case.mentions(after):
            raise Unsafe(f"how much it pads depends on {case.symbol}")
        if tail is None or (before == 0 and after == 0):
            tails.append(tail)
            continue
        is_shift = after == 0 and is_at_least(before, 0) is Truth.YES and case.node.attrs["mode"] == "constant"
        if not (is_shift and tail.is_prefix and tail.inner == 1):
            raise Unsafe(f"it pads axis {axis}, which carries {case.symbol}")
        tails.append(Tail(case.result_shape()[axis]))
    return [Fact(tuple(tails))]


def trilu(case: Case) -> list[Fact]:
    """What stays depends on row and column, which padding at the end does not change."""
    tails = case.tails(0)
    if any(tail is not None and not (tail.is_prefix and tail.inner == 1) for tail in tails[-2:]):
        raise Unsafe(f"rows or columns of {case.symbol} are not where they were")
    if any(case.symbol in str(value) for value in (case.node.attrs.get("diagonal", 0),)):
        raise Unsafe(f"its diagonal depends on {case.symbol}")
    return [Fact(tuple(tail.filled(0 if tail.number == 0 else None) if tail else None for tail in tails))]


def dynamic_trilu(case: Case) -> list[Fact]:
    """`trilu` with a diagonal that does not carry the dim."""
    case.require_unpadded(1)
    return trilu(case)


RULES: Rules = {
    "reshape": reshape,
    "transpose": transpose,
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
    "expand": expand,
    "tile": tile,
    "slice": slice_,
    "split": split,
    "concat": concat,
    "pad": pad,
    "trilu": trilu,
    "dynamic_trilu": dynamic_trilu,
}
