"""Values and nodes: what a graph is made of.

A `Node` is one application of an op and owns its operands as a tuple; a `Value` knows its producer and its uses. Both
are read here and written by the methods of `Graph` alone: their private fields belong to `ir/graph.py` and
`ir/node_list.py`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .attrs import Attrs
from .dims import Dim
from .errors import InvalidGraphError, TypeRuleError
from .op import Op
from .types import TensorType, Type

if TYPE_CHECKING:
    from .graph import Graph


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node comes from, for errors, reports and profiles.

    `name` is its name in the source model, `source` a file and line or module path, `doc` its documentation string,
    `metadata` further (key, value) pairs that exporters write back.
    """

    name: str = ""
    source: str = ""
    doc: str = ""
    metadata: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.name} ({self.source})" if self.name and self.source else self.name or self.source


class Use(NamedTuple):
    """One place where a value is read: operand `index` of a node, or output `index` of the graph itself."""

    user: "Node | Graph"
    index: int  # type: ignore[assignment]  # the tuple method of that name is not wanted


class State(NamedTuple):
    """Output `output` of the graph is the next content of input `input`: one persistent buffer, such as a KV cache."""

    input: int
    output: int


class Value:
    """An SSA value: a graph input (`producer` is None) or result `index` of its producer. Compared by identity."""

    __slots__ = ("_uses", "graph", "index", "name", "producer", "type")

    def __init__(self, graph: "Graph", name: str, ty: Type, producer: "Node | None", index: int) -> None:
        self.graph = graph
        self.name = name
        self.type = ty
        self.producer = producer
        self.index = index
        self._uses: dict[Use, None] = {}

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"

    @property
    def uses(self) -> tuple[Use, ...]:
        """All uses, in the order in which they were made."""
        return tuple(self._uses)

    @property
    def users(self) -> "tuple[Node, ...]":
        """The nodes that read this value, each once, in order of first use."""
        return tuple(dict.fromkeys(use.user for use in self._uses if isinstance(use.user, Node)))

    @property
    def use_count(self) -> int:
        """How many uses there are; unlike `len(value.uses)`, in constant time."""
        return len(self._uses)

    @property
    def has_uses(self) -> bool:
        return bool(self._uses)

    @property
    def is_graph_output(self) -> bool:
        return any(use.user is self.graph for use in self._uses)

    @property
    def tensor(self) -> TensorType:
        """The type of a tensor value. Raises `TypeRuleError` for a sequence, optional or opaque value."""
        if not isinstance(self.type, TensorType):
            raise TypeRuleError(f"%{self.name} is {self.type}, not a tensor")
        return self.type

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of a ranked tensor value."""
        return self.tensor.dims

    @property
    def origin(self) -> Origin | None:
        return self.producer.origin if self.producer is not None else None


class Node:
    """One application of an op. Compared by identity; changed only through its graph."""

    __slots__ = ("_label", "_next", "_previous", "attrs", "graph", "inputs", "op", "origin", "outputs")

    def __init__(self, graph: "Graph", op: Op, inputs: tuple[Value | None, ...], attrs: Attrs, origin: Origin | None):
        self.graph: Graph | None = graph
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.origin = origin
        self.outputs: tuple[Value, ...] = ()
        self._previous: Node | None = None
        self._next: Node | None = None
        self._label = 0

    def __repr__(self) -> str:
        results = ", ".join(f"%{value.name}" for value in self.outputs)
        operands = ", ".join("_" if value is None else f"%{value.name}" for value in self.inputs)
        return f"{results}{' = ' if results else ''}{self.op.name}({operands})"

    @property
    def output(self) -> Value:
        """The result of a node that has one. Raises `InvalidGraphError` when it has several."""
        if len(self.outputs) != 1:
            raise InvalidGraphError(f"{self!r} has {len(self.outputs)} results; name the one you mean")
        return self.outputs[0]

    @property
    def operands(self) -> tuple[Value, ...]:
        """The operands that are present."""
        return tuple(value for value in self.inputs if value is not None)

    @property
    def previous(self) -> "Node | None":
        """The node that stands right before this one."""
        return self._previous

    @property
    def next(self) -> "Node | None":
        """The node that stands right behind this one."""
        return self._next

    @property
    def regions(self) -> "dict[str, Graph]":
        """The region attributes by name."""
        if not self.op.bound_attrs and not self.op.is_foreign:
            return {}  # asked of every node of a graph, of which few can have any
        return {name: value for name, value in self.attrs.items() if getattr(value, "is_graph", False)}

    @property
    def has_uses(self) -> bool:
        return any(value.has_uses for value in self.outputs)

    def precedes(self, other: "Node") -> bool:
        """Whether this node stands before `other` in the same graph."""
        return self._label < other._label

    def where(self) -> str:
        """The node and its origin, for error messages."""
        return f"{self!r} from {self.origin}" if self.origin and str(self.origin) else repr(self)
