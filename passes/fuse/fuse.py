"""Fusion: chains and diamonds of pointwise work, with reductions over rows and what follows them, become one node.

The result is a `fused` node that owns the fused nodes as its body, so it means what they mean, exports as what they
are, and is what code generation reads. It gives the same bits by its meaning, so the pass is exact. A kernel for it
rounds only what the region writes, not the values inside, so GPUs fuse from level 2 on. The defaults of the
options are no device's: for GPUs `kernel_pipeline` of `executors/cuda/programs.py` sets all of them.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...ir.analysis.contents import constant_of
from ...ir.analysis.extract import extract
from ...ir.graph import Graph, Node, Value
from ...ir.ops import native
from ..framework.base import Pass
from ..framework.rewriter import Rewriter
from .fusion_groups import ROW_NORMS, FusionGroup, FusionLimits, fusion_groups, norm_before, outer_operands
from .scaled_operands import scale_each_matmul

MAX_INNER_CONSTANT = 16
"""Constants of up to this many elements stand inside the body, where generated code can write them out."""


@dataclass(frozen=True)
class Fuse(Pass):
    """Gathers nodes that can run as one kernel into `fused` regions, within what a backend can generate.

    Heavy work (a matmul, a convolution) is taken in only as the first node of a region, never twice. The fields are
    those of `FusionLimits`.
    """

    name: ClassVar[str] = "fuse"
    enters_fused: ClassVar[bool] = False
    max_nodes: int = 64
    max_inputs: int = 24
    epilogues: bool = True
    rows_behind_anchors: bool = True
    lookups: bool = False
    normed_rows: int = 0
    normed_half_rows: int = 0
    paired_matmuls: bool = False
    scaled_operands: bool = False
    draws: bool = False
    segments: bool = False

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        if self.normed_rows:
            _norm_for_each_matmul(graph, (self.normed_rows, self.normed_half_rows), rewriter)
        if self.scaled_operands:
            scale_each_matmul(graph, self.normed_rows, rewriter)
        limits = FusionLimits(
            self.max_nodes,
            self.max_inputs,
            self.epilogues,
            self.rows_behind_anchors,
            self.lookups,
            self.normed_rows,
            self.normed_half_rows,
            self.paired_matmuls,
            self.scaled_operands,
            self.draws,
            self.segments,
        )
        groups = [group for group in fusion_groups(graph, limits) if rewriter.may_rewrite("fuse", group.nodes[-1])]
        if not groups:
            return
        rewriter.reorder(_contracted_order(graph, groups))
        for group in groups:
            _fuse(graph, group, rewriter)


def _norm_for_each_matmul(graph: Graph, most_rows: tuple[int, int], rewriter: Rewriter) -> None:
    """Gives matmuls that share the norm of few rows one each, where they are all that reads it."""
    for node in graph.nodes:
        if node.op not in ROW_NORMS or node.output.is_graph_output or node.output.use_count < 2:
            continue
        users = node.output.users
        if any(norm_before(user, *most_rows) is not node or node.output in user.operands[1:] for user in users):
            continue
        if not rewriter.may_rewrite("norm-for-each-matmul", node):
            return
        for user in users[1:]:
            rewriter.at(user)
            own = rewriter.node(node.op, node.inputs, dict(node.attrs)).output
            rewriter.replace(user, rewriter.node(user.op, (own, *user.inputs[1:]), dict(user.attrs)).output)


def _contracted_order(graph: Graph, groups: Sequence[FusionGroup]) -> list[Node]:
    """A topological order in which the nodes of each group stand side by side."""
    unit_of: dict[Node, tuple[Node, ...]] = {node: (node,) for node in graph.nodes}
    for group in groups:
        unit_of.update(dict.fromkeys(group.nodes, tuple(group.nodes)))
    positions = {node: index for index, node in enumerate(graph.nodes)}
    units = list(dict.fromkeys(unit_of.values()))
    followers: dict[tuple[Node, ...], list[tuple[Node, ...]]] = {unit: [] for unit in units}
    waiting: dict[tuple[Node, ...], int] = {}
    for unit in units:
        before = {unit_of[v.producer] for v in outer_operands(unit) if v.producer is not None}
        waiting[unit] = len(before)
        for each in before:
            followers[each].append(unit)
    ready = [(positions[unit[-1]], unit) for unit in units if not waiting[unit]]
    heapq.heapify(ready)
    return [node for unit in _released(ready, followers, waiting, positions) for node in unit]


def _released(
    ready: list[tuple[int, tuple[Node, ...]]],
    followers: dict[tuple[Node, ...], list[tuple[Node, ...]]],
    waiting: dict[tuple[Node, ...], int],
    positions: dict[Node, int],
) -> Iterator[tuple[Node, ...]]:
    while ready:
        unit = heapq.heappop(ready)[1]
        yield unit
        for follower in followers[unit]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, (positions[follower[-1]], follower))


def _fuse(graph: Graph, group: FusionGroup, rewriter: Rewriter) -> None:
    inside = set(group.nodes)
    outputs = [node.output for node in group.nodes if any(use.user not in inside for use in node.output.uses)]
    inputs = [value for value in outer_operands(group.nodes) if not _stands_inside(value)]
    part, taken = extract(graph, outputs, inputs)
    body = part.clone_with_map(graph.symbols)[0]
    body.name = "fused"
    rewriter.at(group.nodes[0])
    fused = rewriter.node(native("fused"), taken, {"body": body})
    for old, new in zip(outputs, fused.outputs, strict=True):
        rewriter.replace_value(old, new)
    for node in reversed(group.nodes):
        if node.graph is graph:
            rewriter.erase(node)


def _stands_inside(value: Value) -> bool:
    content = constant_of(value)
    return content is not None and content.size <= MAX_INNER_CONSTANT
