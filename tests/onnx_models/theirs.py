"""What a peer is known to get wrong, so that it is no judge: each with what the standard says."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper

RECURRENT = {"GRU", "LSTM", "RNN"}


def reference_is_wrong(model: onnx.ModelProto) -> str:
    """Why onnx's reference evaluator is no judge of the model; empty where it is one."""
    return next((why for node in _nodes(model) if (why := _reference(node, int(model.opset_import[0].version)))), "")


def runtime_is_wrong(model: onnx.ModelProto) -> str:
    """Why ONNX Runtime is no judge of the model; empty where it is one."""
    return next((why for node in _nodes(model) if (why := _runtime(node, int(model.opset_import[0].version)))), "")


def _nodes(model: onnx.ModelProto) -> list[NodeProto]:
    pending = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    found = []
    while pending:
        node = pending.pop()
        found.append(node)
        pending += [inner for attribute in node.attribute for inner in attribute.g.node]
    return found


def _reference(node: NodeProto, _opset: int) -> str:
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.op_type in RECURRENT:
        return _recurrent(node, given)
    if node.op_type == "LayerNormalization" and len(node.output) > 1:
        return "its mean has the type of the operand, not that of stash_type"
    if node.op_type in ("LogSoftmax", "Softmax", "Hardmax") and _opset < 13:
        return "knows the operator as of opset 13 alone"
    if node.op_type == "Unique" and "axis" in given and not given.get("sorted", 1):
        return "takes the slices along another axis"
    if node.op_type == "GlobalMaxPool":
        return "keeps or drops axes of what is no picture"
    if node.op_type == "LRN":
        return "leaves out the last channels"
    if node.op_type == "OptionalGetElement":
        return "wraps a sequence into another"
    if node.op_type == "Loop":
        return "its round is a vector where the count is one"
    return ""


def _recurrent(node: NodeProto, given: Mapping[str, Any]) -> str:
    if len(node.input) > 4 and node.input[4]:
        return "passes over sequence lengths"
    if given.keys() & {"clip", "activations", "activation_alpha", "activation_beta", "input_forget"}:
        return "passes over clip and activations"
    return ""


def _runtime(node: NodeProto, _opset: int) -> str:
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if (
        node.op_type == "GridSample"
        and given.get("mode") in (b"bicubic", b"cubic")
        and given.get("padding_mode", b"zeros") != b"zeros"
    ):
        return "clamps the place, not each of the sixteen neighbors"
    if node.op_type == "ConvTranspose" and given.get("auto_pad", b"").startswith(b"SAME"):
        return "cuts no borders off where a stride is wider than the kernel"
    if node.op_type == "MaxUnpool" and len(node.input) > 2:
        return "takes indices for those of the shape that is asked for"
    if node.op_type == "Compress":
        return "takes conditions longer than the axis"
    if node.op_type in ("Concat", "ConcatFromSequence"):
        return "takes empty tensors of any shape"
    if node.op_type == "NonZero":
        return "gives a row for a scalar, for which the standard has none"
    return ""


THROUGH_FLOATS = {"Gemm", "Mean", "Pow", "Einsum", "CumSum"}
"""Of integers one peer or the other computes these in floats, which saturate; reductions, too."""


def is_inexact(model: onnx.ModelProto) -> bool:
    """Whether a single peer is no judge of integers, or of sizes: ONNX Runtime reduces nothing to nothing."""
    return any(node.op_type in THROUGH_FLOATS or node.op_type.startswith("Reduce") for node in _nodes(model))


def has_rounds(model: onnx.ModelProto) -> bool:
    """Whether the model has loops, of whose sizes without a round peers say 0 where they do not know them."""
    return any(node.op_type in ("Loop", "Scan", "SequenceMap") for node in _nodes(model))


UNORDERED = {
    "DFT",
    "STFT",
    "GridSample",
    "Resize",
    "RoiAlign",
    "Det",
    "GRU",
    "LSTM",
    "RNN",
    "Attention",
    "Upsample",
    "LRN",
    "DeformConv",
    "DynamicQuantizeLinear",
    "QuantizeLinear",
    "MaxPool",
    "Hardmax",
}
"""What NaN and infinities become in these hangs on the order of sums."""


def refuses_values(error: Any) -> bool:
    """Whether ONNX Runtime finds a call wrong, and does not just lack a kernel: then it may be refused by us too."""
    return isinstance(error, Exception) and "NOT_IMPLEMENTED" not in str(error)


def is_open(model: onnx.ModelProto, contents: Sequence[Any]) -> bool:
    """Whether NaN or infinities meet an operator that the standard does not define for them."""
    if not any(node.op_type in UNORDERED for node in _nodes(model)):
        return False
    constants = [a.t for node in _nodes(model) for a in node.attribute if a.HasField("t")]
    inner = [tensor for node in _nodes(model) for a in node.attribute for tensor in a.g.initializer]
    tensors = [*model.graph.initializer, *constants, *inner]
    arrays = [*contents, *(onnx.numpy_helper.to_array(tensor) for tensor in tensors)]
    return any(isinstance(a, np.ndarray) and a.dtype.kind == "f" and not np.isfinite(a).all() for a in arrays)
