"""Steps of plans in words, for reports."""

from ..ir.graph import Node
from ..ir.ops.known import FUSED

SHOWN_NODES = 8
"""How many nodes of one step are named."""


def step_name(node: Node) -> str:
    """A step's op and origin; of a `fused` node, which is no node of the user's, those of the nodes that it joins."""
    if node.op is not FUSED:
        return node.op.name if node.origin is None else f"{node.op.name} ({node.origin})"
    names = [step_name(each) for each in node.attrs["body"].nodes if each.inputs]
    more = f" and {len(names) - SHOWN_NODES:,} more" if len(names) > SHOWN_NODES else ""
    return f"{', '.join(names[:SHOWN_NODES])}{more}"
