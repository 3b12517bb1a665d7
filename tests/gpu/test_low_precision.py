"""Matmuls of fp8 and i8 on a GPU: every candidate and algorithm against f64, and programs whose scales change."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load
    cupy = pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")
    pytest.importorskip("nvmath.bindings", reason="matmuls of 8 bits go through nvmath-python")

import capgraph
from capgraph.executors.cuda.executor import cuda_problem, open_device
from capgraph.executors.cuda.kernel_ir.launch import Candidate, KernelLaunch, Task
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.executors.cuda.kernels.gemm.quantized_gemm import lower_matmul_integer
from capgraph.executors.cuda.kernels.gemm.scaled_gemm import FIRST_FP8_ARCH
from capgraph.executors.cuda.lower.early_trigger import with_safe_triggers
from capgraph.executors.cuda.run.device import CudaDevice
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from tests.executors.cuda.coded_cases import CASES, CodedMatmul
from tests.executors.cuda.scaled_cases import E4M3, E5M2, I8, Matmul, allowed, exact
from tests.executors.cuda.solving import constant, setting
from tests.executors.cuda.test_scaled_gemm import layers
from tests.gpu.on_device import OnDevice

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(bool(cuda_problem().text), reason="no NVIDIA GPU answers here"),
]

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32
SHAPES = [((1,), 64, 64), ((5,), 32, 48), ((16,), 256, 512), ((3, 11), 128, 80), ((128,), 1024, 768), ((300,), 16, 16)]
EPILOGUES = [
    (),
    ("bias",),
    ("bias", "relu"),
    ("relu",),
    ("residual",),
    ("bias", "residual", "relu"),
    ("bias", "gelu-tanh"),
]
PAIRS = [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)]


def tried(task: Task, device: CudaDevice) -> list[Candidate]:
    """The candidates of the library, and the first two of the ordinary matmul, compiled together."""
    candidates = list(lower_matmul(task))
    ordinary = [each for each in candidates if each.name.startswith("dequantized")]
    chosen = [each for each in candidates if each not in ordinary[2:]]
    handed = [each for each in (with_safe_triggers([candidate])[0] for candidate in chosen) if each is not None]
    launches = [launch for each in handed for launch in each.launches]
    device.compiler.compile(launch.kernel for launch in launches if isinstance(launch, KernelLaunch))
    return chosen


def wrong(matmul: Matmul, device: CudaDevice) -> list[str]:
    """What is wrong with the candidates of a matmul, a line each; and what there is, for the report of a failure."""
    setting = replace(matmul, chip=device.driver.chip).setting()
    found, right = exact(matmul), OnDevice(setting, device)
    lines: list[str] = []
    done: list[str] = []
    for candidate in tried(setting.task, device):
        try:
            for name, results in right.results(candidate):
                error = np.abs(results[0].astype(np.float64) - found.value) / allowed(matmul, found, candidate.name)
                done.append(f"{name}: {np.nanmax(error):.2f}")
                if not (error <= 1).all():
                    lines.append(f"{name}: {np.nanmax(error):.2f} of what is allowed, {np.isnan(error).sum()} NaN")
        except UnsupportedError as refusal:
            done.append(f"{candidate.name} is refused: {refusal.message[:60]}")
    print(*done, sep="\n")
    return lines + ([] if done else ["no candidate at all"])


@pytest.mark.parametrize("matmul", CASES, ids=str)
def test_weights_in_codes(matmul: CodedMatmul, device: CudaDevice) -> None:
    """Every candidate of a matmul whose weight is read as codes, against f64."""
    setting = replace(matmul, chip=device.driver.chip).setting()
    (value, allowed_error), candidates = matmul.exact(), list(lower_matmul(setting.task))
    device.compiler.compile(
        launch.kernel for candidate in candidates for launch in candidate.launches if isinstance(launch, KernelLaunch)
    )
    right = OnDevice(setting, device)
    errors = {
        name: float((np.abs(found.astype(np.float64) - value) / allowed_error).max())
        for candidate in candidates
        for name, (found, *_) in right.results(candidate)
    }
    print(errors)
    assert errors
    assert max(errors.values()) <= 1


@pytest.mark.parametrize("to", [F16, BF16, F32], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("dtypes", PAIRS, ids=lambda pair: "-".join(dtype.value for dtype in pair))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fp8(
    shape: tuple[tuple[int, ...], int, int], dtypes: tuple[DType, DType], to: DType, device: CudaDevice
) -> None:
    rows, inner, columns = shape
    assert not wrong(Matmul(rows, inner, columns, dtypes, to, tf32=True), device)


@pytest.mark.parametrize("to", [F16, BF16, F32], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("epilogue", [*EPILOGUES, ("bias", "gelu"), ("bias", "silu")], ids="-".join)
def test_fp8_with_what_follows(epilogue: tuple[str, ...], to: DType, device: CudaDevice) -> None:
    assert not wrong(Matmul((33,), 256, 320, to=to, epilogue=epilogue, tf32=True), device)


@pytest.mark.parametrize(
    "matmul",
    [
        Matmul((17,), 64, 96, op="gemm", is_turned=True, has_constant_weight=False),
        Matmul((17,), 64, 96, op="gemm", is_turned=True, epilogue=("relu",), to=BF16),
        Matmul((17,), 64, 96, has_constant_weight=False),
        Matmul((2, 9), 64, 96, has_constant_scales=True, scale_dtype=F16),
        Matmul((17,), 64, 96, scale_dtype=BF16, to=BF16),
        Matmul((17,), 40, 96),
        Matmul((17,), 64, 7, epilogue=("bias",)),
        Matmul((17,), 64, 96, (E5M2, E5M2)),
    ],
    ids=["turned", "turned-constant", "laid-out", "constant-scales", "bf16-scales", "inner-40", "columns-7", "e5m2"],
)
def test_fp8_that_lies_otherwise_or_does_not_fit(matmul: Matmul, device: CudaDevice) -> None:
    assert not wrong(matmul, device)


@pytest.mark.parametrize("to", [F16, BF16, F32], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("epilogue", [(), ("bias", "relu"), ("residual", "silu")], ids="-".join)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bytes(
    shape: tuple[tuple[int, ...], int, int], epilogue: tuple[str, ...], to: DType, device: CudaDevice
) -> None:
    rows, inner, columns = shape
    assert not wrong(Matmul(rows, inner, columns, (I8, I8), to, epilogue), device)


@pytest.mark.parametrize("dtypes", [(I8, I8), (E4M3, E4M3), (E4M3, E5M2)], ids=["i8", "e4m3", "e5m2"])
@pytest.mark.parametrize("to", [F16, F32], ids=lambda dtype: dtype.value)
def test_scales_of_rows_and_columns(dtypes: tuple[DType, DType], to: DType, device: CudaDevice) -> None:
    matmul = Matmul((40,), 256, 320, dtypes, to, ("bias", "relu"), by_row=True, by_column=True, tf32=True)
    assert not wrong(matmul, device)
    assert not wrong(replace(matmul, is_turned=True, by_row=False), device)


@pytest.mark.parametrize("dtype", [I8, DType.U8], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("leading", [(), (3,)], ids=str)
def test_matmuls_of_integers_are_exact(dtype: DType, leading: tuple[int, ...], device: CudaDevice) -> None:
    random = np.random.default_rng(3)
    arrays = {"a": random.integers(0, 255, (*leading, 40, 256)).astype(np.uint8).view(dtype.numpy)}
    if dtype is DType.U8:
        arrays["z"] = np.array(113, np.uint8)
    graph = Graph()
    values = {name: graph.add_input(name, TensorType(dtype, x.shape)) for name, x in arrays.items()}
    weight = constant(graph, random.integers(-128, 128, (256, 320)).astype(np.int8))
    graph.set_outputs([graph.append(native("matmul_integer"), [values["a"], weight, values.get("z"), None]).output])
    setting_ = setting(graph, arrays, chip=device.driver.chip)
    on_device = OnDevice(setting_, device)
    names: set[str] = set()
    for candidate in lower_matmul_integer(setting_.task):
        for name, results in on_device.results(candidate):
            assert (results[0] == setting_.expected[0]).all(), name
            names.add(candidate.name)
    assert names == {"cublaslt" if dtype is I8 else "cublaslt-signed", "strided"}


# ---- the library does it, and not only what is left when it refuses


def is_done_by(name: str, matmul: Matmul, device: CudaDevice) -> bool:
    """Whether the library takes the first candidate of that name."""
    setting = replace(matmul, chip=device.driver.chip).setting()
    candidate = next(each for each in lower_matmul(setting.task) if each.name.startswith(name))
    return len(list(OnDevice(setting, device).results(candidate))) > 0


@pytest.mark.parametrize("epilogue", EPILOGUES, ids="-".join)
def test_the_library_has_fp8_with_what_follows(epilogue: tuple[str, ...], device: CudaDevice) -> None:
    if device.driver.chip.arch < FIRST_FP8_ARCH:
        pytest.skip("fp8 takes compute capability 8.9")
    for to in (F16, BF16):
        assert is_done_by("fp8", Matmul((128,), 256, 512, to=to, epilogue=epilogue), device)


def test_the_library_has_bytes(device: CudaDevice) -> None:
    assert is_done_by("bytes", Matmul((128,), 256, 512, (I8, I8)), device)


# ---- programs


@pytest.mark.parametrize("mode", ["full", "piecewise", "none"])
def test_layers_are_replayed_with_the_scales_of_each_call(mode: str) -> None:
    graph = layers()
    random = np.random.default_rng(5)
    with capgraph.optimize(graph, executor="graph", device="cuda", mode=mode, tune=False) as program:
        for call in range(5):
            inputs = {
                "x": random.standard_normal((4, 32)).astype(np.float16),
                "s": np.array(0.02 * (call + 1), np.float32),
                "b": random.standard_normal(64).astype(np.float16),
            }
            (expected,) = evaluate_graph(graph, [inputs[value.name] for value in graph.inputs])
            (given,) = program.run(inputs).values()
            wide = np.asarray(expected).astype(np.float64)
            # A hidden number that lies between two of fp8 may become the other one: 1/8 of one of 64 addends.
            assert np.abs(given.astype(np.float64) - wide).max() <= 0.05 * np.abs(wide).max(), program.explain()
        remarks = "\n".join(program.remarks)
        assert "runs on the host" not in remarks
        assert "fell back" not in remarks
        if open_device(0, tunes=False).driver.chip.arch >= FIRST_FP8_ARCH:
            assert "dequantized before a matmul" not in remarks


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("scales", ["one", "rows-columns"])
def test_pytorchs_scaled_matmul(scales: str, has_bias: bool) -> None:
    torch = pytest.importorskip("torch", reason="the module is PyTorch's")
    from tests.frontends.torch.test_low_precision import SCALES, Scaled, numbers

    module = Scaled(torch.bfloat16, has_bias)
    inputs = (numbers(16, 32), numbers(48, 32), *SCALES[scales])
    # Not what PyTorch gives on the host: 2.11 has no scales of rows and columns there.
    a, b, a_scale, b_scale = (each.float() for each in inputs)
    expected = (a * a_scale) @ (b.t() * b_scale)
    expected = (expected if module.bias is None else expected + module.bias.float()).relu()
    with capgraph.optimize(module, args=inputs, executor="graph", device="cuda") as program:
        for _ in range(3):
            error = (program(*inputs).float().cpu() - expected).abs().max()
            assert error <= 1e-2 * expected.abs().max(), program.explain()
        assert "fell back" not in "\n".join(program.remarks)
