"""What every graph must be, and the check that it is.

`Graph`'s methods keep these invariants; `verify` finds the code that went around them, or that relied on what only a
pass could promise. In a valid graph

**Structure**
1. the node list reads the same forwards and backwards, its length is `len(graph)`, and `precedes` agrees with it;
2. every input, node and result points to its graph; every result to its producer and its own index;
3. value names are non-empty, unique, and found by `graph.value`;
4. every operand belongs to the same graph and stands before the node that reads it (so there is no cycle);
5. the uses of a value are exactly the operands and outputs that read it;
6. every output belongs to the graph; there are as many output names as outputs, all different;
7. a state pairs one input with one output of a type that may be its next content; no index is in two states;
   a default belongs to an input and may be its content.

**Nodes**
8. attributes are complete, in the order of the schema, and in normal form; those of a foreign op are values that the
   text form knows; a region is itself an attribute, not part of a list; a foreign op's name has a domain;
9. the op's rule accepts the operands and attributes, and what it infers does not contradict the results' types; the
   results of a foreign op have types all the same;
10. no type holds a size that is still FRESH.

**Symbols**
11. an attribute or result type only mentions symbols of the graph's inputs and of the node's own operands, or, in a
    region, of the inputs of the graphs around it and of the owning node's operands; a size that only running tells is
    a new symbol, mentioned first by the node that makes it;
12. no node of a region makes a symbol that an earlier node around it made;
13. the graph's symbol table knows every symbol, and regions share the table.

**Regions**
14. a region belongs to one node; no value of it is used outside of it, nor the other way round (by 2 and 4);
15. it is a valid graph itself, and its signature fits its owner (by 9).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from .attrs import Attrs, AttrValue, is_tuple
from .constant import Constant
from .dims import SymDim, Truth
from .errors import CapgraphError, InvalidGraphError
from .graph import Graph, Node, Use, Value
from .op import FRESH, Op
from .ops.known import CONSTANT
from .text.printer import print_node
from .types import DType, OpaqueType, OptionalType, SequenceType, TensorType, Type, compatible, type_symbols

_TYPES = (TensorType, SequenceType, OptionalType, OpaqueType)
_SCALARS = {type(None), bool, int, float, str, bytes, DType, SymDim, Constant, *_TYPES}
_NEIGHBORS = 2
_FRESH_NAMES = FRESH.symbols
Result = TypeVar("Result")


_Judged = tuple[Op, Attrs, tuple[Type | None, ...], tuple[Type, ...]]
"""What 8 and 9 say of a node without regions follows from its op, its attributes, and the types around it."""

Judged = dict[_Judged, tuple[Type, ...]]
"""Nodes that are right, and what their rules infer: layers of a model are alike, and graphs are verified many times."""


def verify(graph: Graph, judged: Judged | None = None) -> None:
    """Raises `InvalidGraphError` when `graph` or a region in it breaks an invariant of this module's docstring.

    The message shows the offending node among its neighbors. Takes time linear in the size of the graph, and less with
    the nodes that earlier calls `judged`, to which it adds.
    """
    owners: dict[Graph, Node | None] = {graph: None}
    pending = [_Scope(graph, judged={} if judged is None else judged)]
    while pending:
        scope = pending.pop()
        _verify_structure(scope)
        _verify_signature(scope)
        for node in scope.nodes:
            _verify_node(scope, node)
            for region in node.regions.values():
                _require(region not in owners, scope, node, f"its region {region.name} belongs to another node as well")
                owners[region] = node
                pending.append(scope.inside(node, region))


@dataclass
class _Scope:
    """A graph under verification: its nodes in order, and which symbols may be mentioned in it.

    `bound` are the symbols that inputs bind, here and around; `made` says which node made each of the others.
    """

    graph: Graph
    bound: frozenset[str] = frozenset()
    around: "_Scope | None" = None
    owner: Node | None = None
    nodes: list[Node] = field(default_factory=list[Node])
    made: dict[str, Node] = field(default_factory=dict[str, Node])
    types: dict[Type, frozenset[str]] = field(default_factory=dict[Type, frozenset[str]])
    judged: Judged = field(default_factory=Judged)

    def inside(self, node: Node, region: Graph) -> "_Scope":
        """The scope of a region of `node`."""
        visible = self.bound.union(*(self.symbols(value.type) for value in node.operands))
        return _Scope(region, visible, self, node, types=self.types, judged=self.judged)

    def symbols(self, ty: Type) -> frozenset[str]:
        """The symbols in `ty`, remembered: large graphs have few types."""
        known = self.types.get(ty)
        if known is None:
            known = self.types[ty] = type_symbols(ty)
        return known

    def maker_around(self, name: str) -> Node | None:
        """The node of a graph around this one that made the symbol before this region's owner."""
        scope = self
        while scope.around is not None and scope.owner is not None:
            maker = scope.around.made.get(name)
            if maker is not None and maker.precedes(scope.owner):
                return maker
            scope = scope.around
        return None


# ---- messages


def _require(holds: bool, scope: _Scope, node: Node | None, problem: str) -> None:
    """For what is asked now and then: of each node or value there is no time to word a problem that it has not."""
    if not holds:
        raise _broken(scope, node, problem)


def _broken(scope: _Scope, node: Node | None, problem: str) -> InvalidGraphError:
    if node is None:
        return InvalidGraphError(f"graph {scope.graph.name}: {problem}")
    shown = _neighborhood(scope, node)
    return InvalidGraphError(f"graph {scope.graph.name}: {problem}\n{shown}", where=node.where())


def _neighborhood(scope: _Scope, node: Node) -> str:
    """The node's line with a few before and after it, underlined."""
    at = scope.nodes.index(node) if node in scope.nodes else 0
    around = scope.nodes[max(0, at - _NEIGHBORS) : at + _NEIGHBORS + 1]
    lines: list[str] = []
    for other in around:
        text = _line(other)
        lines.append(f"    {text}")
        if other is node:
            lines.append(f"    {'^' * len(text)}")
    return "\n".join(lines)


def _line(node: Node) -> str:
    try:
        return print_node(node)
    except CapgraphError:  # an attribute without text form, or a constant whose file is gone
        return repr(node)


# ---- structure


def _verify_structure(scope: _Scope) -> None:
    _verify_order(scope)
    known = _verify_values(scope)
    _verify_outputs(scope, known)
    _verify_defaults(scope)
    _verify_uses(scope)


def _verify_order(scope: _Scope) -> None:
    graph = scope.graph
    scope.nodes.extend(_bounded(graph, graph.nodes))
    backwards = _bounded(graph, graph.reversed_nodes)
    backwards.reverse()
    _require(len(scope.nodes) == len(graph), scope, None, f"lists {len(scope.nodes)} nodes, but counts {len(graph)}")
    _require(scope.nodes == backwards, scope, None, "the node list reads differently backwards")
    previous: Node | None = None
    for node in scope.nodes:
        _require(node.graph is graph, scope, node, "the node points to another graph")
        if previous is not None:
            _require(previous.precedes(node), scope, node, "precedes() contradicts the node list")
        previous = node


def _bounded(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    """The nodes, but not on and on when the list is a ring."""
    seen: dict[Node, None] = {}
    for node in nodes:
        if node in seen:
            raise InvalidGraphError(f"graph {graph.name}: the node list is a ring", where=node.where())
        seen[node] = None
    return list(seen)


def _verify_values(scope: _Scope) -> set[Value]:
    """Every value of the graph, once names, ownership and order of operands are right."""
    known: set[Value] = set()
    for index, value in enumerate(scope.graph.inputs):
        _require(value.producer is None, scope, None, f"input %{value.name} has a producer")
        _verify_value(scope, None, value, index, known)
    for node in scope.nodes:
        for operand in node.inputs:
            if operand is not None and operand not in known:
                raise _broken(scope, node, f"operand %{operand.name} is not known before the node that reads it")
        for index, value in enumerate(node.outputs):
            if value.producer is not node:
                raise _broken(scope, node, f"%{value.name} points to another producer")
            _verify_value(scope, node, value, index, known)
    return known


def _verify_value(scope: _Scope, node: Node | None, value: Value, index: int, known: set[Value]) -> None:
    graph = scope.graph
    if value in known:
        raise _broken(scope, node, f"%{value.name} stands in the graph twice")
    if value.graph is not graph:
        raise _broken(scope, node, f"%{value.name} points to another graph")
    if value.index != index:
        raise _broken(scope, node, f"%{value.name} has index {value.index} instead of {index}")
    if not _is_named(graph, value):
        raise _broken(scope, node, f"the name {value.name!r} is empty or stands for another value")
    if not isinstance(value.type, _TYPES):
        raise _broken(scope, node, f"the type of %{value.name} is {value.type!r}")
    known.add(value)


def _is_named(graph: Graph, value: Value) -> bool:
    try:
        return bool(value.name) and graph.value(value.name) is value
    except InvalidGraphError:
        return False


def _verify_outputs(scope: _Scope, known: set[Value]) -> None:
    graph = scope.graph
    for value in graph.outputs:
        _require(value in known, scope, None, f"output %{value.name} is no value of the graph")
    names = graph.output_names
    _require(len(names) == len(graph.outputs), scope, None, f"{len(graph.outputs)} outputs, but {len(names)} names")
    _require(len(set(names)) == len(names), scope, None, f"output names repeat: {', '.join(names)}")
    states = graph.states
    inputs, outputs = [state.input for state in states], [state.output for state in states]
    _require(_are_indices(inputs, graph.inputs), scope, None, f"states name the inputs {inputs}")
    _require(_are_indices(outputs, graph.outputs), scope, None, f"states name the outputs {outputs}")
    for state in states:
        old, new = graph.inputs[state.input], graph.outputs[state.output]
        fits = compatible(old.type, new.type) is not Truth.NO
        _require(fits, scope, None, f"state %{old.name} is {old.type}, but its next content is {new.type}")


def _verify_defaults(scope: _Scope) -> None:
    inputs = {value.name: value for value in scope.graph.inputs}
    for name, content in scope.graph.defaults.items():
        _require(name in inputs, scope, None, f"there is a default for {name}, which is no input")
        fits = compatible(inputs[name].type, content.type) is not Truth.NO
        _require(fits, scope, None, f"input %{name} is {inputs[name].type}, but its default is {content.type}")


def _are_indices(indices: Sequence[int], of: Sequence[Value]) -> bool:
    return len(set(indices)) == len(indices) and all(0 <= index < len(of) for index in indices)


def _verify_uses(scope: _Scope) -> None:
    graph = scope.graph
    expected: dict[Value, set[Use]] = {value: set() for value in graph.values}
    for node in scope.nodes:
        for index, value in enumerate(node.inputs):
            if value is not None:
                expected[value].add(Use(node, index))
    for index, value in enumerate(graph.outputs):
        expected[value].add(Use(graph, index))
    for value, uses in expected.items():
        recorded = set(value.uses)
        if recorded != uses:
            missing, surplus = uses - recorded, recorded - uses
            problem = "does not know of its use as" if missing else "claims to be used as"
            use = next(iter(missing or surplus))
            raise _broken(scope, value.producer, f"%{value.name} {problem} {_use_text(use)}")


def _use_text(use: Use) -> str:
    user = f"output of {use.user.name}" if isinstance(use.user, Graph) else f"operand of {use.user!r}"
    return f"{user} (index {use.index})"


# ---- signature and nodes


def _verify_signature(scope: _Scope) -> None:
    graph = scope.graph
    if scope.around is not None:
        shares = graph.symbols is scope.around.graph.symbols
        _require(shares, scope, None, "the region does not share the symbol table of the graph around it")
    named = frozenset[str]().union(*(scope.symbols(value.type) for value in graph.inputs))
    unknown = ", ".join(sorted(named - graph.symbols.names))
    _require(not unknown, scope, None, f"the symbol table does not know {unknown}")
    scope.bound |= named


def _verify_node(scope: _Scope, node: Node) -> None:
    for name, value in node.attrs.items():
        if not isinstance(value, Graph) and not _is_plain(value):
            raise _broken(scope, node, f"attribute {name} is {value!r}")
    if node.op is CONSTANT or node.op.is_foreign or node.regions:
        inferred = _judged(scope, node)
    else:
        types = tuple([None if value is None else value.type for value in node.inputs])
        key = node.op, node.attrs, types, tuple([value.type for value in node.outputs])
        known = scope.judged.get(key)
        inferred = _judged(scope, node) if known is None else known
        scope.judged[key] = inferred
    _verify_symbols(scope, node, inferred)


def _judged(scope: _Scope, node: Node) -> tuple[Type, ...]:
    """What the rule of a node infers, once its attributes and its results' types are right."""
    _verify_attrs(scope, node)
    inferred = _inferred(scope, node)
    _require(len(inferred) == len(node.outputs), scope, node, f"the op has {len(inferred)} results")
    for value, ty in zip(node.outputs, inferred, strict=True):
        if compatible(value.type, ty) is Truth.NO:
            raise _broken(scope, node, f"%{value.name} is {value.type}, but the rule of {node.op.name} infers {ty}")
    return inferred


def _verify_attrs(scope: _Scope, node: Node) -> None:
    op, attrs = node.op, node.attrs
    if op.is_foreign:
        _require("." in op.name, scope, node, f"the name of the foreign op {op.name} has no domain")
    elif tuple(attrs) != tuple(op.attrs):
        raise _broken(scope, node, f"the attributes are {list(attrs)} instead of {list(op.attrs)}")
    completed = _located(scope, node, lambda: op.complete_attrs(attrs)) if attrs else attrs
    if completed != attrs:
        raise _broken(scope, node, f"the attributes are not in normal form: {attrs} for {completed}")


def _is_plain(value: object) -> bool:
    """Whether an attribute's value has a text form, regions aside."""
    if is_tuple(value):
        return all(_is_plain(item) for item in value)
    return type(value) in _SCALARS  # a NumPy scalar is an instance of float, and not in normal form


def _inferred(scope: _Scope, node: Node) -> tuple[Type, ...]:
    """What the rule says of the results; of a foreign op's, what they say themselves."""
    if node.op.is_foreign:
        return tuple(value.type for value in node.outputs)
    types = [value.type if value is not None else None for value in node.inputs]
    return _located(scope, node, lambda: node.op.result_types(types, node.attrs))


def _located(scope: _Scope, node: Node, ask: Callable[[], Result]) -> Result:
    try:
        return ask()
    except CapgraphError as error:
        raise _broken(scope, node, error.message) from error


# ---- symbols


def _verify_symbols(scope: _Scope, node: Node, inferred: Sequence[Type]) -> None:
    visible: frozenset[str] | None = None
    for value in node.attrs.values():
        mentioned = _symbols_in(value)
        if mentioned:
            visible = _visible(scope, node) if visible is None else visible
            unknown = ", ".join(sorted(mentioned - visible))
            _require(not unknown, scope, node, f"an attribute mentions {unknown}, which no input or operand binds here")
    may_make = node.op.is_foreign or any(scope.symbols(ty) >= _FRESH_NAMES for ty in inferred)
    for value in node.outputs:
        mentioned = scope.symbols(value.type)
        if not mentioned:
            continue
        if mentioned & _FRESH_NAMES:
            raise _broken(scope, node, f"a size of %{value.name} was never made a symbol")
        visible = _visible(scope, node) if visible is None else visible
        for name in mentioned - visible:
            _require(may_make, scope, node, f"%{value.name} mentions {name}, which no input or operand binds here")
            _verify_new_symbol(scope, node, name)


def _visible(scope: _Scope, node: Node) -> frozenset[str]:
    return scope.bound.union(*(scope.symbols(value.type) for value in node.operands))


def _verify_new_symbol(scope: _Scope, node: Node, name: str) -> None:
    """`name` gets its size from a run of `node`, and from nothing before."""
    _require(name in scope.graph.symbols.names, scope, node, f"the symbol table does not know {name}")
    maker = scope.made.get(name) or scope.maker_around(name)
    if maker is not None and maker is not node:
        problem = f"{name} is a size that {maker!r} makes, and no operand descends from it"
        raise _broken(scope, node, problem)
    scope.made[name] = node


def _symbols_in(value: AttrValue) -> frozenset[str]:
    if isinstance(value, SymDim):
        return value.symbols
    if is_tuple(value):
        return frozenset[str]().union(*map(_symbols_in, value))
    return type_symbols(value) if isinstance(value, _TYPES) else frozenset()
