"""Reads the text form that `ir.printer` describes and writes.

Whoever writes a text by hand may leave out the result types of native ops and the attributes that have defaults, break
lines anywhere, and put `//` comments between statements. Regions must be defined after the graph that uses them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..attrs import Attribute, AttrKind, AttrValue
from ..constant import Constant
from ..errors import CapgraphError, TypeRuleError
from ..graph import Graph, Origin, SymbolTable, Value
from ..op import Op, foreign
from ..ops import OPS, PLANNED_OPS
from ..types import DType, TensorType, Type
from .cursor import BRACKETED, NAME, STRING, Cursor
from .dense import read_elements
from .type_reader import MAX_NESTING, TypeReader


def parse(text: str, *, constants: Mapping[str, Constant] | None = None) -> Graph:
    """The first graph that `text` defines; the further ones are its regions.

    `constants` gives the large constants by digest, as `printer.constants_of` collects them. Raises `ParseError` with
    the place of anything that cannot be read, is unknown, or contradicts an op's type rule.
    """
    starts = [found.start() for found in _DEFINITION.finditer(text)]
    _require_blank(Cursor(text, 0, starts[0] if starts else None), "graph @name(...) {")
    if not starts:
        raise Cursor(text, len(text)).error("expected graph @name(...) {")
    symbols = SymbolTable(_NUMBERED_SYMBOL.findall(text))
    readers: dict[str, _GraphReader] = {}
    reader: _GraphReader | None = None
    for start, end in reversed(list(zip(starts, [*starts[1:], len(text)], strict=True))):
        reader = _GraphReader(Cursor(text, start, end), readers, constants or {}, symbols)
        reader.read()
        other = readers.get(reader.graph.name)
        if other is not None:
            raise other.cursor.error(f"there is another graph @{reader.graph.name}", other.start)
        readers[reader.graph.name] = reader
    assert reader is not None  # there is at least one definition
    unused = [other for other in readers.values() if other is not reader and not other.is_used]
    if unused:
        raise unused[-1].cursor.error(f"no node uses graph @{unused[-1].graph.name}", unused[-1].start)
    return reader.graph


def parse_type(text: str) -> Type:
    """The type that `text` writes, as `str` prints it: `f32[B, 4]`, `seq(i64[])`. Raises `ParseError`."""
    cursor = Cursor(text)
    ty = TypeReader(cursor).read()
    _require_blank(cursor, "the end of the type")
    return ty


_DEFINITION = re.compile(r"^[ \t]*graph\s+@", re.MULTILINE)
_NUMBERED_SYMBOL = re.compile(r"\bu[0-9]+\b")

_HEADER = re.compile(rf"\s*graph\s+@({NAME}|{STRING})\s*\(")
_METADATA = re.compile(r"\s*metadata\s*\{")
_STATEMENT = re.compile(rf"\s*(?:(return)\b|(%)|(?={NAME}|{STRING}))")
_VALUE = re.compile(rf"\s*%({NAME}|{STRING})")
_OPERAND = re.compile(rf"\s*(?:%({NAME}|{STRING})|_)\s*([,)])")
_OP = re.compile(rf"\s*([A-Za-z_][A-Za-z0-9_.]*|{STRING})\s*\(")
_AS = re.compile(rf"\s*as\s+({NAME}|{STRING})")
_ARROW = re.compile(rf"\s*->\s*%({NAME}|{STRING})")
_COLON = re.compile(r"\s*:")
_COMMA = re.compile(r"\s*,")
_EQUALS = re.compile(r"\s*=")
_OPEN_BRACE = re.compile(r"\s*\{")
_CLOSE_BRACE = re.compile(r"\s*\}")
_CLOSE_PAREN = re.compile(r"\s*\)")
_CLOSE_BRACKET = re.compile(r"\s*\]")
_CLOSE_ANGLE = re.compile(r"\s*>")
_LOC = re.compile(r"\s*loc\s*\(")
_STRING = re.compile(rf"\s*({STRING})")
_ATTR_NAME = re.compile(rf"\s*([A-Za-z_][A-Za-z0-9_]*|{STRING})\s*=")
_NONE = re.compile(r"\s*none\s*(?=[,}])")
_DIM_LIST = re.compile(rf"\s*{BRACKETED}")
_DENSE = re.compile(r"\s*dense\s*<")
_DIGEST = re.compile(r"\s*,\s*#([0-9a-f]+)")
_ATTR_VALUE = re.compile(
    rf"""\s*(?:
    (?P<float>-?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|inf\b)|nan\b)
    |(?P<int>-?[0-9]+)
    |b"(?P<bytes>(?:[0-9a-f][0-9a-f])*)"
    |(?P<string>{STRING})
    |@(?P<region>{NAME}|{STRING})
    |(?P<list>\[)
    |(?P<type>type\()
    |(?P<dim>dim\()
    |(?P<dense>dense\s*<)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    )""",
    re.VERBOSE,
)
_WORDS: dict[str, AttrValue] = {"none": None, "true": True, "false": False, **{d.value: d for d in DType}}


def _require_blank(cursor: Cursor, what: str) -> None:
    cursor.skip_between()
    if not cursor.is_at_end:
        raise cursor.error(f"expected {what}")


class _AttrReader:
    """Reads the attributes of one node."""

    def __init__(self, cursor: Cursor, types: TypeReader, scope: "_GraphReader") -> None:
        self._cursor = cursor
        self._types = types
        self._scope = scope

    def read(self, op: Op) -> dict[str, AttrValue]:
        """The attributes after an opening brace."""
        cursor = self._cursor
        attrs: dict[str, AttrValue] = {}
        if cursor.match(_CLOSE_BRACE):
            return attrs
        while True:
            found = cursor.expect(_ATTR_NAME, "name = value")
            name = cursor.unquoted(found[1])
            if name in attrs:
                raise cursor.error(f"attribute {name} is given twice", found.start(1))
            schema = op.attrs.get(name)
            if schema is None and not op.is_foreign:
                known = ", ".join(op.attrs) or "none"
                remedy = f"its attributes: {known}"
                raise cursor.error(f"{op.name} has no attribute {name}", found.start(1), remedy=remedy)
            attrs[name] = self._attr(schema)
            if not cursor.match(_COMMA):
                cursor.expect(_CLOSE_BRACE, ", or } after an attribute")
                return attrs

    def constant(self) -> Constant:
        """The constant that comes next."""
        self._cursor.expect(_DENSE, "a constant, such as dense<f32[]: 1.0>")
        return self._dense()

    def _attr(self, schema: Attribute | None) -> AttrValue:
        kind = schema.kind if schema is not None else AttrKind.ANY
        if kind is AttrKind.DIM or kind is AttrKind.DIMS:
            return self._sizes(kind)
        return self._value()

    def _sizes(self, kind: AttrKind) -> AttrValue:
        if self._cursor.match(_NONE):
            return None
        if kind is AttrKind.DIM:
            return self._types.dim()
        return self._types.dims(self._cursor.expect(_DIM_LIST, "a list of sizes, such as [B, 4]"), 1)

    def _value(self, depth: int = 0) -> AttrValue:
        found = self._cursor.expect(_ATTR_VALUE, "an attribute's value")
        kind = found.lastgroup or ""
        token = found[kind]
        if kind == "list":
            return self._list(depth)
        if kind == "int":
            return self._int(found)
        if kind == "word":
            return self._word(found)
        if kind == "string":
            return self._cursor.unquoted(token)
        if kind == "region":
            return self._scope.region(self._cursor.unquoted(token), found.start(kind) - 1)
        return _SIMPLE[kind](token) if kind in _SIMPLE else self._nested(kind)

    def _int(self, found: re.Match[str]) -> int:
        try:
            return int(found["int"])
        except ValueError:  # Python refuses thousands of digits
            raise self._cursor.error("the integer has too many digits", found.start("int")) from None

    def _word(self, found: re.Match[str]) -> AttrValue:
        word = found["word"]
        if word not in _WORDS:
            problem = f"{word} is no value"
            raise self._cursor.error(problem, found.start("word"), remedy='strings stand in quotes: "..."')
        return _WORDS[word]

    def _nested(self, kind: str) -> AttrValue:
        if kind == "dense":
            return self._dense()
        value = self._types.read() if kind == "type" else self._types.dim()
        self._cursor.expect(_CLOSE_PAREN, ")")
        return value

    def _list(self, depth: int) -> AttrValue:
        cursor = self._cursor
        if depth > MAX_NESTING:
            raise cursor.error("the list is nested too deeply", cursor.position - 1)
        items: list[AttrValue] = []
        while not cursor.match(_CLOSE_BRACKET):
            if items:
                cursor.expect(_COMMA, ", or ] after a value")
            items.append(self._value(depth + 1))
        return tuple(items)

    def _dense(self) -> Constant:
        cursor = self._cursor
        start = cursor.position
        ty = self._types.read()
        if not isinstance(ty, TensorType) or not ty.is_static:
            raise cursor.error(f"a constant cannot be {ty}", start, remedy="give it plain integer sizes")
        found = cursor.match(_DIGEST)
        if found is None:
            cursor.expect(_COLON, ": and the elements, or , #digest")
            constant = read_elements(cursor, ty)
        else:
            constant = self._scope.constant(found, ty)
        cursor.expect(_CLOSE_ANGLE, "> after the constant")
        return constant


_SIMPLE: Mapping[str, Any] = {"float": float, "bytes": bytes.fromhex}


class _GraphReader:
    """Reads one definition into `graph`."""

    def __init__(
        self,
        cursor: Cursor,
        regions: "Mapping[str, _GraphReader]",
        constants: Mapping[str, Constant],
        symbols: SymbolTable,
    ) -> None:
        self.cursor = cursor
        self.start = cursor.position
        self.graph = Graph(symbols=symbols)
        self.is_used = False
        self._regions = regions
        self._constants = constants
        self._values: dict[str, Value] = {}
        self._types = TypeReader(cursor)
        self._attrs = _AttrReader(cursor, self._types, self)

    def read(self) -> None:
        cursor = self.cursor
        self.graph.name = cursor.unquoted(cursor.expect(_HEADER, "graph @name(")[1])
        self._inputs()
        self._metadata()
        cursor.expect(_OPEN_BRACE, "{")
        while True:
            cursor.skip_between()
            found = cursor.expect(_STATEMENT, "a node or return")
            if found[1]:
                break
            if found[2]:
                cursor.position = found.start(2)
            self._node(has_results=bool(found[2]))
        self._return()
        cursor.skip_between()
        cursor.expect(_CLOSE_BRACE, "}")
        _require_blank(cursor, "the end of the text or another graph")

    # ---- what attributes refer to

    def region(self, name: str, position: int) -> Graph:
        """The definition of `name`, which stands further down."""
        reader = self._regions.get(name)
        if reader is None:
            raise self.cursor.error(f"there is no graph @{name} below", position, remedy="define it after this graph")
        if reader.is_used:
            problem = f"graph @{name} is used by another node"
            raise self.cursor.error(problem, position, remedy="give each node a region of its own")
        reader.is_used = True
        return reader.graph

    def constant(self, found: re.Match[str], ty: TensorType) -> Constant:
        """The large constant whose digest `found` matched."""
        constant = self._constants.get(found[1])
        if constant is None:
            raise self.cursor.error(
                f"the text only names constant #{found[1]}",
                found.start(1) - 1,
                remedy="pass its content: parse(text, constants=constants_of(graph))",
            )
        if constant.type != ty:
            raise self.cursor.error(f"constant #{found[1]} is {constant.type}, not {ty}", found.start(1) - 1)
        return constant

    # ---- the parts of a definition

    def _inputs(self) -> None:
        cursor = self.cursor
        while not cursor.match(_CLOSE_PAREN):
            if self._values:
                cursor.expect(_COMMA, ", or ) after an input")
            name = self._new_name()
            cursor.expect(_COLON, ": and the input's type")
            value = self._values[name] = self.graph.add_input(name, self._types.read())
            if cursor.match(_EQUALS):
                self._default(value)

    def _default(self, value: Value) -> None:
        start = self.cursor.position
        try:
            self.graph.set_default(value, self._attrs.constant())
        except TypeRuleError as error:
            raise self.cursor.error(error.message, start) from error

    def _metadata(self) -> None:
        cursor = self.cursor
        if cursor.match(_METADATA):
            while not cursor.match(_CLOSE_BRACE):
                if self.graph.metadata:
                    cursor.expect(_COMMA, ", or } after a pair")
                key, value = self._pair(self._string())
                self.graph.metadata[key] = value

    def _string(self) -> str:
        return self.cursor.unquoted(self.cursor.expect(_STRING, "a string")[1])

    def _pair(self, key: str) -> tuple[str, str]:
        self.cursor.expect(_EQUALS, "= and a string")
        return key, self._string()

    def _new_name(self, siblings: Sequence[str] = ()) -> str:
        cursor = self.cursor
        found = cursor.expect(_VALUE, "%name")
        name = cursor.unquoted(found[1])
        if name in self._values or name in siblings:
            raise cursor.error(f"%{name} is defined twice", found.start(1) - 1)
        return name

    def _node(self, has_results: bool) -> None:
        names, types = self._results() if has_results else ([], [])
        op, start = self._op()
        operands = self._operands()
        attrs = self._attrs.read(op) if self.cursor.match(_OPEN_BRACE) else {}
        origin = self._origin() if self.cursor.match(_LOC) else None
        declared = types if types or op.is_foreign else None
        try:
            node = self.graph.append(op, operands, attrs, types=declared, names=names, origin=origin)
        except CapgraphError as error:
            raise self.cursor.error(error.message, start, remedy=error.remedy) from error
        if len(node.outputs) != len(names):
            raise self.cursor.error(f"{op.name} has {len(node.outputs)} results, not {len(names)}", start)
        self._values.update(zip(names, node.outputs, strict=True))

    def _results(self) -> tuple[list[str], list[Type]]:
        cursor = self.cursor
        names: list[str] = []
        types: list[Type] = []
        while True:
            names.append(self._new_name(names))
            if cursor.match(_COLON):
                types.append(self._types.read())
            if not cursor.match(_COMMA):
                break
        cursor.expect(_EQUALS, "= and an op")
        if types and len(types) != len(names):
            raise cursor.error("some results have a type and some have none", cursor.position - 1)
        return names, types

    def _op(self) -> tuple[Op, int]:
        cursor = self.cursor
        found = cursor.expect(_OP, "an op and (")
        start = found.start(1)
        name = cursor.unquoted(found[1])
        op = OPS.get(name) or PLANNED_OPS.get(name)
        if op is None and "." in name:
            op = foreign(name)
        if op is None:
            raise cursor.error(
                f"there is no native op {name}", start, remedy="a foreign op's name has a domain: onnx.Foo"
            )
        return op, start

    def _operands(self) -> Sequence[Value | None]:
        cursor = self.cursor
        if cursor.match(_CLOSE_PAREN):
            return ()
        operands: list[Value | None] = []
        while True:
            found = cursor.match(_OPERAND)
            if found is None:
                cursor.expect(_VALUE, "an operand: %name, or _ for an absent one")
                raise cursor.error("expected , or ) after an operand")
            operands.append(self._known(found) if found[1] else None)
            if found[2] == ")":
                return operands

    def _known(self, found: re.Match[str]) -> Value:
        name = self.cursor.unquoted(found[1])
        value = self._values.get(name)
        if value is None:
            raise self.cursor.error(f"there is no %{name} before this", found.start(1) - 1)
        return value

    def _origin(self) -> Origin:
        cursor = self.cursor
        texts: list[str] = []
        pairs: list[tuple[str, str]] = []
        while not cursor.match(_CLOSE_PAREN):
            if texts or pairs:
                cursor.expect(_COMMA, ", or ) after a string")
            text = self._string()
            if len(texts) == 3:
                pairs.append(self._pair(text))
            else:
                texts.append(text)
        name, source, doc = (*texts, "", "", "")[:3]
        return Origin(name, source, doc, tuple(pairs))

    def _return(self) -> None:
        cursor = self.cursor
        outputs: list[Value] = []
        names: list[str] = []
        states: list[tuple[int, int]] = []
        is_named = False
        start = cursor.position
        while (found := cursor.match(_VALUE)) is not None:
            value = self._known(found)
            renamed = cursor.match(_AS)
            is_named = is_named or renamed is not None
            if (state := cursor.match(_ARROW)) is not None:
                states.append((self._input_index(state), len(outputs)))
            outputs.append(value)
            names.append(cursor.unquoted(renamed[1]) if renamed is not None else value.name)
            if not cursor.match(_COMMA):
                break
        try:
            self.graph.set_outputs(outputs, names if is_named else None)
            self.graph.set_states(states)
        except CapgraphError as error:
            raise cursor.error(error.message, start, remedy=error.remedy) from error

    def _input_index(self, found: re.Match[str]) -> int:
        value = self._known(found)
        if value.producer is not None:
            problem = f"%{value.name} is no input, so it cannot be a state"
            raise self.cursor.error(problem, found.start(1) - 1)
        return value.index
