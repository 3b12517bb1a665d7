"""Bodies of control flow: which of them can be planned before they run."""

from collections.abc import Iterator

from ...ir.attrs import is_tuple
from ...ir.dims import SymDim
from ...ir.graph import Graph, Node
from ...ir.op import Trait
from ...ir.types import TensorType


def bodies_of(node: Node) -> Iterator[Graph]:
    """The bodies of a native control-flow node that have a plan: those of which the sizes are known."""
    if node.op.has(Trait.CONTROL_FLOW) and not node.op.is_foreign:
        yield from (body for body in node.regions.values() if _has_known_sizes(body))


def _has_known_sizes(body: Graph) -> bool:
    """Whether no input and no attribute has a size that only running tells; results inside may have one."""
    if not all(value.type.is_static for value in body.inputs if isinstance(value.type, TensorType)):
        return False
    return not any(_mentions_symbols(node.attrs[name]) for node in body.nodes for name in node.op.bound_attrs)


def _mentions_symbols(value: object) -> bool:
    if isinstance(value, SymDim):
        return True
    return is_tuple(value) and any(map(_mentions_symbols, value))
