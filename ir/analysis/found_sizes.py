"""How much the ops whose results have a size that only running tells can find at most."""

from collections.abc import Callable, Mapping

from ..dims import Dim, dim_min, product
from ..node import Node
from ..ops import bounded
from ..ops.known import CONSTANT
from ..ops.rules import normal_axis


def most_found(node: Node) -> Dim:
    """How many entries a node of an op in `DATA_SIZED` gives at most, by its operands' sizes and constants."""
    return DATA_SIZED[node.op.name](node)


def _most_compressed(node: Node) -> Dim:
    x, condition = node.operands
    axis = node.attrs["axis"]
    size = x.tensor.size if axis is None else x.shape[normal_axis(axis, x.tensor.rank)]
    return dim_min(size, condition.shape[0])


def _most_unique(node: Node) -> Dim:
    x, axis = node.operands[0], node.attrs["axis"]
    return x.tensor.size if axis is None else x.shape[normal_axis(axis, x.tensor.rank)]


def _most_selected(node: Node) -> Dim:
    """Each class of each sample keeps every box, or as many as a constant limit says."""
    scores, limit = node.operands[1], node.inputs[2]
    batch, classes, boxes = scores.shape
    if limit is None:
        return 0
    producer = limit.producer
    if producer is None or producer.op is not CONSTANT:
        return product((batch, classes, boxes))
    return product((batch, classes, dim_min(boxes, max(int(producer.attrs["value"].array.item()), 0))))


DATA_SIZED: Mapping[str, Callable[[Node], Dim]] = {
    "compress": _most_compressed,
    "non_max_suppression": _most_selected,
    "non_zero": lambda node: node.operands[0].tensor.size,
    "unique": _most_unique,
}
"""The ops, and the rule of each."""

assert [f"{bounded.PREFIX}{name}" for name in sorted(DATA_SIZED)] == sorted(op.name for op in bounded.OPS)
