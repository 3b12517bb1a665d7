"""What one call of cuBLASLt takes along, and what is left to a kernel behind it."""

import pytest
from capgraph.executors.cuda.kernel_ir.launch import KernelLaunch, LibraryCall
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from tests.executors.cuda.matmul_cases import by_cublaslt, drawn, is_right, linear
from tests.executors.cuda.solving import constant, setting


@pytest.mark.parametrize(
    "epilogue",
    [
        ("bias",),
        ("residual",),
        ("bias", "residual"),
        ("residual", "bias"),
        ("bias", "relu"),
        ("bias", "residual", "relu"),
    ],
)
@pytest.mark.parametrize("rows", [1, 5])
def test_what_the_library_takes_along_is_one_call(epilogue: tuple[str, ...], rows: int) -> None:
    made = linear(rows, 8, 16, *epilogue)
    candidate = by_cublaslt(made)
    assert len(candidate.launches) == 1
    assert is_right(made, candidate)


@pytest.mark.parametrize("epilogue", [("gelu-tanh",), ("bias", "gelu-tanh")])
def test_gelu_by_tanh_is_the_librarys_where_its_error_does_not_count(epilogue: tuple[str, ...]) -> None:
    rounded, half = linear(5, 8, 16, *epilogue, tf32=True), linear(5, 8, 16, *epilogue, dtype=DType.F16)
    for made, tolerance in ((rounded, 1e-5), (half, 2e-3)):
        candidate = by_cublaslt(made)
        assert len(candidate.launches) == 1
        assert is_right(made, candidate, tolerance)
    assert [type(launch) for launch in by_cublaslt(linear(5, 8, 16, *epilogue)).launches] == [LibraryCall, KernelLaunch]


@pytest.mark.parametrize("epilogue", [("gelu",), ("relu", "bias"), ("bias", "silu", "gate"), ("bias", "bias")])
def test_the_rest_is_a_kernel_behind_the_call(epilogue: tuple[str, ...]) -> None:
    candidate = by_cublaslt(linear(5, 8, 16, *epilogue))
    kinds = [type(launch) for launch in candidate.launches]
    assert kinds == [LibraryCall, KernelLaunch] or (epilogue == ("bias", "bias") and kinds == [LibraryCall])


def test_an_exact_gelu_is_never_the_librarys() -> None:
    candidate = by_cublaslt(linear(5, 8, 16, "bias", "gelu"))
    call = candidate.launches[0]
    assert isinstance(call, LibraryCall)
    assert call.problem.activation == ""
    assert candidate.scratch_bytes >= 5 * 16 * 4


def test_two_results_of_a_region_are_both_written() -> None:
    graph = Graph()
    x, w = drawn((6, 8)), drawn((8, 16), seed=1)
    matmul = graph.append(native("matmul"), [graph.add_input("x", TensorType(DType.F32, x.shape)), constant(graph, w)])
    positive = graph.append(native("relu"), [matmul.output])
    graph.set_outputs([matmul.output, positive.output])
    made = setting(graph, {"x": x})
    candidate = by_cublaslt(made)
    assert [type(launch) for launch in candidate.launches] == [LibraryCall, KernelLaunch]
    assert candidate.scratch_bytes == candidate.launches[0].workspace_bytes  # type: ignore[union-attr]


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(("c", "beta"), [(None, 1.0), ((6,), 1.0), ((4, 6), 0.5), ((1, 6), 1.0)])
def test_gemm(trans_a: bool, trans_b: bool, c: tuple[int, ...] | None, beta: float) -> None:
    arrays = {"a": drawn((3, 4) if trans_a else (4, 3)), "b": drawn((6, 3) if trans_b else (3, 6), seed=1)}
    if c is not None:
        arrays["c"] = drawn(c, seed=2)
    graph = Graph()
    values = [graph.add_input(name, TensorType(DType.F32, array.shape)) for name, array in arrays.items()]
    attrs = {"alpha": 0.5, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
    graph.set_outputs([graph.append(native("gemm"), [*values, *[None] * (3 - len(values))], attrs).output])
    made = setting(graph, arrays)
    assert is_right(made, by_cublaslt(made))


def test_an_addend_that_repeats_along_rows_is_left_to_the_kernel_by_strides() -> None:
    arrays = {"a": drawn((4, 3)), "b": drawn((3, 6)), "c": drawn((4, 1))}
    graph = Graph()
    values = [graph.add_input(name, TensorType(DType.F32, array.shape)) for name, array in arrays.items()]
    graph.set_outputs([graph.append(native("gemm"), values).output])
    assert [each.name for each in lower_matmul(setting(graph, arrays).task)] == ["strided"]
