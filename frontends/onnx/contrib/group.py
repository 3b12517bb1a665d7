"""What a group is, and what the rules ask of nodes."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ....ir.analysis.contents import any_constant_of
from ....ir.dims import Dim, Truth, compare
from ....ir.graph import Graph, Node, Value
from ....ir.types import DType, TensorType
from ..context.export_context import ExportContext

DOMAIN = "com.microsoft"


class Operator(NamedTuple):
    """One of ONNX Runtime's own operators, for operands of one element type.

    `kind` tells apart what not every provider has of it, or has quick: the activation behind a convolution, a cache
    that grows.
    """

    name: str
    dtype: DType
    kind: str = ""


@dataclass(frozen=True)
class Group:
    """Nodes that are written as one operator in the place of `root`, the last of them; `inner` are the others.

    `results` are the values that the operator gives: those of the root and others that are read elsewhere too.
    """

    root: Node
    inner: frozenset[Node]
    results: tuple[Value, ...]
    write: Callable[[ExportContext], None]


def order_of(graph: Graph) -> Mapping[Node, int]:
    """The position of each node."""
    return {node: index for index, node in enumerate(graph.nodes)}


def is_inside(values: Iterable[Value], nodes: Collection[Node]) -> bool:
    """Whether nothing but `nodes` reads `values`."""
    return all(not value.is_graph_output and all(user in nodes for user in value.users) for value in values)


def sole_producer(value: Value, op: str) -> Node | None:
    """The node of that op that makes `value`, if only one node reads it."""
    node = value.producer
    if node is None or node.op.name != op or value.is_graph_output or len(value.uses) != 1:
        return None
    return node


def is_vector(value: Value | None, size: Dim) -> bool:
    """Whether a value is a tensor of one axis with that size."""
    if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
        return False
    return len(value.shape) == 1 and compare(value.shape[0], size) is Truth.YES


def have_equal_shapes(first: Value, second: Value) -> bool:
    """Whether two tensors are known to have the same shape."""
    a, b = first.tensor, second.tensor
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return False
    return all(compare(*pair) is Truth.YES for pair in zip(a.shape, b.shape, strict=True))


def scalar_of(value: Value) -> float | None:
    """The number that every element of a constant is, if it has one element."""
    content = any_constant_of(value)
    return float(content.array.reshape(-1)[0]) if content is not None and content.size == 1 else None
