"""What all scopes of one import share, function bodies of operators' schemas among it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from ....ir.analysis.shape_values import ShapeValues
from ....ir.dims import Dim, bind, parse_dim, symbol, symbols
from ....ir.errors import ModelError, ShapeError
from ....ir.op import FRESH
from ..context.import_context import ImportContext
from ..files.loading import opset_versions
from ..files.metadata import read_symbols
from ..schemas import schema_of
from ..tensors import type_to_proto

_WRONG = {
    "AffineGrid": "drops a batch of 1, as its Squeeze names no axes",
    "Celu": "makes a vector of a scalar, as its alpha is one",
    "Shrink": "rounds lambd and bias where the operand has integers",
}
"""Operators whose bodies do not mean them, and why."""


def schema_function(ctx: ImportContext, domain: str) -> FunctionProto | None:
    """The body of the node's operator as a function over its inputs, None when its schema has none."""
    schema: Any = schema_of(ctx.op_type, ctx.version, domain)  # onnx's stubs leave out all that is about functions
    if schema is None or ctx.op_type in _WRONG or not (schema.has_function or schema.has_context_dependent_function):
        return None
    body = _context_dependent(schema, ctx) if schema.has_context_dependent_function else _fixed(schema, ctx)
    if body is None:
        return None
    given = {proto.name for proto in body.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            body.attribute_proto.append(attribute.default_value)
    return body


def _fixed(schema: Any, ctx: ImportContext) -> FunctionProto | None:
    version = _newest(schema.function_opset_versions, ctx.version)
    return FunctionProto.FromString(schema.get_function_with_opset_version(version)) if version else None


def _context_dependent(schema: Any, ctx: ImportContext) -> FunctionProto | None:
    version = _newest(schema.context_dependent_function_opset_versions, ctx.version)
    if not version:
        return None
    node = _resolved(ctx)
    types = [type_to_proto(v.type).SerializeToString() if v is not None else b"" for v in ctx.inputs]
    try:
        body = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
    except (RuntimeError, ValueError) as error:  # what a model gives stands in a text that onnx parses
        raise ModelError(f"onnx cannot say what this {ctx.op_type} means: {error}") from error
    return FunctionProto.FromString(body) if body else None


def _newest(versions: list[int], limit: int) -> int:
    return max((version for version in versions if version <= limit), default=0)


def _resolved(ctx: ImportContext) -> NodeProto:
    """The node with the attributes that it refers to in an enclosing function filled in."""
    node = NodeProto()
    node.CopyFrom(ctx.proto)
    del node.attribute[:]
    node.attribute.extend(ctx.attributes.values())
    return node


MAX_INLINED_NODES = 100_000

MAX_GIVEN_UP = 256
"""How many bodies of functions may turn out wrong: each nested in another is read twice in every one around it."""

UNKNOWN = frozenset(("?", "-1", "None"))
"""Names that exporters give to sizes that they do not know."""

MAX_NAMED = 3
"""How many of the things that a note counts it also names."""


class ModelReader:
    """What all scopes of one import share: versions, functions, the sizes that names mean, and remarks."""

    def __init__(
        self,
        proto: ModelProto,
        folder: Path | None,
        shapes: Mapping[str, tuple[int, ...]],
        ones: frozenset[str] = frozenset(),
        *,
        bodies_may_fail: bool = False,
    ) -> None:
        self.proto = proto
        self.bodies_may_fail = bodies_may_fail
        """Whether nodes in bodies may be ones that fail when they run."""
        self.ones = ones
        self.given = frozenset[str]()
        """The symbols of the model's inputs: sizes that each call tells, and that it may be read again for."""
        self.taken_not_to_be_one: list[str] = []
        """Open sizes of operands of `Squeeze` without axes: each is 1 where it is among `ones`."""
        self.shapes = shapes
        self._sizes = _sizes_of(proto.graph, shapes)
        self.folder = folder
        self.versions = opset_versions(proto)
        self.functions: dict[tuple[str, str], FunctionProto] = {(f.domain, f.name): f for f in proto.functions}
        self.shape_values = ShapeValues()
        self.notes: list[str] = []
        self._remarks: dict[str, dict[str, str]] = {}
        self._plain = _plain_symbols(proto.graph) | read_symbols(proto)
        self._inlined = 0
        self._given_up = 0

    def count_inlined(self, nodes: int) -> None:
        """Counts nodes that functions add: a few functions that call each other twice could fill any memory."""
        self._inlined += nodes
        if self._inlined > MAX_INLINED_NODES:
            raise ModelError(f"the model's functions expand to more than {MAX_INLINED_NODES} nodes")

    def may_give_up(self) -> bool:
        """Counts a body that turned out wrong; whether the node may be read in another way."""
        self._given_up += 1
        return self._given_up <= MAX_GIVEN_UP

    def remark(self, what: str, name: str, words: str) -> None:
        """Remembers that `what` was done about `name`; the notes count each kind and say the first few in `words`."""
        self._remarks.setdefault(what, {}).setdefault(name, words)

    def note_remarks(self) -> None:
        """Adds the remarks to the notes."""
        for what, items in self._remarks.items():
            more = f", and {len(items) - MAX_NAMED} more" if len(items) > MAX_NAMED else ""
            self.notes.append(f"{len(items)} {what}: {'; '.join([*items.values()][:MAX_NAMED])}{more}")

    def dim_of(self, name: str) -> Dim:
        """The dim that a `dim_param` means: an expression over symbols that inputs have, or one symbol of that name.

        A size of its own where the name says that nothing is known.
        """
        if name in UNKNOWN:
            return FRESH
        try:
            dim = parse_dim(name)
        except ShapeError:
            dim = symbol(name)
        return bind(dim if symbols(dim) <= self._plain else symbol(name), self._sizes)


def _sizes_of(proto: GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The size of each name in the shapes of inputs that have fixed ones."""
    return {
        dim.dim_param: size
        for info in proto.input
        for dim, size in zip(info.type.tensor_type.shape.dim, shapes.get(info.name, ()), strict=False)
        if dim.dim_param
    }


def _plain_symbols(proto: GraphProto) -> frozenset[str]:
    dims = (dim for info in proto.input for dim in info.type.tensor_type.shape.dim)
    return frozenset(dim.dim_param for dim in dims if dim.dim_param.isidentifier())
