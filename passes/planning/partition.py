"""Partition: which steps are captured together, which run eagerly, and why.

Nodes that cannot be captured cut a graph into segments. Their number depends on the order: nodes that do not depend on
a cut can run before it (`ir/run_order.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.graph import Graph, Node
from ...ir.op import Trait
from ...ir.plan import Cut, CutReason, Segment
from ...ir.run_order import in_run_order
from ...ir.target import Target
from .storage import is_numeric, is_planned


@dataclass(frozen=True)
class CapturePolicy:
    """What is captured.

    `captures` False means nothing at all. Ops in `keep_outside` stay out, and segments with fewer than `min_kernels`
    nodes that do work are not worth a recording. With 0 a graph that is not cut is recorded even if none of its nodes
    does work, and a segment of one that is cut if any does.
    """

    captures: bool = True
    keep_outside: frozenset[str] = field(default_factory=frozenset[str])
    min_kernels: int = 2


def cut_reason(
    node: Node, target: Target, policy: CapturePolicy, captures: Callable[[Node], bool] | None = None
) -> CutReason | None:
    """Why a node of a specialized graph has to run eagerly, None when it can be captured.

    `captures` is asked for a node to which no other reason applies: whether the target has a kernel for it.
    """
    if not policy.captures:
        return CutReason.MODE_NONE
    traits = node.op.traits
    if traits & Trait.FOREIGN:
        return CutReason.FOREIGN
    if traits & Trait.CONTROL_FLOW:
        return CutReason.CONTROL_FLOW
    if traits & Trait.READS_HOST:
        return CutReason.READS_ON_HOST
    values = (*node.operands, *node.outputs)
    if not all(map(is_numeric, values)):
        return CutReason.NOT_A_TENSOR
    if traits & Trait.DATA_DEPENDENT or not all(map(is_planned, values)):
        return CutReason.DATA_DEPENDENT_SHAPE
    if node.op.name in target.uncapturable:
        return CutReason.NOT_CAPTURABLE_ON_TARGET
    if node.op.name in policy.keep_outside:
        return CutReason.KEPT_OUTSIDE
    return None if captures is None or captures(node) else CutReason.NOT_CAPTURABLE_ON_TARGET


@dataclass(frozen=True)
class Partition:
    """An order of a graph's nodes, cut into segments."""

    order: tuple[Node, ...]
    segments: tuple[Segment, ...]


def partition(
    graph: Graph, target: Target, policy: CapturePolicy, captures: Callable[[Node], bool] | None = None
) -> Partition:
    """Orders the nodes of a specialized graph into few segments. Nodes within a segment keep their order."""
    reasons = {node: cut_reason(node, target, policy, captures) for node in graph.nodes}
    runs = in_run_order(graph, {node for node, reason in reasons.items() if reason is not None})
    return Partition(
        tuple(node for run in runs for node in run), _segments(runs, reasons, _least_work(policy, reasons))
    )


def _least_work(policy: CapturePolicy, reasons: Mapping[Node, CutReason | None]) -> int:
    """How many nodes that do work a recorded segment has: an empty one between cuts would only cost a launch."""
    return max(policy.min_kernels, 1) if any(reasons.values()) else policy.min_kernels


def _segments(
    runs: Sequence[Sequence[Node]], reasons: Mapping[Node, CutReason | None], least_work: int
) -> tuple[Segment, ...]:
    """One segment a run; neighbors that run eagerly after all are joined."""
    segments: list[Segment] = []
    start = 0
    for run in runs:
        stop = start + len(run)
        cuts = tuple(_cuts(run, start, reasons, least_work))
        if cuts and segments and not segments[-1].is_captured:
            before = segments.pop()
            segments.append(Segment(before.start, stop, False, before.cuts + cuts))
        else:
            segments.append(Segment(start, stop, not cuts, cuts))
        start = stop
    return tuple(segments)


def _cuts(run: Sequence[Node], start: int, reasons: Mapping[Node, CutReason | None], least_work: int) -> list[Cut]:
    found = [(start + index, reasons[node]) for index, node in enumerate(run)]
    cuts = [Cut(step, reason) for step, reason in found if reason is not None]
    if cuts or sum(map(_does_work, run)) >= least_work:
        return cuts
    return [Cut(start + index, CutReason.TOO_SMALL) for index in range(len(run))]


def _does_work(node: Node) -> bool:
    return bool(node.inputs) and not node.op.has(Trait.VIEW)
