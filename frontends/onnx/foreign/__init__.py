"""Foreign ONNX operators: how they come in.

An operator that no import rule and no function body expresses becomes a foreign node. Its result types come from onnx's
shape inference or, for operators that onnx does not know, ONNX Runtime's where that is there, else from the types that
the model declares; `meaning` says how it runs, and before it `importing.sized`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto

from ....ir.analysis.contents import constant_of
from ....ir.dims import Dim, SymDim, parse_dim, symbols
from ....ir.errors import ModelError, ShapeError, UnsupportedError
from ....ir.graph import Graph, Value
from ....ir.op import FRESH
from ....ir.types import DType, OptionalType, SequenceType, TensorType, Type, type_symbols
from ..context.import_context import MAX_PRECISE_DEPTH, ImportContext, ImportedRegion
from ..exporting.foreign_nodes import OWN_ATTRIBUTES, foreign_op
from ..files.metadata import keep_declared
from ..schemas import first_schema, unchanged_span
from ..tensors import constant_to_proto, type_from_proto, type_to_proto
from .regions import control_flow_types, region_input_types, widened, without_shape
from .runtime import runtime_types

_MAX_VERSION = 2**31
_WELL_INFERRED = ("", "ai.onnx", "com.microsoft")
"""Domains whose inference leaves out only shapes that depend on data, which models often state wrongly for outputs."""

_AXES = 3
_REGRESSORS = ("LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor")
"""Operators that give a matrix, of which onnx infers no shape; CatBoost states a vector."""

_MAX_DATA = 4096  # elements of a constant operand that shape inference is shown


# ---- coming in


def import_foreign(ctx: ImportContext, domain: str) -> Sequence[Value | None]:
    """A foreign node for the operator. Raises `UnsupportedError` when its result types cannot be found out."""
    places = [place for place, name in enumerate(ctx.proto.output) if name]
    if not domain and ctx.op_type == "Pad":
        _widen_axes(ctx)
    attrs, captured = _attributes(ctx)
    span = unchanged_span(ctx.op_type, ctx.version, domain)
    attrs["opset_version"] = span[0] if span is not None else ctx.version
    types = _result_types(ctx, domain, attrs, places)
    if places != list(range(len(places))):
        attrs["results"] = tuple(places)
    op = foreign_op(domain, ctx.op_type)
    node = ctx.node(op, (*_own_inputs(ctx), *captured), attrs, types)
    by_place = dict(zip(places, node.outputs, strict=True))
    return [by_place.get(place) for place in range(len(ctx.proto.output))]


def _widen_axes(ctx: ImportContext) -> None:
    """Makes known axes of Pad i64: onnx finds those of i32 wrong, which the standard allows."""
    axes = ctx.array(_AXES)
    if axes is not None:
        wide = ctx.constant(axes, DType.I64)
        ctx.inputs = (*ctx.inputs[:_AXES], wide)


def _own_inputs(ctx: ImportContext) -> list[Value | None]:
    """The operator's operands without absent ones at the end, which may as well not be listed."""
    inputs = list(ctx.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs


def _attributes(ctx: ImportContext) -> tuple[dict[str, Any], list[Value]]:
    """The IR attributes, and the outer values that regions among them capture."""
    attrs: dict[str, Any] = {}
    captured: list[Value] = []
    counts: list[int] = []
    for name, proto in ctx.attributes.items():
        if name in OWN_ATTRIBUTES:
            raise UnsupportedError(f"{ctx.op_type} has an attribute called {name}, which foreign nodes use themselves")
        if proto.type == AttributeProto.GRAPH:
            region = _region(ctx, proto.g)
            if ctx.op_type == "Scan":
                _keep_ranks(region.body, proto.g)
            attrs[name] = region.body
            captured += region.captured
            counts.append(len(region.captured))
        else:
            attrs[name] = _attribute(ctx, proto)
    if counts:
        attrs["captured"] = tuple(counts)
    return attrs, captured


def _region(ctx: ImportContext, proto: GraphProto) -> ImportedRegion:
    """A body, whose carried inputs have what stays the same of a shape from round to round."""
    types = region_input_types(ctx.op_type, ctx.inputs, ctx.attributes, proto)
    if ctx.scope.depth < MAX_PRECISE_DEPTH:
        for _ in range(2):
            region = ctx.scope.import_closed_region(proto, types)
            wider = widened(ctx.op_type, types, region.body)
            if wider == types:
                return region
            types = wider
    counters = 2 if ctx.op_type == "Loop" else 0  # of which ONNX Runtime has to know the rank
    open_types = [ty and without_shape(ty) for ty in types[counters:]]
    return ctx.scope.import_closed_region(proto, [*types[:counters], *open_types])


def _keep_ranks(body: Graph, proto: GraphProto) -> None:
    """Notes the ranks that a body states for its results, which ONNX Runtime has to know of a Scan."""
    for name, info in zip(body.output_names, proto.output, strict=True):
        stated = type_from_proto(info.type)
        if isinstance(stated, TensorType) and stated.shape is not None:
            keep_declared(body, name, stated.with_shape((FRESH,) * stated.rank))


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


def _result_types(ctx: ImportContext, domain: str, attrs: Mapping[str, Any], places: Sequence[int]) -> list[Type]:
    allowed = _allowed_symbols(ctx)
    from_regions = None if domain else control_flow_types(ctx.op_type, ctx.inputs, attrs)
    if from_regions is not None:
        if len(from_regions) <= max(places, default=0):
            raise ModelError(f"{ctx.op_type} gives {len(from_regions)} results, not {len(ctx.proto.output)}")
        return [own_dims(from_regions[place], allowed) for place in places]
    inferred = _inferred_types(ctx, domain) or runtime_types(ctx, domain)
    if ctx.op_type == "DFT" and not domain and ctx.optional(1) is not None:
        allowed = frozenset()  # onnx takes an open size for that of the result, whatever the length
    return [own_dims(_result_type(ctx, ctx.proto.output[place], inferred, allowed), allowed) for place in places]


def _result_type(ctx: ImportContext, name: str, inferred: dict[str, TypeProto], allowed: frozenset[str]) -> Type:
    def dim_of(text: str) -> Dim:
        return _dim(text, allowed)

    found = type_from_proto(inferred[name], dim_of) if name in inferred else None
    declared = type_from_proto(ctx.scope.declared[name], dim_of) if name in ctx.scope.declared else None
    if ctx.scope.is_resized and isinstance(declared, TensorType) and declared.shape is not None:
        declared = declared.with_shape((FRESH,) * declared.rank)
    trusted = name not in ctx.scope.returned or ctx.proto.domain not in _WELL_INFERRED
    if found is None or (trusted and _lacks_shape(found) and _same_dtype(found, declared)):
        found = declared or found
        if isinstance(found, TensorType) and ctx.op_type in _REGRESSORS and len(found.shape or ()) != 2:
            found = found.with_shape(None)
    if found is None:
        raise UnsupportedError(
            f"nothing is known of the operator {ctx.op_type} of domain {ctx.proto.domain or 'ai.onnx'!r}, "
            f"and the model does not state the type of its result {name!r}",
            remedy="add the function that defines it to the model, or the types of its results to graph.value_info; "
            "if it is one of ONNX Runtime's own, install onnxruntime",
        )
    return found


def _lacks_shape(ty: Type) -> bool:
    return isinstance(ty, TensorType) and ty.shape is None


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


def own_dims(ty: Type, allowed: frozenset[str]) -> Type:
    """`ty` with new symbols for sizes that nothing here binds."""
    if isinstance(ty, TensorType) and ty.shape is not None:
        return ty.with_shape(tuple(d if not isinstance(d, SymDim) or d.symbols <= allowed else FRESH for d in ty.shape))
    return type(ty)(own_dims(ty.element, allowed)) if isinstance(ty, SequenceType | OptionalType) else ty


def _inferred_types(ctx: ImportContext, domain: str) -> dict[str, TypeProto]:
    """The types of the named results as onnx infers them; none for an operator that it does not know."""
    schema = first_schema(ctx.op_type, ctx.version, domain)
    if schema is None:
        return {}
    node = NodeProto()
    node.CopyFrom(ctx.proto)
    node.domain = domain
    del node.attribute[:]
    node.attribute.extend(ctx.attributes.values())
    known = {name: value for name, value in zip(node.input, ctx.inputs, strict=True) if value is not None}
    for position, (name, value) in enumerate(zip(ctx.proto.input, ctx.inputs, strict=True)):
        if name and value is None:  # a formal input of a function that the call left out
            node.input[position] = ""
    data = {name: data for name, value in known.items() if (data := _data(value)) is not None}
    try:
        return _infer(ctx, schema, node, {name: value.type for name, value in known.items()}, data)
    except ModelError:
        if not ctx.scope.may_fail:
            raise
    return _infer(ctx, schema, node, {name: without_shape(value.type) for name, value in known.items()}, {})


def _infer(
    ctx: ImportContext, schema: Any, node: NodeProto, types: Mapping[str, Type], data: dict[str, TensorProto]
) -> dict[str, TypeProto]:
    versions = [onnx.helper.make_opsetid(d, v) for d, v in ctx.scope.versions.items() if 0 < v < _MAX_VERSION]
    protos = {name: type_to_proto(ty) for name, ty in types.items()}
    try:
        return onnx.shape_inference.infer_node_outputs(schema, node, protos, data, opset_imports=versions)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        raise ModelError(f"onnx finds the operator's operands or attributes wrong: {error}") from error


def _data(value: Value) -> TensorProto | None:
    content = constant_of(value)
    return constant_to_proto(content, "") if content is not None and content.size <= _MAX_DATA else None
