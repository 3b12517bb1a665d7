"""What an export rule sees: one native node, the ONNX names of its values, and the means to write ONNX nodes.

An export rule is a function `rule(ctx: ExportContext, node: Node) -> None`; it stands in the `EXPORTS` table of its
family in `frontends/onnx/ops/` under the native op's name. It writes one or more ONNX nodes with `ctx.emit`, which
together give every result of `node` under its ONNX name:

    def export_softmax(ctx, node):
        ctx.emit("Softmax", node.inputs, node.outputs, axis=node.attrs["axis"])

Operands are given as values of the graph, as names that the context gave out, or as None where absent. Steps in
between are written with `ctx.emit_value`, which makes up a name for the result and gives it. Small tensors that ONNX
takes where the native op has an attribute come from `ctx.constant` and, where sizes may be symbolic, `ctx.dims_tensor`.

Rules write the operators of opset `ctx.opset` (the dialect's unless the caller chose another). When an operator, one
of its attributes, inputs or element types came later than that, `emit` sees it in the operator's schema: the exporter
then raises the opset, or says that the chosen one is too old. Only where an operator changed its meaning or moved an
argument between versions does a rule look at `ctx.opset`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from onnx import GraphProto

from ....ir.constant import Constant
from ....ir.dims import Dim
from ....ir.errors import CapgraphError, UnsupportedError
from ....ir.graph import Graph, Node, Value
from ....ir.types import DType
from .dialect import Dialect

Operand = Value | str | None


class Model(Protocol):
    """What all graphs of the model that is being written share."""

    is_inlined_early: bool
    doubts: list[CapgraphError]

    @property
    def came_at(self) -> int:
        """The opset of the model that the graph came from, 0 for one from elsewhere."""
        ...

    @property
    def dialect(self) -> Dialect: ...
    @property
    def is_fixed(self) -> bool:
        """Whether the caller chose the opset."""
        ...

    def use_domain(self, domain: str, version: int, last: int | None = None) -> None: ...


class SizeWriter(Protocol):
    """Writes sizes as tensors."""

    def vector(self, dims: Sequence[Dim], operands: Sequence[Value]) -> str: ...
    def scalar(self, dim: Dim, operands: Sequence[Value]) -> str: ...
    def value_of(self, dims: Sequence[Dim]) -> str | None: ...


class Writer(Protocol):
    """What rules ask of the exporter, which writes one graph: `ExportContext` says what each does."""

    @property
    def model(self) -> Model: ...
    @property
    def dims(self) -> SizeWriter: ...
    @property
    def opset(self) -> int: ...
    @property
    def is_in_line(self) -> bool: ...

    def require_opset(self, version: int, why: str) -> None: ...
    def name(self, value: Value) -> str: ...
    def new_name(self, wish: str) -> str: ...
    def give(self, node: Node, name: str) -> None: ...
    def constant(self, content: Constant) -> str: ...
    def once(self, key: Hashable, write: Callable[[], str]) -> str: ...
    def region(self, body: Graph, captured: Sequence[Operand], *, keep_names: bool) -> GraphProto: ...
    def write_inline(self, body: Graph, operands: Sequence[Operand], results: Sequence[Operand]) -> None: ...
    def emit(
        self,
        node: Node | None,
        op_type: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        domain: str,
        attributes: Mapping[str, Any],
    ) -> None: ...


class ExportContext:
    """One node being written to ONNX."""

    __slots__ = ("node", "writer")

    def __init__(self, writer: Writer, node: Node) -> None:
        self.writer = writer
        self.node = node

    @property
    def opset(self) -> int:
        """The version of the default domain that is being written."""
        return self.writer.opset

    @property
    def came_at(self) -> int:
        """The opset of the model that the graph came from, 0 for one from elsewhere."""
        return self.writer.model.came_at

    @property
    def is_part(self) -> bool:
        """Whether the node is of the body that another is written as: norms are recognized by their reductions."""
        return self.writer.is_in_line

    @property
    def dialect(self) -> Dialect:
        """Which operators may be written."""
        return self.writer.model.dialect

    def require_opset(self, version: int, why: str) -> None:
        """Says that the node needs at least this opset of the default domain, for what no schema can tell."""
        self.writer.require_opset(version, why)

    def has_opset(self, version: int, why: str) -> bool:
        """Whether the opset is at least `version`; where nobody chose it, it is made so."""
        if not self.writer.model.is_fixed:
            self.writer.require_opset(version, why)
        return self.opset >= version

    def doubt(self, error: CapgraphError) -> None:
        """Notes what is wrong with the node if onnx's checker refuses the model, as sizes may turn out so."""
        self.writer.model.doubts.append(error.located(self.node.where()))

    def inline_early(self) -> None:
        """Says that the model has an operator that ONNX Runtime should take as its body before it optimizes."""
        self.writer.model.is_inlined_early = True

    def use_domain(self, domain: str, version: int, last: int | None = None) -> None:
        """Makes the model import a version of a domain other than the default one: this or a newer one up to `last`."""
        self.writer.model.use_domain(domain, version, last)

    def name(self, value: Value | None) -> str:
        """The ONNX name of a value of the graph, empty for an absent one."""
        return self.writer.name(value) if value is not None else ""

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        /,
        *,
        domain: str = "",
        **attributes: Any,
    ) -> None:
        """Writes an ONNX node named after this node's origin, with its documentation and metadata.

        Absent operands at the end are dropped, and so are attributes that are None. An attribute is a number, a bool
        (written as 0 or 1), text, a `DType` (written as its number), a `Constant`, a type, a `GraphProto` from
        `region`, or a tuple of these; the operator's schema says whether a number is written as int or float.
        """
        self.writer.emit(self.node, op_type, inputs, outputs, domain, attributes)

    def emit_value(self, op_type: str, inputs: Sequence[Operand], /, *, domain: str = "", **attributes: Any) -> str:
        """Writes an ONNX node with one result that only other nodes of this rule read, and gives the result's name."""
        result = self.writer.new_name(f"{self.node.outputs[0].name}_{op_type.lower()}")
        self.emit(op_type, inputs, [result], domain=domain, **attributes)
        return result

    def give(self, name: str) -> None:
        """Takes what is written under `name` for this node's result; a result whose name is wanted is a copy."""
        self.writer.give(self.node, name)

    def inline(self, body: Graph) -> None:
        """Writes the nodes of a body, which takes this node's operands and gives its results."""
        self.writer.write_inline(body, self.node.operands, self.node.outputs)

    def inline_with(self, body: Graph, operands: Sequence[Operand], results: Sequence[Operand] | None = None) -> None:
        """Writes the nodes of a body, which takes these operands and gives these results (default: this node's)."""
        self.writer.write_inline(body, operands, self.node.outputs if results is None else results)

    def constant(self, content: Any, dtype: DType | None = None) -> str:
        """The name of an initializer with this content (array, scalar, list or `Constant`); equal ones are shared."""
        constant = content if isinstance(content, Constant) else Constant(np.asarray(content), dtype)
        return self.writer.constant(constant)

    def once(self, key: Hashable, write: Callable[[], str]) -> str:
        """The name that `write` gave the first time it was asked for under `key` in this graph: it is called once."""
        return self.writer.once(key, write)

    def ints(self, values: Sequence[int]) -> str:
        """The name of an initializer i64[n]: axes, repeats and the like. For sizes use `dims_tensor`.

        Raises `UnsupportedError` for a number that i64 does not hold.
        """
        try:
            return self.constant(np.asarray(values, np.int64).reshape(len(values)))
        except OverflowError as error:
            raise UnsupportedError(
                f"ONNX has no integers as large as {max(values, key=abs)}", remedy="choose smaller sizes"
            ) from error

    def dims_tensor(self, dims: Sequence[Dim], *operands: Value) -> str:
        """The name of a tensor i64[n] with these sizes.

        An initializer when all are plain. Otherwise shapes of values that bind the symbols, preferably of `operands`,
        and arithmetic on them; what was once computed is used again.
        """
        return self.writer.dims.vector(dims, operands)

    def like(self, dims: Sequence[Dim]) -> str:
        """The name of a tensor with these sizes, whatever it holds; zeros where no value has them."""
        return self.writer.dims.value_of(dims) or self.emit_value("ConstantOfShape", (self.dims_tensor(dims),))

    def dim_scalar(self, dim: Dim, *operands: Value) -> str:
        """As `dims_tensor`, for one size as a tensor i64[]."""
        return self.writer.dims.scalar(dim, operands)

    def region(self, body: Graph, captured: Sequence[Operand] = (), *, keep_names: bool = False) -> GraphProto:
        """The ONNX subgraph of a region, to be given to `emit` as an attribute.

        The last inputs of `body`, one for each of `captured`, are not inputs of the subgraph: it reads those values
        from the scope around it. `keep_names` is for operators that know their subgraph's inputs and outputs by name.
        """
        return self.writer.region(body, captured, keep_names=keep_names)
