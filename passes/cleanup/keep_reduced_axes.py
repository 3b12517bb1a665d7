"""Reductions keep their axes, as ones, and what works on their results does so too.

The reduced rows then have the rank of what was reduced, which is how a region sees them (`fusion_groups.py`): a
standard deviation, whose last reduction drops its axes, is one kernel. The axes go before what else reads a result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops.known import RESHAPE, SQUEEZE
from ...ir.ops.rules import normal_axes
from ...ir.types import TensorType
from ..framework.base import Pass
from ..framework.rewriter import Rewriter

Axes = tuple[int, ...]


@dataclass(frozen=True)
class KeepReducedAxes(Pass):
    """Makes reductions that drop axes keep them, beside elementwise work, and squeezes results behind that work."""

    name: ClassVar[str] = "keep-reduced-axes"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        known: dict[Value, tuple[Value, Axes]] = {}
        for node in graph.nodes:
            if _drops_axes(node):
                if _has_elementwise_neighbor(node) and rewriter.may_rewrite("reduction", node):
                    _keep(node, known, rewriter)
            elif _drops_kept_axes(node):
                known[node.output] = node.operands[0], _axes(node.operands[0].producer)
            elif _works_on_rows(node, known) and rewriter.may_rewrite("work-on-rows", node):
                _move(node, known, rewriter)


def _drops_axes(node: Node) -> bool:
    attrs = node.attrs
    return node.op.has(Trait.REDUCTION) and bool(attrs.get("axes")) and attrs.get("keep_dims") is False


def _drops_kept_axes(node: Node) -> bool:
    """Whether a node is a reduction's result without the axes that it kept."""
    producer = node.operands[0].producer if node.op in (SQUEEZE, RESHAPE) else None
    if producer is None or not producer.op.has(Trait.REDUCTION) or not producer.attrs.get("keep_dims"):
        return False
    axes = _axes(producer)
    kept = tuple(size for axis, size in enumerate(node.operands[0].shape) if axis not in axes)
    return bool(axes) and node.output.shape == kept


def _axes(node: Node | None) -> Axes:
    assert node is not None  # a reduction
    return tuple(sorted(normal_axes(node.attrs.get("axes") or (), node.operands[0].tensor.rank)))


def _has_elementwise_neighbor(node: Node) -> bool:
    producer = node.operands[0].producer
    return (producer is not None and producer.op.has(Trait.ELEMENTWISE)) or any(
        user.op.has(Trait.ELEMENTWISE) for user in node.output.users
    )


def _works_on_rows(node: Node, known: dict[Value, tuple[Value, Axes]]) -> bool:
    """Whether a node is elementwise, and its operands are reduced rows without the same axes, or single numbers."""
    if not node.op.has(Trait.ELEMENTWISE):
        return False
    forms = {(known[value][1], known[value][0].tensor.rank) for value in node.operands if value in known}
    others = [value for value in node.operands if value not in known]
    return len(forms) == 1 and len(node.inputs) == len(node.operands) and all(map(_is_number, others))


def _is_number(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.shape == ()


def _keep(node: Node, known: dict[Value, tuple[Value, Axes]], rewriter: Rewriter) -> None:
    (x,), axes = node.operands, _axes(node)
    rewriter.at(node)
    kept = rewriter.node(node.op, (x,), {**node.attrs, "keep_dims": True}).output
    _squeeze(node, kept, axes, known, rewriter)


def _move(node: Node, known: dict[Value, tuple[Value, Axes]], rewriter: Rewriter) -> None:
    axes = next(known[value][1] for value in node.operands if value in known)
    operands: Sequence[Value] = [known[value][0] if value in known else value for value in node.operands]
    rewriter.at(node)
    made = rewriter.node(node.op, operands, dict(node.attrs)).output
    _squeeze(node, made, axes, known, rewriter)


def _squeeze(node: Node, kept: Value, axes: Axes, known: dict[Value, tuple[Value, Axes]], rewriter: Rewriter) -> None:
    result = rewriter.op("squeeze", kept, axes=axes)
    rewriter.replace(node, result)
    known[result] = kept, axes
