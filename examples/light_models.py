"""The `light_*` models that come inside the onnx package, with random weights in place of their constant ones.

They are well-known networks (ResNet-50, SqueezeNet, ...) whose weights are `ConstantOfShape` nodes: real structures
without the download. With the constant weights every output is the same whatever the input is, so that nothing could be
checked with them; here weights are seeded and drawn as in He et al. (https://arxiv.org/abs/1502.01852), which keeps the
variance of the signal from layer to layer: normal, of variance 2 / fan-in before a ReLU and 1 / fan-in elsewhere.
"""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = tuple(sorted(path.stem.removeprefix("light_") for path in FOLDER.glob("light_*.onnx")))

Array = npt.NDArray[np.float32]
Uses = dict[str, tuple[onnx.NodeProto, int]]


def light_model(name: str, seed: int = 0) -> onnx.ModelProto:
    """The model `light_<name>` with seeded weights as initializers, none of which is an input. IR version 4.

    Scales and variances of normalizations lie around 1, biases and means around 0.
    """
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    graph, generator = model.graph, np.random.default_rng(seed)
    contents = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    uses = _uses(graph)
    kept, drawn = [], []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(int(size) for size in contents[node.input[0]])
        drawn.append(numpy_helper.from_array(_draw(generator, node.output[0], shape, uses), node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(drawn)
    _drop_unused(graph)
    model.ir_version = 4
    return model


def input_name(model: onnx.ModelProto) -> str:
    """The name of the picture that a light model takes, f32[1, 3, 224, 224]."""
    return str(model.graph.input[0].name)


def _uses(graph: onnx.GraphProto) -> Uses:
    """The first use of each value: the node and the position."""
    uses: Uses = {}
    for node in graph.node:
        for position, name in enumerate(node.input):
            uses.setdefault(name, (node, position))
    return uses


def _draw(generator: np.random.Generator, name: str, shape: tuple[int, ...], uses: Uses) -> Array:
    """Content for a constant, by what it is to the operator that reads it."""
    node, position = uses[name]
    if node.op_type == "Unsqueeze":
        return _draw(generator, node.output[0], shape, uses)
    if node.op_type in ("Conv", "Gemm") and position == 1:
        gain = 2 if _leads_to_relu(node, uses) else 1
        return generator.standard_normal(shape, dtype=np.float32) * np.float32(math.sqrt(gain / _fan_in(node, shape)))
    if node.op_type == "Mul" or (node.op_type == "BatchNormalization" and position in (1, 4)):
        # Halved branches keep a deep sum of them from growing without bound.
        is_branch = position == 1 and _next(node, uses) == "Sum"
        return generator.uniform(0.8, 1.2, shape).astype(np.float32) * np.float32(0.5 if is_branch else 1)
    return generator.standard_normal(shape, dtype=np.float32) * np.float32(0.05)


def _fan_in(node: onnx.NodeProto, shape: tuple[int, ...]) -> int:
    is_transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return math.prod(shape[1:]) if node.op_type == "Conv" or is_transposed else shape[0]


def _next(node: onnx.NodeProto, uses: Uses) -> str:
    """The operator that reads the node's result."""
    use = uses.get(node.output[0])
    return use[0].op_type if use else ""


def _leads_to_relu(node: onnx.NodeProto, uses: Uses) -> bool:
    while _next(node, uses) in ("BatchNormalization", "Mul", "Add"):
        node = uses[node.output[0]][0]
    return _next(node, uses) == "Relu"


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Removes initializers that nothing reads any more, and inputs that are initializers."""
    read = {name for node in graph.node for name in node.input}
    initializers = [tensor for tensor in graph.initializer if tensor.name in read]
    names = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in names]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(initializers)
    graph.input.extend(inputs)
