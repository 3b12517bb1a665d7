"""Steps that a library does with kernels around it: Fourier transforms of any length, deformable convolutions."""

from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from capgraph.ir.evaluate import evaluate_graph

from tests.executors.cuda.codegen.cases import Case, Drawn, made

CALLS = 3


def check(case: Case, limit: float) -> None:
    """Recorded, and of the largest element no more than `limit` away from what the graph means."""
    expected = evaluate_graph(case.graph, case.inputs)
    with capgraph.optimize(case.graph, executor="graph", device="cuda") as program:
        named = {value.name: array for value, array in zip(case.graph.inputs, case.inputs, strict=True)}
        for _ in range(CALLS):
            results = list(program.run(named).values())
        covered = program.coverage
        assert covered is not None
        assert not covered.fallbacks, program.explain()
    for found, wanted in zip(results, expected, strict=True):
        largest = np.abs(wanted).max()
        assert np.abs(np.asarray(found, np.float64) - wanted).max() <= limit * largest


@pytest.mark.parametrize("length", [1, 30, 256, 1000, 4096, 8192, 12_919, 65_536, 100_003, 1 << 20])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_transforms_of_any_length(length: int, dtype: str) -> None:
    d = Drawn()
    limit = {"f32": 3e-6, "f64": 1e-13, "f16": 2e-3}[dtype]
    real, both = d.array(dtype, 3, length, 1), d.array(dtype, 3, length, 2)
    half = d.array(dtype, 3, length // 2 + 1, 2)
    scale = np.array(1 / length if dtype == "f16" else 1, real.dtype)  # results stay in the range of f16
    back: dict[str, Any] = {"inverse": True, "onesided": True, "length": length}
    check(made("real", lambda b, x: b.op("dft", x, onesided=True), real * scale), limit)
    check(made("complex", lambda b, x: b.op("dft", x), both * scale), limit)
    check(made("inverse", lambda b, x: b.op("dft", x, inverse=True), both), limit)
    check(made("back", lambda b, x: b.op("dft", x, **back), half), limit)
    check(made("padded", lambda b, x: b.op("dft", x, length=length + 7), real * scale), limit)


def test_transforms_across_memory_and_of_frames() -> None:
    d = Drawn()
    check(made("axis", lambda b, x: b.op("dft", x, axis=1), d.array("f32", 2, 600, 5, 2)), 3e-6)
    frames = {"frame_step": 160, "frame_length": 400}
    signal, window = d.array("f32", 2, 16000, 1), d.array("f32", 400)
    check(made("frames", lambda b, x, w: b.op("stft", x, w, **frames), signal, window), 3e-6)


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
@pytest.mark.parametrize(("groups", "offset_groups", "has_bias"), [(1, 1, False), (1, 2, True), (2, 4, True)])
def test_deformable_convolutions(dtype: str, groups: int, offset_groups: int, has_bias: bool) -> None:
    d = Drawn()
    arrays = [d.array(dtype, 2, 16, 14, 15), d.array(dtype, 8, 16 // groups, 3, 3)]
    arrays += [d.array(dtype, 2, offset_groups * 18, 14, 15), d.array(dtype, 2, offset_groups * 9, 14, 15)]
    arrays += [d.array(dtype, 8)] if has_bias else []
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": groups}

    def built(b: Any, x: Any, w: Any, o: Any, m: Any, bias: Any = None) -> Any:
        return b.op("deform_conv", x, w, o, bias, m, offset_groups=offset_groups, **attrs)

    check(made("deformed", built, *arrays), {"f32": 2e-6, "f16": 3e-3, "f64": 1e-13}[dtype])


@pytest.mark.parametrize("size", [1, 3, 32, 65, 238, 300])
def test_determinants(size: int) -> None:
    x = Drawn().array("f32", 5, size, size) / np.float32(np.sqrt(size))
    check(made("det", lambda b, v: b.op("det", v), x), 2e-4)


@pytest.mark.parametrize(("slices", "slots", "rest"), [(2708, 10556, 16), (300, 700, 4), (8192, 16384, 3)])
@pytest.mark.parametrize("reduction", ["add", "max", "mul"])
def test_scatters_of_few_updates(slices: int, slots: int, rest: int, reduction: str) -> None:
    d = Drawn()
    arrays = d.array("f32", slices, rest), d.indices(slices, slots, 1), d.array("f32", slots, rest)
    check(made("scatter", lambda b, *v: b.op("scatter_nd", *v, reduction=reduction), *arrays), 1e-5)


@pytest.mark.parametrize("allowed", [True, False])
def test_convolutions_round_as_pytorch_asks(allowed: bool) -> None:
    torch.manual_seed(0)
    module = torch.nn.Conv2d(64, 64, 3, padding=1).cuda().eval()
    x = torch.randn(8, 64, 56, 56, device="cuda")
    kept = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        with torch.no_grad():
            exact = torch.nn.functional.conv2d(x.double(), module.weight.double(), module.bias.double(), padding=1)
            program = capgraph.optimize(module, args=(x,))
            for _ in range(CALLS):
                found = program(x)
    finally:
        torch.backends.cudnn.allow_tf32 = kept
    assert ("rounded to TF32 in: convolutions" in program.explain()) is allowed
    error = float((found.double() - exact).abs().max() / exact.abs().max())
    assert error < (2e-3 if allowed else 2e-6), error
