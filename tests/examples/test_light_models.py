"""The nine light models: as they ship, against the outputs beside them; with real weights, against ONNX Runtime."""

import math
import os
import subprocess
import sys
from typing import Any

import capgraph
import numpy as np
import onnx
import onnxruntime
import pytest
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.evaluate import evaluate_graph
from onnx import numpy_helper

from examples.light_models import FOLDER, NAMES, input_name, light_model

SEEDS = (1, 2, 3)
EXECUTORS = ("auto", "eager", "graph")
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
def test_as_they_ship_they_mean_the_outputs_beside_them(name: str) -> None:
    graph = import_model(FOLDER / f"light_{name}.onnx").graph
    np.testing.assert_allclose(evaluate_graph(graph, [picture(0)])[0], shipped_output(name), rtol=1e-3)
    assert not any(node.op.is_foreign for node in graph.nodes)


# Squeezenet is the hard one: softmax over a thousand equal logits of 1.8e9, where neighboring floats lie 128 apart.
# What VGG 19 ships for weights is half a gigabyte that is filled each time, which a recording does three times.
RUNS = [(executor, name) for executor in EXECUTORS for name in NAMES if (executor, name) != ("graph", "vgg19")]


@pytest.mark.parametrize(("executor", "name"), RUNS)
def test_as_they_ship_they_run_to_the_outputs_beside_them(name: str, executor: str) -> None:
    program = capgraph.optimize(FOLDER / f"light_{name}.onnx", executor=executor)
    (required,) = (n for n in program.inputs if n not in program.optional_inputs)
    (output,) = program.run({required: RAMP}).values()
    np.testing.assert_allclose(output, shipped_output(name), rtol=1e-3)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("level", [0, 1, 3])
def test_equal_logits_stay_equal_at_every_level(executor: str, level: int) -> None:
    program = capgraph.optimize(FOLDER / "light_squeezenet.onnx", executor=executor, level=level)
    for seed in SEEDS:
        (output,) = program.run({"data_0": picture(seed)}).values()
        np.testing.assert_allclose(output, shipped_output("squeezenet"), rtol=1e-3)


@pytest.mark.parametrize("kernels", ["Haswell", "Nehalem"])
@pytest.mark.parametrize("threads", [1, 2])
def test_equal_logits_stay_equal_whatever_blas_does(kernels: str, threads: int) -> None:
    """The processor picks the kernels of OpenBLAS, which differ in the order of their sums."""
    environment = {**os.environ, "OPENBLAS_CORETYPE": kernels, "OPENBLAS_NUM_THREADS": str(threads)}
    code = (
        "import sys, capgraph, numpy as np\n"
        "program = capgraph.optimize(sys.argv[1], executor='eager')\n"
        "for seed in (1, 2, 3):\n"
        "    given = np.random.default_rng(seed).standard_normal((1, 3, 224, 224), dtype=np.float32)\n"
        "    (output,) = program.run({'data_0': given}).values()\n"
        "    np.testing.assert_allclose(output, 1e-3, rtol=1e-3)\n"
    )
    command = [sys.executable, "-c", code, str(FOLDER / "light_squeezenet.onnx")]
    subprocess.run(command, env=environment, check=True)


# VGG 19 and ZFNet have the layers of AlexNet, with ten times the weights.
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("vgg19", "zfnet512")])
def test_with_drawn_weights_they_equal_onnxruntime(name: str) -> None:
    model = light_model(name)
    given = input_name(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = [session.run(None, {given: picture(seed)})[0] for seed in SEEDS[:2]]
    assert not np.array_equal(expected[0], expected[1])  # else nothing would be compared
    for executor in EXECUTORS:
        program = capgraph.optimize(model, executor=executor)
        for seed, theirs in zip(SEEDS[:2], expected, strict=True):
            (ours,) = program.run({given: picture(seed)}).values()
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5 * np.abs(theirs).max())


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
