"""What a proof claims, as plain data, and of which nodes each claim is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ....ir.analysis import input_symbols
from ....ir.constant import Constant
from ....ir.dims import SymDim, symbol
from ....ir.graph import Graph, Node, Value
from ....ir.ops.bounded import PREFIX
from ....ir.ops.known import CONSTANT
from ....ir.types import TensorType
from .rules.facts import Fact, Number


@dataclass(frozen=True)
class Certificate:
    """A proof as plain data: what is claimed of each value of `graph` when `symbol` is padded up to `largest`.

    `together` has the producers with which the claims about a node hold, beyond their own. `fills` are the inputs whose
    padding holds a number; sizes of inputs are at least `least`. `real_size` names the input that holds the real size,
    where there is one.
    """

    graph: Graph
    symbol: str
    facts: Mapping[Value, Fact]
    fills: Mapping[str, Number]
    together: Mapping[Node, Sequence[Node]] = field(default_factory=dict[Node, Sequence[Node]])
    real_size: str | None = None
    largest: int | None = None
    least: int = 0

    @cached_property
    def sizes_of_calls(self) -> tuple[str, ...]:
        """The symbols whose sizes callers choose."""
        return input_symbols(self.graph)

    @cached_property
    def dims_of_calls(self) -> frozenset[SymDim]:
        """What inputs have at the sizes that callers choose."""
        types = (value.type for value in self.graph.inputs)
        dims = (dim for ty in types if isinstance(ty, TensorType) for dim in ty.shape or ())
        return frozenset(dim for dim in dims if isinstance(dim, SymDim))


# ---- a node and what its claims hold with


def _in_order(node: Node, together: frozenset[Node]) -> list[Node]:
    """A node behind those of `together` that it depends on, each once."""
    found: dict[Node, None] = {}
    for value in node.operands:
        if value.producer in together:
            found.update(dict.fromkeys(_in_order(value.producer, together)))
    return [*found, node]


class ClaimedPart:
    """A node with the producers that its claims hold with, and the values that these take from outside."""

    def __init__(self, node: Node, together: Sequence[Node]) -> None:
        inner = {value for each in together for value in each.outputs}
        self.node = node
        self.nodes = _in_order(node, frozenset(together))
        given = (value for each in self.nodes for value in each.operands if value not in inner)
        self.operands = list(dict.fromkeys(given))
        self.values = (*self.operands, *node.outputs)

    def makes(self, name: str) -> bool:
        """Whether the node itself tells the real size of a dim, by a count that is its last result."""
        return self.node.op.name.startswith(PREFIX) and self.node.attrs["size"] == symbol(name)

    def wiring(self) -> tuple[object, ...]:
        """Ops, attributes and how results are passed on."""
        numbers = {value: index for index, value in enumerate(self.operands)}
        for node in self.nodes:
            for value in node.outputs:
                numbers[value] = len(numbers)
        return tuple(
            (node.op, _without_content(node), *(None if value is None else numbers[value] for value in node.inputs))
            for node in self.nodes
        )


def _without_content(node: Node) -> object:
    """Attributes to be kept; a constant's digest, so that its content need not be."""
    value = node.attrs["value"] if node.op is CONSTANT else None
    return value.digest if isinstance(value, Constant) else node.attrs
