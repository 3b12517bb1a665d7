"""Models of opsets before 7, brought up to it: their operators broadcast by attributes, and several took others."""

import onnx
from onnx import ModelProto, NodeProto, TensorProto

from ...ir.errors import UnsupportedError

OLDEST_OPSET = 7
"""Import rules serve every opset from this one on."""


def brought_up(model: ModelProto, version: int, name: str) -> ModelProto:
    """`model`, of opset `version`, converted to `OLDEST_OPSET`. Raises `UnsupportedError` when onnx cannot do it."""
    stated = ModelProto()
    stated.CopyFrom(model)
    if not stated.opset_import:
        stated.opset_import.add(domain="", version=version)
    try:
        _spread_slopes(stated)
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


def _spread_slopes(model: ModelProto) -> None:
    """Gives the slopes of PRelu, one for each channel, a shape that broadcasts: onnx's converter leaves them alone."""
    nodes = [node for node in model.graph.node if node.op_type == "PRelu"]
    if not nodes:
        return
    inferred = onnx.shape_inference.infer_shapes(model).graph
    infos = (*inferred.input, *inferred.value_info)
    ranks = {i.name: len(i.type.tensor_type.shape.dim) for i in infos if i.type.tensor_type.HasField("shape")}
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in nodes:
        _spread_slope(model, node, initializers.get(node.input[1]), ranks.get(node.input[0], 0))


def _spread_slope(model: ModelProto, node: NodeProto, slope: TensorProto | None, rank: int) -> None:
    if slope is None or len(slope.dims) != 1 or slope.dims[0] == 1 or rank <= 2:
        return
    spread = model.graph.initializer.add()
    spread.CopyFrom(slope)
    spread.name = f"{slope.name}_of_{node.output[0]}"
    del spread.dims[:]
    spread.dims.extend([slope.dims[0], *[1] * (rank - 2)])
    info = model.graph.input.add(name=spread.name)  # before IR version 4 an initializer is also an input
    info.type.tensor_type.elem_type = slope.data_type
    info.type.tensor_type.shape.dim.extend(onnx.TensorShapeProto.Dimension(dim_value=size) for size in spread.dims)
    node.input[1] = spread.name
