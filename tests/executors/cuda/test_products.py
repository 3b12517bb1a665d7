"""The ways of a product: which comes first, and own kernels that compile for every chip."""

import numpy as np
import pytest
from capgraph.executors.cuda.launch import Chip, KernelLaunch
from capgraph.executors.cuda.products import lower_product
from capgraph.ir.types import DType

from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.product_cases import drawn, linear, matmul
from tests.executors.cuda.solving import Setting


def _names(made: Setting) -> list[str]:
    return [each.name.split("-")[0] for each in lower_product(made.task)]


def test_own_kernels_come_first_for_few_rows() -> None:
    assert _names(linear(1, 256, 512, dtype=DType.F16))[:2] == ["columns", "split"]
    assert _names(linear(16, 256, 512, "relu", dtype=DType.BF16))[0] == "split"
    assert _names(linear(128, 256, 512, "bias", dtype=DType.F16))[0] == "staged"
    assert _names(linear(128, 256, 4096, "bias", dtype=DType.F16))[0] == "cublaslt"
    assert _names(linear(128, 256, 4096, "bias", "gelu", dtype=DType.F16))[0] == "staged"
    assert _names(linear(128, 256, 512))[0] == "cublaslt"


@pytest.mark.parametrize("chip", [Chip(80, 108, 163 << 10), Chip(90), Chip(100, 148)], ids=["sm_80", "sm_90", "sm_100"])
def test_own_kernels_compile(chip: Chip) -> None:
    settings = [
        linear(1, 2048, 512, "residual", dtype=DType.BF16, chip=chip),
        linear(3, 96, 50, "bias", "silu", "gate", dtype=DType.F16, chip=chip),
        linear(9, 72, 44, "gelu", dtype=DType.F16, chip=chip),
        linear(60, 512, 200, "bias", "gelu", dtype=DType.F16, chip=chip),
        linear(2, 64, 30, "bias", chip=chip),
        matmul(drawn((2, 5, 3)), drawn((2, 3, 4))),
        matmul(np.arange(12).reshape(3, 4), np.arange(20).reshape(4, 5)),
        matmul(drawn((3, 4), DType.F64), drawn((4, 5), DType.F64)),
    ]
    launches = [launch for made in settings for each in lower_product(made.task) for launch in each.launches]
    kernels = [launch.kernel for launch in launches if isinstance(launch, KernelLaunch)]
    assert all(kernel.cluster == (1, 1, 1) for kernel in kernels) or chip.arch >= 90
    assert compile_problems(kernels, [chip.arch]) == []
