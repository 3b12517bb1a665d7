"""Values and nodes: what a graph is made of.

A `Node` is one application of an op and owns its operands as a tuple; a `Value` knows its producer and its uses. Both
are read-only: an assignment raises and names the method of `Graph` or `Rewriter` to call. Only `ir/graph.py` and
`ir/node_list.py` write them, with `write`.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NoReturn

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


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Value:
    """An SSA value: a graph input (`producer` is None) or result `index` of its producer. Compared by identity."""

    graph: "Graph"
    name: str
    type: Type
    producer: "Node | None"
    index: int
    _uses: dict[Use, None] = field(default_factory=dict[Use, None], init=False)

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

    def is_read_outside(self, nodes: Collection["Node"]) -> bool:
        """Whether the graph, or a node that is not among these, reads it."""
        return self.is_graph_output or any(user not in nodes for user in self.users)

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


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Node:
    """One application of an op; `graph` is None once it is erased. Compared by identity."""

    graph: "Graph | None"
    op: Op
    inputs: tuple[Value | None, ...]
    attrs: Attrs
    origin: Origin | None
    outputs: tuple[Value, ...] = ()
    _previous: "Node | None" = field(init=False)  # the links are set by the list that the node stands in
    _next: "Node | None" = field(init=False)
    _label: int = field(init=False)

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
        if not self.op.may_have_regions:
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


write = object.__setattr__
"""Sets a field of a node or value: for `Graph` and `NodeList`, which keep the edges between them."""

_CHANGED_BY = {
    "attrs": "Graph.set_attrs",
    "inputs": "Graph.replace_input",
    "name": "Graph.rename",
    "outputs": "Graph.replace_uses, then Graph.erase",
    "op": "Rewriter.replace with the result of a new node",
    **dict.fromkeys(("type", "tensor", "shape"), "Graph.refine_type or Graph.bind_type"),
}


def _refuse(self: Value | Node, name: str, _: object = None) -> NoReturn:
    remedy = f"call {_CHANGED_BY.get(name, 'Graph.replace_uses, Graph.erase or Graph.inline')}"
    raise InvalidGraphError(f"{name} of {self!r} is read-only", remedy=remedy)


for _kind in (Value, Node):  # in place of what a frozen dataclass raises
    setattr(_kind, "__setattr__", _refuse)  # noqa: B010  # a method that type checkers do not see: to them it is frozen
    setattr(_kind, "__delattr__", _refuse)  # noqa: B010
