"""Models of any number of nodes, made quickly: what matters is their size."""

import random
from collections.abc import Sequence

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

OPSET = 20
SHAPE = ("batch", 4)


def chain(count: int) -> ModelProto:
    """Unary nodes, each of which reads the one before."""
    kinds = ("Relu", "Sigmoid", "Neg", "Tanh")
    nodes = [
        helper.make_node(kinds[index % len(kinds)], [f"v{index}"], [f"v{index + 1}"], name=f"node_{index}")
        for index in range(count)
    ]
    return _model(nodes, [f"v{count}"])


def random_dag(count: int) -> ModelProto:
    """Binary nodes that read any two values made before; every value that no node reads is an output."""
    draw = random.Random(count)
    nodes: list[NodeProto] = []
    unread = {"v0"}
    for index in range(count):
        operands = [f"v{draw.randint(0, index)}" for _ in range(2)]
        nodes.append(helper.make_node(draw.choice(("Add", "Mul", "Sub", "Max")), operands, [f"v{index + 1}"]))
        unread.difference_update(operands)
        unread.add(f"v{index + 1}")
    return _model(nodes, sorted(unread - {"v0"}))


def shape_chain(count: int) -> ModelProto:
    """Reshapes to sizes computed from the shape of what the one before gave: four nodes of arithmetic each."""
    nodes: list[NodeProto] = []
    for index in range(count // 5):
        nodes += [
            helper.make_node("Shape", [f"v{index}"], [f"shape{index}"]),
            helper.make_node("Gather", [f"shape{index}", "first"], [f"size{index}"]),
            helper.make_node("Concat", [f"size{index}", "rest"], [f"target{index}"], axis=0),
            helper.make_node("Reshape", [f"v{index}", f"target{index}"], [f"r{index}"]),
            helper.make_node("Relu", [f"r{index}"], [f"v{index + 1}"]),
        ]
    numbers = [
        helper.make_tensor(name, TensorProto.INT64, [1], [value]) for name, value in (("first", 0), ("rest", -1))
    ]
    return _model(nodes, [f"v{count // 5}"], numbers)


def wide(count: int) -> ModelProto:
    """A split in `count` parts, each multiplied by 1 and negated, and their concat."""
    parts = [f"part{index}" for index in range(count)]
    nodes = [helper.make_node("Split", ["v0"], parts, num_outputs=count, axis=0)]
    for part in parts:
        nodes += [helper.make_node("Mul", [part, "one"], [f"same_{part}"])]
        nodes += [helper.make_node("Neg", [f"same_{part}"], [f"negative_{part}"])]
    nodes += [helper.make_node("Concat", [f"negative_{part}" for part in parts], ["joined"], axis=0)]
    return _model(nodes, ["joined"], [helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])], (count,))


def concat_chain(count: int) -> ModelProto:
    """Concats, each of which adds one element to what the one before gave."""
    nodes = [helper.make_node("Concat", [f"v{index}", "v0"], [f"v{index + 1}"], axis=0) for index in range(count)]
    return _model(nodes, [f"v{count}"], shape=(1,), output_shape=(count + 1,))


def equal_outputs(count: int) -> ModelProto:
    """As many outputs as nodes, and all of them equal."""
    nodes = [helper.make_node("Neg", ["v0"], [f"v{index + 1}"]) for index in range(count)]
    return _model(nodes, [f"v{index + 1}" for index in range(count)])


Shape = Sequence[int | str]


def _model(
    nodes: list[NodeProto],
    outputs: list[str],
    initializers: Sequence[TensorProto] = (),
    shape: Shape = SHAPE,
    output_shape: Shape | None = None,
) -> ModelProto:
    def info(name: str, shape: Shape) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    results = [info(name, output_shape or shape) for name in outputs]
    graph = helper.make_graph(nodes, "large", [info("v0", shape)], results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
