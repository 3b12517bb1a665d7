"""Softmax over several axes at once, as it was before opset 13: three ops here, one operator there.

An import of it flattens the axes from its attribute on, takes the softmax of rows, and restores the shape. What is
flattened, or the rows, may be read elsewhere too, as by a Flatten that was merged with it.
"""

from collections.abc import Mapping

from ....ir.dims import Truth, compare
from ....ir.graph import Graph, Node, Value
from ..context.export_context import ExportContext
from ..contrib.group import Group, have_equal_shapes, sole_producer

LAST_OPSET = 12
_OPERATORS = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "hardmax": "Hardmax"}


def flat_softmaxes(graph: Graph) -> Mapping[Node, Group | None]:
    """The nodes that are not written as themselves: the root of a group with it, the others with None."""
    found: dict[Node, Group | None] = {}
    for node in graph.nodes:
        group = _group(node) if node.op.name == "reshape" else None
        if group is not None and group.root not in found:
            found[group.root] = group
            found.update(dict.fromkeys(group.inner))
    return found


def _group(node: Node) -> Group | None:
    rows = node.operands[0]
    softmax = rows.producer
    operator = _OPERATORS.get(softmax.op.name) if softmax is not None else None
    if softmax is None or operator is None or softmax.attrs["axis"] % rows.tensor.rank != rows.tensor.rank - 1:
        return None
    flatten = softmax.operands[0].producer
    if flatten is None or flatten.op.name != "reshape" or not have_equal_shapes(flatten.operands[0], node.output):
        return None
    return _written(node, softmax, flatten, operator)


def _written(node: Node, softmax: Node, flatten: Node, operator: str) -> Group | None:
    x, rows = flatten.operands[0], flatten.output
    axis = rows.tensor.rank - 1
    if rows.tensor.rank > x.tensor.rank or not _are_equal(x, rows, axis):
        return None
    inner = {flatten} if sole_producer(rows, "reshape") else set()
    if sole_producer(softmax.output, softmax.op.name):

        def write(ctx: ExportContext) -> None:
            ctx.emit(operator, (x,), node.outputs, axis=axis)

        return Group(node, frozenset({softmax, *inner}), node.outputs, write)
    if axis != 1:
        return None

    def write_both(ctx: ExportContext) -> None:
        ctx.emit(operator, (x,), node.outputs, axis=axis)
        ctx.emit("Flatten", node.outputs, softmax.outputs, axis=axis)

    return Group(softmax, frozenset({node, *inner}), (*node.outputs, *softmax.outputs), write_both)


def _are_equal(x: Value, rows: Value, count: int) -> bool:
    pairs = zip(x.shape[:count], rows.shape[:count], strict=True)
    return all(compare(*pair) is Truth.YES for pair in pairs)
