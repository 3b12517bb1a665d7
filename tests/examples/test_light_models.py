"""The nine light models: as they ship, against the outputs beside them; with real weights, against ONNX Runtime."""

import math
from typing import Any

import capgraph
import numpy as np
import onnx
import onnxruntime
import pytest
from capgraph.frontends.onnx.importer import import_model
from capgraph.ir.evaluate import evaluate_graph
from onnx import numpy_helper

from examples.light_models import FOLDER, NAMES, input_name, light_model

SEEDS = (1, 2, 3)
SHAPE = (1, 3, 224, 224)
RAMP = (np.arange(math.prod(SHAPE)) / math.prod(SHAPE)).reshape(SHAPE).astype(np.float32)
"""The input that the ONNX backend suite gives these models."""


def picture(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(SHAPE, dtype=np.float32)


def test_all_nine_are_there() -> None:
    assert len(NAMES) == 9


def shipped_output(name: str) -> Any:
    return numpy_helper.to_array(onnx.TensorProto.FromString((FOLDER / f"light_{name}_output_0.pb").read_bytes()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", [RAMP, picture(0)], ids=["ramp", "normal"])
def test_as_they_ship_they_mean_the_outputs_beside_them(name: str, given: Any) -> None:
    graph = import_model(FOLDER / f"light_{name}.onnx").graph
    np.testing.assert_allclose(evaluate_graph(graph, [given])[0], shipped_output(name), rtol=1e-3)
    assert not any(node.op.is_foreign for node in graph.nodes)


# Not squeezenet: its logits are equal only when every sum is rounded once. Faster kernels differ in the last bit of
# numbers around 1e9, and softmax makes anything of that.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "squeezenet"])
@pytest.mark.parametrize("executor", ["eager", "ort"])
def test_as_they_ship_they_run_to_the_outputs_beside_them(name: str, executor: str) -> None:
    program = capgraph.optimize(FOLDER / f"light_{name}.onnx", executor=executor)
    (required,) = (n for n in program.inputs if n not in program.optional_inputs)
    (output,) = program.run({required: RAMP}).values()
    np.testing.assert_allclose(output, shipped_output(name), rtol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_with_drawn_weights_they_equal_onnxruntime(name: str) -> None:
    model = light_model(name)
    program, given = capgraph.optimize(model), input_name(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs = []
    for seed in SEEDS:
        (ours,) = program.run({given: picture(seed)}).values()
        (theirs,) = session.run(None, {given: picture(seed)})
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5 * np.abs(theirs).max())
        outputs.append(ours)
    assert not np.array_equal(outputs[0], outputs[1])  # else nothing would have been compared


def test_weights_are_those_of_the_seed() -> None:
    first, again, other = (light_model("squeezenet", seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_a_layer_keeps_the_variance_of_the_signal() -> None:
    model = light_model("squeezenet")
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weight = weights["fire2/expand3x3_w_0"]
    assert weight.std() == pytest.approx((2 / weight[0].size) ** 0.5, rel=0.05)


def test_models_are_valid_and_take_one_picture() -> None:
    model = light_model("resnet50")
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == [input_name(model)]
    assert not any(node.op_type == "ConstantOfShape" for node in model.graph.node)
