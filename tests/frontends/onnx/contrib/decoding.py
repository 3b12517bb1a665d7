"""A decoder as ONNX has it: one token for each sample, over caches that grow or that are written in place."""

from typing import Literal

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper

Form = Literal["growing", "fixed"]
HEADS, KV_HEADS, SIZE, HIDDEN = 4, 2, 16, 64
MOST = 8
"""Entries of a cache of fixed size."""

ROWS = 128
"""Positions for which there are angles."""


class _Model:
    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def node(self, op_type: str, inputs: list[str], *outputs: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, list(outputs), **attributes))
        return outputs[0]

    def constant(self, name: str, content: object) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(content), name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        return self.constant(name, self.random.standard_normal(shape).astype(np.float32) / np.float32(8))


def decoder(form: Form, *, layers: int = 2, batch: int | str = "B") -> ModelProto:
    """Norm, matmuls, rotary embedding, attention over the cache, matmul and residual, `layers` times.

    Takes x f32[B, 1, 64], position i64[B] and caches, gives x and the caches' next contents.
    """
    model = _Model()
    angles = np.arange(ROWS)[:, np.newaxis] / 100 ** (np.arange(SIZE // 2) / (SIZE // 2))
    model.constant("cos", np.cos(angles).astype(np.float32))
    model.constant("sin", np.sin(angles).astype(np.float32))
    model.constant("one", np.array(1))
    model.constant("axis", np.array([1]))
    model.node("Unsqueeze", ["position", "axis"], "positions")
    model.node("Add", ["position", "one"], "lengths")
    for name, heads in (("kv", KV_HEADS), ("q", HEADS)):
        model.constant(f"by_head_{name}", np.array([0, 0, heads, SIZE]))
    model.constant("joined", np.array([0, 0, HEADS * SIZE]))
    x = "x"
    for index in range(layers):
        x = _layer(model, form, index, x)
    model.node("Identity", [x], "y")
    return _checked(model, form, layers, batch)


def _layer(model: _Model, form: Form, index: int, x: str) -> str:
    normed = model.node("RMSNormalization", [x, model.weight(f"g{index}", HIDDEN)], f"n{index}")
    made = {}
    for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
        weight = model.weight(f"w{name}{index}", HIDDEN, heads * SIZE)
        made[name] = model.node("MatMul", [normed, weight], f"{name}{index}")
    for name, heads in (("q", HEADS), ("k", KV_HEADS)):
        rotated = [made[name], "cos", "sin", "positions"]
        made[name] = model.node("RotaryEmbedding", rotated, f"r{name}{index}", num_heads=heads)
    attend = _over_growing if form == "growing" else _over_fixed
    attended = attend(model, index, made)
    out = model.node("MatMul", [attended, model.weight(f"wo{index}", HIDDEN, HIDDEN)], f"o{index}")
    return model.node("Add", [x, out], f"x{index}")


def _over_growing(model: _Model, index: int, made: dict[str, str]) -> str:
    caches = [f"past_k{index}", f"past_v{index}"]
    return model.node(
        "Attention", [made["q"], made["k"], made["v"], "", *caches], f"a{index}", f"present_k{index}",
        f"present_v{index}", is_causal=1, q_num_heads=HEADS, kv_num_heads=KV_HEADS,
    )  # fmt: skip


def _over_fixed(model: _Model, index: int, made: dict[str, str]) -> str:
    by_head = {}
    for name, shape in (("q", "by_head_q"), ("k", "by_head_kv"), ("v", "by_head_kv")):
        split = model.node("Reshape", [made[name], shape], f"{name}{index}_split")
        by_head[name] = model.node("Transpose", [split], f"{name}{index}_by_head", perm=[0, 2, 1, 3])
    for name in "kv":
        written = [f"past_{name}{index}", by_head[name], "position"]
        model.node("TensorScatter", written, f"present_{name}{index}", axis=2)
    caches = [f"present_k{index}", f"present_v{index}"]
    attended = model.node("Attention", [by_head["q"], *caches, "", "", "", "lengths"], f"a{index}_by_head", is_causal=1)
    turned = model.node("Transpose", [attended], f"a{index}_turned", perm=[0, 2, 1, 3])
    return model.node("Reshape", [turned, "joined"], f"a{index}")


def _checked(model: _Model, form: Form, layers: int, batch: int | str) -> ModelProto:
    value, f32 = helper.make_tensor_value_info, TensorProto.FLOAT
    before, behind = ("P", "P1") if form == "growing" else (MOST, MOST)
    inputs = [value("x", f32, [batch, 1, HIDDEN]), value("position", TensorProto.INT64, [batch])]
    outputs = [value("y", f32, [batch, 1, HIDDEN])]
    for name in (f"{name}{index}" for index in range(layers) for name in "kv"):
        inputs.append(value(f"past_{name}", f32, [batch, KV_HEADS, before, SIZE]))
        outputs.append(value(f"present_{name}", f32, [batch, KV_HEADS, behind, SIZE]))
    graph = helper.make_graph(model.nodes, "decoder", inputs, outputs, model.weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    checker.check_model(proto, full_check=True)
    return proto
