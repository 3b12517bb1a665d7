"""Types around the regions of control flow that stays foreign: a loop over sequences, say.

Sizes are kept where they are plain numbers; any other becomes unknown, as a body names its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import AttributeProto, GraphProto

from ....ir.dims import Dim, Truth
from ....ir.errors import ModelError
from ....ir.graph import Graph, Value
from ....ir.op import FRESH
from ....ir.types import DType, OptionalType, SequenceType, TensorType, Type, compatible
from ..tensors import type_from_proto

_SCALARS = (TensorType(DType.I64, ()), TensorType(DType.BOOL, ()))


def region_input_types(
    op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, AttributeProto], proto: GraphProto
) -> list[Type | None]:
    """Types for the inputs of a subgraph that Loop or Scan hand something to; None leaves what the model states.

    What a Loop carries may have other shapes than its body states, which no runner minds. What a Scan is given may as
    well, but where that says less, the body tells ONNX Runtime the ranks that it needs.
    """
    stated = [type_from_proto(info.type) for info in proto.input]
    operands = [_joined(value.type, value.type) if value is not None else None for value in inputs]
    if op_type == "Loop":
        given = [*map(_counter, stated[:2], _SCALARS), *operands[2:]]
        return [_of_kind(own, ty) for own, ty in zip(stated, given, strict=False)]
    if op_type == "Scan" and "num_scan_inputs" in attributes:
        if len(operands) > len(stated):  # of samples, whose lengths come first
            operands = [*map(_slice, operands[1:])]
        states = len(operands) - attributes["num_scan_inputs"].i
        given = [*operands[:states], *map(_slice, operands[states:])]
        return [ty if own is None or _contradicts(own, ty) else None for own, ty in zip(stated, given, strict=False)]
    return []


def _counter(stated: Type | None, scalar: TensorType) -> Type:
    """The iteration or condition with the rank that the body states, which is usually 0."""
    return stated if isinstance(stated, TensorType) and stated.shape is not None else scalar


def _contradicts(stated: Type, given: Type | None) -> bool:
    return given is not None and compatible(stated, given) is Truth.NO


def _of_kind(stated: Type | None, given: Type | None) -> Type | None:
    """What comes in, as what the body states: an optional, say, of which an element comes in."""
    if stated is None or given is None or compatible(without_shape(stated), without_shape(given)) is not Truth.NO:
        return given
    return without_shape(stated)


def widened(op_type: str, types: Sequence[Type | None], body: Graph) -> list[Type | None]:
    """The types of a body's inputs, of which a Loop carries some, without sizes that come out otherwise."""
    carried = list(types)
    for place, (ty, value) in enumerate(zip(types[2:], body.outputs[1:], strict=False) if op_type == "Loop" else ()):
        if ty is not None:
            carried[2 + place] = _of_kind(ty, _joined(ty, value.type))
    return carried


def without_shape(ty: Type) -> Type:
    """A type whose tensors may have any shape."""
    if isinstance(ty, TensorType):
        return ty.with_shape(None)
    return type(ty)(without_shape(ty.element)) if isinstance(ty, SequenceType | OptionalType) else ty


def _slice(ty: Type | None) -> Type | None:
    return ty.with_shape((FRESH,) * (ty.rank - 1)) if isinstance(ty, TensorType) and ty.shape else ty


def control_flow_types(op_type: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any]) -> Sequence[Type] | None:
    """The result types of If, Loop and Scan from those of their regions; None for any other operator."""
    if op_type == "If":
        branches: list[Graph] = [attrs["then_branch"], attrs["else_branch"]]
        pairs = zip(*(branch.outputs for branch in branches), strict=False)
        return [_joined(left.type, right.type) for left, right in pairs]
    if op_type == "Scan":
        return _scan_types(inputs, attrs)
    if op_type != "Loop":
        return None
    initial = [value.type for value in inputs[2:] if value is not None]
    results = [value.type for value in attrs["body"].outputs[1:]]
    carried = [_joined(first, last) for first, last in zip(initial, results, strict=False)]
    return [*carried, *(_with_axis(_joined(ty, ty), 0, FRESH) for ty in results[len(carried) :])]


def _scan_types(inputs: Sequence[Value | None], attrs: Mapping[str, Any]) -> Sequence[Type]:
    """In opset 8 all have the samples of a batch along their first axis, and lengths are the first operand."""
    batch = int(attrs["opset_version"] == BATCHED_SCAN)
    own = [value.type for value in inputs[batch:] if value is not None]
    results = [value.type for value in attrs["body"].outputs]
    states = len(own) - attrs["num_scan_inputs"]
    if not 0 <= states < len(own):
        raise ModelError(f"a Scan over {attrs['num_scan_inputs']} inputs has {len(own)} operands")
    scanned = own[-1]
    length = _size(scanned, (attrs.get("scan_input_axes") or (batch,))[-1])
    axes = attrs.get("scan_output_axes") or (0,) * len(results)
    types = [
        *map(_joined, own[:states], (_with_axis(ty, 0, FRESH) if batch else ty for ty in results)),
        *(_with_axis(_joined(ty, ty), axis, length) for ty, axis in zip(results[states:], axes, strict=False)),
    ]
    return [*types[:states], *(_with_axis(ty, 0, _size(scanned, 0)) if batch else ty for ty in types[states:])]


BATCHED_SCAN = 8
"""The opset in which Scan has samples."""


def _size(ty: Type, axis: int) -> Dim:
    shape = ty.shape if isinstance(ty, TensorType) else None
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else FRESH


def _with_axis(ty: Type, axis: int, size: Dim) -> Type:
    if not isinstance(ty, TensorType) or ty.shape is None:
        return ty
    at = axis % (len(ty.shape) + 1)
    return ty.with_shape((*ty.shape[:at], size, *ty.shape[at:]))


def _joined(left: Type, right: Type) -> Type:
    """A type that values of both have. A loop may turn an optional into its element: the last one tells."""
    if isinstance(left, TensorType) and isinstance(right, TensorType) and left.dtype is right.dtype:
        if left.shape is None or right.shape is None or len(left.shape) != len(right.shape):
            return right.with_shape(None)
        return right.with_shape(tuple(_common(a, b) for a, b in zip(left.shape, right.shape, strict=True)))
    if isinstance(left, SequenceType | OptionalType) and type(left) is type(right):
        return type(left)(_joined(left.element, right.element))
    return right


def _common(left: Dim, right: Dim) -> Dim:
    return left if isinstance(left, int) and left == right else FRESH
