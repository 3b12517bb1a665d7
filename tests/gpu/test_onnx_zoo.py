"""The ONNX models on a GPU, each in one recording: the exported ones at sizes that vary, padded, and the light ones.

Expected is what NumPy gives. `test_programs.py` holds the exported ones of fixed sizes to PyTorch.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load, and below when they run
    cupy = pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")
    pytest.importorskip("onnx", reason="the models are ONNX files")
    torch = pytest.importorskip("torch", reason="models are exported from PyTorch")

import capgraph
from capgraph.ir.analysis import input_symbols
from capgraph.ir.constant import Array
from capgraph.ir.evaluate import evaluate_graph
from capgraph.program import Program
from capgraph.sources import load_model

from benchmarks import models
from examples.light_models import NAMES, input_name, light_model

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU answers here"),
]

DEVICE = "cuda"
TOLERANCE = 2e-5
"""Of the norm of an error over the norm of what is expected."""
SHAPE = (1, 3, 224, 224)
MOST = {"batch": 4, "length": 32}
SIZES = ((4, 32), (3, 21), (1, 1))
"""Batches and lengths; the bucket of all is the first one."""


def check(program: Program, inputs: dict[str, Any], expected: Array) -> None:
    (given,) = program.run(inputs).values()
    assert given.shape == expected.shape
    error = np.linalg.norm(given.astype(np.float64) - expected) / np.linalg.norm(expected)
    assert error <= TOLERANCE, f"{error:.2e}\n{program.explain()}"


def check_recording(program: Program, replayed: int) -> None:
    stats = program.stats()
    segments = [(bucket.segments, bucket.eager_segments, bucket.refusals) for bucket in stats.buckets]
    assert segments == [(1, 0, ())], program.explain()
    assert stats.refused == ()
    assert stats.counters.replayed_calls == replayed
    assert not [line for line in program.remarks if "runs on the host" in line]


@pytest.mark.parametrize("name", NAMES)
def test_light_models_with_drawn_weights(name: str) -> None:
    model = light_model(name)
    graph, given = load_model(model).graph, input_name(model)
    with capgraph.optimize(model, executor="graph", device=DEVICE) as program:
        for seed in range(3):
            picture = np.random.default_rng(seed).standard_normal(SHAPE, dtype=np.float32)
            check(program, {given: picture}, np.asarray(evaluate_graph(graph, [picture])[0]))
        check_recording(program, replayed=2)


@pytest.mark.parametrize("name", models.MODELS)
def test_exported_models_of_varying_sizes(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="modules are exported through torch.onnx")
    pytest.importorskip("transformers", reason="the models are made from their configurations")
    path = tmp_path / "model.onnx"
    models.write(name, path, dynamic=True)
    graph = load_model(path).graph
    dynamic = {symbol: (1, MOST[symbol]) for symbol in input_symbols(graph)}
    assert dynamic
    shorter, usual = (models.inputs(name, length=length) for length in (1, MOST["length"]))
    if "length" not in dynamic and any(shorter[each].shape != usual[each].shape for each in usual):
        pytest.skip(f"torch.onnx of PyTorch {torch.__version__} writes it for one length")
    buckets: Any = {symbol: (most,) for symbol, (_least, most) in dynamic.items()}
    with capgraph.optimize(path, executor="graph", device=DEVICE, dynamic=dynamic, buckets=buckets) as program:
        for batch, length in SIZES:
            inputs = models.inputs(name, batch, length)
            check(program, inputs, np.asarray(evaluate_graph(graph, [inputs[value.name] for value in graph.inputs])[0]))
        check_recording(program, replayed=len(SIZES) - 1)
        assert program.stats().counters.padded_calls == len(SIZES) - 1
