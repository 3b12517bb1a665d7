"""The candidates of a matmul: which comes first, and own kernels that compile for every chip."""

from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Chip, KernelLaunch
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.ir.types import DType

from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.emulator import HAS_COMPILER
from tests.executors.cuda.matmul_cases import drawn, heads_inside, linear, matmul, swapped
from tests.executors.cuda.solving import Setting

needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")


def _names(made: Setting) -> list[str]:
    return [each.name.split("-")[0] for each in lower_matmul(made.task)]


def test_own_kernels_come_first_for_few_rows() -> None:
    assert _names(linear(1, 256, 512, dtype=DType.F16))[:2] == ["columns", "split"]  # the weight fits all registers
    assert _names(linear(1, 256, 1 << 16, dtype=DType.F16))[:3] == ["columns", "columns", "split"]
    assert _names(linear(16, 256, 512, "relu", dtype=DType.BF16))[0] == "rows"
    assert _names(linear(128, 256, 512, "bias", dtype=DType.F16))[0] == "staged"
    assert _names(linear(128, 256, 4096, "bias", dtype=DType.F16))[0] == "cublaslt"
    assert _names(linear(128, 256, 4096, "bias", "gelu", dtype=DType.F16))[0] == "staged"
    assert _names(linear(128, 256, 512))[:2] == ["exact", "exact"]
    assert _names(linear(128, 256, 4096))[0] == "cublaslt"
    assert "exact" not in _names(linear(128, 256, 512, tf32=True))


@pytest.mark.parametrize("chip", [Chip(80, 108, 163 << 10), Chip(90), Chip(100, 148)], ids=["sm_80", "sm_90", "sm_100"])
def test_own_kernels_compile(chip: Chip) -> None:
    settings = [
        linear(1, 2048, 512, "residual", dtype=DType.BF16, chip=chip),
        linear(3, 96, 50, "bias", "silu", "gate", dtype=DType.F16, chip=chip),
        linear(9, 72, 44, "gelu", dtype=DType.F16, chip=chip),
        linear(60, 512, 200, "bias", "gelu", dtype=DType.F16, chip=chip),
        linear(2, 64, 30, "bias", chip=chip),
        linear(130, 512, 72, "bias", "gelu", chip=chip),
        linear(20, 64, 48, "bias", "gelu", dtype=DType.F16, chip=chip),
        linear(40, 64, 51, "silu", dtype=DType.F16, chip=chip),  # rows that begin anywhere, copied behind the matmul
        matmul(drawn((2, 5, 3)), drawn((2, 3, 4))),
        matmul(np.arange(12).reshape(3, 4), np.arange(20).reshape(4, 5)),
        matmul(drawn((3, 4), DType.F64), drawn((4, 5), DType.F64)),
    ]
    launches = [launch for made in settings for each in lower_matmul(made.task) for launch in each.launches]
    assert any("exact" in name for made in settings for name in _names(made))
    kernels = [launch.kernel for launch in launches if isinstance(launch, KernelLaunch)]
    assert all(kernel.cluster == (1, 1, 1) for kernel in kernels) or chip.arch >= 90
    assert compile_problems(kernels, [chip.arch]) == []


def is_right(made: Setting, name: str, folder: Path) -> bool:
    """Whether every candidate of that name gives what the graph means."""
    candidates = [each for each in lower_matmul(made.task) if each.name.startswith(name)]
    assert candidates
    limit = 1e-4 if made.expected[0].dtype == np.float32 else 2e-2
    return all(
        np.allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=limit, atol=limit)
        for each in candidates
        for found, wanted in zip(made.found(each, folder), made.expected, strict=True)
    )


@needs_compiler
def test_exact_matmuls_share_the_inner_axis(tmp_path: Path) -> None:
    """Rows and columns that end within a tile, weights of either order, in blocks alone and in clusters."""
    assert is_right(linear(40, 256, 52, "bias", "relu"), "exact", tmp_path)
    assert is_right(linear(130, 516, 72, "residual"), "exact", tmp_path)
    assert is_right(matmul(drawn((40, 132)), drawn((132, 8)), b=swapped), "exact", tmp_path)


@needs_compiler
def test_what_lies_badly_is_copied_around_one_call(tmp_path: Path) -> None:
    half = DType.F16
    odd_result = linear(40, 64, 51, "bias", "silu", dtype=half)
    two_columns = linear(40, 64, 50, "bias", dtype=half)
    odd_operands = matmul(drawn((2, 20, 17), half), drawn((2, 17, 24), half))
    split = matmul(drawn((2, 3, 20, 16)), drawn((2, 3, 16, 8)), b=heads_inside)
    for made in (odd_result, two_columns, odd_operands, split):
        assert is_right(made, "cublaslt-copied", tmp_path)
    plain = [linear(40, 64, 48, "bias", dtype=half), linear(40, 64, 51), linear(4, 64, 51, dtype=half)]
    assert not [each for made in plain for each in lower_matmul(made.task) if "copied" in each.name]


def test_weights_in_f32_are_multiplied_in_either_order(tmp_path: Path) -> None:
    made = linear(20, 64, 48, "bias")
    assert is_right(made, "cublaslt", tmp_path)
    assert [name for name in _names(made) if name == "cublaslt"] == ["cublaslt"] * 2
