"""Recurrent cells in and out of ONNX."""

from typing import Any

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.errors import UnsupportedError

from tests.frontends.onnx.ops.there_and_back import (
    compare,
    evaluated,
    feeds_of,
    imported,
    op_names,
    runtime_of,
    with_symbols,
)
from tests.ir.ops.onnx_oracle import Array, one_node, random, runtime

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def operands(operator: str, directions: int) -> list[Array | None]:
    """All operands in order, layout 0: 4 steps, 2 samples, 3 features, 5 hidden units."""
    rows = GATES[operator] * 5
    shapes = [(4, 2, 3), (directions, rows, 3), (directions, rows, 5), (directions, 2 * rows)]
    made: list[Array | None] = [random(seed, *shape) for seed, shape in enumerate(shapes)]
    made += [np.array([4, 2], np.int32), random(5, directions, 2, 5)]
    return made + ([random(6, directions, 2, 5), random(7, directions, 15)] if operator == "LSTM" else [])


@pytest.mark.parametrize("opset", [7, 14, 22])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", list(GATES))
def test_cells(operator, direction, opset):
    inputs = operands(operator, 2 if direction == "bidirectional" else 1)
    attrs: dict[str, Any] = {"hidden_size": 5, "direction": direction, "clip": 2.0}
    attrs |= {"LSTM": {"input_forget": 1}, "GRU": {"linear_before_reset": 1}}.get(operator, {})
    outputs = 3 if operator == "LSTM" else 2
    expected = runtime(operator, *inputs, outputs=outputs, opset=opset, **attrs)
    model = with_symbols(one_node(operator, inputs, outputs, opset, attrs), ["x0"])
    graph = imported(model)
    assert op_names(graph) == [operator.lower()]
    compare(evaluated(graph, feeds_of(*inputs)), expected)
    exported = export_model(graph, dialect=Dialect.STANDARD)
    compare(runtime_of(exported, feeds_of(*inputs)), expected)
    compare(evaluated(imported(exported), feeds_of(*inputs)), expected)


@pytest.mark.parametrize("operator", list(GATES))
def test_only_the_required_operands_and_one_result(operator):
    inputs = operands(operator, 1)[:3]
    expected = runtime(operator, *inputs, hidden_size=5)
    graph = imported(one_node(operator, inputs, 1, 22, {"hidden_size": 5}))
    compare(evaluated(graph, feeds_of(*inputs)), expected)
    compare(evaluated(imported(export_model(graph, dialect=Dialect.STANDARD)), feeds_of(*inputs)), expected)


def test_layout_1_is_written_as_transpositions():
    inputs = [random(1, 2, 4, 3), random(2, 1, 20, 3), random(3, 1, 20, 5)]
    graph = imported(one_node("LSTM", inputs, 3, 22, {"hidden_size": 5, "layout": 1}))
    written = export_model(graph, dialect=Dialect.STANDARD)
    assert [node.op_type for node in written.graph.node].count("Transpose") == 4
    feeds = feeds_of(*inputs)
    compare(runtime_of(written, feeds), evaluated(graph, feeds))
    compare(evaluated(imported(written), feeds), evaluated(graph, feeds))


def test_the_reset_default_of_rnn_names_an_activation_too_many():
    inputs = operands("RNN", 1)[:3]
    attrs = {"hidden_size": 5, "activations": ["Relu", "Tanh"]}
    node = imported(one_node("RNN", inputs, 1, 22, attrs)).last
    assert node is not None
    assert node.attrs["activations"] == ("Relu",)


@pytest.mark.parametrize("open_inputs", [["x2"], ["x1", "x2", "x3"], ["x0", "x1", "x2", "x3", "x5"]])
@pytest.mark.parametrize("operator", list(GATES))
def test_the_hidden_size_is_written_whatever_tells_it(operator, open_inputs):
    inputs = operands(operator, 1)[:6]
    model = with_symbols(one_node(operator, inputs, 1, 14, {"hidden_size": 5}), open_inputs)
    graph = imported(model)
    written = export_model(graph, dialect=Dialect.STANDARD)
    (cell,) = (node for node in written.graph.node if node.op_type == operator)
    assert {attribute.name: attribute.i for attribute in cell.attribute}["hidden_size"] == 5
    compare(runtime_of(written, feeds_of(*inputs)), evaluated(graph, feeds_of(*inputs)))


@pytest.mark.parametrize("operator", list(GATES))
def test_a_hidden_size_that_nothing_tells_is_refused_for_onnxruntime(operator):
    given = operands(operator, 1)[:3]
    model = one_node(operator, given, 1, 14, {})
    for info in model.graph.input[1:]:
        info.type.tensor_type.ClearField("shape")
    graph = imported(model, native=False)
    export_model(graph, dialect=Dialect.STANDARD)
    with pytest.raises(UnsupportedError, match="wants hidden_size"):
        export_model(graph, dialect=Dialect.ORT)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("operator", list(GATES))
def test_a_sequence_without_a_step_ends_in_its_first_state(operator, direction, layout):
    """The last output of no step is what came before the first: ONNX Runtime's own recurrences give 0."""
    inputs = operands(operator, 2 if direction == "bidirectional" else 1)
    if layout:
        inputs = [np.swapaxes(x, 0, 1) if x is not None and i in (0, 5, 6) else x for i, x in enumerate(inputs)]
    attrs: dict[str, Any] = {"hidden_size": 5, "direction": direction, "layout": layout}
    model = with_symbols(one_node(operator, inputs, 3 if operator == "LSTM" else 2, 14, attrs), ["x4"])
    graph = imported(model)
    feeds = {**feeds_of(*inputs), "x4": np.array([0, 3], np.int32)}
    y, *last = evaluated(graph, feeds)
    axis = 0 if layout else 1
    for found, began in zip(last, inputs[5:7], strict=False):
        assert np.array_equal(np.take(found, 0, axis), np.take(began, 0, axis))
    written = export_model(graph, opset=14, dialect=Dialect.STANDARD)
    compare(runtime_of(written, feeds), (y, *last))


def test_lengths_that_are_known_to_be_steps_need_no_choice():
    inputs = operands("GRU", 1)
    model = one_node("GRU", inputs, 2, 14, {"hidden_size": 5})
    lengths = onnx.numpy_helper.from_array(inputs[4], "x4")
    model.graph.initializer.append(lengths)
    del model.graph.input[4]
    written = export_model(imported(model), opset=14, dialect=Dialect.STANDARD)
    assert [node.op_type for node in written.graph.node] == ["GRU"]
