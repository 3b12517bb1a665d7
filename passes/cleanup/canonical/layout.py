"""Shapes and orders: chains of reshapes and transposes, expansions and slices that change nothing, trivial concats."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from ....ir.dims import Dim, Truth, compare
from ....ir.graph import Graph, Node, Value
from ....ir.op import Trait
from ....ir.ops import native
from ....ir.ops.known import SPLIT, SQUEEZE, UNSQUEEZE
from ....ir.ops.rules import normal_axes
from ...framework.pattern import Capture, Found, Match, Rule
from ...framework.rewriter import Rewriter
from .neutral import has_type_of

_X = Capture("x")


def _unchanged(_rewriter: Rewriter, found: Found) -> Value | None:
    return found["x"] if has_type_of(found["x"], found.root) else None


def _reshape_of_reshape(rewriter: Rewriter, found: Found) -> Value | None:
    """Only the last shape of a chain matters."""
    if has_type_of(found["x"], found.root):
        return found["x"]
    return rewriter.op("reshape", found["x"], shape=found.root.outputs[0].shape)


def _as_reshape(rewriter: Rewriter, found: Found) -> Value | None:
    """Squeezing sizes that are known to be 1, and unsqueezing, are reshapes: one form, so that chains of them meet.

    Where a call may have another size, a squeeze tells so, and is fewer nodes of a file than a shape that is computed.
    """
    x = found["x"].tensor
    if found.root.op is SQUEEZE and any(x.dims[a] != 1 for a in normal_axes(found.root.attrs["axes"], x.rank)):
        return None
    return rewriter.op("reshape", found["x"], shape=found.root.outputs[0].shape)


def _moves_only_ones(rewriter: Rewriter, found: Found) -> Value | None:
    """A transpose that keeps the order of all axes longer than 1 is a reshape."""
    shape, perm = found["x"].shape, normal_axes(found.root.attrs["perm"], found["x"].tensor.rank)
    moving = [axis for axis in perm if shape[axis] != 1]
    if moving != sorted(moving):
        return None
    if perm == tuple(range(len(perm))):
        return found["x"]
    return rewriter.op("reshape", found["x"], shape=found.root.outputs[0].shape)


def _transpose_of_transpose(rewriter: Rewriter, found: Found) -> Value | None:
    rank = found["x"].tensor.rank
    inner, outer = normal_axes(found.node("inner").attrs["perm"], rank), normal_axes(found.root.attrs["perm"], rank)
    return rewriter.op("transpose", found["x"], perm=tuple(inner[axis] for axis in outer))


def _expand_of_expand(rewriter: Rewriter, found: Found) -> Value | None:
    return rewriter.op("expand", found["x"], shape=found.root.outputs[0].shape)


def _nothing(rewriter: Rewriter, found: Found) -> Value | None:
    """A constant: ONNX Runtime leaves an expand to no elements out."""
    ty = found.root.output.tensor
    sizes = [dim for dim in ty.dims if isinstance(dim, int)]
    if 0 not in sizes or len(sizes) < ty.rank:
        return None
    return rewriter.constant(np.zeros(sizes, ty.dtype.numpy), ty.dtype)


def _concat_of_one(_rewriter: Rewriter, found: Found) -> Value | None:
    return found.root.operands[0] if len(found.root.operands) == 1 else None


def _concat_of_nothing(rewriter: Rewriter, found: Found) -> Value | None:
    """Operands without elements along the axis are left out, such as the part of a head that is not rotated."""
    root = found.root
    axis, rank = _axis_of(root), root.output.tensor.rank
    kept = [value for value in root.operands if value.shape[axis] != 0]
    if not kept or len(kept) == len(root.operands):
        return None
    others = [index for index in range(rank) if index != axis]
    if any(value.shape[index] != kept[0].shape[index] for value in root.operands for index in others):
        return None
    return rewriter.op("concat", *kept, axis=axis)


def _concat_of_concats(rewriter: Rewriter, found: Found) -> Value | Sequence[Value | None] | None:
    """Operands that are concats along the same axis, read by nothing else, are spread, and so is the root where it can.

    A chain of concats would otherwise be built anew at each of its links, with ever more operands.
    """
    root, spread = found.root, deque[Value]()
    for value in root.operands:
        spread.extend(value.producer.operands if value.producer and _spreads_into(value.producer, root) else (value,))
    if len(spread) == len(root.operands):
        return None
    top = _take_in_readers(root, spread)
    rewriter.at(top)
    joined = rewriter.op("concat", *spread, axis=_axis_of(root))
    rewriter.at(root)
    if top is root:
        return joined
    rewriter.replace_value(top.output, joined)
    rewriter.erase(top, kept=root.outputs)
    return (None,)


def _take_in_readers(concat: Node, spread: deque[Value]) -> Node:
    """The last of the concats that `concat` spreads into one after another; `spread` gets their other operands.

    One of more operands than were gathered so far is no link of a chain: it would be built anew for each of them.
    """
    while (reader := next(iter(concat.output.users), None)) is not None:
        if not _spreads_into(concat, reader) or len(reader.operands) > len(spread):
            return concat
        place = reader.operands.index(concat.output)
        spread.extendleft(reversed(reader.operands[:place]))
        spread.extend(reader.operands[place + 1 :])
        concat = reader
    return concat


def _spreads_into(node: Node, reader: Node) -> bool:
    both_join = node.op is reader.op is native("concat")
    return both_join and node.output.use_count == 1 and _axis_of(node) == _axis_of(reader)


def _axis_of(node: Node) -> int:
    return normal_axes((node.attrs["axis"],), node.output.tensor.rank)[0]


def _concat_of_split(_rewriter: Rewriter, found: Found) -> Value | None:
    """All parts of a split, joined again in order along the same axis."""
    parts = found.root.operands
    split = parts[0].producer
    if split is None or split.op is not SPLIT or tuple(split.outputs) != tuple(parts):
        return None
    rank = parts[0].tensor.rank
    same = normal_axes((split.attrs["axis"],), rank) == normal_axes((found.root.attrs["axis"],), rank)
    return split.operands[0] if same and _tells_enough(split.operands[0], found.root) else None


def _split_in_one(_rewriter: Rewriter, found: Found) -> Value | None:
    return found["x"] if len(found.root.outputs) == 1 and _tells_enough(found["x"], found.root) else None


def _tells_enough(value: Value, node: Node) -> bool:
    """Whether `value` may stand for the result of `node`, which says a size that `value` leaves open.

    Not as a result of the graph: where that is a branch, the branches' results may have made a size in common.
    """
    return has_type_of(value, node) or not any(isinstance(use.user, Graph) for use in node.output.uses)


def _no_padding(_rewriter: Rewriter, found: Found) -> Value | None:
    return found["x"] if all(pad == 0 for pad in found.root.attrs["pads"]) else None


def _full_slice(_rewriter: Rewriter, found: Found) -> Value | None:
    root, shape = found.root, found["x"].shape
    axes = normal_axes(root.attrs["axes"], len(shape))
    bounds = zip(axes, root.attrs["starts"], root.attrs["ends"], root.attrs["steps"], strict=True)
    full = all(step == 1 and _covers(start, end, shape[axis]) for axis, start, end, step in bounds)
    return found["x"] if full and has_type_of(found["x"], root) else None


_FAR = 1 << 31  # exporters write the largest int32 or int64 for "to the end"


def _covers(start: Dim, end: Dim, size: Dim) -> bool:
    if start != 0:
        return False
    return (isinstance(end, int) and end >= _FAR - 1) or compare(end, size) is Truth.YES


def _no_repeats(_rewriter: Rewriter, found: Found) -> Value | None:
    return found["x"] if all(count == 1 for count in found.root.attrs["repeats"]) else None


RULES: tuple[Rule, ...] = (
    Rule("reshape-to-same", Match("reshape", _X), _unchanged),
    Rule("expand-to-same", Match("expand", _X), _unchanged),
    Rule("expand-to-nothing", Match("expand", _X), _nothing),
    Rule("squeeze-as-reshape", Match((SQUEEZE, UNSQUEEZE), _X), _as_reshape),
    Rule("reshape-chain", Match("reshape", Match(Trait.RESHAPES, _X)), _reshape_of_reshape),
    Rule("transpose-of-ones", Match("transpose", _X), _moves_only_ones),
    Rule("transpose-chain", Match("transpose", Match("transpose", _X, name="inner")), _transpose_of_transpose),
    Rule("expand-chain", Match("expand", Match("expand", _X)), _expand_of_expand),
    Rule("concat-of-one", Match("concat", more=True), _concat_of_one),
    Rule("concat-of-nothing", Match("concat", more=True), _concat_of_nothing),
    Rule("concat-of-split", Match("concat", more=True), _concat_of_split),
    Rule("concat-of-concats", Match("concat", more=True), _concat_of_concats),
    Rule("split-in-one", Match("split", _X), _split_in_one),
    Rule("no-padding", Match("pad", _X, Capture("value", is_optional=True)), _no_padding),
    Rule("full-slice", Match("slice", _X), _full_slice),
    Rule("no-repeats", Match("tile", _X), _no_repeats),
)
