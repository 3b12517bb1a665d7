"""Names of ONNX values while nodes become those of a graph.

Each node is tried in this order: the native import rule of its operator; the body of a function that the model brings
or the operator's schema has; a foreign op. Names are resolved in a `ValueScope`, a chain as the model nests its
subgraphs: a value of an outer scope becomes an input of the region (a constant is repeated inside instead), and a
function body gets a scope of its own over the same graph.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto, ValueInfoProto

from ....ir.analysis.contents import constant_of
from ....ir.analysis.shape_values import ShapeValues
from ....ir.binding import plain_sizes
from ....ir.constant import Constant
from ....ir.dims import Dim, SymDim, Truth, symbols
from ....ir.errors import CapgraphError, ModelError, ShapeError, TypeRuleError
from ....ir.graph import Graph, Node, Origin, Value
from ....ir.ops import native
from ....ir.ops.known import CONSTANT
from ....ir.types import DType, TensorType, Type, compatible, type_symbols
from .. import foreign
from ..context.import_context import ImportContext, ImportedRegion, NotNative
from ..files.metadata import keep_declared, text_of
from ..files.node_order import names_from_outside, names_read, sorted_nodes, without_repeated_constants
from ..foreign.regions import without_shape
from ..ops import IMPORTS
from ..schemas import first_schema, signature_problem
from ..tensors import constant_from_proto, dense_constant, type_from_proto
from .canonical import order_of_use, reorder_inputs, settle
from .model_reader import ModelReader, schema_function

MAX_DEPTH = 64
"""How deep subgraphs and functions may nest; deeper is an error, which also stops recursive functions."""


_OFFICIAL = ("ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")


class ValueScope:
    """Names of ONNX values while nodes are imported into `graph`."""

    def __init__(
        self,
        model: ModelReader,
        graph: Graph,
        versions: Mapping[str, int],
        *,
        outer: "ValueScope | None" = None,
        attributes: Mapping[str, AttributeProto] | None = None,
        depth: int = 0,
    ) -> None:
        if depth > MAX_DEPTH:
            raise ModelError(
                f"subgraphs or functions nest deeper than {MAX_DEPTH}", remedy="a function may not call itself"
            )
        self.model = model
        self.graph = graph
        self.versions = versions
        self.outer = outer
        self.function_attributes = attributes
        self.depth = depth
        self.values: dict[str, Value] = {}
        self.defined: set[Value] = set()
        self.absent: set[str] = set()  # formal inputs of a function that the call leaves out
        self.pending: dict[str, Constant] = {}  # initializers, emitted at their first use
        self.captured: dict[Value, Value] = {}  # outer values, and the inputs of this graph that stand for them
        self.read: frozenset[str] = frozenset()  # names that any node or output of this scope reads
        self.declared: Mapping[str, TypeProto] = {}  # types that the model states for intermediate values
        self.returned: frozenset[str] = frozenset()  # names of the outputs
        self.is_closed = False
        self.may_fail = outer is not None and model.bodies_may_fail
        """Whether nodes that refuse their operands become foreign ones, which do so when they run."""
        self._bound: frozenset[str] | None = None

    @property
    def folder(self) -> Path | None:
        return self.model.folder

    @property
    def is_resized(self) -> bool:
        return bool(self.model.shapes)

    def is_one(self, name: str) -> bool:
        """Whether an open size is to be 1; otherwise it is taken not to be."""
        if name in self.model.ones:
            return True
        self.model.taken_not_to_be_one.append(name)
        return False

    def are_given(self, dims: Sequence[Dim]) -> bool:
        """Whether a call tells these sizes: not running, nor the rounds of a loop."""
        return frozenset[str]().union(*(symbols(dim) for dim in dims)) <= self.model.given

    def remark(self, what: str, name: str, words: str) -> None:
        """See `ModelReader.remark`."""
        self.model.remark(what, name, words)

    @property
    def shape_values(self) -> ShapeValues:
        return self.model.shape_values

    # ---- names

    def lookup(self, name: str) -> Value | None:
        """The value called `name` here or outside, brought into this scope's graph; None when there is none."""
        found = self.values.get(name)
        if found is not None:
            return found
        content = self.pending.pop(name, None)
        if content is not None:
            return self.define(name, self._constant(name, content))
        return self._capture(name) if self.outer is not None else None

    def add_input(self, name: str, ty: Type) -> Value:
        """A new input of the graph under its name in the model."""
        if not name or not isinstance(name, str):
            raise ModelError("an input has no name", remedy="export the model again")
        if name in self.values:
            raise ModelError(f"there are two inputs {name!r}", remedy="give every input its own name")
        return self.define(name, self.graph.add_input(name, ty))

    def define(self, name: str, value: Value) -> Value:
        if name in self.values:
            raise ModelError(f"value {name!r} is defined twice", remedy="names in ONNX are assigned once")
        self.values[name] = value
        self.defined.add(value)
        return value

    def _constant(self, name: str, content: Constant) -> Value:
        return self.graph.append(native("constant"), (), {"value": content}, names=(name,)).output

    def _capture(self, name: str) -> Value | None:
        assert self.outer is not None  # checked by the only caller
        outer = self.outer.lookup(name)
        if outer is None:
            return None
        content = constant_of(outer)
        if content is not None:
            return self.define(name, self._constant(name, content))
        return self.define(name, self.captured.get(outer) or self._input_for(outer, name))

    def _input_for(self, outer: Value, name: str) -> Value:
        inner = self.captured[outer] = self.graph.add_input(self.graph.unused_name(name), outer.type)
        self.shape_values.assume(inner, outer)
        return inner

    def bound_symbols(self) -> frozenset[str]:
        """Symbols that any node of this graph may mention: those of its inputs and of the inputs around it.

        The sizes of a sequence's elements are not among them: they may differ from one element to the next.
        """
        if self._bound is None or self.outer is not None:
            tensors = (value.type for value in self.graph.inputs if isinstance(value.type, TensorType))
            own = frozenset[str]().union(*(type_symbols(ty) for ty in tensors))
            self._bound = own | self._bound_around()
        return self._bound

    def _bound_around(self) -> frozenset[str]:
        return frozenset() if self.outer is None or self.is_closed else self.outer.bound_symbols()

    def resolve_attribute(self, proto: AttributeProto) -> AttributeProto | None:
        """`proto`, or what it refers to among the attributes of the function being inlined; None if absent."""
        if not proto.ref_attr_name:
            return proto
        found = (self.function_attributes or {}).get(proto.ref_attr_name)
        if found is None:
            return None
        resolved = AttributeProto()
        resolved.CopyFrom(found)
        resolved.name = proto.name
        return resolved

    # ---- nodes

    def import_nodes(self, nodes: Sequence[NodeProto], outputs: Iterable[str]) -> None:
        """Imports `nodes`, sorted where they are not; `outputs` are the names that are read afterwards."""
        for node in nodes:
            _require_text(node)
        self.read = frozenset(outputs).union(*map(names_read, nodes))
        left, overridden = without_repeated_constants(nodes)
        for name in overridden:
            self.remark("constants are defined again, and the last is taken", name, repr(name))
        for node in sorted_nodes(left, self.values):
            self.import_node(node)

    def import_node(self, node: NodeProto) -> None:
        origin = _origin(node)
        try:
            results = self._import_node(node, origin)
        except CapgraphError as error:
            error.located(_place(node, origin))
            raise
        for name, value in zip(node.output, results, strict=False):
            if name and value is not None:
                known = self._with_known_content(value, origin)
                self._name_result(name, known)
                self.define(name, known)
        for name in node.output[len(results) :]:
            if name in self.read:
                raise ModelError(f"{_place(node, origin)} gives {len(results)} results, not {name!r}")

    def _with_known_content(self, value: Value, origin: Origin) -> Value:
        """`value`, or a node that states its content where shape arithmetic tells it."""
        if value.producer is None or not value.producer.inputs or not isinstance(value.type, TensorType):
            return value
        known = self.shape_values.of(value)
        found = tuple(known.reshape(-1).tolist()) if known is not None else ()
        if known is None or not self.may_mention(found):
            return value
        if all(isinstance(dim, int) for dim in found):
            return self._stated("constant", origin, value=Constant(known, value.type.dtype))
        if value.type.dtype is not DType.I64 or known.ndim > 1:
            return value
        return self._stated("dims", origin, values=found) if known.ndim else self._stated("dim", origin, value=found[0])

    def _stated(self, op: str, origin: Origin, **attrs: Any) -> Value:
        return self.graph.append(native(op), (), attrs, origin=origin).output

    def may_mention(self, dims: Sequence[Dim], *operands: Value) -> bool:
        """Whether a node with `operands` may have these dims in its attributes (the symbol scoping invariant)."""
        mentioned = frozenset[str]().union(*(symbols(dim) for dim in dims))
        if not mentioned:
            return True
        return mentioned <= self.bound_symbols().union(*(type_symbols(value.type) for value in operands))

    def _name_result(self, name: str, value: Value) -> None:
        # An alias (the result of Identity, say) keeps the name that it already has.
        if value.producer is not None and value.graph is self.graph and value.name.isdigit():
            self.graph.rename(value, name)

    def _import_node(self, node: NodeProto, origin: Origin) -> Sequence[Value | None]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        inputs = [self._operand(node, name) for name in node.input]
        function = self.model.functions.get((node.domain, node.op_type))
        if function is not None:
            return self._inline(node, function, inputs, origin)
        version = self.versions.get(domain)
        if version is None and domain in ("", *_OFFICIAL):
            raise ModelError(
                f"the model imports no opset of domain {domain or 'ai.onnx'!r}, which {node.op_type} needs"
            )
        ctx = ImportContext(self, node, inputs, version or 1, origin)
        schema = first_schema(node.op_type, ctx.version, domain)
        if schema is not None:
            self._ignore_unknown(ctx, schema.attributes)
        problem = signature_problem(schema, ctx.attributes, len(node.input), len(node.output)) if schema else ""
        if problem:
            raise ModelError(f"{node.op_type} {problem}", remedy="export the model again")
        return self._try_native(ctx, domain) or self._try_function(ctx, domain) or foreign.import_foreign(ctx, domain)

    def _ignore_unknown(self, ctx: ImportContext, known: Collection[str]) -> None:
        for name in [name for name in ctx.attributes if name not in known]:
            del ctx.attributes[name]
            what = f"{name} of {ctx.proto.name or ctx.op_type}"
            self.remark("attributes that their operators do not have were ignored", what, what)

    def _operand(self, node: NodeProto, name: str) -> Value | None:
        if not name or name in self.absent:
            return None
        found = self.lookup(name)
        if found is None:
            raise ModelError(
                f"input {name!r} of {node.op_type} is not defined",
                remedy="no input, initializer or node has this name: export the model again",
            )
        return found

    def _try_native(self, ctx: ImportContext, domain: str) -> Sequence[Value | None] | None:
        rule = IMPORTS.get(f"{domain}.{ctx.op_type}" if domain else ctx.op_type)
        if rule is None:
            return None
        mark = self.graph.last
        try:
            results = rule(ctx)
        except (NotNative, TypeRuleError):
            self._take_back(mark)
            return None
        except (ShapeError, ModelError) as error:
            if not self.may_fail:
                raise
            place = _place(ctx.proto, ctx.origin or Origin())
            self.remark(
                "nodes of bodies refuse their operands, and fail where they run", place, f"{place}: {error.message}"
            )
            self._take_back(mark)
            return None
        return (results,) if isinstance(results, Value) else results

    def _take_back(self, mark: Node | None) -> None:
        """Erases the nodes after `mark` that nothing in scope refers to."""
        for node in self.graph.reversed_nodes:
            if node is mark:
                return
            if not node.has_uses and self.defined.isdisjoint(node.outputs):
                self.graph.erase(node)

    def _try_function(self, ctx: ImportContext, domain: str) -> Sequence[Value | None] | None:
        function = schema_function(ctx, domain)
        if function is None:
            return None
        mark = self.graph.last
        try:
            results = self._inline(ctx.proto, function, ctx.inputs, ctx.origin or Origin())
            if ctx.op_type not in IMPORTS or not self._are_foreign(mark):
                return results
        except (NotNative, TypeRuleError, ShapeError, ModelError) as error:  # bodies need not hold for all allowed
            if isinstance(error, ModelError) and not self.model.may_give_up():
                raise
        self._take_back(mark)
        return None

    def _are_foreign(self, mark: Node | None) -> bool:
        """Whether several nodes after `mark` are all foreign, as where nothing tells how many axes there are.

        Then an operator that would be native for others is foreign as well, as one node.
        """
        after = takewhile(lambda node: node is not mark, self.graph.reversed_nodes)
        made = [node for node in after if node.op is not CONSTANT]
        return len(made) > 1 and all(node.op.is_foreign for node in made)

    def _inline(
        self, node: NodeProto, function: FunctionProto, inputs: Sequence[Value | None], origin: Origin
    ) -> Sequence[Value | None]:
        attributes = {proto.name: proto for proto in function.attribute_proto}
        attributes |= {a.name: found for a in node.attribute if (found := self.resolve_attribute(a)) is not None}
        versions = {"" if e.domain == "ai.onnx" else e.domain: int(e.version) for e in function.opset_import}
        if any(proto.HasField("g") for proto in node.attribute):  # whose nodes the body takes over, as they are
            versions = {}
        self.model.count_inlined(len(function.node))
        scope = ValueScope(
            self.model, self.graph, {**self.versions, **versions}, attributes=attributes, depth=self.depth + 1
        )
        scope._bound, scope.may_fail = self.bound_symbols(), self.may_fail
        if len(inputs) > len(function.input):
            raise ModelError(f"function {function.name} takes {len(function.input)} inputs, not {len(inputs)}")
        scope.absent |= set(function.input[len(inputs) :])
        for name, value in zip(function.input, inputs, strict=False):
            if value is None:
                scope.absent.add(name)
            else:
                scope.values[name] = value
        made = {name for each in function.node for name in each.output}
        # What its subgraphs read, which the function's body takes over.
        scope._see(self, names_read(node) - made)
        scope.import_nodes(function.node, function.output)
        return [scope.lookup(name) for name in function.output]

    def _see(self, other: "ValueScope", names: Collection[str]) -> None:
        """Takes over what `names` mean in a scope of the same graph, where they have no meaning here."""
        for name in sorted(names):
            if name not in self.absent and name not in self.values and (value := other.lookup(name)) is not None:
                self.values[name] = value

    # ---- subgraphs

    def import_region(self, proto: GraphProto, types: Sequence[Type | None] = ()) -> ImportedRegion:
        """A subgraph as an isolated region over this scope; `types` are better types for its declared inputs."""
        return self._region_scope(proto).region(proto, types)

    def import_closed_region(self, proto: GraphProto, types: Sequence[Type | None] = ()) -> ImportedRegion:
        """As `import_region`, but no node of the body mentions a symbol that is bound only around it."""
        scope = self._region_scope(proto)
        scope.is_closed = True
        return scope.region(proto, types)

    def import_in_place(self, proto: GraphProto) -> list[Value]:
        """The results of a subgraph that is known to run once: its nodes become nodes of this graph."""
        attributes, depth = self.function_attributes, self.depth + 1
        scope = ValueScope(self.model, self.graph, self.versions, attributes=attributes, depth=depth)
        scope._bound, scope.may_fail = self.bound_symbols(), self.may_fail
        scope.absent |= self.absent
        scope._see(self, names_from_outside(proto))
        scope._fill_nodes(proto)
        return [scope._output(info) for info in proto.output]

    def _region_scope(self, proto: GraphProto) -> "ValueScope":
        body = Graph(text_of(proto.name) or "body", symbols=self.graph.symbols)
        attributes = self.function_attributes
        return ValueScope(self.model, body, self.versions, outer=self, attributes=attributes, depth=self.depth + 1)

    def region(self, proto: GraphProto, types: Sequence[Type | None]) -> ImportedRegion:
        """Imports `proto` into this empty scope of a region."""
        for index, info in enumerate(proto.input):
            given = types[index] if index < len(types) else None
            self.add_input(info.name, given or declared_type(info, self.dim_of))
        self.fill(proto)
        if self.is_closed:
            self._capture_sizes()
        self._drop_unneeded_captures(len(proto.input))
        return self._ordered_region(len(proto.input))

    def _capture_sizes(self) -> None:
        """Captures outer values that tell the sizes which the body mentions, and its inputs only have products of."""
        assert self.outer is not None  # as of all regions
        missing = _mentioned(self.graph).difference(*map(self._told_by, self.graph.inputs))
        for value in list(self.outer.graph.values) if missing else ():
            if missing & self._told_by(value):
                self._input_for(value, value.name)
                missing -= self._told_by(value)

    def _told_by(self, value: Value) -> frozenset[str]:
        """The symbols whose sizes a run of the body has from `value`; a closed one sees what stands alone."""
        if self.is_closed:
            return frozenset(name for name, _ in plain_sizes(value.type, value.type))
        return type_symbols(value.type)

    def _drop_unneeded_captures(self, own: int) -> None:
        """Drops the inputs for captured values that the body neither reads nor needs to be told a size."""
        used = [inner for inner in self.graph.inputs if inner.index < own or inner.has_uses]
        told = self._bound_around().union(*map(self._told_by, used))
        missing = _mentioned(self.graph) - told
        for outer, inner in list(self.captured.items()):
            if inner.has_uses or missing & self._told_by(inner):
                missing -= self._told_by(inner)
            else:
                self.graph.remove_input(inner)
                del self.captured[outer]

    def _ordered_region(self, own: int) -> ImportedRegion:
        """The region with its captured values in the order in which the body first reads them."""
        captured = tuple(self.captured)
        order = order_of_use(self.graph, self.graph.inputs[own:])
        reorder_inputs(self.graph, [*range(own), *(own + position for position in order)])
        return ImportedRegion(self.graph, tuple(captured[position] for position in order))

    def fill(self, proto: GraphProto) -> None:
        """Imports initializers, nodes and outputs of `proto`; its inputs are defined already."""
        self._fill_nodes(proto)
        self._set_outputs(proto.output)
        settle(self.graph)

    def _fill_nodes(self, proto: GraphProto) -> None:
        for tensor in proto.initializer:
            if tensor.name not in self.values:
                self.pending[tensor.name] = constant_from_proto(tensor, self.folder)
        for sparse in proto.sparse_initializer:
            if sparse.values.name not in self.values:
                self.pending[sparse.values.name] = dense_constant(sparse, self.folder)
        self.declared = {info.name: info.type for info in (*proto.value_info, *proto.output)}
        self.returned = frozenset(info.name for info in proto.output)
        self.import_nodes(proto.node, (info.name for info in proto.output))

    def _set_outputs(self, infos: Sequence[ValueInfoProto]) -> None:
        """Returns each output of the model once, by its name; those of a region count by position."""
        values = {info.name: self._output(info) for info in infos}
        if self.outer is not None:
            names = [info.name for info in infos] if len(values) == len(infos) else None
            self.graph.set_outputs([values[info.name] for info in infos], names)
            return
        for name, count in Counter(info.name for info in infos).items():
            if count > 1:
                self.remark("outputs that are listed several times are given once", name, repr(name))
        self.graph.set_outputs(list(values.values()), list(values))

    def _output(self, info: ValueInfoProto) -> Value:
        value = self.lookup(info.name)
        if value is None:
            raise ModelError(f"output {info.name!r} is not defined", remedy="export the model again")
        declared = type_from_proto(info.type, self.dim_of)
        if declared is not None and compatible(declared, value.type) is Truth.NO:
            self._pass_over(info.name, declared, value.type)
        if isinstance(declared, TensorType) and value.type == declared.with_shape(None) != declared and not self.depth:
            keep_declared(self.graph, info.name, declared)
        return value

    def _pass_over(self, name: str, declared: Type, found: Type) -> None:
        """Notes a declared shape that is not the value's; another element type or kind of value is an error."""
        if compatible(without_shape(declared), without_shape(found)) is Truth.NO:
            raise ModelError(
                f"output {name!r} is declared as {declared}, but is {found}",
                remedy="correct the output's type in the model",
            )
        self.remark(
            "declared output shapes were passed over for inferred ones", name, f"{name!r} is {found}, not {declared}"
        )

    def dim_of(self, name: str) -> Dim:
        return self.model.dim_of(name)


def _place(node: NodeProto, origin: Origin) -> str:
    """Which node it is: by its origin, else by its first result."""
    first = f"of {node.output[0]!r}" if node.output else "without results"
    return f"node {str(origin) or first} ({node.op_type})"


def _require_text(node: NodeProto) -> None:
    # Protobuf hands out what is not UTF-8 as bytes.
    names = (node.op_type, node.domain, node.name, *node.input, *node.output, *(a.name for a in node.attribute))
    if not all(isinstance(name, str) for name in names):
        raise ModelError("a name in the model is not UTF-8", remedy="export the model again")


def _mentioned(graph: Graph) -> frozenset[str]:
    """The symbols in the attributes and result types of a graph's nodes."""
    found: set[str] = set()
    for node in graph.nodes:
        found.update(*(type_symbols(value.type) for value in node.outputs))
        for value in node.attrs.values():
            dims = value if isinstance(value, tuple) else (value,)
            found.update(*(dim.symbols for dim in dims if isinstance(dim, SymDim)))
    return frozenset(found)


def declared_type(info: ValueInfoProto, dim_of: Callable[[str], Dim]) -> Type:
    """The type that the model states for an input. Raises `ModelError` where it states none."""
    ty = type_from_proto(info.type, dim_of)
    if ty is None:
        raise ModelError(f"input {info.name!r} has no type", remedy="export the model again with typed inputs")
    return ty


def _origin(node: NodeProto) -> Origin:
    metadata = tuple((entry.key, entry.value) for entry in node.metadata_props)
    return Origin(name=node.name, source=_source(metadata), doc=node.doc_string, metadata=metadata)


def _source(metadata: tuple[tuple[str, str], ...]) -> str:
    """The innermost line of the stack trace that torch's exporter leaves on a node."""
    trace = dict(metadata).get("pkg.torch.onnx.stack_trace", "")
    places = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    return places[-1].removeprefix("File ") if places else ""
