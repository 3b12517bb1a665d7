"""Elements of sequences that are made in place become the tensors that they are."""

from collections.abc import Sequence

import numpy as np
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.frontends.onnx.ops.there_and_back import check, imported, op_names
from tests.ir.ops.onnx_oracle import random


def split_at(positions: Sequence[int], split: np.ndarray | None, **attrs: int) -> ModelProto:
    """x: f32[2, 6] split along axis 1, and the parts at `positions`."""
    operands = ["x"] if split is None else ["x", "split"]
    nodes = [helper.make_node("SplitToSequence", operands, ["parts"], axis=1, **attrs)]
    nodes += [helper.make_node("SequenceAt", ["parts", f"p{i}"], [f"y{i}"]) for i in range(len(positions))]
    constants = [numpy_helper.from_array(np.array(position), f"p{i}") for i, position in enumerate(positions)]
    if split is not None:
        constants.append(numpy_helper.from_array(split, "split"))
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(len(positions))]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])
    graph = helper.make_graph(nodes, "main", [x], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(
    ("split", "positions", "sizes"),
    [(np.array(2), (0, 2, -1), (2, 2, 2)), (np.array(4), (1, 0), (4, 2)), (np.array([1, 5]), (0, 1), (1, 5))],
)
def test_parts_of_a_split_share_one_split(split, positions, sizes):
    graph = check(split_at(positions, split), {"x": random(1, 2, 6)})
    assert op_names(graph) == ["split"]
    assert next(node for node in graph.nodes if node.op.name == "split").attrs["sizes"] == sizes


@pytest.mark.parametrize(("keepdims", "ops"), [(1, ["split"]), (0, ["split", "squeeze"])])
def test_a_split_into_single_elements(keepdims, ops):
    assert op_names(check(split_at([3], None, keepdims=keepdims), {"x": random(1, 2, 6)})) == ops


@pytest.mark.parametrize(("split", "kept"), [(None, {"axis", "keepdims"}), (np.array(2), {"axis"})])
def test_keepdims_is_written_where_it_means_something(split, kept):
    model = export_model(imported(split_at([7], split, keepdims=0), native=False))
    node = next(node for node in model.graph.node if node.op_type == "SplitToSequence")
    assert {attribute.name for attribute in node.attribute} == kept


def test_a_position_outside_is_left_to_the_run():
    assert op_names(imported(split_at([3], np.array(2)), native=False)) == ["onnx.SplitToSequence", "onnx.SequenceAt"]


@pytest.mark.parametrize(("attrs", "ops"), [({}, ["concat"]), ({"new_axis": 1}, ["unsqueeze", "unsqueeze", "concat"])])
def test_a_concatenation_of_a_construction(attrs, ops):
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "z"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=-1, **attrs),
        helper.make_node("SequenceAt", ["s", "p"], ["e"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xz"]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ye"]
    position = numpy_helper.from_array(np.array(-1), "p")
    graph = helper.make_graph(nodes, "main", values, outputs, [position])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert op_names(check(model, {"x": random(1, 2, 3), "z": random(2, 2, 3)})) == ops
