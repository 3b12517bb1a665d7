"""Convolutions, attention, matmuls of few rows on a GPU: every candidate, by each algorithm, alone and in a graph."""

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load
    pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")

from capgraph.executors.cuda.executor import cuda_problem
from capgraph.executors.cuda.kernel_ir.launch import Candidate, LibraryCall
from capgraph.executors.cuda.kernels.attention.attention import lower_attention
from capgraph.executors.cuda.kernels.conv.convolutions import lower_convolution
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.executors.cuda.run.device import CudaDevice
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.types import DType

from tests.executors.cuda.matmul_cases import drawn, linear
from tests.executors.cuda.solving import Setting
from tests.executors.cuda.test_attention import ALL_LOW, ENDS, LATER, ODD, PER_HEAD, SEEN, attended
from tests.executors.cuda.test_convolutions import DEPTHWISE, as_image, convolution
from tests.executors.cuda.test_gemv import normed, paired
from tests.executors.cuda.test_row_norms import AFFINE, layer_normed
from tests.gpu.on_device import OnDevice

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(bool(cuda_problem().text), reason="no NVIDIA GPU answers here"),
]

LAYOUTS = {"channels-last": as_image, "row-major": lambda x: x}
LIMITS = {DType.F16: 4e-3, DType.BF16: 3e-2, DType.F32: 2e-5}


def libraries_of(candidate: Candidate) -> set[str]:
    return {launch.library for launch in candidate.launches if isinstance(launch, LibraryCall)}


def wrong_candidates(made: Setting, candidates: list[Candidate], device: CudaDevice, limit: float) -> list[str]:
    """The candidates whose results are off by more than a part of the largest number; none at all is wrong, too."""
    right, wrong, tried = OnDevice(made, device), list[str](), 0
    for candidate in candidates:
        if not libraries_of(candidate) <= device.backend.libraries:
            continue
        try:
            for name, (found,) in right.results(candidate):
                tried += 1
                expected = made.expected[0].astype(np.float64)
                off = np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max()
                wrong += [f"{name}: {off}"] if not off <= limit else []
        except UnsupportedError:
            continue  # the next candidate is taken
    return wrong if tried else ["none"]


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...], dict[str, Any]]] = {
    "one-axis": ((2, 96, 50), (64, 96, 3), ("bias", "silu"), {"strides": [2]}),
    "three-axes": ((1, 32, 6, 9, 8), (24, 32, 3, 3, 3), ("bias", "relu"), {}),
    "few-channels": ((2, 3, 30, 31), (16, 3, 7, 7), ("bias", "relu"), {"strides": [2, 2], "pads": [3] * 4}),
    "groups": ((2, 32, 12, 11), (48, 8, 3, 3), ("bias",), {"groups": 4, "dilations": [2, 1]}),
    "residual": ((2, 32, 12, 11), (32, 32, 3, 3), ("bias", "residual", "relu"), {}),
    "transposed": (
        (2, 32, 9, 8),
        (32, 16, 4, 3),
        ("bias", "relu"),
        {"is_transposed": True, "strides": [2, 1], "output_padding": [1, 0]},
    ),
    "transposed-groups": ((2, 32, 30), (32, 8, 3), ("bias",), {"is_transposed": True, "strides": [2], "groups": 4}),
    "transposed-three": ((1, 16, 4, 5, 6), (16, 8, 2, 2, 2), (), {"is_transposed": True, "strides": [2] * 3}),
} | {
    f"depthwise-{index}": ((2, channels, *sizes), (channels, 1, *taps), ("bias", "silu"), {**attrs, "groups": channels})
    for index, (channels, sizes, taps, attrs) in enumerate(DEPTHWISE)
}


@pytest.mark.parametrize("is_weight_given", [False, True], ids=["constant", "given"])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("dtype", sorted(LIMITS, key=str))
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, dtype: DType, layout: str, is_weight_given: bool, device: CudaDevice) -> None:
    x, w, epilogue, options = CONVOLUTIONS[name]
    if dtype is DType.BF16 and is_weight_given:
        pytest.skip("as f16")
    made = convolution(x, w, *epilogue, dtype=dtype, layout=LAYOUTS[layout], is_weight_given=is_weight_given, **options)
    assert not wrong_candidates(made, list(lower_convolution(made.task)), device, LIMITS[dtype])


LOWEST_BF16 = np.float32(-3.3895314e38)
ATTENTION: dict[str, dict[str, Any]] = {
    "seen": {"mask": SEEN},
    "poisoned": {"mask": LATER, "unseen": [5]},
    "keys": {"mask": LATER[:, :, :1], "causal": True, "unseen": [5]},
    "queries": {"mask": SEEN[..., :1]},
    "added": {"mask": ODD.astype(np.float16)},
    "added-f32": {"mask": ODD.astype(np.float32), "kv_heads": 2},
    "lowest": {"mask": ALL_LOW},
    "lowest-f32": {"mask": ALL_LOW, "dtype": DType.F32},
    "lowest-bf16": {"mask": np.maximum(ALL_LOW, LOWEST_BF16).astype(DType.BF16.numpy), "dtype": DType.BF16},
    "heads": {"mask": PER_HEAD.astype(np.float16), "keys": 72},
    "both": {"mask": ODD.astype(np.float32), "lengths": ENDS, "causal": True},
    "lengths": {"lengths": ENDS, "is_flat": True},
    "unseen": {"lengths": np.array([0, 20]), "unseen": [30]},
    "causal": {"lengths": np.array([80, 3]), "causal": True, "kv_heads": 2},
    "top-left": {"causal": True, "keys": 100},
}


@pytest.mark.parametrize("depth", [16, 64, 80, 128, 256])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str, depth: int, device: CudaDevice) -> None:
    made = attended(2, 4, 66, depth, **{"keys": 70, **ATTENTION[name]})
    limit = LIMITS[ATTENTION[name].get("dtype", DType.F16)]
    assert not wrong_candidates(made, list(lower_attention(made.task)), device, limit)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F32])
@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(1, 2048, 3072), (1, 8192, 2048), (3, 520, 4099), (8, 1000, 777)]
)
def test_matmuls_of_few_rows(rows: int, inner: int, columns: int, dtype: DType, device: CudaDevice) -> None:
    made = linear(rows, inner, columns, "bias", "silu", "residual", dtype=dtype, chip=device.driver.chip)
    assert not wrong_candidates(made, list(lower_matmul(made.task)), device, LIMITS[dtype])


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F32])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 2048, 8192), (2, 1024, 3073), (4, 4360, 640)])
def test_matmuls_that_norm_their_rows(rows: int, inner: int, columns: int, dtype: DType, device: CudaDevice) -> None:
    made = normed(rows, inner, columns, dtype, gated=True, chip=device.driver.chip)
    assert not wrong_candidates(made, list(lower_matmul(made.task)), device, LIMITS[dtype])


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F32])
@pytest.mark.parametrize("affine", AFFINE)
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 256, 256), (1, 2048, 8192), (3, 520, 4099), (4, 4360, 640)])
def test_matmuls_that_center_their_rows(
    rows: int, inner: int, columns: int, affine: str, dtype: DType, device: CudaDevice
) -> None:
    x = (3 * drawn((rows, inner)) + 2).astype(dtype.numpy)
    made = layer_normed(x, affine, is_block=inner == columns, columns=columns, chip=device.driver.chip)
    assert not wrong_candidates(made, list(lower_matmul(made.task)), device, LIMITS[dtype])


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F32])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 2048, 8192), (3, 1032, 3073)])
def test_two_matmuls_of_the_same_rows(rows: int, inner: int, columns: int, dtype: DType, device: CudaDevice) -> None:
    made = paired(rows, inner, columns, dtype, chip=device.driver.chip)
    assert not wrong_candidates(made, list(lower_matmul(made.task)), device, LIMITS[dtype])
