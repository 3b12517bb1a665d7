"""Reading and writing at places that operands name.

Padded indices are filled so that they stay in range. A write at a padded index would change a real row.
"""

import math
from collections.abc import Mapping

import ml_dtypes

from .....ir.dims import Dim
from .....ir.graph import Node, Value
from .....ir.ops.rules import normal_axis
from .....ir.types import DType
from .facts import Case, Fact, Mask, Number, Rules, Tail, Tails, Unsafe, is_equal, met
from .sizes import is_below


def _require_readable(case: Case, first: int, count: int, is_valid: bool = False) -> None:
    """Sees to it that indices (operand 1) into `count` axes from `first` on may be read.

    Those into axes that carry the dim must not count from their end, and padded ones must be in range. A caller's own
    are in range of the real elements; computed ones have to be known to be, since unpadded they would fail. Padded ones
    may be known to be valid.
    """
    padded = [tail for tail in case.tails(0)[first : first + count] if tail is not None]
    indices = case.fact(1)
    if not all(tail.is_prefix for tail in padded):
        raise Unsafe(f"the real elements of {case.symbol} are not where indices expect them")
    columns = indices.columns if len(indices.columns) == count else (indices,) * count
    sizes = case.shape(0)[first : first + count]
    for tail, column, size in zip(case.tails(0)[first : first + count], columns, sizes, strict=True):
        if tail is not None:
            _require_real(case, column, size)
    if is_valid or all(_is_in_range(case, column, size) for column, size in zip(columns, sizes, strict=True)):
        return
    if indices.is_padded and any(map(case.can_be_empty, sizes)):
        raise Unsafe("padded indices are out of range of an axis that may be empty")
    case.require_in_range(1)


def _require_real(case: Case, indices: Fact, size: Dim) -> None:
    """Raises `Unsafe` where an index into an axis that carries the dim may miss its real elements."""
    if indices.real_extent is not None and is_below(indices.real_extent, size, case.ranges):
        return
    if not indices.natural:
        raise Unsafe(f"an index may count from the end of an axis that carries {case.symbol}")
    if indices.source and case.can_be_empty(size):
        raise Unsafe(f"no index is in range where {case.symbol} is 0")
    if not indices.source and not _is_in_range(case, indices, size):
        raise Unsafe(f"an index may lie in the padding of an axis that carries {case.symbol}, where it would fail")


def _is_in_range(case: Case, indices: Fact, size: Dim) -> bool:
    return indices.natural and indices.most is not None and is_below(indices.most, size, case.ranges)


def _unfilled(tails: Tails) -> Tails:
    return tuple(tail.filled(None) if tail is not None else None for tail in tails)


def _met(left: Tail | None, right: Tail | None) -> Tail | None:
    present = [tail for tail in (left, right) if tail is not None]
    return met(present, "data and indices") if present else None


def gather(case: Case) -> list[Fact]:
    """Rows by index: padded indices give padded rows."""
    axis = normal_axis(case.node.attrs["axis"], len(case.tails(0)))
    data = _unfilled(case.tails(0))
    _require_readable(case, axis, 1)
    return [
        Fact(
            (*data[:axis], *_unfilled(case.tails(1)), *data[axis + 1 :]),
            natural=case.fact(0).natural,
            most=case.fact(0).most,
        )
    ]


def gather_elements(case: Case) -> list[Fact]:
    """Elements by index along one axis; along the others data and indices go together."""
    axis = normal_axis(case.node.attrs["axis"], len(case.tails(0)))
    data, indices = case.tails(0), case.tails(1)
    _require_readable(case, axis, 1)
    _require_aligned(case, axis)
    tails = [tail if i == axis else _met(data[i], tail) for i, tail in enumerate(indices)]
    return [Fact(_unfilled(tuple(tails)))]


def _require_aligned(case: Case, axis: int) -> None:
    """Along the other axes both have equal sizes where one of them carries the dim."""
    for i, (left, right) in enumerate(zip(case.tails(0), case.tails(1), strict=True)):
        if i != axis and (left or right) and not is_equal(case.shape(0)[i], case.shape(1)[i]):
            raise Unsafe(f"data and indices differ in size along axis {i}, which carries {case.symbol}")


def gather_nd(case: Case) -> list[Fact]:
    """Slices by index tuples."""
    batch = case.node.attrs["batch_dims"]
    data, indices = case.tails(0), case.tails(1)
    if indices[-1] is not None:
        raise Unsafe(f"its index tuples carry {case.symbol}")
    depth = case.shape(1)[-1]
    assert isinstance(depth, int)  # the type rule asks for it
    _require_readable(case, batch, depth)
    lead = tuple(_met(data[i], indices[i]) for i in range(batch))
    return [Fact(_unfilled((*lead, *indices[batch:-1], *data[batch + depth :])))]


def one_hot(case: Case) -> list[Fact]:
    """Every index by itself; more classes than before come behind the real ones."""
    case.require_unpadded(1)
    rank = case.node.output.tensor.rank
    axis = normal_axis(case.node.attrs["axis"], rank)
    depth = case.node.attrs["depth"]
    if case.mentions(depth) and not case.fact(0).natural:
        raise Unsafe(f"an index may count from the end of {case.symbol} classes")
    tails = list(_unfilled(case.tails(0)))
    tails.insert(axis, Tail(depth) if case.mentions(depth) else None)
    return [Fact(tuple(tails))]


def tensor_scatter(case: Case) -> list[Fact]:
    """A cache of each sample is written by itself; more steps than the real ones would be written over real ones."""
    cache, update = case.tails(0), case.tails(1)
    axis = normal_axis(case.node.attrs["axis"], len(cache))
    if update[axis] is not None:
        raise Unsafe(f"padded steps of {case.symbol} would be written")
    written = cache[axis]
    if written is not None and (case.node.attrs["mode"] != "linear" or not written.is_prefix or written.inner != 1):
        raise Unsafe(f"where it writes depends on the size of an axis that carries {case.symbol}")
    if case.optional(2) is not None:
        _met(case.tails(2)[0], cache[0])
        case.require_in_range(2)
    tails = [tail if i == axis else _met(tail, update[i]) for i, tail in enumerate(cache)]
    return [Fact(_unfilled(tuple(tails)))]


def scatter_elements(case: Case) -> list[Fact]:
    """Axes that indices do not name go together; padded rows along the other write what changes nothing."""
    axis = normal_axis(case.node.attrs["axis"], len(case.tails(0)))
    along = case.tails(1)[axis], case.tails(2)[axis]
    if along != (None, None) and not _is_neutral(case, axis, *along):
        raise Unsafe(f"padded rows of {case.symbol} would be written over real ones")
    _require_readable(case, axis, 1)
    _require_aligned(case, axis)
    rows = zip(*map(case.tails, range(3)), strict=True)
    tails = [old if i == axis else _met(_met(old, index), update) for i, (old, index, update) in enumerate(rows)]
    return [Fact(_unfilled(tuple(tails)))]


_NEUTRAL: Mapping[str, Number] = {"add": -0.0, "mul": 1, "max": -math.inf, "min": math.inf}
"""What changes nothing where a scatter takes it in; 0 added to -0 would be 0."""


def _neutral(reduction: str, dtype: DType) -> Number | None:
    """`_NEUTRAL` for elements of `dtype`; None where nothing is."""
    if reduction not in {"max", "min"} or dtype.is_float:
        return _NEUTRAL.get(reduction)
    if dtype is DType.BOOL:
        return reduction == "min"
    limits = ml_dtypes.iinfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return int(limits.min if reduction == "max" else limits.max)


def _is_neutral(case: Case, axis: int, indices: Tail | None, updates: Tail | None) -> bool:
    """Whether a scatter takes in what changes nothing at padded indices; False for one that writes."""
    fill = _neutral(case.node.attrs["reduction"], case.value(2).tensor.dtype)
    if fill is None or indices is None or updates is None:
        return False
    met([indices, updates], "indices and updates")
    if updates.number != fill:
        raise Unsafe(f"padded rows of {case.symbol} would be taken in", [Mask(2, axis, fill)])
    return True


def scatter_nd(case: Case) -> list[Fact]:
    """Slices that indices do not name go together; padded index tuples must write what is written anyway."""
    data, indices, updates = (case.tails(i) for i in range(3))
    depth = case.value(1).shape[-1]
    assert isinstance(depth, int)  # the type rule asks for it
    if indices[-1] is not None:
        raise Unsafe(f"its index tuples carry {case.symbol}")
    repeated = [
        _require_idle(case, axis, depth, *pair) for axis, pair in enumerate(zip(indices[:-1], updates, strict=False))
    ]
    _require_readable(case, 0, depth, is_valid=any(repeated))
    trailing = zip(data[depth:], updates[len(indices) - 1 :], strict=True)
    return [Fact(_unfilled((*data[:depth], *(_met(*pair) for pair in trailing))))]


def _require_idle(case: Case, axis: int, depth: int, indices: Tail | None, updates: Tail | None) -> bool:
    """Padded rows of a scatter write the last row once more, and without one they write what the target holds.

    False where they need not do so.
    """
    if indices is None and updates is None:
        return False
    if _is_neutral(case, axis, indices, updates):
        return False
    reason = f"padded rows of {case.symbol} would be written over real ones"
    is_write = case.node.attrs["reduction"] == "none"
    if not is_write or indices is None or updates is None or not indices.is_prefix or indices.inner != 1:
        raise Unsafe(reason)
    met([indices, updates], "indices and updates")
    if any(map(case.can_be_empty, case.shape(0)[:depth])):
        raise Unsafe("padded indices are out of range of an axis that may be empty")
    heads = [_head_of_repeated(case, operand, axis) for operand in (1, 2)]
    if heads[0] is None or heads[1] is None:
        raise Unsafe(reason, replace=lambda insertion, node: insertion.repeat_last_row(node, axis))
    if case.known[heads[0]].number != 0 or not _holds_start(case, heads[1], depth):
        raise Unsafe(f"with no real rows of {case.symbol} padding would be written")
    return True


def _head_of_repeated(case: Case, operand: int, axis: int) -> Value | None:
    """What repeats where there are no rows, if padded rows of an operand repeat its last real one; None if they do not.

    That is `where(mask, rows, gather(concat(head, rows), real size))`.
    """
    chosen = _made_by(case, case.value(operand), "where")
    taken = _made_by(case, chosen.inputs[2], "gather") if chosen else None
    joined = _made_by(case, taken.inputs[0], "concat") if taken else None
    if chosen is None or taken is None or joined is None:
        return None
    mask, rows, index = chosen.inputs[0], chosen.inputs[1], taken.inputs[1]
    if mask is None or index is None or len(joined.inputs) != 2 or joined.inputs[1] is not rows:
        return None
    tail = case.tails(operand)[axis]
    place = axis - case.value(operand).tensor.rank
    hiding = case.known[mask].tails[place] if -place <= len(case.known[mask].tails) else None
    is_hidden = tail is not None and hiding is not None and hiding.fill is False and hiding.extent == tail.extent
    is_last = tail is not None and case.known[index].real_extent == tail.extent
    along = {normal_axis(node.attrs["axis"], case.value(operand).tensor.rank) for node in (taken, joined)}
    return joined.inputs[0] if is_hidden and is_last and along == {axis} else None


def _holds_start(case: Case, head: Value, depth: int) -> bool:
    """Whether a value is the row of the target that zeros name, repeated."""
    expanded = _made_by(case, head, "expand")
    taken = _made_by(case, expanded.inputs[0], "gather_nd") if expanded else None
    if taken is None or taken.inputs[0] is not case.value(0) or taken.inputs[1] is None:
        return False
    zeros = taken.inputs[1]
    return case.known[zeros].number == 0 and zeros.shape == (depth,) and taken.attrs["batch_dims"] == 0


def _made_by(case: Case, value: Value | None, op: str) -> Node | None:
    """The node of this op that makes a value; what is claimed then holds with it."""
    node = value.producer if value is not None else None
    if node is None or node.op.name != op:
        return None
    case.together.append(node)
    return node


RULES: Rules = {
    "gather": gather,
    "gather_elements": gather_elements,
    "gather_nd": gather_nd,
    "one_hot": one_hot,
    "tensor_scatter": tensor_scatter,
    "scatter_elements": scatter_elements,
    "scatter_nd": scatter_nd,
}
