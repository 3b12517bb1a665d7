"""From a graph to an ONNX model.

Each node is written by the export rule of its op; constants become initializers, fused regions are written in place,
and foreign ONNX operators as themselves. The model is IR 13 and of its dialect's opset unless an operator or the
caller wants another; the reason for a newer one stands in the model's metadata.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from ...ir.constant import Constant
from ...ir.errors import CapgraphError, InternalError, ResourceError, TypeRuleError, UnsupportedError
from ...ir.graph import Graph, Node, Value
from ...ir.ops import native
from ...ir.types import DType, Type
from .attention_masks import safe_content
from .attributes import attribute_to_proto
from .contrib import IN_FILES, find_groups
from .contrib.group import Group, Operator
from .dialect import Dialect
from .early_inlining import ask_for_early_inlining
from .export_context import ExportContext, Operand
from .export_dims import DimWriter
from .flat_softmax import LAST_OPSET, flat_softmaxes
from .foreign_nodes import domain_and_operator, write_foreign
from .metadata import write_metadata
from .ops import EXPORTS
from .parts import PARTS
from .schemas import Use, schema_of, unchanged_span
from .tensors import constant_to_proto, element_number, type_text, type_to_proto
from .versions import least_ir_version, opset_of, source_ir_version, source_opset

DEFAULT_IR_VERSION = 13
MAX_INLINE_BYTES = 2_000_000_000
"""More content than this does not fit into one protobuf message."""

_SMALL_BYTES = 1024
_NO_GROUPS: Mapping[Node, Group | None] = {}


class Storage(Protocol):
    """Where the contents of large tensors go."""

    def tensor(self, content: Constant, name: str) -> TensorProto:
        """The tensor proto, which holds or refers to the content."""
        ...


class Inline:
    """Contents stand in the model itself."""

    def __init__(self) -> None:
        self.nbytes = 0

    def tensor(self, content: Constant, name: str) -> TensorProto:
        """The tensor with its bytes. Raises `ResourceError` when the model would pass protobuf's limit."""
        self.nbytes += content.nbytes
        if self.nbytes > MAX_INLINE_BYTES:
            raise ResourceError(
                "the model holds more than 2 GB of constants, which one protobuf message cannot",
                remedy="write it with save_model(graph, path), which keeps them in a file beside the model",
            )
        return constant_to_proto(content, name)


def export_model(
    graph: Graph,
    *,
    opset: int | None = None,
    ir_version: int | None = None,
    keep_versions: bool = False,
    value_info: bool = True,
    check: bool = True,
    dialect: Dialect = Dialect.FAITHFUL,
    operators: Collection[Operator] = IN_FILES,
    storage: Storage | None = None,
) -> ModelProto:
    """`graph` as an ONNX model.

    `dialect` says which operators export rules may use, `operators` which of ONNX Runtime's own may be written for it.
    `opset` is the version of the default domain (default: the dialect's, or the next one that every operator exists
    in), `ir_version` that of the file format. With `keep_versions` the defaults are those of the model that the graph
    came from, see `versions`. Ops whose operator is newer than the opset are written as their parts. `value_info`
    writes the types of all values, which foreign operators of unknown domains need to be imported again. `check` runs
    onnx's checker with shape inference over the result. `storage` says where large tensors go (default: inline).

    Raises `UnsupportedError` when the opset cannot express a node, or the IR version the opset, `ResourceError` past
    2 GB of inline constants.
    """
    low, high = _span(graph, opset)
    first = opset or (source_opset(graph) if keep_versions else dialect.opset)
    target = opset or max(low, first if high is None else min(high, first))
    reason = "" if target <= first else f"opset {target}: an operator means something else before"
    while True:
        model = ModelWriter(target, storage or Inline(), value_info, dialect, operators)
        model.is_fixed = opset is not None
        usual_ir = _kept_ir_version(graph, target) if keep_versions else DEFAULT_IR_VERSION
        try:
            return _with_ir_version(model.write(graph, reason, check), ir_version, usual_ir)
        except NeedsOpset as need:
            if opset is not None or (high is not None and need.version > high):
                remedy = f"opset={_least_opset(graph, need.version, dialect, operators)}"
                raise UnsupportedError(f"{need.message} in opset {target}", where=need.where, remedy=remedy) from need
            target, reason = need.version, f"opset {need.version}: {need.message} in opset {target}"


class _Nowhere:
    """Contents are left out: for a model that is written to see whether it can be."""

    def tensor(self, content: Constant, name: str) -> TensorProto:
        """The tensor without its content."""
        return TensorProto(name=name, data_type=element_number(content.dtype), dims=content.shape)


def _least_opset(graph: Graph, first: int, dialect: Dialect, operators: Collection[Operator]) -> int:
    """The lowest opset from `first` on that has every node, as far as `NeedsOpset` says it."""
    while True:
        model = ModelWriter(first, _Nowhere(), False, dialect, operators)
        model.is_fixed = True
        try:
            model.write(graph, "", False)
        except NeedsOpset as need:
            first = need.version
        except CapgraphError:
            return first
        else:
            return first


def _with_ir_version(model: ModelProto, chosen: int | None, usual: int) -> ModelProto:
    least = least_ir_version(model)
    if chosen is not None and chosen < least:
        raise UnsupportedError(f"IR {chosen} is too old for opset {opset_of(model)}", remedy=f"ir_version={least}")
    model.ir_version = max(least, usual) if chosen is None else chosen
    return model


def _kept_ir_version(graph: Graph, opset: int) -> int:
    """The IR version of the model that `graph` came from if it is written at its opset or a newer one; 0: the least."""
    return source_ir_version(graph) if opset >= source_opset(graph) else 0


class NeedsOpset(CapgraphError):
    """A node needs a newer opset than the one being written. Never reaches users."""

    def __init__(self, version: int, message: str) -> None:
        super().__init__(message)
        self.version = version


def all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of the graph and of all its regions."""
    for node in graph.nodes:
        yield node
        for region in node.regions.values():
            yield from all_nodes(region)


def _span(graph: Graph, chosen: int | None) -> tuple[int, int | None]:
    """The opsets in which every foreign operator of the default domain means what it meant where it came from."""
    low, high = 1, None
    for node in all_nodes(graph):
        domain, op_type = domain_and_operator(node.op) if node.op.is_foreign else ("?", "")
        span = unchanged_span(op_type, int(node.attrs.get("opset_version") or 1), "") if domain == "" else None
        if span is None:
            continue
        low = max(low, span[0])
        high = span[1] if high is None or (span[1] is not None and span[1] < high) else high
        if (high is not None and low > high) or (chosen is not None and not _within(chosen, span)):
            raise UnsupportedError(
                f"{op_type} means something else outside opsets {span[0]} to {span[1] or 'the newest'}",
                where=node.where(),
                remedy=f"opset={span[1] or span[0]}",
            )
    return low, high


def _within(version: int, span: tuple[int, int | None]) -> bool:
    return span[0] <= version and (span[1] is None or version <= span[1])


@dataclass(frozen=True)
class _Large:
    """An initializer that is attached after the check, so that the checker need not copy it."""

    name: str
    content: Constant


class ModelWriter:
    """What all graphs of one exported model share: versions, names that are taken, and storage."""

    def __init__(
        self,
        opset: int,
        storage: Storage,
        value_info: bool,
        dialect: Dialect = Dialect.FAITHFUL,
        operators: Collection[Operator] = (),
    ) -> None:
        self.opset = opset
        self.operators = operators
        self.storage = storage
        self.value_info = value_info
        self.dialect = dialect
        self.versions = {"": opset}
        self.is_fixed = False  # whether the caller chose the opset
        self._limits: dict[str, int] = {}
        self.node_names: set[str] = set()
        self.type_texts: dict[str, str] = {}  # of names that stand for no value of the graph
        self.as_parts: Counter[str] = Counter()  # ops whose operator the opset lacks
        self.is_inlined_early = False  # whether some operator is one that ONNX Runtime should run as its body
        self._names: set[str] = set()
        self._suffixes: dict[str, int] = {}

    def reserve(self, name: str) -> str:
        """Takes a name as it is."""
        self._names.add(name)
        return name

    def new_name(self, wish: str) -> str:
        """`wish`, or with a suffix when it is taken: names are unique over all subgraphs."""
        return _unique(wish, self._names, self._suffixes)

    def node_name(self, wish: str) -> str:
        """A name for a node, unique in the model."""
        return _unique(wish, self.node_names, self._suffixes)

    def use_domain(self, domain: str, version: int, last: int | None = None) -> None:
        """Asks for a version of a domain other than the default one: at least `version`, at most `last`."""
        if not domain:
            return
        limit = min(self._limits.get(domain, last or version), last) if last else self._limits.get(domain)
        chosen = max(version, self.versions.get(domain, 1))
        if limit is not None and chosen > limit:
            raise UnsupportedError(f"the nodes of domain {domain} need versions {chosen} and {limit} at once")
        self.versions[domain] = chosen
        if limit is not None:
            self._limits[domain] = limit

    def write(self, graph: Graph, reason: str, check: bool) -> ModelProto:
        """The whole model, of the oldest IR version that has it."""
        _reserve_signature(self, graph)
        writer = GraphWriter(self)
        inputs = [value.name for value in graph.inputs]
        writer.write_body(graph, inputs, list(graph.output_names))
        proto = writer.proto(graph, inputs, graph.output_names)
        model = onnx.helper.make_model(
            proto, opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in self.versions.items()]
        )
        write_metadata(model, graph, reason, self.as_parts)
        if self.is_inlined_early:
            ask_for_early_inlining(model)
        model.ir_version = least_ir_version(model)
        large = [_Large(name, content) for name, content in graph.defaults.items()] + writer.large
        if check:
            _check(model, writer.large)
        model.graph.initializer.extend(self.storage.tensor(item.content, item.name) for item in large)
        return model


def _unique(wish: str, taken: set[str], suffixes: dict[str, int]) -> str:
    name = wish
    while name in taken:
        suffix = suffixes[wish] = suffixes.get(wish, 0) + 1
        name = f"{wish}_{suffix}"
    taken.add(name)
    return name


def _reserve_signature(model: ModelWriter, graph: Graph) -> None:
    inputs = {value.name: value for value in graph.inputs}
    for name, value in zip(graph.output_names, graph.outputs, strict=True):
        if inputs.get(name, value) is not value:
            raise UnsupportedError(
                f"output {name} is called like an input that it does not return, which ONNX cannot express",
                remedy="give the output another name",
            )
        model.reserve(name)
    for name in inputs:
        model.reserve(name)


class GraphWriter:
    """Writes one graph or region; fused regions are written into the graph around them."""

    def __init__(self, model: ModelWriter, outer: "GraphWriter | None" = None) -> None:
        self.model = model
        self.dims: DimWriter = DimWriter(self, outer.dims if outer is not None else None)
        self.large: list[_Large] = []
        self._names: dict[Value, str] = {}
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []
        self._shared: dict[Constant, str] = {}
        self._once: dict[Hashable, str] = {}
        self._value_info: dict[str, ValueInfoProto] = {}
        self._is_main = outer is None
        self.is_in_line = False  # whether the body of some op's parts is being written

    @property
    def opset(self) -> int:
        return self.model.opset

    def require_opset(self, version: int, why: str) -> None:
        """Raises when the opset being written is older."""
        if version > self.opset:
            raise NeedsOpset(version, why)

    # ---- names and constants

    def name(self, value: Value) -> str:
        """The ONNX name of a value that is written already."""
        found = self._names.get(value)
        if found is None:
            raise InternalError(
                f"%{value.name} has no ONNX name yet: an export rule read a value that is not an operand"
            )
        return found

    def new_name(self, wish: str) -> str:
        """A name that nothing in the model has yet."""
        return self.model.new_name(wish)

    def constant(self, content: Constant) -> str:
        """The name of an initializer with this content; equal ones are shared."""
        found = self._shared.get(content)
        if found is None:
            found = self._shared[content] = self.new_name("constant")
            self.model.type_texts[found] = type_text(content.type)
            self._add_initializer(found, content)
        return found

    def _add_initializer(self, name: str, content: Constant) -> None:
        if content.nbytes < _SMALL_BYTES or content.dtype is DType.STRING:
            self._initializers.append(constant_to_proto(content, name))
        elif self._is_main:
            self.large.append(_Large(name, content))
        else:
            self._initializers.append(self.model.storage.tensor(content, name))

    def once(self, key: Hashable, write: Callable[[], str]) -> str:
        """See `ExportContext.once`."""
        found = self._once.get(key)
        if found is None:
            found = self._once[key] = write()
        return found

    # ---- nodes

    def write_body(self, graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Writes the nodes of `graph`, whose inputs have the names `inputs` already and whose outputs get `outputs`."""
        for value, name in zip(graph.inputs, inputs, strict=True):
            self._names[value] = name
            self.dims.bind(value, name)
        copies = self._name_outputs(graph, outputs)
        groups = find_groups(graph, self.model.operators) if self.model.dialect is Dialect.ORT else _NO_GROUPS
        if self.opset <= LAST_OPSET:
            groups = {**flat_softmaxes(graph), **groups}
        for node in graph.nodes:
            if node not in groups:
                self._write_node(node)
                continue
            group = groups[node]
            if group is not None:
                self._write_group(group)
        for value, name in copies:
            self.emit(None, "Identity", [value], [name], "", {})
        if groups:
            self._drop_unread(graph)

    def _drop_unread(self, graph: Graph) -> None:
        """Leaves out the constants that groups have joined to others."""
        read = set(_names_read(self._nodes))
        made = (node.output for node in graph.nodes if node.op is native("constant"))
        unread = {self._names[value] for value in made if value in self._names} - read
        self.large = [item for item in self.large if item.name not in unread]
        self._initializers = [tensor for tensor in self._initializers if tensor.name not in unread]

    def _name_outputs(self, graph: Graph, outputs: Sequence[str]) -> list[tuple[Value, str]]:
        """Gives results the names under which the graph returns them; the rest need a node that copies them."""
        copies: list[tuple[Value, str]] = []
        for value, name in zip(graph.outputs, outputs, strict=True):
            if self._names.get(value) == name:
                continue
            if value in self._names or self._needs_copy(value):
                copies.append((value, name))
            else:
                self._names[value] = name
        return copies

    def _needs_copy(self, value: Value) -> bool:
        """Whether an output cannot be the value itself.

        ONNX Runtime 1.31 takes a transposition into the Gemm that reads it, and forgets that it is an output as well.
        """
        if value.producer is None or value.producer.op is native("constant"):
            return True
        is_merged = self.model.dialect is not Dialect.FAITHFUL and value.producer.op is native("transpose")
        return is_merged and any(isinstance(use.user, Node) and use.user.op is native("gemm") for use in value.uses)

    def _write_node(self, node: Node) -> None:
        if node.op is native("constant"):
            self._write_constant(node.output, node.attrs["value"])
            return
        if not node.outputs:  # a loop that returns nothing: ONNX has no such nodes, and nobody can tell whether it ran
            return
        self._write(node, node.outputs, self._apply_rule)

    def _write_group(self, group: Group) -> None:
        """Writes several nodes as one operator; what only they read has no name."""
        self._write(group.root, group.results, lambda node: group.write(ExportContext(self, node)))

    def _write(self, node: Node, results: Sequence[Value], rule: Callable[[Node], None]) -> None:
        for value in results:
            if value not in self._names:
                self._names[value] = self.new_name(value.name)
        try:
            rule(node)
        except CapgraphError as error:
            error.located(node.where())
            raise
        for value in results:
            self.dims.bind(value, self._names[value])
            if self.model.value_info:
                self._value_info[self._names[value]] = _value_info(self._names[value], value.type)

    def _write_constant(self, value: Value, content: Constant) -> None:
        if value.has_uses and self.is_in_line:
            self._names[value] = self.constant(content)
        elif value.has_uses:
            self._names[value] = self.new_name(value.name)
            content = content if self.model.dialect is Dialect.FAITHFUL else safe_content(value, content)
            self._add_initializer(self._names[value], content)

    def _apply_rule(self, node: Node) -> None:
        context = ExportContext(self, node)
        if node.op.is_foreign:
            write_foreign(context, node)
        elif node.op is native("fused"):
            self.write_inline(node.attrs["body"], node.operands, node.outputs, is_parts=False)
        elif node.op.name in PARTS and self.opset < PARTS[node.op.name].since:
            self._write_parts(context, node)
        elif node.op.name in EXPORTS:
            EXPORTS[node.op.name](context, node)
        else:
            raise UnsupportedError(f"{node.op.name} cannot be written to ONNX", remedy="keep it out of exported graphs")

    def _write_parts(self, context: ExportContext, node: Node) -> None:
        """Writes an op whose operator the opset lacks. Raises `NeedsOpset` where parts do not take its dtypes."""
        since, write = PARTS[node.op.name]
        try:
            write(context, node)
        except TypeRuleError as error:
            raise NeedsOpset(since, f"{node.op.name} has no parts for these operands") from error
        self.model.as_parts[node.op.name] += 1

    def write_inline(
        self, body: Graph, operands: Sequence[Operand], results: Sequence[Operand], *, is_parts: bool = True
    ) -> None:
        """Writes the nodes of a body, which takes these operands and gives these results; parts share constants."""
        around = self.dims, self.is_in_line
        self.dims, self.is_in_line = DimWriter(self, self.dims), self.is_in_line or is_parts
        names = [[self._operand_name(value) for value in values] for values in (operands, results)]
        self.write_body(body, *names)
        self.dims, self.is_in_line = around

    def emit(
        self,
        node: Node | None,
        op_type: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        domain: str,
        attributes: Mapping[str, Any],
    ) -> None:
        """Writes one ONNX node that belongs to `node`; see `ExportContext.emit`."""
        given = {name: value for name, value in attributes.items() if value is not None}
        operands, results = _without_trailing_absent(inputs), _without_trailing_absent(outputs)
        version = self.model.versions.get(domain, 1)
        use = Use(op_type, domain, self._type_texts(operands), self._type_texts(results), list(given))
        if domain:
            version = max(version, use.first_fit(version - 1) or version)
        given = _checked(use, given, version)
        self.model.use_domain(domain, version)
        names = [self._operand_name(value) for value in results]
        proto = NodeProto(op_type=op_type, domain=domain, output=names)
        schema = schema_of(op_type, version, domain)
        least = schema.min_input if schema is not None else 0
        proto.input.extend(self._operand_name(value) for value in operands)
        proto.input.extend([""] * (least - len(operands)))  # Loop counts operands that may be absent
        proto.attribute.extend(attribute_to_proto(name, value, schema) for name, value in given.items())
        self._sign(proto, node)
        self._nodes.append(proto)
        for position, name in enumerate(names):
            self.model.type_texts.setdefault(name, use.result_type(version, position))

    def _type_texts(self, values: Sequence[Operand]) -> list[str]:
        known = self.model.type_texts
        return [type_text(value.type) if isinstance(value, Value) else known.get(value or "", "") for value in values]

    def _operand_name(self, value: Operand) -> str:
        if value is None:
            return ""
        return value if isinstance(value, str) else self.name(value)

    def _sign(self, proto: NodeProto, node: Node | None) -> None:
        origin = node.origin if node is not None else None
        proto.name = self.model.node_name((origin.name if origin else "") or proto.output[0])
        if origin is not None:
            proto.doc_string = origin.doc
            for key, value in origin.metadata:
                proto.metadata_props.add(key=key, value=value)

    # ---- graphs

    def region(self, body: Graph, captured: Sequence[Operand], *, keep_names: bool) -> GraphProto:
        """The subgraph of a region; see `ExportContext.region`."""
        inner = GraphWriter(self.model, self)
        own = len(body.inputs) - len(captured)
        name_of = self.model.reserve if keep_names else self.new_name
        inputs = [name_of(value.name) for value in body.inputs[:own]]
        outputs = [name_of(name) for name in body.output_names]
        outer = [self._name_outside(value, {*inputs, *outputs}) for value in captured]
        inner.write_body(body, [*inputs, *outer], outputs)
        return inner.proto(body, inputs, outputs)

    def _name_outside(self, value: Operand, hidden: Collection[str]) -> str:
        """The name of a captured value, of a copy where a region has another value of that name."""
        name = self._operand_name(value)
        if name not in hidden:
            return name
        copy = self.new_name(name)
        self.emit(None, "Identity", [value], [copy], "", {})
        return copy

    def proto(self, graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> GraphProto:
        """Everything that was written, as the subgraph or graph that `graph` is."""
        taken = {*inputs, *outputs}
        return onnx.helper.make_graph(
            self._nodes,
            graph.name or "graph",
            [_value_info(name, value.type) for name, value in zip(inputs, graph.inputs, strict=False)],
            [_value_info(name, value.type) for name, value in zip(outputs, graph.outputs, strict=True)],
            self._initializers,
            value_info=[info for name, info in self._value_info.items() if name not in taken],
        )


def _names_read(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """The names that nodes and the nodes of their regions read."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from _names_read(attribute.g.node)


def _without_trailing_absent(values: Sequence[Operand]) -> list[Operand]:
    kept = list(values)
    while kept and kept[-1] in (None, ""):
        kept.pop()
    return kept


def _checked(use: Use, attributes: Mapping[str, Any], version: int) -> dict[str, Any]:
    """The attributes to write; those that the version lacks are left out where they have their later default."""
    problem = use.problem_with(version)
    if not problem:
        return dict(attributes)
    newer = use.first_fit(version)
    if newer is None:
        raise UnsupportedError(f"ONNX's {use.op_type} {problem}", remedy="cast its operands, or keep it out of ONNX")
    kept = {
        name: value for name, value in attributes.items() if not _is_later_default(use, newer, version, name, value)
    }
    if len(kept) < len(attributes):
        return _checked(use.without(attributes.keys() - kept.keys()), kept, version)
    raise NeedsOpset(newer, f"{use.op_type} {problem}")


def _is_later_default(use: Use, newer: int, version: int, name: str, value: Any) -> bool:
    old, new = schema_of(use.op_type, version, use.domain), schema_of(use.op_type, newer, use.domain)
    if old is None or new is None or name in old.attributes or name not in new.attributes:
        return False
    span, default = unchanged_span(use.op_type, newer, use.domain), new.attributes[name].default_value
    if span is None or span[0] > version:
        return False  # without the attribute the older operator means something else
    return bool(default.name) and attribute_to_proto(name, value, new) == default


def _value_info(name: str, ty: Type) -> ValueInfoProto:
    return onnx.helper.make_value_info(name, type_to_proto(ty))


# ---- the model around the graph


def _check(model: ModelProto, large: Sequence[_Large]) -> None:
    """Runs onnx's checker with the large initializers as inputs, so that their contents need not be copied.

    Inputs and outputs of unknown rank, which every runtime takes and the checker does not, are checked as scalars.
    """
    declared = [_value_info(item.name, item.content.type) for item in large]
    unknown = [info for info in (*model.graph.input, *model.graph.output) if not _has_shape(info)]
    model.graph.input.extend(declared)
    for info in unknown:
        info.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model, full_check=not unknown)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise InternalError(f"the exported model is not valid: {error}", remedy="report it with the graph") from error
    finally:
        del model.graph.input[len(model.graph.input) - len(declared) :]
        for info in unknown:
            info.type.tensor_type.ClearField("shape")


def _has_shape(info: ValueInfoProto) -> bool:
    return not info.type.HasField("tensor_type") or info.type.tensor_type.HasField("shape")
