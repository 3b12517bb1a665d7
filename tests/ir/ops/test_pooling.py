"""Pools against ONNX Runtime and plain loops over windows, for drawn kernels, strides, pads and dilations."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from capgraph.ir.dims import symbol
from capgraph.ir.errors import ShapeError, TypeRuleError
from capgraph.ir.ops import native
from capgraph.ir.ops.nn import pooling
from capgraph.ir.types import DType, TensorType, bind_type
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import Array, assert_close, random, reference, run, runtime


@st.composite
def pools(draw: st.DrawFn, max_dilation: int = 2) -> dict[str, Any]:
    rank = draw(st.integers(1, 3))
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    dilations = draw(st.lists(st.integers(1, max_dilation), min_size=rank, max_size=rank))
    # Wider pads would make windows of nothing but padding, which no two implementations agree on.
    begins, ends = ([draw(st.integers(0, width - 1)) for width in kernel] for _ in range(2))
    extents = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    sizes = [draw(st.integers(extent, 7)) for extent in extents]
    return {
        "sizes": sizes,
        "attrs": {
            "kernel": kernel,
            "strides": draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank)),
            "pads": [*begins, *ends],
            "dilations": dilations,
            "ceil_mode": draw(st.booleans()),
        },
        "batch": draw(st.integers(0, 2)),
    }


def onnx_attrs(case: dict[str, Any]) -> dict[str, Any]:
    attrs = dict(case["attrs"])
    return {"kernel_shape": attrs.pop("kernel"), **attrs, "ceil_mode": int(attrs["ceil_mode"])}


def loop(x: Array, attrs: dict[str, Any], counts: tuple[int, ...], fold: Any) -> Array:
    """Folds every window in plain Python: `fold` gets its elements and how many positions lie in the padded tensor."""
    rank = len(counts)
    result = np.zeros((*x.shape[:2], *counts))
    for n, c, *at in product(*map(range, result.shape)):
        inside, within_pads = [], 0
        for position in product(*map(range, attrs["kernel"])):
            where = [
                a * s - p + k * d
                for a, s, p, k, d in zip(
                    at, attrs["strides"], attrs["pads"][:rank], position, attrs["dilations"], strict=True
                )
            ]
            ends = attrs["pads"][rank:]
            within_pads += all(i < n_ + e for i, n_, e in zip(where, x.shape[2:], ends, strict=True))
            if all(0 <= i < n_ for i, n_ in zip(where, x.shape[2:], strict=True)):
                inside.append(float(x[(n, c, *where)]))
        result[(n, c, *at)] = fold(np.array(inside), within_pads)
    return result.astype(x.dtype)


@given(pools())
def test_max_pool_agrees_with_onnx_runtime(case: dict[str, Any]) -> None:
    x = random(1, case["batch"], 2, *case["sizes"])
    (found,) = run("max_pool", x, **case["attrs"])
    if case["batch"]:
        assert_close(found, runtime("MaxPool", x, **onnx_attrs(case))[0])


@given(pools(), st.booleans())
def test_max_pool_finds_the_first_of_equal_elements(case: dict[str, Any], column_major: bool) -> None:
    x = np.random.default_rng(1).integers(0, 2, (case["batch"], 2, *case["sizes"])).astype(np.float32)
    values, indices = run("max_pool_with_indices", x, column_major=column_major, **case["attrs"])
    np.testing.assert_array_equal(values, run("max_pool", x, **case["attrs"])[0])
    if case["batch"]:
        attrs = onnx_attrs(case) | {"storage_order": int(column_major)}
        np.testing.assert_array_equal(indices, runtime("MaxPool", x, outputs=2, **attrs)[1])


@given(pools(), st.booleans())
def test_average_pool_is_the_mean_of_each_window(case: dict[str, Any], count_include_pad: bool) -> None:
    x = random(1, case["batch"], 2, *case["sizes"])
    (found,) = run("average_pool", x, count_include_pad=count_include_pad, **case["attrs"])
    expected = loop(
        x,
        case["attrs"],
        found.shape[2:],
        lambda inside, padded: inside.sum() / (padded if count_include_pad else inside.size),
    )
    assert_close(found, expected)


@pytest.mark.parametrize("count_include_pad", [0, 1])
@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("size", [5, 6, 7, 8])
def test_average_pool_agrees_with_onnx_runtime(count_include_pad: int, ceil_mode: int, size: int) -> None:
    x = random(1, 1, 2, size, size)
    attrs: dict[str, Any] = {"strides": [2, 3], "pads": [1, 0, 0, 1], "dilations": [1, 1]}
    (found,) = run(
        "average_pool", x, kernel=[3, 2], ceil_mode=bool(ceil_mode), count_include_pad=bool(count_include_pad), **attrs
    )
    expected = runtime(
        "AveragePool", x, kernel_shape=[3, 2], ceil_mode=ceil_mode, count_include_pad=count_include_pad, **attrs
    )[0]
    assert_close(found, expected)


@given(pools(), st.integers(1, 3))
def test_lp_pool_is_the_norm_of_each_window(case: dict[str, Any], p: int) -> None:
    x = random(1, case["batch"], 2, *case["sizes"])
    (found,) = run("lp_pool", x, p=p, **case["attrs"])
    norm = lambda inside, _padded: (np.abs(inside) ** p).sum() ** (1 / p)  # noqa: E731
    assert_close(found, loop(x, case["attrs"], found.shape[2:], norm))


FLAT: dict[str, Any] = {"kernel": [2], "strides": [1], "pads": [1, 0], "dilations": [1]}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float16, DType.BF16.numpy, np.float64])
def test_padding_never_wins_a_maximum(dtype: Any) -> None:
    lowest = 0 if dtype is np.uint8 else -100
    x = np.full((1, 1, 3), lowest).astype(dtype)
    values, indices = run("max_pool_with_indices", x, **FLAT)
    np.testing.assert_array_equal(values, x)
    np.testing.assert_array_equal(indices, [[[0, 0, 1]]])
    np.testing.assert_array_equal(run("max_pool", x, **FLAT)[0], x)


def test_the_index_of_the_least_value_is_not_the_padding() -> None:
    x = np.array([[[-np.inf, -np.inf]]], np.float32)
    values, indices = run("max_pool_with_indices", x, **FLAT)
    assert np.isneginf(values).all()
    np.testing.assert_array_equal(indices, [[[0, 0]]])


def test_nan_wins_a_maximum() -> None:
    x = np.array([[[1, np.nan, 5, 2, 2]]], np.float32)
    values, indices = run("max_pool_with_indices", x, **{**FLAT, "pads": [0, 0]})
    np.testing.assert_array_equal(values, [[[np.nan, np.nan, 5, 2]]])
    np.testing.assert_array_equal(indices, [[[1, 1, 2, 3]]])
    np.testing.assert_array_equal(run("max_pool", x, **{**FLAT, "pads": [0, 0]})[0], values)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_small_floats_are_summed_in_f32(dtype: DType) -> None:
    x = random(1, 2, 3, 40).astype(dtype.numpy)
    attrs: dict[str, Any] = {"kernel": [30], "strides": [1], "pads": [0, 0], "dilations": [1]}
    (found,) = run("average_pool", x, **attrs)
    (exact,) = run("average_pool", x.astype(np.float32), **attrs)
    np.testing.assert_array_equal(found, exact.astype(dtype.numpy))


@pytest.mark.parametrize("sizes", [None, [5, 6]])
def test_max_unpool_agrees_with_the_reference(sizes: list[int] | None) -> None:
    x = random(1, 2, 3, 4, 6)
    pool: dict[str, Any] = {"kernel": [2, 2], "strides": [2, 2], "pads": [0, 0, 0, 0]}
    values, indices = run("max_pool_with_indices", x, dilations=[1, 1], **pool)
    (found,) = run("max_unpool", values, indices, sizes=sizes, **pool)
    shape = None if sizes is None else np.array([2, 3, *sizes])
    inputs = [values, indices] if shape is None else [values, indices, shape]
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 0, 0]}
    assert_close(found, reference("MaxUnpool", *inputs, **attrs)[0])


def test_unpooling_refuses_an_index_outside() -> None:
    op = native("max_unpool")
    attrs = op.complete_attrs({"kernel": [2], "strides": [2], "pads": [0, 0]})
    with pytest.raises(ShapeError, match="outside"):
        op.meaning(np.ones((1, 1, 2), np.float32), np.array([[[0, 4]]]), **attrs)
    with pytest.raises(TypeRuleError):
        op.result_types([TensorType(DType.F32, (1, 1, 2)), TensorType(DType.I64, (2,))], attrs)


def test_sizes_stay_exact_for_symbols() -> None:
    height = symbol("H")
    attrs = {"kernel": [3], "strides": [2], "pads": [1, 1], "dilations": [1]}
    op = native("max_pool")
    (floor,) = op.result_types([TensorType(DType.F32, (1, 8, height))], op.complete_attrs(attrs))
    assert floor == TensorType(DType.F32, (1, 8, (height - 1) // 2 + 1))
    (ceil,) = op.result_types([TensorType(DType.F32, (1, 8, height))], op.complete_attrs(attrs | {"ceil_mode": True}))
    assert ceil == TensorType(DType.F32, (1, 8, height // 2 + 1))


def test_every_op_of_the_family_is_tested_here() -> None:
    names = {op.name for op in pooling.OPS}
    assert names == {"max_pool", "max_pool_with_indices", "average_pool", "lp_pool", "max_unpool"}


@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_a_window_larger_than_the_tensor_sticks_out_when_sizes_round_up(count_include_pad: int) -> None:
    x = random(3, 2, 3, 7, 5)
    attrs = {"kernel": [16, 9], "strides": [16, 9], "pads": [0] * 4, "dilations": [1, 1], "ceil_mode": True}
    (result,) = run("average_pool", x, count_include_pad=bool(count_include_pad), **attrs)
    assert result.shape == (2, 3, 1, 1)
    (expected,) = runtime(
        "AveragePool", x, kernel_shape=[16, 9], strides=[16, 9], ceil_mode=1, count_include_pad=count_include_pad
    )
    assert_close(result, expected)


def test_no_window_is_left_when_a_whole_stride_is_missing() -> None:
    attrs = {"kernel": [9], "strides": [2], "pads": [0, 0], "dilations": [1], "count_include_pad": False}
    op = native("average_pool")
    for size, ceil_mode in ((5, True), (7, True), (8, False), (4, False)):
        completed = op.complete_attrs(attrs | {"ceil_mode": ceil_mode})
        assert op.result_types([TensorType(DType.F32, (1, 1, size))], completed)[0].shape == (1, 1, 0)
        (symbolic,) = op.result_types([TensorType(DType.F32, (1, 1, symbol("T")))], completed)
        assert bind_type(symbolic, {"T": size}).shape == (1, 1, 0)


@pytest.mark.parametrize("column_major", [False, True])
def test_windows_of_nothing_but_padding_have_index_0(column_major: bool) -> None:
    attrs = {"kernel": (2,), "strides": (1,), "pads": (1, 1), "dilations": (1,), "column_major": column_major}
    values, indices = run("max_pool_with_indices", np.zeros((2, 1, 0), np.float32), **attrs)
    assert values.shape == (2, 1, 1)
    assert indices.tolist() == [[[0]], [[0]]]
