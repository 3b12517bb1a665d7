"""Matmuls of any layout: rows, one batch or several calls, and what no call takes."""

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import LibraryCall, Packed
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from hypothesis import given
from hypothesis import strategies as st

from tests.executors.cuda.matmul_cases import (
    by_cublaslt,
    drawn,
    every_other,
    heads_inside,
    is_right,
    linear,
    matmul,
    rows_outside,
    swapped,
    with_gap,
)
from tests.executors.cuda.solving import Layout


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
def test_matmuls_of_any_layout_with_neighbors_side_by_side(
    a: tuple[int, ...], b: tuple[int, ...], layouts: dict[str, Layout], calls: int
) -> None:
    made = matmul(drawn(a), drawn(b, seed=1), **layouts)
    candidate = by_cublaslt(made)
    assert len(candidate.launches) == calls
    assert is_right(made, candidate)


def test_a_matrix_without_neighbors_is_left_to_the_kernel_by_strides() -> None:
    made = matmul(drawn((3, 4)), drawn((4, 5)), a=every_other)
    assert [each.name for each in lower_matmul(made.task)] == ["strided"]


def test_rows_that_are_one_and_the_same_are_left_to_the_kernel_by_strides() -> None:
    made = matmul(drawn((1, 4)).repeat(3, 0), drawn((4, 5)), a=lambda x: np.broadcast_to(x[:1].copy(), x.shape))
    assert [each.name for each in lower_matmul(made.task)] == ["strided"]


def test_integers_wrap_and_so_go_by_strides() -> None:
    made = matmul(np.arange(12).reshape(3, 4), np.arange(20).reshape(4, 5))
    assert [each.name for each in lower_matmul(made.task)] == ["strided"]


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
    for candidate in lower_matmul(made.task):
        if candidate.name == "cublaslt":
            assert is_right(made, candidate)


def test_a_constant_weight_is_packed_with_its_rows_as_rows_of_the_transpose() -> None:
    candidate = by_cublaslt(linear(5, 8, 16))
    (call,) = candidate.launches
    assert isinstance(call, LibraryCall)
    weight = call.arguments["b"]
    assert isinstance(weight, Packed)
    assert (weight.packing, weight.options) == ("transposed", (1, 0))
    assert (call.problem.b.row_stride, call.problem.b.column_stride) == (1, 8)
