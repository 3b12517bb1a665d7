"""Models of opsets before 7, brought up to it: their operators broadcast by attributes, and several took others."""

import onnx
from onnx import ModelProto, NodeProto

from ....ir.errors import UnsupportedError

OLDEST_OPSET = 7
"""Import rules serve every opset from this one on."""


def brought_up(model: ModelProto, version: int, name: str) -> ModelProto:
    """`model`, of opset `version`, converted to `OLDEST_OPSET`. Raises `UnsupportedError` when onnx cannot do it."""
    stated = ModelProto()
    stated.CopyFrom(model)
    if not stated.opset_import:
        stated.opset_import.add(domain="", version=version)
    try:
        _align_operands(stated)
        return onnx.version_converter.convert_version(stated, OLDEST_OPSET)
    except (
        onnx.version_converter.ConvertError,
        onnx.shape_inference.InferenceError,
        RuntimeError,
        ValueError,
    ) as error:
        raise UnsupportedError(
            f"{name} uses opset {version} and cannot be converted to {OLDEST_OPSET}, the oldest supported: {error}",
            remedy="export the model again with a newer opset",
        ) from error


def _align_operands(model: ModelProto) -> None:
    """Gives second operands that stand along an axis of the first a shape that broadcasts.

    onnx's converter does so only for some; PRelu had one slope for each channel, along axis 1, without saying so.
    """
    graph = model.graph
    if not any(_axis(node) is not None for node in graph.node):
        return
    inferred = onnx.shape_inference.infer_shapes(model).graph
    infos = (*inferred.input, *inferred.value_info)
    shapes = {i.name: i.type.tensor_type.shape.dim for i in infos if i.type.tensor_type.HasField("shape")}
    ranks = {name: len(dims) for name, dims in shapes.items()} | {t.name: len(t.dims) for t in graph.initializer}
    nodes: list[NodeProto] = []
    for node in graph.node:
        axis = _axis(node)
        if axis is not None and node.input[0] in ranks and node.input[1] in ranks:
            first, second = ranks[node.input[0]], ranks[node.input[1]]
            nodes += _aligned(node, axis % max(first, 1), first, second)
        nodes.append(node)
    kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _axis(node: NodeProto) -> int | None:
    """The axis of the first operand that the second one's first axis stands for, None when they align at the end."""
    if node.op_type == "PRelu":
        return 1
    numbers = {attribute.name: attribute.i for attribute in node.attribute}
    return numbers.get("axis") if numbers.get("broadcast") and len(node.input) == 2 else None


def _aligned(node: NodeProto, axis: int, first: int, second: int) -> list[NodeProto]:
    added = first - axis - second
    kept = [attribute for attribute in node.attribute if attribute.name != "axis"]
    del node.attribute[:]
    node.attribute.extend(kept)
    if added <= 0:
        return []
    name = f"{node.input[1]}_along_{node.output[0]}"
    axes = list(range(second, second + added))
    spread = onnx.helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes)
    node.input[1] = name
    return [spread]
