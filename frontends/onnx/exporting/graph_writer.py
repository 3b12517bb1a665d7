"""Writes the nodes of one graph as ONNX nodes: names, constants, regions and the operators' versions."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

from ....ir.analysis import constraints
from ....ir.constant import Constant
from ....ir.dims import symbols
from ....ir.errors import CapgraphError, InternalError, TypeRuleError, UnsupportedError
from ....ir.graph import Graph, Node, Value
from ....ir.ops import native
from ....ir.ops.known import ATTENTION
from ....ir.types import DType, TensorType, Type
from ..attributes import attribute_to_proto
from ..context.attention_masks import safe_content
from ..context.dialect import Dialect, takes_attention_apart
from ..context.export_context import ExportContext, Operand
from ..contrib import find_groups
from ..contrib.group import Group
from ..files.metadata import declare_outputs
from ..ops import EXPORTS
from ..schemas import OperatorUse, schema_of, unchanged_span
from ..tensors import constant_to_proto, type_text, type_to_proto
from .attention_parts import attention_parts
from .dims import DimWriter
from .flat_softmax import LAST_OPSET, flat_softmaxes
from .foreign_nodes import write_foreign
from .model_writer import Large, ModelWriter, NeedsOpset
from .parts import PARTS, write_composed

_SMALL_BYTES = 1024
_FIRST_WHERE = 9
_NO_GROUPS: Mapping[Node, Group | None] = {}


class GraphWriter:
    """Writes one graph or region; fused regions are written into the graph around them."""

    def __init__(self, model: ModelWriter, outer: "GraphWriter | None" = None) -> None:
        self.model = model
        self.dims: DimWriter = DimWriter(self, outer.dims if outer is not None else None)
        self.large: list[Large] = []
        self._names: dict[Value, str] = {}
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []
        self._shared: dict[Constant, str] = {}
        self._once: dict[Hashable, str] = {}
        self._value_info: dict[str, ValueInfoProto] = {}
        self._assumed: frozenset[str] = frozenset()
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
            self.large.append(Large(name, content))
        else:
            self._initializers.append(self.model.storage.tensor(content, name))

    def once(self, key: Hashable, write: Callable[[], str]) -> str:
        """See `ExportContext.once`."""
        found = self._once.get(key)
        if found is None:
            found = self._once[key] = write()
        return found

    def give(self, node: Node, name: str) -> None:
        """See `ExportContext.give`."""
        is_returned = any(isinstance(use.user, Graph) for use in node.output.uses)
        if is_returned or self.model.dialect is Dialect.FAITHFUL:
            self.emit(node, "Identity", [name], node.outputs, "", {})
        else:
            self._names[node.output] = name

    # ---- nodes

    def write_body(self, graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Writes the nodes of `graph`, whose inputs have the names `inputs` already and whose outputs get `outputs`."""
        for value, name in zip(graph.inputs, inputs, strict=True):
            self._names[value] = name
            self.dims.bind(value, name)
        if self.model.value_info:
            self._assumed |= frozenset[str]().union(*(each.symbols for each in constraints(graph)))
        copies = self._name_outputs(graph, outputs)
        groups = find_groups(graph, self.model.operators) if self.model.operators else _NO_GROUPS
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
            self._write_copy(value, name)
        if groups:
            self._drop_unread(graph)

    def _write_copy(self, value: Value, name: str) -> None:
        """Writes a node that gives a value under another name.

        ONNX Runtime 1.31 moves the strings that a body gives, away from where Identity has them: Where has its own.
        """
        if self._is_main or self.opset < _FIRST_WHERE or not _is_strings(value):
            self.emit(None, "Identity", [value], [name], "", {})
        else:
            is_true = self.constant(Constant(np.array(True)))
            self.emit(None, "Where", [is_true, value, value], [name], "", {})

    def _drop_unread(self, graph: Graph) -> None:
        """Leaves out the constants that groups have joined to others."""
        read = {*_names_read(self._nodes), *(self._names[value] for value in graph.outputs if value in self._names)}
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
        is_faithful = self.model.dialect is Dialect.FAITHFUL
        if value.producer is None or value.producer.op is native("constant"):
            return value.producer is None or self.is_in_line or is_faithful
        is_merged = not is_faithful and value.producer.op is native("transpose")
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
                self._value_info[self._names[value]] = self._stated(value)

    def _stated(self, value: Value) -> ValueInfoProto:
        """The type of a value but for sizes that are taken to be equal: one of them may be 1 at a call.

        ONNX Runtime writes a result into the memory of an operand that it is told to be of one size with.
        """
        info = declaration(self._names[value], value.type)
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        for size, stated in zip(shape or (), info.type.tensor_type.shape.dim, strict=True):
            if symbols(size) & self._assumed:
                stated.ClearField("dim_param")
        return info

    def _write_constant(self, value: Value, content: Constant) -> None:
        if value.has_uses and self.is_in_line:
            self._names[value] = self.constant(content)
        elif value.has_uses:
            if value not in self._names:
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
        elif node.op is ATTENTION and takes_attention_apart(node, self.model.dialect):
            attention_parts(context, node)
        elif node.op.name in EXPORTS:
            EXPORTS[node.op.name](context, node)
        elif node.op.scalar is not None:
            write_composed(context, node)
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
        use = OperatorUse(op_type, domain, self._type_texts(operands), self._type_texts(results), list(given))
        if domain:
            version = max(version, use.first_fit(version - 1) or version)
        given = _checked(use, given, version)
        self.model.check_kernel(op_type, domain)
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
        proto = inner.proto(body, inputs, outputs)
        declare_outputs(proto, body)
        return proto

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
            [declaration(name, value.type) for name, value in zip(inputs, graph.inputs, strict=False)],
            [declaration(name, value.type) for name, value in zip(outputs, graph.outputs, strict=True)],
            self._initializers,
            value_info=[info for name, info in self._value_info.items() if name not in taken],
        )


def _is_strings(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is DType.STRING


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


def _checked(use: OperatorUse, attributes: Mapping[str, Any], version: int) -> dict[str, Any]:
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


def _is_later_default(use: OperatorUse, newer: int, version: int, name: str, value: Any) -> bool:
    old, new = schema_of(use.op_type, version, use.domain), schema_of(use.op_type, newer, use.domain)
    if old is None or new is None or name in old.attributes or name not in new.attributes:
        return False
    span, default = unchanged_span(use.op_type, newer, use.domain), new.attributes[name].default_value
    if span is None or span[0] > version:
        return False  # without the attribute the older operator means something else
    return bool(default.name) and attribute_to_proto(name, value, new) == default


def declaration(name: str, ty: Type) -> ValueInfoProto:
    """What a model says of a value's type."""
    return onnx.helper.make_value_info(name, type_to_proto(ty))
