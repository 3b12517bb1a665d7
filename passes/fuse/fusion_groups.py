"""Which nodes may run as one kernel: groups over one index space, such that no edge leaves and comes back.

A group has a domain, the shape of the tensors that its nodes work on. It takes elementwise nodes of that shape,
reductions of it (all over the same axes), rowwise nodes such as softmax, and what works on the reduced rows. A matmul
or a convolution may be its first node, whose epilogue the rest is, and where a backend can do so lookups
in tables outside of it. Every node is in one group at most, so nothing is ever computed twice.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ...ir.analysis.contents import any_constant_of
from ...ir.dims import Dim
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops.known import GEMM, LAYER_NORM, MATMUL, RMS_NORM
from ...ir.ops.rules import normal_axes, normal_axis
from ...ir.types import DType, Kind, TensorType
from .scaled_operands import coded_weight, has_few_rows, scaled_operands

ROW_NORMS = (RMS_NORM, LAYER_NORM)
"""Norms that a matmul can do to few rows itself."""

MAX_VISITS = 512
"""How many nodes a search for a path looks at before it takes it that there is one."""


@dataclass(frozen=True)
class FusionLimits:
    """What a backend can generate code for.

    A region has at most `max_nodes` nodes, and reads at most `max_inputs` operands that are no constants. `epilogues`
    says whether an anchor takes in what follows it, `rows_behind_anchors` whether that may be work on whole rows
    (norms, softmax), `lookups` whether a kernel may take its operands out of tables by index. `normed_rows` is up to
    how many rows a matmul may norm itself, as each of its blocks reads whole rows anyway, `normed_half_rows` the same
    for rows of 16 bits in whole pieces, with a gain and a weight like them. With `paired_matmuls` two matmuls of the
    same normed rows run as one if elementwise work joins them, as that of a gated unit does. With `scaled_operands` a
    matmul takes in what dequantizes both operands, or the weight of so few rows. `draws` says whether kernels without
    an anchor may draw random numbers, `segments` whether reductions of segments take along what makes their updates and
    what follows. All are fields of `Fuse`.
    """

    max_nodes: int
    max_inputs: int
    epilogues: bool
    rows_behind_anchors: bool
    lookups: bool
    normed_rows: int
    normed_half_rows: int
    paired_matmuls: bool
    scaled_operands: bool
    draws: bool
    segments: bool


@dataclass(eq=False)
class FusionGroup:
    """Nodes that become one. `reduced` are the axes that are reduced, none while nothing is.

    One with a norm over groups of channels (`is_groupwise`) has elementwise work besides, and none before the norm.
    """

    domain: tuple[Dim, ...]
    nodes: list[Node] = field(default_factory=list[Node])
    reduced: tuple[int, ...] = ()
    has_anchor: bool = False
    is_groupwise: bool = False

    @property
    def rows(self) -> tuple[Dim, ...]:
        """The shape of a reduced result."""
        return tuple(1 if axis in self.reduced else size for axis, size in enumerate(self.domain))


@dataclass(frozen=True)
class _Role:
    """How a node would take part: the shape that it works on, and the axes that it reduces."""

    domain: tuple[Dim, ...]
    reduced: tuple[int, ...] = ()
    is_anchor: bool = False
    is_lookup: bool = False
    is_groupwise: bool = False


def role_of(node: Node, limits: FusionLimits) -> _Role | None:
    """The part that a node can play in a group, None when it must stay alone."""
    traits = node.op.traits
    if len(node.outputs) != 1 or traits & (Trait.IMPURE | Trait.FOREIGN) or not all(map(_is_tensor, node.operands)):
        return None
    shape = node.output.tensor.shape
    if shape is None or not node.operands or not _is_tensor(node.output):
        return None
    if traits & Trait.ELEMENTWISE:
        return _Role(shape)
    if traits & Trait.REDUCTION:
        return _reduction_role(node)
    if traits & Trait.ROWWISE:
        return _Role(shape, tuple(range(normal_axis(node.attrs["axis"], len(shape)), len(shape))))
    if traits & Trait.GROUPWISE:
        return _Role(shape, is_groupwise=True)
    if traits & Trait.DRAWS and limits.draws:
        return _Role(shape)
    if traits & Trait.LOOKUP and limits.lookups:
        return _Role(shape, is_lookup=True)
    is_anchor = (traits & Trait.ANCHOR and limits.epilogues) or (traits & Trait.SEGMENTS and limits.segments)
    return _Role(shape, is_anchor=True) if is_anchor else None


def norm_before(matmul: Node, most_rows: int, most_half_rows: int) -> Node | None:
    """The norm over whole, few rows that a matmul with a constant matrix has on the left (see `FusionLimits`)."""
    if not most_rows or not (matmul.op is MATMUL or (matmul.op is GEMM and not matmul.attrs["trans_a"])):
        return None
    rows, weight = matmul.operands[:2]
    norm = rows.producer
    if norm is None or norm.op not in ROW_NORMS or weight.tensor.rank != 2:
        return None
    is_last = normal_axis(norm.attrs["axis"], len(rows.shape)) == len(rows.shape) - 1
    is_constant = any_constant_of(weight) is not None
    is_few = has_few_rows(matmul, most_rows) and (is_constant or bool(coded_weight(matmul, most_rows)))
    is_half = is_constant and has_few_rows(matmul, most_half_rows) and norm.op is RMS_NORM and _is_half(norm)
    return norm if is_last and (is_few or is_half) else None


def _is_half(norm: Node) -> bool:
    """Whether a norm's rows are numbers of 16 bits in pieces of 16 bytes, and its gain is of such numbers."""
    rows = norm.operands[0].tensor
    inner = rows.dims[-1]
    is_like = all(value.tensor.dtype is rows.dtype for value in norm.operands)
    return is_like and rows.dtype in (DType.F16, DType.BF16) and isinstance(inner, int) and inner % _HALVES == 0


_HALVES = 8
"""Numbers of 16 bits in 16 bytes."""


def are_paired(first: Node, second: Node, most_rows: int, most_half_rows: int) -> bool:
    """Whether two matmuls read the same few rows on the left, or norms of them, and constant matrices of a size."""
    (rows, weight), (others, partner) = first.operands, second.operands
    if weight.type != partner.type or weight is partner:
        return False
    norm, other = (norm_before(each, most_rows, most_half_rows) for each in (first, second))
    if norm is None or other is None:
        return False
    return rows is others or (norm.inputs == other.inputs and norm.attrs == other.attrs)


def _is_tensor(value: Value) -> bool:
    return (
        isinstance(value.type, TensorType) and value.type.shape is not None and value.type.dtype.kind is not Kind.STRING
    )


def _reduction_role(node: Node) -> _Role | None:
    """Reductions that keep their axes as ones (`keep_reduced_axes.py` makes others do so)."""
    axes, shape = node.attrs.get("axes"), node.operands[0].shape
    if not axes or not node.attrs.get("keep_dims") or len(node.operands) != 1:
        return None
    return _Role(shape, tuple(sorted(normal_axes(axes, len(shape)))))


def fusion_groups(graph: Graph, limits: FusionLimits) -> list[FusionGroup]:
    """Disjoint groups of two nodes and more, found in one sweep in the order of the graph."""
    return _Search(graph, limits).run()


class _Search:
    def __init__(self, graph: Graph, limits: FusionLimits) -> None:
        self.graph = graph
        self.limits = limits
        self.positions = {node: index for index, node in enumerate(graph.nodes)}
        self.group_of: dict[Node, FusionGroup] = {}

    def run(self) -> list[FusionGroup]:
        for node in self.graph.nodes:
            role = role_of(node, self.limits)
            if role is not None:
                self._place(node, role)
        groups = dict.fromkeys(self.group_of.values())
        return [group for group in groups if len(group.nodes) > 1]

    def _place(self, node: Node, role: _Role) -> None:
        """Puts `node` into the groups of its producers, which become one, or into one of its own.

        What a lookup or a norm over channels reads has to lie in memory, so it begins a group, as an anchor does.
        """
        own = FusionGroup(role.domain, [node], role.reduced, role.is_anchor, role.is_groupwise)
        self.group_of[node] = own
        if role.is_anchor:
            self._take_norm(node, own)
            self._take_scaling(node, own)
            self._take_updates(node, own)
        if role.is_anchor or role.is_lookup or role.is_groupwise:
            return
        for value in node.operands:
            other = self.group_of.get(value.producer) if value.producer is not None else None
            if other is not None and other is not own and self._may_join(other, own):
                own = self._joined(other, own)

    def _take_norm(self, node: Node, own: FusionGroup) -> None:
        """Puts the norm of a matmul's rows into its group, where nothing else reads it."""
        norm = norm_before(node, self.limits.normed_rows, self.limits.normed_half_rows)
        if norm is not None and norm.output.use_count == 1 and len(self.group_of[norm].nodes) == 1:
            own.nodes.insert(0, norm)
            self.group_of[norm] = own

    def _take_scaling(self, node: Node, own: FusionGroup) -> None:
        """Puts what dequantizes a matmul's operands into its group, where nothing else reads it."""
        before = scaled_operands(node) if self.limits.scaled_operands else ()
        if self.limits.scaled_operands and not before:
            before = coded_weight(node, self.limits.normed_rows)
        inside = {*before, node}
        if all(inside.issuperset(each.output.users) and not each.output.is_graph_output for each in before):
            own.nodes[:0] = sorted(before, key=self.positions.__getitem__)
            self.group_of.update(dict.fromkeys(before, own))

    def _take_updates(self, node: Node, own: FusionGroup) -> None:
        """Puts what makes the updates of a reduction over segments into its group, where nothing else reads it."""
        updates = node.operands[-1]
        other = self.group_of.get(updates.producer) if updates.producer is not None else None
        if not node.op.has(Trait.SEGMENTS) or other is None or other.has_anchor or other.reduced or other.is_groupwise:
            return
        nodes = {*other.nodes, node}
        results = [each.output for each in other.nodes]
        is_alone = all(nodes.issuperset(value.users) and not value.is_graph_output for value in results)
        is_read_once = not any(value in node.operands[:-1] for value in results)
        is_drawn = any(each.op.has(Trait.DRAWS) for each in other.nodes)
        if is_alone and is_read_once and not is_drawn and self._may_be_one(nodes):
            own.nodes[:0] = other.nodes
            self.group_of.update(dict.fromkeys(other.nodes, own))

    def _may_join(self, first: FusionGroup, second: FusionGroup) -> bool:
        is_pair = first.has_anchor and second.has_anchor and self._are_paired(first, second)
        if not _fit_together(first, second) or (second.has_anchor and not is_pair):
            return False
        if (first.is_groupwise or second.is_groupwise) and not _are_norm_and_work(first, second):
            return False
        if first.has_anchor and not self._may_follow(first, second):
            return False
        nodes = {*first.nodes, *second.nodes}
        if any(value.producer in nodes for node in nodes for value in _read_in_memory(node)):
            return False
        if first.has_anchor and any(node.op.has(Trait.DRAWS) for node in second.nodes):
            return False
        return self._may_be_one(nodes)

    def _may_be_one(self, nodes: set[Node]) -> bool:
        """Whether so many nodes with such inputs fit a kernel, and no way leads out of it and back."""
        inputs = set(outer_operands(nodes))
        given = [value for value in inputs if any_constant_of(value) is None]
        is_within = len(nodes) <= self.limits.max_nodes and len(given) <= self.limits.max_inputs
        return is_within and not self._has_way_back(nodes, inputs)

    def _are_paired(self, first: FusionGroup, second: FusionGroup) -> bool:
        anchors = [node for node in (*first.nodes, *second.nodes) if node.op.has(Trait.ANCHOR)]
        is_pair = self.limits.paired_matmuls and len(anchors) == 2 and all(each.op is MATMUL for each in anchors)
        limits = self.limits.normed_rows, self.limits.normed_half_rows
        return is_pair and are_paired(anchors[0], anchors[1], *limits)

    def _may_follow(self, first: FusionGroup, second: FusionGroup) -> bool:
        """Whether `second` is work that the anchor of `first` can have behind it, and none that makes its operands."""
        if second.reduced and not self.limits.rows_behind_anchors:
            return False
        inside = set(second.nodes)
        return not any(value.producer in inside for node in first.nodes for value in node.operands)

    def _has_way_back(self, nodes: set[Node], inputs: Iterable[Value]) -> bool:
        """Whether an input of the joined group depends on it, seeing other groups as the one node they become."""
        first = min(self.positions[node] for node in nodes)
        pending = [value.producer for value in inputs if value.producer is not None]
        seen: set[Node] = set()
        while pending:
            node = pending.pop()
            if node in nodes:
                return True
            if node in seen:
                continue
            members = self.group_of[node].nodes if node in self.group_of else [node]
            if max(self.positions[member] for member in members) < first:
                continue
            seen.update(members)
            if len(seen) > MAX_VISITS:
                return True
            pending += [value.producer for value in outer_operands(members) if value.producer is not None]
        return False

    def _joined(self, first: FusionGroup, second: FusionGroup) -> FusionGroup:
        domain = first.domain if _size_rank(first) >= _size_rank(second) else second.domain
        nodes = sorted({*first.nodes, *second.nodes}, key=self.positions.__getitem__)
        has_anchor, is_groupwise = (
            first.has_anchor or second.has_anchor,
            first.is_groupwise or second.is_groupwise,
        )
        group = FusionGroup(domain, nodes, first.reduced or second.reduced, has_anchor, is_groupwise)
        self.group_of.update(dict.fromkeys(nodes, group))
        return group


def _are_norm_and_work(first: FusionGroup, second: FusionGroup) -> bool:
    """Whether one has a norm over groups of channels, the other elementwise work of its shape and none before it."""
    norm, other = (first, second) if first.is_groupwise else (second, first)
    inside = set(other.nodes)
    is_plain = all(node.op.has(Trait.ELEMENTWISE) for node in inside)
    read = [value for node in norm.nodes if node.op.has(Trait.GROUPWISE) for value in node.operands]
    return is_plain and norm.domain == other.domain and not any(value.producer in inside for value in read)


def _read_in_memory(node: Node) -> Sequence[Value]:
    """The operands of which a node reads other elements than those at its place."""
    if node.op.has(Trait.LOOKUP):
        return node.operands
    return node.operands[-1:] if node.op.has(Trait.DRAWS) else ()


def _size_rank(group: FusionGroup) -> int:
    """How many axes of the domain are longer than 1: the larger of two domains that fit together has more."""
    return sum(size != 1 for size in group.domain)


def _fit_together(first: FusionGroup, second: FusionGroup) -> bool:
    """Whether two groups can share an index space: the same domain, or one works on the reduced rows of the other."""
    if first.reduced and second.reduced and first.reduced != second.reduced:
        return False
    reduced = first.reduced or second.reduced
    if first.domain == second.domain:
        return True
    if not reduced or len(first.domain) != len(second.domain):
        return False
    large, small = (first, second) if _size_rank(first) > _size_rank(second) else (second, first)
    return not small.reduced and small.domain == FusionGroup(large.domain, [], reduced).rows


def outer_operands(nodes: Iterable[Node]) -> Iterator[Value]:
    """The operands of `nodes` that none of them produces."""
    inside = set(nodes)
    for node in inside:
        for value in node.operands:
            if value.producer not in inside:
                yield value
