"""Products as problems of cuBLASLt: layouts, epilogues, batches; and own kernels that compile for every chip."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from capgraph import cuda_programs
from capgraph.executors.cuda.launch import Candidate, Chip, KernelLaunch, LibraryCall, Packed
from capgraph.executors.cuda.problems import MatmulProblem
from capgraph.executors.cuda.products import lower_product
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.solving import Layout, Setting, constant, setting


def drawn(shape: Sequence[int], dtype: DType = DType.F32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(dtype.numpy)


def swapped(array: Array) -> Array:
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def heads_inside(array: Array) -> Array:
    return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)


def rows_outside(array: Array) -> Array:
    """[B, M, K] stored as [M, B, K]."""
    return np.ascontiguousarray(array.swapaxes(0, 1)).swapaxes(0, 1)


def with_gap(array: Array) -> Array:
    """Rows that begin eight elements behind the end of the row before, the first four elements in."""
    wide = np.zeros((*array.shape[:-1], array.shape[-1] + 8), array.dtype)
    wide[..., 4 : 4 + array.shape[-1]] = array
    return wide[..., 4 : 4 + array.shape[-1]]


def every_other(array: Array) -> Array:
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def matmul(a: Array, b: Array, /, **layouts: Layout) -> Setting:
    graph = Graph()
    values = [graph.add_input(name, TensorType(DType.of(x.dtype), x.shape)) for name, x in (("a", a), ("b", b))]
    graph.set_outputs([graph.append(native("matmul"), values, names=["y"]).output])
    return setting(graph, {"a": a, "b": b}, layouts)


def linear(
    rows: int, inner: int, columns: int, *tail: str, dtype: DType = DType.F32, chip: Chip | None = None
) -> Setting:
    """A product with a constant weight, and what follows it."""
    graph, inputs = Graph(), {"x": drawn((1, rows, inner), dtype)}
    x = graph.add_input("x", TensorType(dtype, (1, rows, inner)))
    value = graph.append(native("matmul"), [x, constant(graph, drawn((inner, columns), dtype, 1))]).output
    for index, name in enumerate(tail):
        value = _followed(graph, value, name, index, inputs)
    graph.set_outputs([value])
    return setting(graph, inputs, chip=chip)


def _followed(graph: Graph, value: Value, name: str, index: int, inputs: dict[str, Array]) -> Value:
    shape, dtype = tuple(int(dim) for dim in value.shape), value.tensor.dtype
    if name == "bias":
        return graph.append(native("add"), [value, constant(graph, drawn(shape[-1:], dtype, 2))]).output
    if name in ("residual", "gate"):
        inputs[f"r{index}"] = drawn(shape, dtype, 3)
        other = graph.add_input(f"r{index}", value.type)
        return graph.append(native("add" if name == "residual" else "mul"), [other, value]).output
    attrs: dict[str, Any] = {"approximate": "tanh"} if name == "gelu-tanh" else {}
    return graph.append(native(name.split("-", maxsplit=1)[0]), [value], attrs).output


def by_cublaslt(made: Setting) -> Candidate:
    found = [each for each in lower_product(made.task) if each.name.startswith("cublaslt")]
    assert len(found) >= 1
    return found[0]


def is_right(made: Setting, candidate: Candidate, tolerance: float = 1e-5) -> bool:
    found = made.found(candidate)
    scale = max((float(np.abs(x.astype(np.float64)).max(initial=1)) for x in made.expected), default=1)
    return all(
        np.allclose(x.astype(np.float64), y.astype(np.float64), rtol=0, atol=tolerance * scale)
        for x, y in zip(found, made.expected, strict=True)
    )


# ---- layouts


@pytest.mark.parametrize(
    ("a", "b", "layouts", "calls"),
    [
        ((3, 4), (4, 5), {}, 1),
        ((3, 4), (4, 5), {"a": swapped, "b": swapped}, 1),
        ((3, 4), (4, 5), {"a": with_gap, "b": with_gap, "y": with_gap}, 1),
        ((4,), (4, 5), {}, 1),
        ((3, 4), (4,), {}, 1),
        ((4,), (4,), {}, 1),
        ((2, 3, 4), (4, 5), {}, 1),
        ((2, 3, 4), (4, 5), {"a": rows_outside}, 1),
        ((2, 3, 4), (4, 5), {"a": rows_outside, "y": rows_outside}, 1),
        ((2, 3, 4), (2, 4, 5), {"b": swapped}, 1),
        ((2, 6, 3, 4), (2, 6, 4, 5), {}, 1),
        ((2, 6, 3, 4), (2, 6, 4, 5), {"a": heads_inside, "y": heads_inside}, 2),
        ((2, 1, 3, 4), (6, 4, 5), {}, 2),
        ((1, 3, 4), (6, 4, 5), {}, 1),
        ((5, 1, 4), (4, 5), {"a": with_gap}, 1),
        ((5, 1, 1), (1, 1), {}, 1),
    ],
)
def test_products_of_any_layout_with_neighbours_side_by_side(
    a: tuple[int, ...], b: tuple[int, ...], layouts: dict[str, Layout], calls: int
) -> None:
    made = matmul(drawn(a), drawn(b, seed=1), **layouts)
    candidate = by_cublaslt(made)
    assert len(candidate.launches) == calls
    assert is_right(made, candidate)


def test_a_matrix_without_neighbours_is_left_to_the_kernel_by_strides() -> None:
    made = matmul(drawn((3, 4)), drawn((4, 5)), a=every_other)
    assert [each.name for each in lower_product(made.task)] == ["strided"]


def test_rows_that_are_one_and_the_same_are_left_to_the_kernel_by_strides() -> None:
    made = matmul(drawn((1, 4)).repeat(3, 0), drawn((4, 5)), a=lambda x: np.broadcast_to(x[:1].copy(), x.shape))
    assert [each.name for each in lower_product(made.task)] == ["strided"]


def test_integers_wrap_and_so_go_by_strides() -> None:
    made = matmul(np.arange(12).reshape(3, 4), np.arange(20).reshape(4, 5))
    assert [each.name for each in lower_product(made.task)] == ["strided"]


_AXES = st.integers(1, 3)


@given(st.data())
def test_any_batch_with_broadcasting_and_exchanged_axes(data: st.DataObject) -> None:
    leading = data.draw(st.lists(_AXES, max_size=3))
    rows, inner, columns = (data.draw(_AXES) for _ in range(3))
    a_leading = [data.draw(st.sampled_from([1, size])) for size in leading]
    b_leading = [data.draw(st.sampled_from([1, size])) for size in leading][data.draw(st.integers(0, len(leading))) :]
    a, b = drawn((*a_leading, rows, inner)), drawn((*b_leading, inner, columns), seed=1)
    choices: list[Layout] = [lambda x: x, swapped, with_gap]
    layouts = {name: data.draw(st.sampled_from(choices)) for name in ("a", "b")}
    made = matmul(a, b, **layouts)
    for candidate in lower_product(made.task):
        if candidate.name == "cublaslt":
            assert is_right(made, candidate)


# ---- weights and what follows


def _problem(candidate: Candidate) -> MatmulProblem:
    (call,) = candidate.launches
    assert isinstance(call, LibraryCall)
    assert isinstance(call.problem, MatmulProblem)
    return call.problem


def test_a_constant_weight_is_packed_with_its_rows_as_rows_of_the_transpose() -> None:
    candidate = by_cublaslt(linear(5, 8, 16))
    (call,) = candidate.launches
    assert isinstance(call, LibraryCall)
    weight = call.arguments["b"]
    assert isinstance(weight, Packed)
    assert (weight.packing, weight.options) == ("transposed", (1, 0))
    assert (call.problem.b.row_stride, call.problem.b.column_stride) == (1, 8)


@pytest.mark.parametrize(
    "tail",
    [
        ("bias",),
        ("residual",),
        ("bias", "residual"),
        ("residual", "bias"),
        ("bias", "relu"),
        ("bias", "residual", "relu"),
        ("gelu-tanh",),
        ("bias", "gelu-tanh"),
    ],
)
@pytest.mark.parametrize("rows", [1, 5])
def test_what_the_library_takes_along_is_one_call(tail: tuple[str, ...], rows: int) -> None:
    made = linear(rows, 8, 16, *tail)
    candidate = by_cublaslt(made)
    assert len(candidate.launches) == 1
    assert is_right(made, candidate)


@pytest.mark.parametrize("tail", [("gelu",), ("relu", "bias"), ("bias", "silu", "gate"), ("bias", "bias")])
def test_the_rest_is_a_kernel_behind_the_call(tail: tuple[str, ...]) -> None:
    candidate = by_cublaslt(linear(5, 8, 16, *tail))
    kinds = [type(launch) for launch in candidate.launches]
    assert kinds == [LibraryCall, KernelLaunch] or (tail == ("bias", "bias") and kinds == [LibraryCall])


def test_an_exact_gelu_is_never_the_librarys() -> None:
    candidate = by_cublaslt(linear(5, 8, 16, "bias", "gelu"))
    call = candidate.launches[0]
    assert isinstance(call, LibraryCall)
    assert call.problem.activation == ""
    assert candidate.scratch_bytes >= 5 * 16 * 4


def test_two_results_of_a_region_are_both_written() -> None:
    graph = Graph()
    x, w = drawn((6, 8)), drawn((8, 16), seed=1)
    product = graph.append(native("matmul"), [graph.add_input("x", TensorType(DType.F32, x.shape)), constant(graph, w)])
    positive = graph.append(native("relu"), [product.output])
    graph.set_outputs([product.output, positive.output])
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
    assert [each.name for each in lower_product(setting(graph, arrays).task)] == ["strided"]


def test_tf32_is_used_only_where_the_task_says_so() -> None:
    made = linear(20, 8, 16)
    assert not _problem(by_cublaslt(made)).tf32
    made.task = replace(made.task, tf32=True)
    assert _problem(by_cublaslt(made)).tf32
    halves = linear(20, 8, 16, dtype=DType.F16)
    halves.task = replace(halves.task, tf32=True)
    assert not _problem(by_cublaslt(halves)).tf32


def test_programs_allow_tf32_from_the_level_on_that_rounds() -> None:
    with patch.object(cuda_programs, "open_device") as opened, patch.object(cuda_programs, "checked_index"):
        for level in range(4):
            cuda_programs._opened("cuda", level, None)
    assert [call.kwargs["tf32"] for call in opened.call_args_list] == [False, False, False, True]


# ---- own kernels


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
