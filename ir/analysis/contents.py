"""What is known of a value before anything runs: the content of a constant, and whether bits of numbers are read."""

from ..constant import Constant
from ..graph import Graph, Node, Value
from ..op import Trait
from ..ops.known import BIT_CAST, CONSTANT

SIGNS_READ = "capgraph.signs_read"
"""In a graph's metadata: what runs around it, or a node of it, tells -0.0 from 0.0."""


def constant_of(value: Value | None) -> Constant | None:
    """The content of a value that a `constant` node produces, if it is at hand; else None."""
    content = any_constant_of(value)
    return content if content is not None and content.is_at_hand else None


def any_constant_of(value: Value | None) -> Constant | None:
    """The same also for content that is not at hand, which passes must not read."""
    node = value.producer if value is not None else None
    content = node.attrs["value"] if node is not None and node.op is CONSTANT else None
    return content if isinstance(content, Constant) else None


def reads_bits(node: Node) -> bool:
    """Whether it tells -0.0 from 0.0. PyTorch's views as wider or narrower types do, too."""
    return node.op is BIT_CAST or (node.op.has(Trait.FOREIGN) and node.op.name.startswith("aten.view"))


def keeps_signs(graph: Graph) -> bool:
    """Whether signs of zeros count in a graph."""
    return SIGNS_READ in graph.metadata or any(map(reads_bits, graph.nodes))
