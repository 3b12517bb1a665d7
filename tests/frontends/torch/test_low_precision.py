"""Matmuls of fp8 and bytes in PyTorch are matmuls of dequantized numbers, and cuBLASLt's on a GPU."""

from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from capgraph.executors.cuda.lower.lowering import Backend
from capgraph.executors.cuda.programs import cuda_planning
from capgraph.executors.replay.modes import CaptureMode
from capgraph.executors.replay.options import ReplayOptions
from capgraph.frontends.torch import exported
from capgraph.optimization import pipeline_for

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


class Scaled(torch.nn.Module):
    def __init__(self, dtype: Any, has_bias: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.bias = torch.arange(48).to(dtype) / 7 if has_bias else None

    def forward(self, a: Any, b: Any, a_scale: Any, b_scale: Any) -> Any:
        return torch._scaled_mm(a, b.t(), a_scale, b_scale, bias=self.bias, out_dtype=self.dtype).relu()


def numbers(*shape: int, dtype: Any = E4M3) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


SCALES = {
    "one": (torch.tensor(0.5), torch.tensor(0.25)),
    "rows-columns": (torch.linspace(0.1, 1, 16).reshape(16, 1), torch.linspace(0.1, 2, 48).reshape(1, 48)),
}


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 1e-2), (torch.float32, 1e-5)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_scaled_matmul_is_what_pytorch_gives(scales: str, dtype: Any, tolerance: float, has_bias: bool) -> None:
    inputs = (numbers(16, 32), numbers(48, 32), *SCALES[scales])
    module = Scaled(dtype, has_bias and dtype is torch.bfloat16)
    expected = module(*inputs).float()
    program = capgraph.optimize(module, args=inputs, executor="eager")
    assert (program(*inputs).float() - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize(
    ("scales", "has_bias", "way"),
    [
        ("one", False, "fp8"),
        ("one", True, "fp8-apart+pointwise"),
        ("rows-columns", True, "fp8-unscaled+pointwise"),
    ],
)
def test_it_is_one_matmul_of_the_library_and_at_most_a_kernel(scales: str, has_bias: bool, way: str) -> None:
    inputs = (numbers(16, 32), numbers(48, 32), *SCALES[scales])
    graph = exported.from_exported(torch.export.export(Scaled(torch.bfloat16, has_bias), inputs)).graph
    pipeline_for(2, "cuda").run(graph)
    backend = Backend(libraries=frozenset({"cublaslt"}))
    planner = cuda_planning(backend, ReplayOptions())
    ways = backend.lower(planner.of(graph)({}, CaptureMode.FULL))
    names = [[each.name for each in step.candidates] for step in ways if step.candidates]
    assert names[-1][0] == way
    assert len(names) == 1
    assert not any(each.remark for each in ways[-1].candidates)


def test_a_matmul_of_bytes_is_summed_in_i32() -> None:
    class Bytes(torch.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return torch._int_mm(a, b) + 1

    inputs = tuple(torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((32, 64), (64, 32)))
    program = capgraph.optimize(Bytes(), args=inputs, executor="eager")
    given = program(*inputs)
    assert given.dtype == torch.int32
    assert np.array_equal(given.numpy(), Bytes()(*inputs).numpy())


FLOATS_OF_8_BITS = [E4M3, E5M2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", FLOATS_OF_8_BITS, ids=str)
def test_casts_give_what_pytorch_gives_out_of_range_too(dtype: Any, source: Any) -> None:
    class Casts(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.to(dtype).float()

    numbers = [0.0, 0.3, 0.375, 0.75, 1.4, 1.5, -3.0, 240.0, 247.0, 449.0, 465.0, 6e4, 61440.0, 1e6, -1e6, 1e38]
    infinities = [] if dtype is torch.float8_e8m0fnu else [float("inf"), -float("inf")]
    x = torch.tensor([*numbers, *infinities, float("nan"), 2.0**-10, 1e-8]).to(source)
    program = capgraph.optimize(Casts(), args=(x,), executor="eager")
    torch.testing.assert_close(program(x), Casts()(x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "options", [{"mode": "bicubic"}, {"mode": "bilinear"}, {"mode": "bilinear", "antialias": True}]
)
def test_resized_bytes_are_rounded_and_held_in_range(options: dict[str, Any]) -> None:
    class Resized(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.interpolate(x, size=(7, 24), **options)

    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (2, 3, 9, 12), generator=generator).mul(2).clamp(0, 255).to(torch.uint8)
    (found,) = capgraph.optimize(Resized(), args=(x,), executor="eager").run({"x": x.numpy()}).values()
    assert found.dtype == np.uint8
    difference = np.abs(found.astype(np.float32) - Resized()(x).numpy())
    assert difference.max() <= 2  # PyTorch has the weights in 16 bits, and rounds after each axis
    assert (difference > 0).mean() < 0.1
    assert (difference > 1).mean() < 0.001


def test_a_weight_in_bytes_is_what_pytorch_gives() -> None:
    class Coded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = torch.randint(-127, 128, (48, 64), generator=torch.Generator().manual_seed(0)).to(torch.int8)
            self.scales = torch.linspace(0.01, 0.1, 48).bfloat16()

        def forward(self, x: Any) -> Any:
            return torch._weight_int8pack_mm(x, self.codes, self.scales)

    module, x = Coded(), torch.randn(3, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = module(x).float()
    program = capgraph.optimize(module, args=(x,), executor="eager")
    assert (program(x).float() - expected).abs().max() <= 1e-2 * expected.abs().max()
