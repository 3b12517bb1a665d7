"""Resampling by factors, beside eager PyTorch."""

from typing import Any

import capgraph
import pytest
import torch


class Resized(torch.nn.Module):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.interpolate(x, **self.options)


@pytest.mark.parametrize("factor", [1.05, 1.3, 2.1, (1.3, 2.0)])
@pytest.mark.parametrize(
    ("mode", "rank"),
    [(f"nearest{exact}", rank) for exact in ("", "-exact") for rank in (3, 4, 5)]
    + [("linear", 3), ("bilinear", 4), ("bicubic", 4), ("trilinear", 5)],
)
def test_kernels_of_the_cpu_pass_over_some_factors(mode: str, rank: int, factor: Any) -> None:
    """7 times 2.1 are 14 pixels, which `nearest` then takes for twice as many; 3 times 1.3 are 3."""
    factor = factor[: rank - 2] + factor[:1] * (rank - 4) if isinstance(factor, tuple) else factor
    module = Resized({"mode": mode, "scale_factor": factor})
    x = torch.randn(1, 2, *(4, 7, 3)[5 - rank :], generator=torch.Generator().manual_seed(0))
    program = capgraph.optimize(module, args=(x,), executor="eager")
    torch.testing.assert_close(program(x), module(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("executor", ["eager", "ort"])
@pytest.mark.parametrize("factor", [1.05, 1.3, 2.1, 1.7])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_factors_of_sizes_that_running_tells(mode: str, factor: float, executor: str) -> None:
    module = Resized({"mode": mode, "scale_factor": factor})
    dynamic = ({2: torch.export.Dim("h", min=2, max=64), 3: torch.export.Dim("w", min=2, max=64)},)
    program = capgraph.optimize(module, args=(torch.ones(1, 2, 12, 12),), dynamic_shapes=dynamic, executor=executor)
    for size in ((2, 3), (7, 30), (3, 9)):
        x = torch.randn(1, 2, *size, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(program(x), module(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("factor", [1.3, 2.0])
def test_bytes_are_held_in_range_after_each_axis(factor: float) -> None:
    module = Resized({"mode": "bicubic", "scale_factor": factor})
    x = torch.randint(0, 2, (1, 2, 7, 3), generator=torch.Generator().manual_seed(0)).mul(255).to(torch.uint8)
    program = capgraph.optimize(module, args=(x,), executor="eager")
    torch.testing.assert_close(program(x), module(x), rtol=0, atol=2)
