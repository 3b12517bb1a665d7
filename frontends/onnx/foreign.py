"""Foreign ONNX operators: how they come in, and what they mean.

An operator that no import rule and no function body expresses becomes a foreign node. Its result types come from onnx's
shape inference, else from the types that the model declares; its meaning is onnx's reference implementation.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto
from onnx.reference import ReferenceEvaluator

from ...ir.attrs import Attrs
from ...ir.dims import Dim, SymDim, parse_dim, symbols
from ...ir.errors import ExecutionError, MissingPackageError, ModelError, ShapeError, UnsupportedError
from ...ir.foreign import register_meaning
from ...ir.graph import Graph, Node, Value
from ...ir.op import FRESH, Op
from ...ir.types import DType, OptionalType, SequenceType, TensorType, Type, type_symbols
from .context import ImportContext, constant_of
from .exporter import export_model
from .foreign_nodes import OWN_ATTRIBUTES, foreign_op
from .schemas import schema_of
from .tensors import constant_to_proto, type_from_proto, type_to_proto

_MAX_DATA = 4096  # elements of a constant operand that shape inference is shown


# ---- coming in


def import_foreign(ctx: ImportContext, domain: str) -> Sequence[Value | None]:
    """A foreign node for the operator. Raises `UnsupportedError` when its result types cannot be found out."""
    places = [place for place, name in enumerate(ctx.node.output) if name]
    types = _result_types(ctx, domain, places)
    attrs, captured = _attributes(ctx)
    attrs["opset_version"] = ctx.version
    if places != list(range(len(places))):
        attrs["results"] = tuple(places)
    op = foreign_op(domain, ctx.op_type)
    node = ctx.graph.append(op, (*ctx.inputs, *captured), attrs, types=types, origin=ctx.origin)
    by_place = dict(zip(places, node.outputs, strict=True))
    return [by_place.get(place) for place in range(len(ctx.node.output))]


def _attributes(ctx: ImportContext) -> tuple[dict[str, Any], list[Value]]:
    """The IR attributes, and the outer values that regions among them capture."""
    attrs: dict[str, Any] = {}
    captured: list[Value] = []
    counts: list[int] = []
    for name, proto in ctx.attributes.items():
        if name in OWN_ATTRIBUTES:
            raise UnsupportedError(f"{ctx.op_type} has an attribute called {name}, which foreign nodes use themselves")
        if proto.type == AttributeProto.GRAPH:
            region = ctx.scope.import_closed_region(proto.g)
            attrs[name] = region.body
            captured += region.captured
            counts.append(len(region.captured))
        else:
            attrs[name] = _attribute(ctx, proto)
    if counts:
        attrs["captured"] = tuple(counts)
    return attrs, captured


def _attribute(ctx: ImportContext, proto: AttributeProto) -> Any:
    if proto.type == AttributeProto.TYPE_PROTO:
        return _attribute_type(proto.tp)
    if proto.type in (AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS, AttributeProto.GRAPHS):
        kind = AttributeProto.AttributeType.Name(proto.type)
        raise UnsupportedError(f"attribute {proto.name} of {ctx.op_type} is a {kind}, which the IR does not have")
    if proto.type == AttributeProto.TYPE_PROTOS:
        return tuple(_attribute_type(item) for item in proto.type_protos)
    return ctx.python_value(proto)


def _attribute_type(proto: TypeProto) -> Type:
    found = type_from_proto(proto)
    if found is None:
        raise ModelError("a type attribute says nothing")
    return _without_unknown(found)


def _without_unknown(ty: Type) -> Type:
    """`ty` with shapes that are not fully known left out: an attribute may not mention a size that nothing binds."""
    if isinstance(ty, TensorType):
        return ty if ty.is_static else ty.with_shape(None)
    return type(ty)(_without_unknown(ty.element)) if isinstance(ty, SequenceType | OptionalType) else ty


# ---- result types


def _result_types(ctx: ImportContext, domain: str, places: Sequence[int]) -> list[Type]:
    inferred = _inferred_types(ctx, domain)
    allowed = _allowed_symbols(ctx)
    found = [_result_type(ctx, ctx.node.output[place], inferred, allowed) for place in places]
    return [_own_dims(ty, allowed) for ty in found]


def _result_type(ctx: ImportContext, name: str, inferred: dict[str, TypeProto], allowed: frozenset[str]) -> Type:
    def dim_of(text: str) -> Dim:
        return _dim(text, allowed)

    found = type_from_proto(inferred[name], dim_of) if name in inferred else None
    declared = type_from_proto(ctx.scope.declared[name], dim_of) if name in ctx.scope.declared else None
    if found is None or (isinstance(found, TensorType) and found.shape is None and _same_dtype(found, declared)):
        found = declared or found
    if found is None:
        raise UnsupportedError(
            f"nothing is known of the operator {ctx.op_type} of domain {ctx.node.domain or 'ai.onnx'!r}, "
            f"and the model does not state the type of its result {name!r}",
            remedy="add the function that defines it to the model, or the types of its results to graph.value_info",
        )
    return found


def _same_dtype(left: Type, right: Type | None) -> bool:
    return isinstance(left, TensorType) and isinstance(right, TensorType) and left.dtype is right.dtype


def _allowed_symbols(ctx: ImportContext) -> frozenset[str]:
    tensors = (v.type for v in ctx.inputs if v is not None and isinstance(v.type, TensorType))
    return ctx.scope.bound_symbols().union(*(type_symbols(ty) for ty in tensors))


def _dim(text: str, allowed: frozenset[str]) -> Dim:
    try:
        dim = parse_dim(text)
    except ShapeError:
        return FRESH
    return dim if symbols(dim) <= allowed else FRESH


def _own_dims(ty: Type, allowed: frozenset[str]) -> Type:
    """`ty` with new symbols for sizes that nothing here binds."""
    if isinstance(ty, TensorType) and ty.shape is not None:
        return ty.with_shape(tuple(d if not isinstance(d, SymDim) or d.symbols <= allowed else FRESH for d in ty.shape))
    return type(ty)(_own_dims(ty.element, allowed)) if isinstance(ty, SequenceType | OptionalType) else ty


def _inferred_types(ctx: ImportContext, domain: str) -> dict[str, TypeProto]:
    """The types of the named results as onnx infers them; none for an operator that it does not know."""
    schema = schema_of(ctx.op_type, ctx.version, domain)
    if schema is None:
        return {}
    node = NodeProto()
    node.CopyFrom(ctx.node)
    node.domain = domain
    del node.attribute[:]
    node.attribute.extend(ctx.attributes.values())
    known = {name: value for name, value in zip(node.input, ctx.inputs, strict=True) if value is not None}
    for name in _free_names(ctx):
        found = ctx.scope.lookup(name)
        if found is not None:
            known.setdefault(name, found)
    for position, (name, value) in enumerate(zip(ctx.node.input, ctx.inputs, strict=True)):
        if name and value is None:  # a formal input of a function that the call left out
            node.input[position] = ""
    versions = [onnx.helper.make_opsetid(d, v) for d, v in ctx.scope.versions.items()]
    try:
        return onnx.shape_inference.infer_node_outputs(
            schema,
            node,
            {name: type_to_proto(value.type) for name, value in known.items()},
            {name: data for name, value in known.items() if (data := _data(value)) is not None},
            opset_imports=versions,
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        raise ModelError(f"onnx finds the operator's operands or attributes wrong: {error}") from error


def _data(value: Value) -> TensorProto | None:
    content = constant_of(value)
    return constant_to_proto(content, "") if content is not None and content.size <= _MAX_DATA else None


def _free_names(ctx: ImportContext) -> Iterator[str]:
    for proto in ctx.attributes.values():
        if proto.type == AttributeProto.GRAPH:
            yield from _read_outside(proto.g)


def _read_outside(graph: GraphProto) -> set[str]:
    """The names that a subgraph reads from the scopes around it."""
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    read: set[str] = set()
    for node in graph.node:
        read |= set(node.input)
        read = read.union(*(_read_outside(a.g) for a in node.attribute if a.type == AttributeProto.GRAPH))
        own |= set(node.output)
    return (read | {info.name for info in graph.output}) - own - {""}


# ---- meaning


def run_foreign(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of a foreign ONNX node by onnx's reference implementation.

    Sequences are lists, an empty optional is None, strings are arrays of objects. Raises `UnsupportedError` when onnx has
    no implementation, `ExecutionError` when it fails.
    """
    types = tuple(value.type if value is not None else None for value in node.inputs)
    session = _session(node.op, node.attrs, types, tuple(value.type for value in node.outputs))
    feeds = {
        name: _copied(operand)
        for name, operand, ty in zip(_input_names(len(types)), operands, types, strict=True)
        if ty is not None
    }
    try:
        results = session.run(None, feeds)
    except ImportError as error:
        raise MissingPackageError(
            f"onnx needs the package {error.name} to run {node.op.name}", remedy=f"pip install {error.name}"
        ) from error
    except NotImplementedError as error:
        raise _not_implemented(node.op, error) from error
    except (AttributeError, AssertionError, StopIteration, OverflowError) as error:
        raise ExecutionError(f"onnx's implementation of {node.op.name} failed: {error!r}") from error
    return [_as_type(value.type, result) for value, result in zip(node.outputs, results, strict=True)]


def _not_implemented(op: Op, error: Exception) -> UnsupportedError:
    return UnsupportedError(
        f"onnx has no implementation of {op.name}: {error}", remedy="run this part of the model with ONNX Runtime"
    )


def _input_names(count: int) -> list[str]:
    return [f"operand{position}" for position in range(count)]


@lru_cache(maxsize=256)
def _session(op: Op, attrs: Attrs, inputs: tuple[Type | None, ...], outputs: tuple[Type, ...]) -> ReferenceEvaluator:
    """An evaluator of a model that holds just this node."""
    graph = Graph("foreign")
    names = _input_names(len(inputs))
    operands = [graph.add_input(name, ty) if ty is not None else None for name, ty in zip(names, inputs, strict=True)]
    node = graph.append(op, operands, attrs, types=outputs)
    graph.set_outputs(node.outputs)
    model = export_model(graph, value_info=False, check=False)
    try:
        return ReferenceEvaluator(model)
    except (NotImplementedError, onnx.reference.op_run.RuntimeContextError) as error:
        raise _not_implemented(op, error) from error


def _copied(operand: Any) -> Any:
    # Some reference implementations write to their operands.
    if isinstance(operand, np.ndarray):
        return operand.copy()
    return [_copied(item) for item in operand] if isinstance(operand, list | tuple) else operand


def _as_type(ty: Type, result: Any) -> Any:
    if isinstance(ty, OptionalType):
        return None if result is None else _as_type(ty.element, result)
    if isinstance(ty, SequenceType):
        return [_as_type(ty.element, item) for item in result]
    if not isinstance(ty, TensorType):
        return result
    if ty.dtype is DType.STRING:
        return _strings(result)
    array = np.asarray(result)
    return array if array.dtype == ty.dtype.numpy else array.astype(ty.dtype.numpy)


def _strings(result: Any) -> Any:
    array = np.asarray(result)
    return array if array.dtype == object else array.astype(object)


for _domain in ("onnx", "ai.onnx"):
    register_meaning(_domain, run_foreign)
