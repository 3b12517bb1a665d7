"""Small ONNX models for the tests of the API and the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper, parser


def model(text: str, *, ir_version: int = 10, opset: int = 22) -> onnx.ModelProto:
    """A model from onnx's text form of a graph."""
    head = f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "com.example" : 1]>'
    return parser.parse_model(f"{head}\n{text}")


def affine() -> onnx.ModelProto:
    """y = 2 * x + 1 over f32[batch, 3]."""
    return model(
        "main (float[batch, 3] x) => (float[batch, 3] y) <float two = {2}, float one = {1}> {"
        "  z = Mul(x, two)  y = Add(z, one) }"
    )


def with_default() -> onnx.ModelProto:
    """y = x + w, where callers may leave w out."""
    return model("main (float[3] x, float[3] w = {1, 2, 3}) => (float[3] y) { y = Add(x, w) }")


def with_foreign_node() -> onnx.ModelProto:
    """A node of a domain that nobody knows, between two known ones."""
    return model(
        "main (float[2] x) => (float[2] y) <float[2] b> { a = Neg(x)  b = com.example.Mystery(a)  y = Neg(b) }"
    )


def picture_model(channels: int | str, layout: str = "NCHW", dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Gives back the picture that it takes: 4 high, 6 wide."""
    sizes = {"N": "batch", "C": channels, "H": 4, "W": 6}
    shape: Sequence[Any] = [sizes[axis] for axis in layout]
    value = [helper.make_tensor_value_info(name, dtype, shape) for name in ("picture", "same")]
    node = helper.make_node("Identity", ["picture"], ["same"])
    return helper.make_model(helper.make_graph([node], "picture", value[:1], value[1:]), ir_version=10)


def save_with_data(folder: Path, place: str, location: str) -> Path:
    """Writes y = x + w, with w in the file `location` beside the model, and gives the model's path.

    `place` says where w is: an "initializer", the "attribute" of a Constant, or that of one in a "function".
    """
    weights = TensorProto(name="w", dims=[300], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=location)
    (folder / location).write_bytes(b"\0\0\x80\x3f" * 300)
    if place == "initializer":
        made = model("main (float[300] x) => (float[300] y) <float[300] w> { y = Add(x, w) }")
        made.graph.initializer.append(weights)
        return save(made, folder)
    body = [helper.make_node("Constant", [], ["w"]), helper.make_node("Add", ["x", "w"], ["y"])]
    body[0].attribute.add(name="value", t=weights, type=onnx.AttributeProto.TENSOR)
    made = model("main (float[300] x) => (float[300] y) { y = Neg(x) }")
    del made.graph.node[:]
    if place == "attribute":
        made.graph.node.extend(body)
        return save(made, folder)
    opset = [helper.make_opsetid("", 22)]
    made.functions.append(helper.make_function("com.example", "Shift", ["x"], ["y"], body, opset))
    made.graph.node.append(helper.make_node("Shift", ["x"], ["y"], domain="com.example"))
    return save(made, folder)


def save(made: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """Writes the model into `folder` and gives its path."""
    path = folder / name
    onnx.save(made, path)
    return path
