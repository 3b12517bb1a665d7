"""What a step computes, one node or a `fused` region of several: the nodes, what they read, and what they write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....ir.constant import Constant
from ....ir.graph import Graph, Node, Value
from ....ir.types import DType, TensorType
from .launch import Task
from .layouts import Layout, layout_of


@dataclass(frozen=True)
class FusedRegion:
    """Nodes in order, where the values from outside lie, constants by value, and where results go.

    `results` pairs each result with its place; one value may have several.
    """

    nodes: tuple[Node, ...]
    sources: Mapping[Value, Layout]
    constants: Mapping[Value, Constant]
    results: tuple[tuple[Value, Layout], ...]
    flops: int = 0


def region_of(task: Task) -> FusedRegion:
    """The region of a task's node: the body of a `fused` node, else the node alone."""
    node = task.node
    body = node.attrs["body"] if node.op.name == "fused" else None
    inner_inputs = body.inputs if isinstance(body, Graph) else node.inputs
    inner_outputs = body.outputs if isinstance(body, Graph) else node.outputs
    sources: dict[Value, Layout] = {}
    constants: dict[Value, Constant] = {}
    for index, (value, view) in enumerate(zip(inner_inputs, task.operands, strict=True)):
        if value is None or view is None:
            continue
        sources[value] = layout_of(view)
        if index in task.constants and sources[value].size == 1:
            constants[value] = task.constants[index]
    nodes = tuple(body.nodes) if isinstance(body, Graph) else (node,)
    for inner in nodes:
        if inner.op.name == "constant":
            constants[inner.output] = inner.attrs["value"]
    results = tuple((value, layout_of(view)) for value, view in zip(inner_outputs, task.results, strict=True))
    computing = tuple(inner for inner in nodes if inner.op.name != "constant")
    return FusedRegion(computing, sources, constants, results, flops_of(task))


def body_nodes(node: Node) -> tuple[Node, ...]:
    """The computing nodes of a `fused` node's body; of another node itself."""
    body = node.attrs["body"] if node.op.name == "fused" else None
    if not isinstance(body, Graph):
        return (node,)
    return tuple(inner for inner in body.nodes if inner.op.name != "constant")


def flops_of(task: Task) -> int:
    """The operations of a task's node."""
    node = task.node
    types = [value.type if value is not None else None for value in node.inputs]
    count = node.op.flops(types, [value.type for value in node.outputs], node.attrs)
    return count if isinstance(count, int) else 0


def shape_of(value: Value) -> tuple[int, ...]:
    """The static shape of a tensor."""
    return tuple(dim for dim in tensor_type(value).dims if isinstance(dim, int))


def dtype_of(value: Value) -> DType:
    """The element type of a tensor."""
    return tensor_type(value).dtype


def tensor_type(value: Value) -> TensorType:
    """The type of a value that is known to be a tensor."""
    assert isinstance(value.type, TensorType)  # only tensors are lowered
    return value.type


def is_static(values: Sequence[Value]) -> bool:
    """Whether all values are tensors of known sizes."""
    return all(isinstance(value.type, TensorType) and value.type.is_static for value in values)
