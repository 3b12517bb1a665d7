"""Models of any number of nodes, made quickly: what matters is their size."""

import random

from onnx import ModelProto, NodeProto, TensorProto, helper

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


def _model(nodes: list[NodeProto], outputs: list[str], initializers: list[TensorProto] | None = None) -> ModelProto:
    def info(name: str) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)

    graph = helper.make_graph(nodes, "large", [info("v0")], [info(name) for name in outputs], initializers or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
