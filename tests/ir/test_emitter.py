"""Nodes go where an emitter stands, with its origin."""

import numpy as np
from capgraph.ir.builder import Emitter
from capgraph.ir.constant import Constant
from capgraph.ir.graph import Origin
from capgraph.ir.op import foreign
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType, TensorType


def test_nodes_are_made_before_the_anchor_and_at_the_end() -> None:
    graph = parse("graph @f(%x: f32[4]) { %y: f32[4] = neg(%x) return %y }")
    emit = Emitter(graph, origin=Origin("last"))
    emit.op("exp", graph.value("y"))
    emit.anchor, emit.origin = graph.first, Origin("first")
    emit.ops("split", graph.value("x"), axis=0, sizes=(1, 3))
    emit.node(foreign("onnx.Foo"), [None], types=[TensorType(DType.F32, ())])
    emit.at(graph.last)
    emit.constant(1, "f16")
    assert [(node.op.name, str(node.origin)) for node in graph.nodes] == [
        ("split", "first"),
        ("onnx.Foo", "first"),
        ("neg", "None"),
        ("constant", "last"),
        ("exp", "last"),
    ]


def test_a_constant_is_made_of_anything_that_numpy_reads() -> None:
    emit = Emitter(parse("graph @f() { return }"))
    content = Constant(np.zeros(3))
    assert emit.constant(content).producer.attrs["value"] is content  # type: ignore[union-attr]
    assert str(emit.constant([1, 2]).type) == "i64[2]"
    assert str(emit.constant(0.5, DType.BF16).type) == "bf16[]"
