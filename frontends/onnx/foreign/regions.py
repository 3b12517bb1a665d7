"""Types around the regions of control flow that stays foreign: a loop over sequences, say.

Sizes are kept where they are plain numbers; any other becomes unknown, as a body names its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import AttributeProto, GraphProto

from ....ir.dims import Dim
from ....ir.graph import Graph, Value
from ....ir.op import FRESH
from ....ir.types import DType, OptionalType, SequenceType, TensorType, Type
from ..tensors import type_from_proto

_SCALARS = (TensorType(DType.I64, ()), TensorType(DType.BOOL, ()))


def region_input_types(
    op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, AttributeProto], proto: GraphProto
) -> list[Type | None]:
    """Types for those inputs of a subgraph that the model leaves without: what Loop and Scan hand to their bodies."""
    operands = [_joined(value.type, value.type) if value is not None else None for value in inputs]
    if op_type == "Loop":
        given = [*_SCALARS, *operands[2:]]
    elif op_type == "Scan" and "num_scan_inputs" in attributes:
        states = len(operands) - attributes["num_scan_inputs"].i
        given = [*operands[:states], *(_slice(ty) for ty in operands[states:])]
    else:
        return []
    stated = [type_from_proto(info.type) is not None for info in proto.input]
    return [None if known else ty for ty, known in zip(given, stated, strict=False)]


def _slice(ty: Type | None) -> Type | None:
    return ty.with_shape((FRESH,) * (ty.rank - 1)) if isinstance(ty, TensorType) and ty.shape else ty


def control_flow_types(op_type: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any]) -> Sequence[Type] | None:
    """The result types of If and Loop from those of their regions; None for any other operator."""
    if op_type == "If":
        branches: list[Graph] = [attrs["then_branch"], attrs["else_branch"]]
        pairs = zip(*(branch.outputs for branch in branches), strict=False)
        return [_joined(left.type, right.type) for left, right in pairs]
    if op_type != "Loop":
        return None
    initial = [value.type for value in inputs[2:] if value is not None]
    results = [value.type for value in attrs["body"].outputs[1:]]
    carried = [_joined(first, last) for first, last in zip(initial, results, strict=False)]
    return [*carried, *(_scanned(ty) for ty in results[len(carried) :])]


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


def _scanned(ty: Type) -> Type:
    if not isinstance(ty, TensorType) or ty.shape is None:
        return ty
    return ty.with_shape((FRESH, *(_common(dim, dim) for dim in ty.shape)))
