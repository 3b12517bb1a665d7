"""Layouts: the order of axes in memory of values that do not lie row-major. A target asks for one way or the other.

Channels last: convolutions are quickest on images that lie as [N, ..., C]. What they make is laid out so, and what is
made from that place by place (pointwise work, pooling, resizing, joining) keeps the layout, so that nothing is copied
in between. Inputs and outputs of the graph, constants and states are row-major: they are seen from outside.

Heads by step: attention, or a matmul, whose result is only transposed, to join the heads of each step, lays it out as
it is read then, so that the joined heads are a view.

Orders kept: what is made element by element, or row by row, from a transposed value has its axes in the same order, so
that operands and results are gone through one byte after another. NumPy's own results lie so, outputs included.
"""

from collections.abc import Iterator, Mapping, Sequence

from ...ir.attrs import AttrValue
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops.known import ATTENTION, FUSED, MATMUL, TRANSPOSE
from ...ir.plan import View
from ...ir.target import Target

_PASSES_ON = Trait.KEEPS_AXES | Trait.ELEMENTWISE | Trait.REDUCTION | Trait.JOINS
"""Ops whose kernels go through places in any order. Parts are views:
what is made of them, such as a gate of the two halves of the channels, would else be written across what it reads."""


class Layouts:
    """The order of axes that each value of a specialized graph is to have on `target`, from outermost to innermost."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self._images = channels_last_values(graph, target)
        self._keeps_orders = target.keeps_orders
        self._joins_heads = target.joins_heads

    def strides(self, value: Value, itemsize: int, views: Mapping[Value, View]) -> tuple[int, ...] | None:
        """Strides in bytes without gaps; None for row-major. `views` says where the operands lie."""
        shape = [dim for dim in value.shape if isinstance(dim, int)]
        if value in self._images:
            return channels_last_strides(shape, itemsize, self._images[value])
        order = _order_of_operands(value, views) if self._keeps_orders else None
        if self._joins_heads and _may_lie_by_step(value, shape):
            order = _order_of_readers(value)
        return None if order is None else strides_in_order(shape, itemsize, order)


def _order_of_operands(value: Value, views: Mapping[Value, View]) -> tuple[int, ...] | None:
    """The order that all operands agree on which are not broadcast; None where they do not, or lie row-major."""
    node = value.producer
    if node is None or not node.op.has(Trait.ELEMENTWISE | Trait.ROWWISE) or value.tensor.rank < 2:
        return None
    orders = set(_orders(node, value, views))
    order = orders.pop() if len(orders) == 1 else None
    return None if order == tuple(range(value.tensor.rank)) else order


def _may_lie_by_step(value: Value, shape: Sequence[int]) -> bool:
    """Attention, and matmuls of one batch, which a library makes in one call however rows lie."""
    op = value.producer.op if value.producer is not None else None
    return op is ATTENTION or (op is MATMUL and sum(size > 1 for size in shape[:-2]) <= 1)


def _order_of_readers(value: Value) -> tuple[int, ...] | None:
    """The order in which all that reads a value transposes it, if that leaves its last axis where it is."""
    readers = [use.user for use in value.uses]
    orders = {each.attrs["perm"] if isinstance(each, Node) and each.op is TRANSPOSE else None for each in readers}
    order = orders.pop() if len(orders) == 1 else None
    return order if order is not None and order[-1] == len(order) - 1 else None


def _orders(node: Node, value: Value, views: Mapping[Value, View]) -> Iterator[tuple[int, ...]]:
    operands = node.operands if node.op.has(Trait.ELEMENTWISE) else node.operands[:1]
    for operand in operands:
        view = views.get(operand)
        if view is not None and view.shape == value.tensor.shape:
            order = _order_in_memory(view)
            if order is not None:
                yield order


def _order_in_memory(view: View) -> tuple[int, ...] | None:
    """Axes from the largest stride to the smallest; those of one element stay in place. None for repeated elements."""
    long = [axis for axis, size in enumerate(view.shape) if size > 1]
    if any(view.strides[axis] <= 0 for axis in long):
        return None
    placed = iter(sorted(long, key=lambda axis: -view.strides[axis]))
    return tuple([next(placed) if size > 1 else axis for axis, size in enumerate(view.shape)])


def channels_last_values(graph: Graph, target: Target) -> dict[Value, int]:
    """The values of a specialized graph that are to lie channels-last on `target`, with the number of axes of channels.

    There are two where a reshape divides the channels of an image: one of them is reduced then, or it has size 1.
    """
    found: dict[Value, int] = {}
    for node in graph.nodes if target.channels_last else ():
        axes = max((found.get(value, 0) for value in node.operands), default=0)
        if node.op.has(Trait.RESHAPES) and axes:
            seen = _axes_as_reshaped(node.operands[0], node.output, axes)
            found.update({node.output: seen} if seen else {})
        elif _makes_images(node) or (_passes_on(node) and axes == 1):
            found.update((value, 1) for value in node.outputs if _may_be_image(value, node, found))
        elif _passes_on(node) and axes == 2:
            found.update((value, 2) for value in node.outputs if _is_part(value, node, found))
    return found


def _axes_as_reshaped(image: Value, seen: Value, axes: int) -> int:
    """How many axes the channels of an image have as it is reshaped, whose samples and places stay; 0 where none do."""
    if image.tensor.shape is None or seen.tensor.shape is None:
        return 0
    places = image.shape[1 + axes :]
    divided = len(seen.shape) - 1 - len(places)
    stays = seen.shape[:1] == image.shape[:1] and seen.shape[1 + divided :] == places
    return divided if divided in (1, 2) and stays else 0


def _is_part(value: Value, node: Node, found: Mapping[Value, int]) -> bool:
    """Whether a result has what is left of divided channels when one of their axes is reduced."""
    if value.is_graph_output or value.tensor.shape is None or value.tensor.rank < 4 or 1 not in value.shape[1:3]:
        return False
    images = [operand for operand in node.operands if found.get(operand) == 2]
    return any(each.shape[:1] == value.shape[:1] and each.shape[3:] == value.shape[3:] for each in images)


def channels_last_strides(shape: Sequence[int], itemsize: int, axes: int = 1) -> tuple[int, ...]:
    """Strides in bytes of [N, C, ...], whose channels have so many axes, in memory as [N, ..., C]."""
    return strides_in_order(shape, itemsize, (0, *range(1 + axes, len(shape)), *range(1, 1 + axes)))


def strides_in_order(shape: Sequence[int], itemsize: int, order: Sequence[int]) -> tuple[int, ...]:
    """Strides in bytes, without gaps, of axes that lie in `order`, from outermost to innermost."""
    strides = [0] * len(shape)
    step = itemsize
    for axis in reversed(order):
        strides[axis], step = step, step * shape[axis]
    return tuple(strides)


def _makes_images(node: Node) -> bool:
    if node.op.has(Trait.CONVOLUTION):
        return True
    return any(_holds_convolution(value) for value in node.attrs.values()) if node.op is FUSED else False


def _holds_convolution(body: AttrValue) -> bool:
    return isinstance(body, Graph) and any(node.op.has(Trait.CONVOLUTION) for node in body.nodes)


def _passes_on(node: Node) -> bool:
    return node.op.has(_PASSES_ON) or node.op is FUSED


def _may_be_image(value: Value, node: Node, found: Mapping[Value, int]) -> bool:
    """Whether a result has channels and places, as many axes as the images that it is made from, and stays inside."""
    if value.is_graph_output or value.tensor.shape is None or value.tensor.rank < 3:
        return False
    images = [operand for operand in node.operands if found.get(operand) == 1]
    return not images or any(operand.tensor.rank == value.tensor.rank for operand in images)
