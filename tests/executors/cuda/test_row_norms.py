"""Rows that a matmul norms itself by `layer_norm`, against f64 and against the kernel that norms them alone."""

from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Candidate, Chip
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.executors.cuda.kernels.rows import lower_reductions
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.ops.nn.activation import gelu
from capgraph.ir.types import DType, TensorType
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse
from hypothesis import given
from hypothesis import strategies as st

from tests.executors.cuda.emulator import HAS_COMPILER, kernels_of
from tests.executors.cuda.matmul_cases import drawn
from tests.executors.cuda.solving import Setting, constant, setting
from tests.executors.cuda.test_gemv import emulated
from tests.executors.cuda.test_machine_code import problems

needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="g++ runs the kernel")

COLUMNS, EPSILON = 13, 1e-5
AFFINE = {"none": (), "gain": ("gain",), "both": ("gain", "bias"), "bias": ("bias",)}
TOLERANCES = {DType.F32: 1e-6, DType.F16: 1e-3, DType.BF16: 8e-3}


def parameter(name: str, *shape: int, dtype: DType) -> Array:
    return drawn(shape, dtype, sum(name.encode()))


def layer_normed(
    x: Array, affine: str = "both", *, is_block: bool = False, columns: int = COLUMNS, chip: Chip | None = None
) -> Setting:
    """layer_norm(x) @ W; with `is_block` x + gelu(layer_norm(x) @ W + c), where W is turned."""
    graph, inner, dtype = Graph(), x.shape[-1], DType.of(x.dtype)
    rows = graph.add_input("x", TensorType(dtype, x.shape))
    gain, bias = (
        constant(graph, parameter(name, inner, dtype=dtype)) if name in AFFINE[affine] else None
        for name in ("gain", "bias")
    )
    y = graph.append(native("layer_norm"), [rows, gain, bias], {"axis": -1, "epsilon": EPSILON}).output
    weight = parameter("weight", inner, columns, dtype=dtype)
    if is_block:
        operands = [y, constant(graph, weight.T.copy()), constant(graph, parameter("c", columns, dtype=dtype))]
        value = graph.append(native("gelu"), [graph.append(native("gemm"), operands, {"trans_b": True}).output]).output
        value = graph.append(native("add"), [rows, value]).output
    else:
        value = graph.append(native("matmul"), [y, constant(graph, weight)]).output
    graph.set_outputs([value])
    Pipeline(((Fuse(normed_rows=8),),)).run(graph, check="none")
    return setting(graph, {"x": x}, chip=chip or Chip(multiprocessors=1))


def candidates(made: Setting) -> list[Candidate]:
    found = list(lower_matmul(made.task))
    assert found
    assert all(each.name.startswith("normed-columns") for each in found)
    return found


def normed(x: Array, affine: str) -> Array:
    """The rows in f64."""
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = wide - wide.mean(-1, keepdims=True)
        y = apart / np.sqrt(np.square(apart).mean(-1, keepdims=True) + EPSILON)
    for name in AFFINE[affine]:
        other = parameter(name, x.shape[-1], dtype=DType.of(x.dtype)).astype(np.float64)
        y = y * other if name == "gain" else y + other
    return y


def exact(x: Array, affine: str = "both", *, columns: int = COLUMNS) -> Array:
    """Their matmuls in f64."""
    weight = parameter("weight", x.shape[-1], columns, dtype=DType.of(x.dtype)).astype(np.float64)
    with np.errstate(all="ignore"):
        return normed(x, affine) @ weight


def normed_alone(x: Array, folder: Path) -> Array:
    """What the kernel of the norm by itself makes of rows in f32, times the weight in f64."""
    graph, dtype = Graph(), DType.of(x.dtype)
    parameters = [constant(graph, parameter(name, x.shape[-1], dtype=dtype)) for name in AFFINE["both"]]
    operands = [graph.add_input("x", TensorType(dtype, x.shape)), *parameters]
    graph.set_outputs([graph.append(native("layer_norm"), operands, {"axis": -1, "epsilon": EPSILON}).output])
    made = setting(graph, {"x": x})
    candidate = next(lower_reductions(made.task))
    with np.errstate(all="ignore"):
        y = made.found(candidate, folder)[0].astype(np.float64)
        return y @ parameter("weight", x.shape[-1], COLUMNS, dtype=dtype).astype(np.float64)


def distance(found: Array, expected: Array) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected))


@needs_compiler
@pytest.mark.parametrize("affine", AFFINE)
@pytest.mark.parametrize(("rows", "inner"), [(1, 256), (2, 768), (1, 520), (4, 2056), (1, 14336)])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_rows_are_normed_as_in_f64(dtype: DType, rows: int, inner: int, affine: str, tmp_path: Path) -> None:
    x = (3 * drawn((rows, inner)) + 2).astype(dtype.numpy)
    for candidate in candidates(made := layer_normed(x, affine)):
        (found,) = made.found(emulated(candidate), tmp_path)
        assert distance(found, exact(x, affine)) <= TOLERANCES[dtype], candidate.name


@needs_compiler
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_a_residual_block_is_one_launch(dtype: DType, tmp_path: Path) -> None:
    x = (drawn((2, 264)) - 1).astype(dtype.numpy)
    matmul = exact(x, columns=264) + parameter("c", 264, dtype=dtype).astype(np.float64)
    expected = x.astype(np.float64) + gelu(matmul, approximate="none")
    for candidate in candidates(made := layer_normed(x, is_block=True, columns=264)):
        (found,) = made.found(emulated(candidate), tmp_path)
        assert distance(found, expected) <= TOLERANCES[dtype], candidate.name


@needs_compiler
@pytest.mark.parametrize("inner", [512, 520, 2056])
def test_large_means_cancel_no_more_than_in_the_kernel_of_the_norm(inner: int, tmp_path: Path) -> None:
    x = drawn((4, inner))
    x[1] += 1e4
    x[2] = 1e-3 * x[2] - 300
    x[3, 5] = 1e6
    allowed, expected = normed_alone(x, tmp_path), exact(x)
    for candidate in candidates(made := layer_normed(x)):
        (found,) = made.found(emulated(candidate), tmp_path)
        for row in range(4):
            limit = 1.5 * distance(allowed[row], expected[row]) + 5e-7
            assert distance(found[row], expected[row]) <= limit, (candidate.name, row)


@needs_compiler
@pytest.mark.parametrize(("dtype", "inner"), [(DType.F16, 512), (DType.F16, 520), (DType.F32, 512), (DType.BF16, 768)])
def test_rows_of_one_number_leave_the_bias(dtype: DType, inner: int, tmp_path: Path) -> None:
    x = np.stack([np.full(inner, number) for number in (0, 1 / 3, 1e4, -12345.678)]).astype(dtype.numpy)
    for candidate in candidates(made := layer_normed(x)):
        (found,) = made.found(emulated(candidate), tmp_path)
        assert distance(found, exact(x)) <= TOLERANCES[dtype], candidate.name
        assert (found == found[0]).all(), candidate.name


@needs_compiler
@pytest.mark.parametrize("inner", [256, 264, 2056])
def test_what_is_not_finite_is_so_where_the_kernel_of_the_norm_has_it(inner: int, tmp_path: Path) -> None:
    x = drawn((4, inner))
    x[0, 3] = np.inf
    x[1, inner - 1] = np.nan
    x[2, 0], x[2, inner - 2] = np.inf, -np.inf
    x[3, 0], x[3, inner - 3] = 3e38, -1e30
    alone = normed_alone(x, tmp_path)
    for candidate in candidates(made := layer_normed(x)):
        (found,) = made.found(emulated(candidate), tmp_path)
        assert np.array_equal(np.isnan(found), np.isnan(alone)), candidate.name
        np.testing.assert_allclose(found[3], alone[3], rtol=1e-4, atol=1e-4)


@needs_compiler
@given(
    st.integers(0, 1000),
    st.lists(st.tuples(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4)), min_size=2, max_size=2),
    st.sampled_from([256, 264]),
    st.sampled_from(sorted(AFFINE)),
)
def test_rows_of_any_mean_and_spread(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rows: list[tuple[float, float]], inner: int, affine: str
) -> None:
    """The error is bounded by the last place of the largest number of a row, over its spread."""
    means, spreads = (np.array(each)[:, np.newaxis] for each in zip(*rows, strict=True))
    x = (means + spreads * drawn((2, inner), seed=seed)).astype(np.float32)
    made = layer_normed(x, affine)
    (found,) = made.found(emulated(candidates(made)[0]), tmp_path_factory.getbasetemp())
    weight = np.abs(parameter("weight", inner, COLUMNS, dtype=DType.F32).astype(np.float64))
    gain = np.abs(parameter("gain", inner, dtype=DType.F32)) if "gain" in AFFINE[affine] else np.ones(inner)
    factor = 1 / np.sqrt(x.astype(np.float64).var(-1, keepdims=True) + EPSILON)
    place = 2.0**-23 * np.abs(x).max(-1, keepdims=True) * factor
    allowed = (2 * place * gain + 1e-6 * np.abs(normed(x, affine))) @ weight
    assert (np.abs(found - exact(x, affine)) <= allowed).all()


@pytest.mark.parametrize(("rows", "inner"), [(1, 256), (4, 1024), (1, 4096)])
@pytest.mark.parametrize("dtype", [DType.F16, DType.F32], ids=str)
def test_all_constants_are_asked_for_before_the_wait(dtype: DType, rows: int, inner: int) -> None:
    kernels = kernels_of(candidates(layer_normed(drawn((rows, inner), dtype), columns=96)))
    assert all(kernel.early_loads >= 4 for kernel in kernels)
    told = problems(kernels)
    assert not told, told[0]


@needs_compiler
@pytest.mark.parametrize(("rows", "inner", "dtype"), [(5, 64, DType.F16), (2, 35, DType.F16), (2, 64, DType.F64)])
def test_rows_that_the_kernel_does_not_read_are_normed_before_it(
    rows: int, inner: int, dtype: DType, tmp_path: Path
) -> None:
    x = drawn((rows, inner), dtype)
    made = layer_normed(x, is_block=True, columns=inner)
    matmul = exact(x, columns=inner) + parameter("c", inner, dtype=dtype).astype(np.float64)
    (candidate,) = (each for each in lower_matmul(made.task) if each.name.startswith("norm+strided"))
    assert len(candidate.launches) == 3
    (found,) = made.found(candidate, tmp_path)
    expected = x.astype(np.float64) + gelu(matmul, approximate="none")
    assert distance(found, expected) <= {DType.F16: 2e-3, DType.F64: 1e-12}[dtype]


@needs_compiler
def test_a_gain_of_one_number_is_not_read_as_many(tmp_path: Path) -> None:
    x = drawn((1, 512))
    graph, weight = Graph(), parameter("weight", 512, COLUMNS, dtype=DType.F32)
    rows, gain = graph.add_input("x", TensorType(DType.F32, x.shape)), constant(graph, np.float32([3]))
    y = graph.append(native("layer_norm"), [rows, gain, None], {"axis": -1, "epsilon": EPSILON}).output
    graph.set_outputs([graph.append(native("matmul"), [y, constant(graph, weight)]).output])
    Pipeline(((Fuse(normed_rows=8),),)).run(graph, check="none")
    found = list(lower_matmul((made := setting(graph, {"x": x})).task))
    assert found
    assert all(each.name.startswith("norm+") for each in found)
    (result,) = made.found(found[-1], tmp_path)
    assert distance(result, 3 * exact(x, "none")) <= 1e-6
