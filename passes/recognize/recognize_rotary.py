"""Recognize rotary position embedding, x cos + rotate(x) sin, as Hugging Face's models write it.

`rotate` swaps the halves of each head, the second negated - concat(-x[h:], x[:h]) - or, interleaved, the neighbors:
pairs (-x[1], x[0]) joined by a concat and a reshape. The slices may be a split instead. cos and sin must be seen to
repeat each angle for both of its features (see `passes.recognition.tables`), broadcast over heads, and have the dtype
of x, which is not f64: ONNX's operator does not take it. The op takes each angle once. Besides:

* a part of a head may be rotated by halves (or neighbors) that are slices of the whole head, not of the part
* a head of which only the first part is rotated, concat(rotary(x[:r]), x[r:]), becomes one op with `rotary_dim`
* heads that are parted from a hidden axis by reshape and transpose are rotated before they are parted

The tables are expanded to the batch where they are one for all samples, as ONNX's operator wants them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ...ir.dims import Dim, Truth, compare
from ...ir.graph import Node, Value
from ...ir.ops.known import RESHAPE, UNSQUEEZE
from ...ir.ops.rules import normal_axes, normal_axis
from ...ir.types import DType
from ..cleanup.canonical.neutral import has_type_of
from ..framework.base import PatternPass
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Match, Pattern, Rule
from ..framework.rewriter import Rewriter
from .parts.tables import Plan, half_of

_X = Capture("x")

# ---- the rotation


_BY_STEP = (0, 2, 1, 3)
"""Heads behind positions, and back."""


def _rotary(rewriter: Rewriter, found: Found) -> Value | None:
    return _embedded(rewriter, found, interleaved=False) if _has_halves(found) else None


def _interleaved(rewriter: Rewriter, found: Found) -> Value | None:
    return _embedded(rewriter, found, interleaved=True) if _has_neighbors(found) else None


def _rotary_of_part(rewriter: Rewriter, found: Found) -> Value | None:
    """The part and its halves are all slices of the head: canonicalize leaves no slice of a slice."""
    covered = _taken(found.node("part"))[0]
    if not covered or len(covered) % 2 or not _is_last(found.node("joined").attrs["axis"], found["x"]):
        return None
    half = len(covered) // 2
    if not _has_taken(found, covered[:half], covered[half:]):
        return None
    return _embedded(rewriter, _seen_from_part(found), interleaved=False)


def _interleaved_of_part(rewriter: Rewriter, found: Found) -> Value | None:
    covered, part = _taken(found.node("part"))[0], found.node("part").output
    if not covered or len(covered) % 2 or not _joins_pairs(found, part, len(covered)):
        return None
    if not _has_taken(found, covered[::2], covered[1::2]):
        return None
    return _embedded(rewriter, _seen_from_part(found), interleaved=True)


def _has_taken(found: Found, first: range, second: range) -> bool:
    """Whether two slices take these of the last axis, and along the others what the part takes."""
    others = _taken(found.node("part"))[1]
    return (_taken(found.node("first")), _taken(found.node("second"))) == ((first, others), (second, others))


def _seen_from_part(found: Found) -> Found:
    """The same match with the part as x."""
    return replace(found, values={**found.values, "x": found.node("part").output})


def _embedded(rewriter: Rewriter, found: Found, *, interleaved: bool) -> Value | None:
    x = found["x"]
    if x.tensor.rank != 4 or x.tensor.dtype is DType.F64 or not has_type_of(x, found.root):
        return None
    for perm in ((0, 1, 2, 3), _BY_STEP):
        tables = [_table(table, x, interleaved, perm) for table in (found["cos"], found["sin"])]
        plans = [plan for plan in tables if plan is not None]
        if len(plans) == 2:
            by_head = x if perm != _BY_STEP else rewriter.op("transpose", x, perm=perm)
            given = by_head, *(plan(rewriter) for plan in plans), None
            turned = rewriter.op("rotary_embedding", *given, interleaved=interleaved)
            return turned if by_head is x else rewriter.op("transpose", turned, perm=perm)
    return None


def _table(table: Value, x: Value, interleaved: bool, perm: Sequence[int]) -> Plan | None:
    """How to make [batch, positions, size / 2] from what is multiplied with x, [batch, heads, positions, size].

    `perm` says where x and the table have these axes.
    """
    if table.tensor.rank > 4:
        return None
    batch, _, steps, size = (x.shape[axis] for axis in perm)
    given = (1,) * (4 - table.tensor.rank) + table.shape
    shape = tuple(given[axis] for axis in perm)
    if shape[1] != 1 or not isinstance(size, int) or shape[3] != size:
        return None
    if compare(shape[2], steps) is not Truth.YES or (shape[0] != 1 and compare(shape[0], batch) is not Truth.YES):
        return None
    half = half_of(table, interleaved=interleaved)
    if half is None:
        return None

    def plan(rewriter: Rewriter) -> Value:
        made = rewriter.op("reshape", half(rewriter), shape=(shape[0], steps, size // 2))
        return made if shape[0] == batch else rewriter.op("expand", made, shape=(batch, steps, size // 2))

    return plan


def _has_halves(found: Found) -> bool:
    """Whether "first" and "second", or the parts of the split, are the halves of the last axis."""
    x = found["x"]
    size = x.shape[-1]
    if not isinstance(size, int) or size % 2 or not _is_last(found.node("joined").attrs["axis"], x):
        return False
    if found.has("split"):
        split = found.node("split")
        return _is_last(split.attrs["axis"], x) and split.attrs["sizes"] == (size // 2, size // 2)
    return _has_covered(found, range(size // 2), range(size // 2, size))


def _has_neighbors(found: Found) -> bool:
    x = found["x"]
    size = x.shape[-1] if x.shape else 0
    if not isinstance(size, int) or not size or size % 2 or not _joins_pairs(found, x, size):
        return False
    return _has_covered(found, range(0, size, 2), range(1, size, 2))


def _joins_pairs(found: Found, x: Value, size: int) -> bool:
    """Whether both operands of the concat are [..., size / 2, 1], and it is read as [..., size]."""
    joined = found.node("joined")
    pairs = all(value.shape == (*x.shape[:-1], size // 2, 1) for value in joined.operands)
    return pairs and _is_last(joined.attrs["axis"], joined.output) and found.node("read").output.shape == x.shape


def _is_last(axis: int, value: Value) -> bool:
    return normal_axis(axis, value.tensor.rank) == value.tensor.rank - 1


def _has_covered(found: Found, first: range, second: range) -> bool:
    return (_covered(found.node("first")), _covered(found.node("second"))) == (first, second)


def _covered(node: Node) -> range | None:
    """Which elements of the last axis a slice takes, forwards, from a tensor that it leaves whole otherwise."""
    covered, others = _taken(node)
    return None if others else covered


def _taken(node: Node) -> tuple[range | None, frozenset[tuple[object, ...]]]:
    """Which elements of the last axis a slice takes, None for backwards or unknown ones; and what along the others."""
    value, attrs = node.operands[0], node.attrs
    size = value.shape[-1] if value.shape else None
    if not isinstance(size, int):
        return None, frozenset()
    axes = normal_axes(attrs["axes"], value.tensor.rank)
    cuts = list(zip(axes, attrs["starts"], attrs["ends"], attrs["steps"], strict=True))
    others = frozenset(cut for cut in cuts if cut[0] != value.tensor.rank - 1)
    covered: range | None = range(size)
    for axis, start, end, step in cuts:
        if axis == value.tensor.rank - 1:
            first, last = _bound(start, size), _bound(end, size)
            covered = None if first is None or last is None or step < 1 else range(first, last, step)
    return covered, others


def _bound(bound: Dim, size: int) -> int | None:
    if not isinstance(bound, int):
        return None
    return max(0, size + bound) if bound < 0 else min(bound, size)


_FIRST, _SECOND = Match("slice", _X, name="first"), Match("slice", _X, name="second")
_PART = Match("slice", _X, name="part")
_FIRST_PART = Match("split", _X, name="split")
_SECOND_PART = Match("split", _X, name="split", result=1)


def _joined(first: Match, second: Match) -> Match:
    return Match("concat", Match("neg", second), first, name="joined")


_NEIGHBOURS = Match(
    "reshape",
    Match(
        "concat",
        Match((RESHAPE, UNSQUEEZE), Match("neg", _SECOND)),
        Match((RESHAPE, UNSQUEEZE), _FIRST),
        name="joined",
    ),
    name="read",
)


def _rotated(turned: Match, x: Pattern = _X) -> Match:
    return Match("add", Match("mul", x, Capture("cos")), Match("mul", turned, Capture("sin")))


# ---- around it


def _partial(rewriter: Rewriter, found: Found) -> Value | None:
    """The rotated part must come first, and the rest be all that follows it."""
    x, node = found["x"], found.node("rotary")
    size, rotated = x.shape[-1], node.output.shape[-1]
    if not isinstance(size, int) or not isinstance(rotated, int) or not _is_last(found.root.attrs["axis"], x):
        return None
    if node.attrs["rotary_dim"] or not _has_covered(found, range(rotated), range(rotated, size)):
        return None
    return rewriter.op("rotary_embedding", x, *node.inputs[1:], **{**dict(node.attrs), "rotary_dim": rotated})


def _before_heads(rewriter: Rewriter, found: Found) -> Value | None:
    """[B, T, H, D] transposed to heads, then rotated: rotated as [B, T, H * D], then transposed."""
    node, by_step = found.root, found["x"]
    if by_step.tensor.rank != 4:
        return None
    batch, steps, heads, size = by_step.shape
    perm = normal_axes(found.node("transpose").attrs["perm"], 4)
    if perm != (0, 2, 1, 3) or not isinstance(heads, int) or node.attrs["heads"]:
        return None
    flat = _as_shape(rewriter, by_step, (batch, steps, heads * size))
    turned = rewriter.op("rotary_embedding", flat, *node.inputs[1:], **{**dict(node.attrs), "heads": heads})
    return rewriter.op("transpose", rewriter.op("reshape", turned, shape=by_step.shape), perm=perm)


def _as_shape(rewriter: Rewriter, value: Value, shape: Sequence[Dim]) -> Value:
    node = value.producer
    source = node.operands[0] if node is not None and node.op is RESHAPE else value
    return source if source.shape == tuple(shape) else rewriter.op("reshape", source, shape=tuple(shape))


def _rotary_of(x: Match) -> Match:
    return Match("rotary_embedding", x, Capture("cos"), Capture("sin"), Capture("p", is_optional=True), name="rotary")


_RULES: tuple[Rule, ...] = (
    Rule("rotary", _rotated(_joined(_FIRST, _SECOND)), _rotary),
    Rule("rotary-of-split", _rotated(_joined(_FIRST_PART, _SECOND_PART)), _rotary),
    Rule("rotary-interleaved", _rotated(_NEIGHBOURS), _interleaved),
    Rule("rotary-of-part", _rotated(_joined(_FIRST, _SECOND), _PART), _rotary_of_part),
    Rule("rotary-of-part-interleaved", _rotated(_NEIGHBOURS, _PART), _interleaved_of_part),
    Rule("rotary-part", Match("concat", _rotary_of(_FIRST), _SECOND), _partial),
    Rule("rotary-before-heads", _rotary_of(Match("transpose", _X, name="transpose", only_user=True)), _before_heads),
)


@dataclass(frozen=True)
class RecognizeRotary(PatternPass):
    """Rewrites composed rotary embeddings to the op that they are."""

    name: ClassVar[str] = "recognize-rotary"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING

    def rules(self) -> Sequence[Rule]:
        return _RULES
