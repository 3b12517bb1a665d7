"""The text form of a graph: what tests compare and bug reports carry. `ir.parser` reads it back.

    graph @main(%x: f32[B, 4], %cache: f32[8, 4]) {
      %h: f32[B, 4] = softmax(%x)
      %y: f32[8, 4] = onnx.Foo(%h, _, %cache) {body = @step, bias = dense<f32[]: 0.5>}
      return %h as scores, %y -> %cache
    }

    graph @step(%x: f32[4]) {
      return %x
    }

* The first definition is the graph itself; regions follow the one that uses them, under unique names.
* An input may have a default: `%x: f32[] = dense<f32[]: 1.0>`. `_` is an absent operand. `as` gives an output another
  name than its value has. `-> %input` makes the output the next content of that input, a state. A foreign op's name has
  a dot.
* Attributes of native ops that have their default are left out. `none`, `true`, `3`, `3.0`, `"text"`, `b"0aff"`, `f32`,
  `[...]`, `@region`, `type(f32[2])`; sizes stand bare where the schema says so and as `dim(B*2)` elsewhere.
* Constants of up to 16 elements are written out, exactly; others are named by a digest (`dense<f32[64, 3], #9f...>`),
  and `constants_of` gives the store that the parser needs to find them.
* Origins (`loc("name", "source", "doc", "key" = "value")`) and the graph's metadata are left out unless asked for.
"""

import re
from collections.abc import Callable, Iterator
from typing import Literal

from ..analysis import constants_in
from ..attrs import Attribute, AttrKind, Attrs, AttrValue, is_tuple
from ..constant import Constant
from ..dims import SymDim
from ..errors import InvalidGraphError
from ..graph import Graph, Node, Origin, Value
from ..op import Op
from ..types import DType, OpaqueType, OptionalType, SequenceType, TensorType
from .cursor import name_text, string_text
from .dense import INLINE_LIMIT, bytes_text, elements_text

ConstantStyle = Literal["digest", "type"]
"""How large constants are shown: `digest` parses back but reads the content once, `type` never looks at it."""

_OP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_ATTR_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def print_graph(graph: Graph, *, origins: bool = False, constants: ConstantStyle = "digest") -> str:
    """The text of `graph` and its regions, ending with a newline.

    `origins` adds where nodes come from and the graph's metadata. Raises `InvalidGraphError` for an attribute that
    holds something the text form does not know, and what a lazy constant's loader raises.
    """
    printer = _Printer(constants)
    definitions = [_definition(printer, name, body, origins) for name, body in printer.definitions(graph)]
    return "\n".join(definitions)


def print_node(node: Node) -> str:
    """The line of one node, for messages: large constants are not looked at."""
    return _Printer("type").node(node)


def constants_of(graph: Graph) -> dict[str, Constant]:
    """The constants that the text of `graph` only names, by digest, regions included: `parse` takes them."""
    return {constant.digest: constant for constant in constants_in(graph) if constant.size > INLINE_LIMIT}


def _definition(printer: "_Printer", name: str, graph: Graph, origins: bool) -> str:
    inputs = ", ".join(printer.input(value) for value in graph.inputs)
    metadata = _metadata_text(graph.metadata) if origins and graph.metadata else ""
    lines = [f"graph @{name_text(name)}({inputs}) {metadata}{{"]
    for node in graph.nodes:
        located = f" {_origin_text(node.origin)}" if origins and node.origin is not None else ""
        lines.append(f"  {printer.node(node)}{located}")
    lines.append(f"  {_return_text(graph)}")
    lines.append("}\n")
    return "\n".join(lines)


def _metadata_text(metadata: dict[str, str]) -> str:
    pairs = ", ".join(f"{string_text(key)} = {string_text(value)}" for key, value in metadata.items())
    return f"metadata {{{pairs}}} "


def _origin_text(origin: Origin) -> str:
    texts = [origin.name, origin.source, origin.doc]
    while len(texts) > 1 and not texts[-1] and not origin.metadata:
        texts.pop()
    pairs = [f"{string_text(key)} = {string_text(value)}" for key, value in origin.metadata]
    return f"loc({', '.join([*map(string_text, texts), *pairs])})"


def _return_text(graph: Graph) -> str:
    states = {state.output: graph.inputs[state.input] for state in graph.states}
    outputs = [
        _output_text(value, name, states.get(index))
        for index, (value, name) in enumerate(zip(graph.outputs, graph.output_names, strict=True))
    ]
    return f"return {', '.join(outputs)}".rstrip()


def _output_text(value: Value, name: str, state: Value | None) -> str:
    renamed = f" as {name_text(name)}" if name != value.name else ""
    kept = f" -> %{name_text(state.name)}" if state is not None else ""
    return f"%{name_text(value.name)}{renamed}{kept}"


class _Printer:
    """Names the regions it comes across while it prints nodes."""

    def __init__(self, constants: ConstantStyle) -> None:
        self._constants = constants
        self._names: dict[str, int] = {}
        self._regions: list[tuple[str, Graph]] = []

    def definitions(self, graph: Graph) -> Iterator[tuple[str, Graph]]:
        """The graph, then every region that printing the ones before has met."""
        self._add_region(graph)
        yield from self._regions  # grows while it is read

    def input(self, value: Value) -> str:
        declared = f"%{name_text(value.name)}: {value.type}"
        default = value.graph.defaults.get(value.name)
        return declared if default is None else f"{declared} = {self._constant(default)}"

    def node(self, node: Node) -> str:
        results = ", ".join(f"%{name_text(value.name)}: {value.type}" for value in node.outputs)
        operands = ", ".join("_" if value is None else f"%{name_text(value.name)}" for value in node.inputs)
        name = node.op.name if _OP_NAME.fullmatch(node.op.name) else string_text(node.op.name)
        call = f"{name}({operands}){self._attrs(node.op, node.attrs)}"
        return f"{results} = {call}" if results else call

    def _attrs(self, op: Op, attrs: Attrs) -> str:
        texts = [
            f"{name if _ATTR_NAME.fullmatch(name) else string_text(name)} = {self._attr(op.attrs.get(name), value)}"
            for name, value in attrs.items()
            if not _is_default(op.attrs.get(name), value)
        ]
        return f" {{{', '.join(texts)}}}" if texts else ""

    def _attr(self, schema: Attribute | None, value: AttrValue) -> str:
        if schema is not None and value is not None:
            if schema.kind is AttrKind.DIM:
                return _dim_text(value)
            if schema.kind is AttrKind.DIMS:
                return f"[{', '.join(map(str, value))}]"
        return self._value(value)

    def _value(self, value: object) -> str:
        formatter = _FORMATTERS.get(type(value))
        if formatter is not None:
            return formatter(value)
        if is_tuple(value):
            return f"[{', '.join(map(self._value, value))}]"
        if isinstance(value, Constant):
            return self._constant(value)
        if isinstance(value, Graph):
            return f"@{name_text(self._add_region(value))}"
        raise InvalidGraphError(f"an attribute holds {value!r}, which has no text form")

    def _constant(self, constant: Constant) -> str:
        if constant.size <= INLINE_LIMIT:
            return f"dense<{constant.type}: {elements_text(constant)}>"
        return f"dense<{constant.type}>" if self._constants == "type" else f"dense<{constant.type}, #{constant.digest}>"

    def _add_region(self, graph: Graph) -> str:
        name, suffix = graph.name, self._names.get(graph.name, 0)
        while name in self._names:
            suffix += 1
            name = f"{graph.name}_{suffix}"
        self._names[graph.name] = suffix
        self._names.setdefault(name, 0)
        self._regions.append((name, graph))
        return name


def _is_default(schema: Attribute | None, value: AttrValue) -> bool:
    if schema is None or schema.is_required:
        return False
    # By text as well: 0.0 == -0.0 and 1 == True are different attributes.
    return bool(value is schema.default or (value == schema.default and repr(value) == repr(schema.default)))


def _dim_text(dim: int | SymDim) -> str:
    text = str(dim)
    return f"`{text}`" if text == "none" else text


_FORMATTERS: dict[type, Callable[[AttrValue], str]] = {
    type(None): lambda _: "none",
    bool: lambda value: "true" if value else "false",
    int: str,
    float: repr,
    str: string_text,
    bytes: bytes_text,
    DType: str,
    SymDim: "dim({})".format,
    **dict.fromkeys((TensorType, SequenceType, OptionalType, OpaqueType), "type({})".format),
}
