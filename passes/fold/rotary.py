"""Rotary embedding: queries and keys that lie side by side are rotated at once, heads of smaller floats as they are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...ir.dims import Dim
from ...ir.graph import Graph, Node, Value
from ...ir.ops.known import RESHAPE, ROTARY_EMBEDDING, SPLIT, TRANSPOSE
from ...ir.ops.rules import normal_axes, normal_axis
from ...ir.types import DType
from ..framework.base import Pass, PatternPass
from ..framework.pattern import Capture, Found, Match, Rule
from ..framework.rewriter import Rewriter

_BY_HEAD = (0, 2, 1, 3)


@dataclass(frozen=True)
class MergeRotary(Pass):
    """Queries and keys that lie side by side, the parts of one matmul, are rotated together.

    Heads are rotated one by one, and those of queries and keys by the same angles, so that one kernel can do all of
    them. Its result is split again where a split is a view. An axis that is parted before it is split is split first.
    Programs for a GPU do this, where launches cost; see `merge_matmuls.py`.

    Merges `rotary_embedding` of neighboring parts of a `split`, which nothing else reads, by the same angles.
    """

    name: ClassVar[str] = "merge-rotary"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in graph.nodes:
            if node.op is not SPLIT:
                continue
            if _is_of_parted_axis(node) and rewriter.may_rewrite("parts-of-one-axis", node):
                _split_before(node, rewriter)
                continue
            if not _is_of_last_axis(node):
                continue
            for run in _runs([_rotation(part) for part in node.outputs]):
                if len(run) > 1 and rewriter.may_rewrite("rotations-of-neighbors", run[0].node):
                    _merge(graph, node, run, rewriter)
                    break  # the parts are others now


@dataclass(frozen=True)
class _Rotation:
    """The rotation of part `index` of a split: `heads` of `depth` features, as [B, T, H * D] or by head."""

    index: int
    node: Node
    heads: int
    depth: int
    is_reshaped: bool
    is_transposed: bool

    def goes_with(self, other: "_Rotation") -> bool:
        """Whether both can be one: neighbors, rotated alike by the same angles."""
        one, two = self.node, other.node
        attrs, others = ({**each.attrs, "heads": 0} for each in (one, two))
        return (
            other.index == self.index + 1
            and one.inputs[1:] == two.inputs[1:]
            and attrs == others
            and self.depth == other.depth
            and (self.is_reshaped, self.is_transposed) == (other.is_reshaped, other.is_transposed)
        )


def _is_of_last_axis(split: Node) -> bool:
    x = split.operands[0].tensor
    return x.shape is not None and x.rank == 3 and normal_axis(split.attrs["axis"], 3) == 2


def _is_of_parted_axis(split: Node) -> bool:
    """Whether it splits [B, T, N, H, D], parted from one axis, by N, and several parts are rotated."""
    source = split.operands[0].producer
    if source is None or source.op is not RESHAPE or split.operands[0].tensor.rank != 5:
        return False
    whole, parted = source.operands[0].shape, split.operands[0].shape
    if len(whole) != 3 or whole[:2] != parted[:2] or normal_axis(split.attrs["axis"], 5) != 2:
        return False
    return all(isinstance(size, int) for size in parted[2:]) and sum(map(_is_rotated, split.outputs)) > 1


def _is_rotated(part: Value) -> bool:
    user = _only_user(part)
    while user is not None and user.op in (RESHAPE, TRANSPOSE):
        user = _only_user(user.output)
    return user is not None and user.op is ROTARY_EMBEDDING


def _split_before(split: Node, rewriter: Rewriter) -> None:
    """The parts of the one axis, each parted afterwards."""
    source = split.operands[0].producer
    assert source is not None  # it was looked at
    *_, heads, depth = split.operands[0].shape
    sizes = tuple(size * heads * depth for size in split.attrs["sizes"])
    parts = rewriter.ops("split", source.operands[0], axis=2, sizes=sizes)
    for old, new in zip(list(split.outputs), parts, strict=True):
        rewriter.replace_value(old, rewriter.op("reshape", new, shape=old.shape))
    rewriter.erase(split)


def _rotation(part: Value) -> _Rotation | None:
    """The rotation that alone reads a part, straight or with its heads as an axis of their own."""
    node, width = _only_user(part), part.shape[2]
    if node is None or not isinstance(width, int):
        return None
    if node.op is ROTARY_EMBEDDING and node.operands[0] is part and node.attrs["heads"]:
        heads: int = node.attrs["heads"]
        return _Rotation(part.index, node, heads, width // heads, False, False)
    if node.op is not RESHAPE or node.output.tensor.rank != 4:
        return None
    return _rotation_by_head(part, node)


def _rotation_by_head(part: Value, reshape: Node) -> _Rotation | None:
    batch, steps, width = part.shape
    user = _only_user(reshape.output)
    is_transposed = user is not None and user.op is TRANSPOSE
    if user is None or (is_transposed and normal_axes(user.attrs["perm"], 4) != _BY_HEAD):
        return None
    node = _only_user(user.output) if is_transposed else user
    first, second, third, depth = reshape.output.shape
    heads = third if is_transposed else second
    if not isinstance(heads, int) or not isinstance(depth, int) or heads * depth != width:
        return None
    wanted: tuple[Dim, ...] = (batch, steps, heads, depth) if is_transposed else (batch, heads, 1, depth)
    if (first, second, third, depth) != wanted or (not is_transposed and steps != 1):
        return None
    if node is None or node.op is not ROTARY_EMBEDDING or node.operands[0].tensor.rank != 4:
        return None
    return _Rotation(part.index, node, heads, depth, True, is_transposed)


def _only_user(value: Value) -> Node | None:
    return value.users[0] if value.use_count == 1 and not value.is_graph_output else None


def _runs(rotations: Sequence[_Rotation | None]) -> Iterator[list[_Rotation]]:
    run: list[_Rotation] = []
    for rotation in rotations:
        if run and (rotation is None or not run[-1].goes_with(rotation)):
            yield run
            run = []
        if rotation is not None:
            run.append(rotation)
    yield run


def _merge(graph: Graph, split: Node, run: Sequence[_Rotation], rewriter: Rewriter) -> None:
    first, heads = run[0], [each.heads for each in run]
    positions = {node: index for index, node in enumerate(graph.nodes)}
    sizes: list[int] = list(split.attrs["sizes"])
    stop = first.index + len(run)
    joined = [*sizes[: first.index], sum(sizes[first.index : stop]), *sizes[stop:]]
    axis = split.attrs["axis"]
    rewriter.at(split)
    parts = rewriter.ops("split", split.operands[0], axis=axis, sizes=tuple(joined))
    rewriter.at(min((each.node for each in run), key=positions.__getitem__))
    rotated = _rotated(parts[first.index], first, sum(heads), rewriter)
    counts = tuple(heads) if first.is_reshaped else tuple(each.heads * each.depth for each in run)
    pieces = rewriter.ops("split", rotated, axis=1 if first.is_reshaped else 2, sizes=counts)
    for rotation, piece in zip(run, pieces, strict=True):
        rewriter.replace(rotation.node, piece)
    rest = [*split.outputs[: first.index], *split.outputs[stop:]]
    for old, new in zip(rest, [*parts[: first.index], *parts[first.index + 1 :]], strict=True):
        if old.use_count:
            rewriter.replace_value(old, new)
    if split.graph is graph:  # else nothing but rotations read it
        rewriter.erase(split)


def _rotated(x: Value, like: _Rotation, heads: int, rewriter: Rewriter) -> Value:
    if like.is_reshaped:
        batch, steps, _ = x.shape
        shape = (batch, steps, heads, like.depth) if like.is_transposed else (batch, heads, 1, like.depth)
        x = rewriter.op("reshape", x, shape=shape)
        x = rewriter.op("transpose", x, perm=_BY_HEAD) if like.is_transposed else x
    attrs = {**like.node.attrs, "heads": 0 if like.is_reshaped else heads}
    return rewriter.node(like.node.op, (x, *like.node.inputs[1:]), attrs).output


_TABLES = (Capture("cos"), Capture("sin"), Capture("positions", is_optional=True))


def _narrowed(rewriter: Rewriter, found: Found) -> Value | None:
    x, node = found["x"], found.node("rotary")
    if not x.tensor.dtype.is_small_float or found.root.output.tensor.dtype is not x.tensor.dtype:
        return None
    if any(value.tensor.dtype is not DType.F32 for value in (node.output, found["cos"])):
        return None
    return rewriter.node(node.op, (x, *node.inputs[1:]), node.attrs).output


@dataclass(frozen=True)
class NarrowRotary(PatternPass):
    """Heads of floats below f32 that are rotated in f32 are rotated as they are, with their tables in f32.

    Models cast queries and keys to f32 before they rotate them, and back. A kernel that rotates reads and writes
    smaller floats and computes in f32 by itself, which gives the same bits. Programs for a GPU do this, where launches
    cost.

    Takes casts away around `rotary_embedding` in f32 of what was and will be a smaller float.
    """

    name: ClassVar[str] = "narrow-rotary"

    def rules(self) -> Sequence[Rule]:
        turned = Match("rotary_embedding", Match("cast", Capture("x")), *_TABLES, name="rotary", only_user=True)
        return (Rule("narrow-rotary", Match("cast", turned), _narrowed),)
