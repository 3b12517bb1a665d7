"""What an import rule sees: one ONNX node, its operands as IR values, and the means to emit native nodes.

An import rule is a function `rule(ctx: ImportContext) -> Value | Sequence[Value | None]`; it stands in the `IMPORTS`
table of its family in `frontends/onnx/ops/` under the operator's name, `"com.microsoft.Foo"` for other domains. It
gives the node's results in order (a single value for the first; None for a result that nobody reads, see `ctx.wants`).
It reads the operator's version from `ctx.version` and serves every version from opset 7 on. What it cannot express
natively it refuses with `raise NotNative("why")`; what it emitted is then taken back and the importer tries the
operator's function body, then a foreign op. An invalid model is a `ModelError`.

An operand that the native op takes as attribute (a shape, axes, pads) is asked for with `ctx.dims(i, *operands)`,
`ctx.dim(i, *operands)` or `ctx.ints(i)`: they follow shape arithmetic symbolically and give None when the content is
not known at import time, or mentions a size that neither the graph's inputs nor `operands` bind. Then the rule emits
the `dynamic_` form of the op.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TypeProto

from ....ir.analysis.contents import constant_of
from ....ir.analysis.shape_values import ShapeValues
from ....ir.builder import Emitter
from ....ir.constant import Array
from ....ir.dims import Dim
from ....ir.errors import CapgraphError, ModelError
from ....ir.graph import Graph, Origin, Value
from ....ir.types import TensorType, Type
from ..tensors import constant_from_proto, text_of

T = TypeVar("T")

MAX_PRECISE_DEPTH = 6
"""Bodies of loops nested deeper are imported once, with no sizes of what they carry, instead of up to three times."""


class NotNative(CapgraphError):
    """An import rule cannot express this node in native ops; the message says why. Never reaches users."""


@dataclass(frozen=True)
class ImportedRegion:
    """An imported subgraph: `body`, whose last inputs stand for the outer values `captured`, as it first reads them."""

    body: Graph
    captured: tuple[Value, ...]


class Scope(Protocol):
    """What rules ask of the importer: the graph that nodes go to, and the names of its values."""

    @property
    def graph(self) -> Graph: ...
    @property
    def shape_values(self) -> ShapeValues: ...
    @property
    def folder(self) -> Path | None:
        """Where external data lies."""
        ...

    @property
    def versions(self) -> Mapping[str, int]:
        """The versions of the domains that the model or function imports."""
        ...

    @property
    def declared(self) -> Mapping[str, TypeProto]:
        """Types that the model states for values inside."""
        ...

    @property
    def is_resized(self) -> bool:
        """Whether inputs have other sizes than those for which the model states them."""
        ...

    @property
    def read(self) -> frozenset[str]:
        """Names that any node or output reads."""
        ...

    @property
    def returned(self) -> frozenset[str]:
        """Names of the outputs."""
        ...

    @property
    def depth(self) -> int:
        """How many subgraphs and functions it lies in."""
        ...

    @property
    def may_fail(self) -> bool:
        """Whether nodes may have operands that they refuse when they run."""
        ...

    def lookup(self, name: str) -> Value | None: ...
    def is_one(self, name: str) -> bool: ...
    def are_given(self, dims: Sequence[Dim]) -> bool: ...
    def bound_symbols(self) -> frozenset[str]: ...
    def may_mention(self, dims: Sequence[Dim], *operands: Value) -> bool: ...
    def resolve_attribute(self, proto: AttributeProto) -> AttributeProto | None: ...
    def import_region(self, proto: GraphProto, types: Sequence[Type | None] = ()) -> ImportedRegion: ...
    def import_closed_region(self, proto: GraphProto, types: Sequence[Type | None] = ()) -> ImportedRegion: ...
    def import_in_place(self, proto: GraphProto) -> list[Value]: ...
    def remark(self, what: str, name: str, words: str) -> None: ...


class ImportContext(Emitter):
    """One ONNX node being imported into `scope.graph`."""

    __slots__ = ("_attributes", "inputs", "op_type", "proto", "scope", "version")

    def __init__(self, scope: Scope, node: NodeProto, inputs: Sequence[Value | None], version: int, origin: Origin):
        super().__init__(scope.graph, origin=origin)
        self.scope = scope
        self.proto = node
        self.op_type: str = node.op_type
        self.inputs = tuple(inputs)
        self.version = version
        self._attributes: dict[str, AttributeProto] = {
            a.name: found for a in node.attribute if (found := scope.resolve_attribute(a)) is not None
        }

    # ---- operands

    @property
    def shape_values(self) -> ShapeValues:
        return self.scope.shape_values

    def input(self, index: int) -> Value:
        """Operand `index`, which the operator requires."""
        value = self.optional(index)
        if value is None:
            raise ModelError(f"{self.op_type} needs input {index}")
        return value

    def optional(self, index: int) -> Value | None:
        """Operand `index`, None when it is absent (left out or named `""`)."""
        return self.inputs[index] if index < len(self.inputs) else None

    def tensor(self, index: int) -> TensorType:
        """The type of operand `index`. Raises `NotNative` when it is no tensor or its rank is unknown."""
        ty = self.input(index).type
        if not isinstance(ty, TensorType) or ty.shape is None:
            raise NotNative(f"input {index} is {ty}")
        return ty

    def array(self, index: int) -> Array | None:
        """The content of operand `index` when it is a constant, else None."""
        value = self.optional(index)
        constant = constant_of(value)
        return constant.array if constant is not None else None

    def ints(self, index: int) -> tuple[int, ...] | None:
        """The content of a small integer operand (rank 0 or 1) as plain integers, None when not known."""
        known = self.dims(index)
        if known is None or not all(isinstance(dim, int) for dim in known):
            return None
        return tuple(int(dim) for dim in known if isinstance(dim, int))

    def dims(self, index: int, *operands: Value) -> tuple[Dim, ...] | None:
        """The content of a small integer operand (rank 0 or 1) as dims, None when it is not known (see above)."""
        value = self.optional(index)
        known = self.shape_values.of(value) if value is not None else None
        if known is None or known.ndim > 1:
            return None
        found = tuple(known.reshape(-1).tolist())
        return found if self.may_mention(found, *operands) else None

    def dim(self, index: int, *operands: Value) -> Dim | None:
        """The content of a one-element integer operand as a dim, None when it is not known."""
        found = self.dims(index, *operands)
        return found[0] if found is not None and len(found) == 1 else None

    def may_mention(self, dims: Sequence[Dim], *operands: Value) -> bool:
        """Whether a node with `operands` may have these dims in its attributes (the symbol scoping invariant)."""
        return self.scope.may_mention(dims, *operands)

    @property
    def output_count(self) -> int:
        """How many results the node names, trailing unnamed ones included."""
        return len(self.proto.output)

    def wants(self, index: int) -> bool:
        """Whether anything reads result `index` of the node."""
        return index < len(self.proto.output) and self.proto.output[index] in self.scope.read

    # ---- attributes

    def has_attr(self, name: str) -> bool:
        return name in self._attributes

    @overload
    def attr(self, name: str) -> Any: ...
    @overload
    def attr(self, name: str, default: T) -> T: ...
    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as a Python value (strings decoded, tensors as `Constant`, graphs and types as protos).

        A float, which ONNX keeps in 32 bits, comes as the shortest decimal that is the same there: 0.1 is 0.1.
        """
        proto = self._attributes.get(name)
        return default if proto is None else self.python_value(proto)

    def python_value(self, proto: AttributeProto) -> Any:
        """The Python value of any attribute, such as a default of the operator's schema."""
        if proto.type == AttributeProto.STRING:
            return text_of(proto.s)
        if proto.type == AttributeProto.STRINGS:
            return tuple(text_of(item) for item in proto.strings)
        if proto.type == AttributeProto.TENSOR:
            return constant_from_proto(proto.t, self.scope.folder)
        if proto.type == AttributeProto.TENSORS:
            return tuple(constant_from_proto(item, self.scope.folder) for item in proto.tensors)
        if proto.type == AttributeProto.FLOAT:
            return _decimal(proto.f)
        if proto.type == AttributeProto.FLOATS:
            return tuple(_decimal(item) for item in proto.floats)
        value = onnx.helper.get_attribute_value(proto)
        return tuple(value) if isinstance(value, list) else value

    @property
    def attributes(self) -> dict[str, AttributeProto]:
        """All attributes as protos, references to a function's attributes resolved."""
        return self._attributes

    # ---- emitting

    def scalar_like(self, content: float, like: Value) -> Value:
        """A rank-0 constant with the dtype of `like`."""
        return self.constant(content, like.tensor.dtype)

    # ---- regions

    def region(self, name: str) -> ImportedRegion:
        """The graph attribute `name` as an isolated region: its body, and the outer values that it captures.

        The captured values are the last inputs of the body, in the same order. The body's own inputs have the types
        that the model declares; `ctx.region_with_types` gives them better ones.
        """
        return self.scope.import_region(self._attributes[name].g)

    def region_with_types(self, name: str, types: Sequence[Any]) -> ImportedRegion:
        """As `region`, with the types of the body's declared inputs given (None keeps the declared one)."""
        return self.scope.import_region(self._attributes[name].g, types)

    def in_place(self, name: str) -> tuple[Value, ...]:
        """The results of the graph attribute `name`, whose nodes are emitted here: it is known to run once."""
        return tuple(self.scope.import_in_place(self._attributes[name].g))


def _decimal(value: float) -> float:
    return float(str(np.float32(value)))
