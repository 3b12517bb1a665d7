"""Graphs, and the only code that writes the edges between values and nodes.

A `Graph` is a list of nodes in topological order. Its methods are the only writers of edges, order and names, and an
edit is all or nothing: it is checked before the first change, so a refused edit leaves the graph as it was. Inserting,
erasing and moving a node take constant time, and iterating survives the removal of the node just given out.
"""

# pyright: reportPrivateUsage=false
# Value, Node, NodeList and Graph are one unit; what is private to it is written here.

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from .attrs import Attrs, AttrValue
from .binding import Sizes, bind_attr, inside, kept_type, mentioned, own_sizes, plain_sizes
from .constant import Constant
from .dims import Dim, Truth
from .edit_checks import check_declared, check_replacement, distinct, is_known_at
from .errors import CapgraphError, InvalidGraphError, TypeRuleError
from .node import Node, Origin, State, Use, Value, write
from .node_list import NodeList
from .op import FRESH, Op
from .symbol_table import SymbolTable
from .types import OptionalType, SequenceType, TensorType, Type, bind_type, compatible

__all__ = ["Graph", "Node", "Origin", "State", "SymbolTable", "Use", "Value"]


class Graph:
    """A function in SSA form: inputs, nodes in topological order, outputs, states.

    `symbols` is shared with the regions of the graph: pass the outer graph's table when building one.
    `metadata` holds facts about the whole model (producer, documentation) that exporters write back.
    """

    is_graph = True

    def __init__(self, name: str = "main", *, symbols: SymbolTable | None = None) -> None:
        self.name = name
        self.symbols = symbols or SymbolTable()
        self.metadata: dict[str, str] = {}
        self._inputs: tuple[Value, ...] = ()
        self._outputs: list[Value] = []
        # Made at the first read after an edit: a new tuple at each edit of thousands of outputs takes quadratic time.
        self._outputs_as_read: tuple[Value, ...] | None = None
        self._output_names: tuple[str, ...] = ()
        self._states: tuple[State, ...] = ()
        self._defaults: dict[str, Constant] = {}
        self._order = NodeList()
        self._values: dict[str, Value] = {}
        self._next_name = 0
        self._next_suffix: dict[str, int] = {}

    def __repr__(self) -> str:
        return (
            f"Graph({self.name}, {len(self._inputs)} inputs, {self._order.count} nodes, {len(self._outputs)} outputs)"
        )

    # ---- reading

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self._inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The values that the graph returns; one value may stand at several places."""
        if self._outputs_as_read is None:
            self._outputs_as_read = tuple(self._outputs)
        return self._outputs_as_read

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names under which callers get the outputs; they outlive the values' own names."""
        return self._output_names

    @property
    def states(self) -> tuple[State, ...]:
        return self._states

    @property
    def defaults(self) -> Mapping[str, Constant]:
        """The content, by name, of inputs that callers may leave out (ONNX initializers that are also inputs)."""
        return MappingProxyType(self._defaults)

    @property
    def nodes(self) -> Iterator[Node]:
        """The nodes in order. The node just given out may be erased or moved, and others inserted around it."""
        node = self._order.first
        while node is not None:
            following = node._next
            yield node
            # A node that is still here may have got new successors; one that was erased leads on from where it stood.
            node = node._next if node.graph is self else following

    @property
    def reversed_nodes(self) -> Iterator[Node]:
        """The nodes from last to first, with the same promise as `nodes`; those before may be erased as well."""
        node = self._order.last
        while node is not None:
            following = node._previous
            yield node
            node = node._previous if node.graph is self else following
            while node is not None and node.graph is not self:  # erased together with the node given out
                node = node._previous

    @property
    def first(self) -> Node | None:
        return self._order.first

    @property
    def last(self) -> Node | None:
        return self._order.last

    def __len__(self) -> int:
        """Number of nodes, not counting those in regions."""
        return self._order.count

    def __bool__(self) -> bool:
        return True

    @property
    def values(self) -> Iterator[Value]:
        """Every value: the inputs, then the results in order."""
        yield from self._inputs
        for node in self.nodes:
            yield from node.outputs

    def value(self, name: str) -> Value:
        """The value called `name`. Raises `InvalidGraphError` when there is none."""
        found = self._values.get(name)
        if found is None:
            raise InvalidGraphError(f"graph {self.name} has no value %{name}")
        return found

    # ---- inputs, outputs, states, names

    def add_input(self, name: str, ty: Type) -> Value:
        """A new last input. Unlike a node's result, an input keeps exactly the name that it is given."""
        if name in self._values:
            raise InvalidGraphError(f"graph {self.name} already has a value %{name}", remedy="choose another name")
        value = Value(self, name, self.named_dims(ty), None, len(self._inputs))
        self._inputs = (*self._inputs, value)
        self._values[name] = value
        return value

    def remove_input(self, value: Value) -> None:
        """Removes an unused input; states keep their meaning. Raises `InvalidGraphError` when it is used or a state."""
        self._own(value)
        if value.producer is not None or value.has_uses or any(s.input == value.index for s in self._states):
            raise InvalidGraphError(f"%{value.name} is not an unused input of {self.name}")
        removed = value.index
        self._inputs = tuple(other for other in self._inputs if other is not value)
        for index, other in enumerate(self._inputs):
            write(other, "index", index)
        self._states = tuple(State(s.input - (s.input > removed), s.output) for s in self._states)
        del self._values[value.name]
        self._defaults.pop(value.name, None)

    def set_outputs(self, values: Sequence[Value], names: Sequence[str] | None = None) -> None:
        """Makes `values` the outputs, called `names` (by default as the values are); drops the states."""
        for value in values:
            self._own(value)
        chosen = tuple(names) if names is not None else tuple(value.name for value in values)
        if len(chosen) != len(values):
            raise InvalidGraphError(f"{len(values)} outputs, but {len(chosen)} output names")
        if names is not None and len(set(chosen)) != len(chosen):
            raise InvalidGraphError("output names must differ from each other")
        for index, value in enumerate(self._outputs):
            del value._uses[Use(self, index)]
        self._outputs, self._outputs_as_read = list(values), None
        self._output_names = chosen if names is not None else distinct(chosen)
        self._states = ()
        for index, value in enumerate(self._outputs):
            value._uses[Use(self, index)] = None

    def set_states(self, states: Iterable[tuple[int, int]]) -> None:
        """Declares (input, output) index pairs as persistent buffers. Types must agree, and no index may repeat."""
        pairs = tuple(State(*pair) for pair in states)
        for pair in pairs:
            if not (0 <= pair.input < len(self._inputs) and 0 <= pair.output < len(self._outputs)):
                raise InvalidGraphError(f"{pair} is out of range in graph {self.name}")
            old, new = self._inputs[pair.input], self._outputs[pair.output]
            if compatible(old.type, new.type) is Truth.NO:
                raise InvalidGraphError(f"state %{old.name} is {old.type}, but its next content is {new.type}")
        if len({p.input for p in pairs}) != len(pairs) or len({p.output for p in pairs}) != len(pairs):
            raise InvalidGraphError("an input or output belongs to two states")
        self._states = pairs

    def set_default(self, value: Value, content: Constant | None) -> None:
        """Lets callers leave out input `value`: it then has this content. None takes the default back."""
        self._own(value)
        if value.producer is not None:
            raise InvalidGraphError(f"%{value.name} is not an input of {self.name}")
        if content is None:
            self._defaults.pop(value.name, None)
            return
        if compatible(value.type, content.type) is Truth.NO:
            raise TypeRuleError(f"input %{value.name} is {value.type}, but its default is {content.type}")
        self._defaults[value.name] = content

    def unused_name(self, wish: str | None = None) -> str:
        """`wish` if no value has that name, else one made from it (or a number)."""
        return self._unique(wish)

    def rename(self, value: Value, name: str) -> None:
        """Gives a node's result another name, made unique by a suffix when it is taken. Inputs keep theirs."""
        self._own(value)
        if value.producer is None:
            raise InvalidGraphError(f"input %{value.name} keeps its name: callers use it")
        del self._values[value.name]
        write(value, "name", self._unique(name))
        self._values[value.name] = value

    # ---- adding, erasing, moving nodes

    def append(
        self,
        op: Op,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, AttrValue] | None = None,
        *,
        types: Sequence[Type] | None = None,
        names: Sequence[str | None] = (),
        origin: Origin | None = None,
    ) -> Node:
        """A new last node.

        `types` are the result types: needed for a foreign op, otherwise inferred, and if given they must agree with
        what is inferred (and may say more). `names` are wishes for the results' names. Raises `TypeRuleError` or
        `ShapeError` when the op's rule refuses, `InvalidGraphError` when an operand belongs to another graph.
        """
        return self._insert(None, op, inputs, attrs, types, names, origin)

    def insert_before(
        self,
        anchor: Node,
        op: Op,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, AttrValue] | None = None,
        *,
        types: Sequence[Type] | None = None,
        names: Sequence[str | None] = (),
        origin: Origin | None = None,
    ) -> Node:
        """As `append`, but right before `anchor`; every operand must be known there."""
        self._own_node(anchor)
        return self._insert(anchor, op, inputs, attrs, types, names, origin)

    def _insert(
        self,
        anchor: Node | None,
        op: Op,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, AttrValue] | None,
        types: Sequence[Type] | None,
        names: Sequence[str | None],
        origin: Origin | None,
    ) -> Node:
        operands = tuple(inputs)
        for value in operands:
            if value is not None:
                self._own(value)
                if anchor is not None and not is_known_at(value, anchor):
                    raise InvalidGraphError(f"%{value.name} is not known before {anchor.where()}")
        completed = op.complete_attrs(attrs or {})
        node = Node(self, op, operands, completed, origin)
        result_types = self._result_types(node, types)
        self._link(node, anchor)
        for index, value in enumerate(operands):
            if value is not None:
                value._uses[Use(node, index)] = None
        results = (
            self._new_result(node, index, ty, names[index] if index < len(names) else None)
            for index, ty in enumerate(result_types)
        )
        write(node, "outputs", tuple(results))
        return node

    def _result_types(self, node: Node, declared: Sequence[Type] | None) -> tuple[Type, ...]:
        if node.op.is_foreign:
            if declared is None:
                raise TypeRuleError(f"{node.op.name} is foreign: its result types must be given")
            return tuple(self.named_dims(ty) for ty in declared)
        try:
            inferred = node.op.result_types([v.type if v is not None else None for v in node.inputs], node.attrs)
        except CapgraphError as error:
            error.located(node.where())
            raise
        if declared is not None:
            check_declared(node, declared, inferred)
        return tuple(self.named_dims(ty) for ty in (inferred if declared is None else declared))

    def named_dims(self, ty: Type) -> Type:
        """`ty` with every FRESH size made a new symbol of this graph."""
        if isinstance(ty, TensorType):
            if ty.shape is not None and any(
                dim is FRESH or dim == FRESH for dim in ty.shape if not isinstance(dim, int)
            ):
                ty = ty.with_shape(tuple(self.symbols.fresh() if dim == FRESH else dim for dim in ty.shape))
            self.symbols.add(ty)
            return ty
        if isinstance(ty, SequenceType | OptionalType):
            return type(ty)(self.named_dims(ty.element))
        return ty

    def _new_result(self, node: Node, index: int, ty: Type, wish: str | None) -> Value:
        value = Value(self, self._unique(wish), ty, node, index)
        self._values[value.name] = value
        return value

    def _unique(self, wish: str | None) -> str:
        if wish and wish not in self._values:
            return wish
        if wish:
            suffix = self._next_suffix.get(wish, 1)
            while (name := f"{wish}_{suffix}") in self._values:
                suffix += 1
            self._next_suffix[wish] = suffix + 1
            return name
        while (name := str(self._next_name)) in self._values:
            self._next_name += 1
        return name

    def erase(self, node: Node) -> None:
        """Removes a node none of whose results is used. Raises `InvalidGraphError` naming a use otherwise."""
        self._own_node(node)
        for value in node.outputs:
            for use in value._uses:
                user = "the graph's outputs" if isinstance(use.user, Graph) else repr(use.user)
                raise InvalidGraphError(f"%{value.name} is still used by {user}", where=node.where())
        for index, operand in enumerate(node.inputs):
            if operand is not None:
                del operand._uses[Use(node, index)]
        for value in node.outputs:
            del self._values[value.name]
        self._order.remove(node)
        write(node, "graph", None)

    def move_before(self, node: Node, anchor: Node) -> None:
        """Moves `node` right before `anchor`. Raises `InvalidGraphError` when an edge would then point backwards."""
        self._own_node(node)
        self._own_node(anchor)
        if node is anchor:
            return
        for operand in node.operands:
            if operand.producer is not None and not (
                operand.producer is not node and operand.producer.precedes(anchor)
            ):
                raise InvalidGraphError(f"{node!r} needs %{operand.name}, which comes later", where=anchor.where())
        for user in (user for value in node.outputs for user in value.users):
            if user is not anchor and user.precedes(anchor):
                raise InvalidGraphError(f"{user!r} uses a result of {node!r} and stands earlier", where=anchor.where())
        self._order.remove(node)
        self._link(node, anchor)

    def reorder(self, order: Sequence[Node]) -> None:
        """Brings all nodes into `order`; `InvalidGraphError` when it is no topological order of just these nodes."""
        if len(order) != self._order.count or len(set(order)) != len(order):
            raise InvalidGraphError(f"an order of {len(order)} nodes for the {self._order.count} nodes of {self.name}")
        placed: set[Node] = set()
        for node in order:
            self._own_node(node)
            late = next((v for v in node.operands if v.producer is not None and v.producer not in placed), None)
            if late is not None:
                raise InvalidGraphError(f"{node!r} needs %{late.name}, which comes later in the order")
            placed.add(node)
        self._order = NodeList()
        for node in order:
            self._link(node, None)

    # ---- rewiring

    def replace_input(self, node: Node, index: int, new: Value | None) -> None:
        """Makes operand `index` of `node` read `new`, which must be known before `node` and fit its type."""
        self._own_node(node)
        if new is not None:
            self._own(new)
            if not is_known_at(new, node):
                raise InvalidGraphError(f"%{new.name} is not known before {node.where()}")
        old = node.inputs[index]
        if old is new:
            return
        if old is not None and new is not None:
            check_replacement(old, new)
        if old is None or new is None or old.type != new.type:
            self._check_rule(node, (*node.inputs[:index], new, *node.inputs[index + 1 :]))
        self._rewire(Use(node, index), old, new)

    def set_output(self, index: int, new: Value) -> None:
        """Makes output `index` return `new`; its name and states stay."""
        self._own(new)
        old = self._outputs[index]
        if old is new:
            return
        check_replacement(old, new)
        self._check_state(index, new)
        self._rewire(Use(self, index), old, new)

    def replace_uses(self, old: Value, new: Value) -> None:
        """Makes everything that reads `old` read `new`. Checked as a whole before the first edge changes."""
        self._own(old)
        self._own(new)
        if old is new:
            return
        check_replacement(old, new)
        for use in old._uses:
            if isinstance(use.user, Graph):
                self._check_state(use.index, new)
            elif not is_known_at(new, use.user):
                raise InvalidGraphError(f"%{new.name} is not known before {use.user.where()}")
        if old.type != new.type:
            for user in old.users:
                self._check_rule(user, tuple(new if value is old else value for value in user.inputs))
        for use in old.uses:
            self._rewire(use, old, new)

    def set_attrs(self, node: Node, /, **changes: AttrValue) -> None:
        """Changes attributes of `node`; its result types must stay what they are."""
        self._own_node(node)
        attrs = node.op.complete_attrs({**node.attrs, **changes})
        self._check_rule(node, node.inputs, attrs)
        write(node, "attrs", attrs)

    def refine_type(self, value: Value, ty: Type) -> None:
        """Gives `value` a type that says more (a symbol become a size) or the same. Raises when the two contradict."""
        self._own(value)
        if compatible(value.type, ty) is Truth.NO:
            raise TypeRuleError(f"%{value.name} is {value.type} and cannot be refined to {ty}")
        self.symbols.add(ty)
        write(value, "type", ty)

    def bind_type(self, value: Value, sizes: Mapping[str, Dim]) -> None:
        """Puts other dims into the type of `value`; rules are not asked again."""
        self._own(value)
        write(value, "type", bind_type(value.type, sizes))
        self.symbols.add(value.type)

    def _check_rule(self, node: Node, inputs: tuple[Value | None, ...], attrs: Attrs | None = None) -> None:
        """Raises unless the op of `node` takes these operands and attributes and its results may keep their types."""
        changed = Node(self, node.op, inputs, node.attrs if attrs is None else attrs, node.origin, node.outputs)
        self._result_types(changed, [value.type for value in node.outputs])

    def _check_state(self, output: int, new: Value) -> None:
        for state in self._states:
            old = self._inputs[state.input]
            if state.output == output and compatible(old.type, new.type) is Truth.NO:
                raise InvalidGraphError(f"state %{old.name} is {old.type}, but its next content is {new.type}")

    def _rewire(self, use: Use, old: Value | None, new: Value | None) -> None:
        if old is not None:
            del old._uses[use]
        if new is not None:
            new._uses[use] = None
        if isinstance(use.user, Graph):
            assert new is not None  # an output always has a value
            self._outputs[use.index], self._outputs_as_read = new, None
            return
        inputs = use.user.inputs
        write(use.user, "inputs", (*inputs[: use.index], new, *inputs[use.index + 1 :]))

    # ---- whole graphs

    def clone(self) -> "Graph":
        """An independent copy with the same names; constants are shared, regions are copied."""
        return self.clone_with_map()[0]

    def clone_with_map(
        self, symbols: SymbolTable | None = None, sizes: Mapping[str, Dim] | None = None
    ) -> "tuple[Graph, dict[Value, Value]]":
        """`clone` with the symbols in `sizes` replaced, and where each value went.

        `symbols` is the table that the copy shares with the graph around it. Rules are not asked again.
        """
        copy = Graph(self.name, symbols=symbols or SymbolTable(self.symbols.names))
        copy.metadata = dict(self.metadata)
        where: dict[Value, Value] = {}
        for value in self._inputs:
            where[value] = copy.add_input(value.name, bind_type(value.type, sizes) if sizes else value.type)
        for node in self.nodes:
            copy._copy_node(node, where, sizes or {})
        copy.set_outputs([where[value] for value in self._outputs], self._output_names)
        copy._states, copy._defaults = self._states, dict(self._defaults)
        return copy, where

    def _copy_node(self, node: Node, where: dict[Value, Value], sizes: Mapping[str, Dim]) -> None:
        """Appends a copy of another graph's valid node without asking its rule again."""
        operands = tuple(where[value] if value is not None else None for value in node.inputs)
        copied = Node(self, node.op, operands, self._copy_attrs(node, sizes), node.origin)
        self._link(copied, None)
        for index, operand in enumerate(operands):
            if operand is not None:
                operand._uses[Use(copied, index)] = None
        results = (
            self._new_result(copied, v.index, bind_type(v.type, sizes) if sizes else v.type, v.name)
            for v in node.outputs
        )
        write(copied, "outputs", tuple(results))
        where.update(zip(node.outputs, copied.outputs, strict=True))

    def _copy_attrs(self, node: Node, sizes: Mapping[str, Dim]) -> Attrs:
        """The attributes of another graph's node for use here: own copies of regions, symbols replaced by `sizes`."""
        changed: dict[str, AttrValue] = {}
        for name, value in node.attrs.items():
            if isinstance(value, Graph):
                inner = inside(sizes, (v.type for v in value.inputs), (v.type for v in node.operands))
                changed[name] = value.clone_with_map(self.symbols, inner)[0]
            elif sizes:
                changed[name] = bind_attr(value, sizes)
        return node.attrs.replaced(**changed) if changed else node.attrs

    def inline(self, body: "Graph", arguments: Sequence[Value], anchor: Node | None = None) -> tuple[Value, ...]:
        """Copies `body`'s nodes before `anchor` (or to the end), its inputs replaced by `arguments`; gives its outputs.

        The body's own symbols get their sizes from the arguments, and sizes that running its nodes makes get new names.
        A region of this graph shares the symbols that the arguments' types mention; any other graph shares none. Raises
        `TypeRuleError` or `ShapeError`, and changes nothing, when the arguments do not fit.
        """
        if len(arguments) != len(body.inputs):
            raise InvalidGraphError(f"{body.name} takes {len(body.inputs)} inputs, not {len(arguments)}")
        for value in arguments:
            self._own(value)
        if anchor is not None:
            self._own_node(anchor)
        where: dict[Value, Value] = dict(zip(body.inputs, arguments, strict=True))
        given = [value.type for value in arguments]
        is_region = body.symbols is self.symbols
        sizes = own_sizes([v.type for v in body.inputs], given, mentioned(given) if is_region else frozenset())
        shared = mentioned([*given, *(value.type for value in self._inputs)]) if is_region else frozenset[str]()
        made: list[Node] = []
        try:
            for node in body.nodes:
                made.append(self._inline_node(node, where, sizes, shared, anchor))
        except CapgraphError:
            for node in reversed(made):
                self.erase(node)
            raise
        return tuple(where[value] for value in body.outputs)

    def _inline_node(
        self, node: Node, where: dict[Value, Value], sizes: Sizes, shared: frozenset[str], anchor: Node | None
    ) -> Node:
        """Inserts a copy of a body's node; `sizes` learns what the sizes are called that running it makes."""
        operands = [where[value] if value is not None else None for value in node.inputs]
        new = sorted(mentioned(value.type for value in node.outputs) - sizes.keys() - shared)
        if node.op.is_foreign:
            sizes.update((name, self.symbols.fresh()) for name in new)
        # A rule makes its own new sizes.
        is_declared = node.op.is_foreign or not new
        types = [bind_type(value.type, sizes) for value in node.outputs] if is_declared else None
        names = [value.name for value in node.outputs]
        made = self._insert(anchor, node.op, operands, self._copy_attrs(node, sizes), types, names, node.origin)
        for old, value in zip(node.outputs, made.outputs, strict=True):
            sizes.update((name, size) for name, size in plain_sizes(old.type, value.type) if name in new)
            if not is_declared:
                self.refine_type(value, kept_type(old.type, value.type, sizes, new))
        where.update(zip(node.outputs, made.outputs, strict=True))
        return made

    def adopt(self, other: "Graph") -> None:
        """Takes over the content of `other`, which must not be used afterwards: how a pipeline commits its clone."""
        self.name, self.symbols, self.metadata = other.name, other.symbols, other.metadata
        self._output_names, self._states, self._defaults = other._output_names, other._states, other._defaults
        self._inputs, self._outputs, self._outputs_as_read = other._inputs, other._outputs, None
        self._order = other._order
        self._values, self._next_name, self._next_suffix = other._values, other._next_name, other._next_suffix
        for value in dict.fromkeys(self._outputs):
            uses = {Use(self, u.index) if u.user is other else u: None for u in value._uses}
            write(value, "_uses", uses)
        for value in self._values.values():
            write(value, "graph", self)
        for node in self._order:
            write(node, "graph", self)
        other.__init__(other.name)  # type: ignore[misc]  # leaves `other` empty rather than sharing edges

    # ---- order and ownership

    def _link(self, node: Node, anchor: Node | None) -> None:
        self._order.insert(node, anchor)
        write(node, "graph", self)

    def _own(self, value: Value) -> None:
        if value.graph is not self or (value.producer is not None and value.producer.graph is not self):
            raise InvalidGraphError(f"%{value.name} does not belong to graph {self.name}")

    def _own_node(self, node: Node) -> None:
        if node.graph is not self:
            raise InvalidGraphError(f"{node!r} does not belong to graph {self.name}")
