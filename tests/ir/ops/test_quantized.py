"""Quantized matmuls: exact integers, and requantizing as onnx's reference evaluator and ONNX Runtime do."""

from typing import Any

import numpy as np
import pytest
from capgraph.ir.errors import TypeRuleError
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import assert_close, random, reference, run, runtime

BYTES = [np.int8, np.uint8]
PLAIN = {"strides": [1, 1], "pads": [1, 0, 0, 1], "dilations": [1, 1]}


@given(
    st.sampled_from(BYTES), st.sampled_from(BYTES), st.integers(0, 300), st.sampled_from(["none", "scalar", "vector"])
)
def test_matmul_integer_is_exact(left: Any, right: Any, inner: int, zeros: str) -> None:
    a, b = random(1, 2, 3, inner, dtype=left), random(2, inner, 4, dtype=right)
    a_zero = {"none": None, "scalar": random(3, dtype=left), "vector": random(3, 3, dtype=left)}[zeros]
    b_zero = {"none": None, "scalar": random(4, 1, dtype=right), "vector": random(4, 4, dtype=right)}[zeros]
    a_shift = 0 if a_zero is None else a_zero.astype(np.int64).reshape(-1, 1)
    expected = (a.astype(np.int64) - a_shift) @ (
        b.astype(np.int64) - (0 if b_zero is None else b_zero.astype(np.int64))
    )
    np.testing.assert_array_equal(run("matmul_integer", a, b, a_zero, b_zero)[0], expected.astype(np.int32))


def test_sums_wrap_to_32_bits() -> None:
    a = np.full((1, 40000), 255, np.uint8)
    exact = 255 * 255 * 40000
    assert run("matmul_integer", a, a.T, None, None)[0].item() == exact - (1 << 32)


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("y_type", BYTES)
@pytest.mark.parametrize("per_row", [False, True])
def test_qlinear_matmul_agrees_with_exact_arithmetic(a_type: Any, y_type: Any, per_row: bool) -> None:
    a, b = random(1, 5, 20, dtype=a_type), random(2, 20, 6, dtype=a_type)
    rows, columns = ((5,), (6,)) if per_row else ((), ())
    a_scale, b_scale = np.abs(random(3, *rows)) + np.float32(0.1), np.abs(random(4, *columns)) + np.float32(0.1)
    a_zero, b_zero, y_zero = random(5, *rows, dtype=a_type), random(6, *columns, dtype=a_type), random(7, dtype=y_type)
    y_scale = np.float32(40.0).reshape(())
    (found,) = run(
        "qlinear_matmul", a, np.asarray(a_scale), a_zero, b, np.asarray(b_scale), b_zero, np.asarray(y_scale), y_zero
    )
    row = (lambda v: v.reshape(-1, 1)) if per_row else (lambda v: v)
    exact = (a.astype(float) - row(a_zero.astype(float))) @ (b.astype(float) - b_zero)
    wanted = np.rint(exact * (row(np.asarray(a_scale, float)) * b_scale / y_scale)) + y_zero
    limits = np.iinfo(y_type)
    difference = np.clip(wanted, limits.min, limits.max) - found
    assert found.dtype == y_type
    assert np.abs(difference).max() <= 1  # a tie may fall on either side in f32
    assert np.mean(difference != 0) < 0.05


@pytest.mark.parametrize("dtype", [DType.F8E4M3FN, DType.F8E5M2])
def test_qlinear_matmul_of_float8_saturates(dtype: DType) -> None:
    a = np.full((1, 8), 100, np.float32).astype(dtype.numpy)
    scale, zero = np.float32(1).reshape(()), np.zeros((), dtype.numpy)
    args = [a, np.asarray(scale), zero, a.T.copy(), np.asarray(scale), zero, np.asarray(scale), zero]
    (found,) = run("qlinear_matmul", *args)
    greatest = {DType.F8E4M3FN: 448.0, DType.F8E5M2: 57344.0}[dtype]
    assert float(found.item()) == greatest


@given(
    x_type=st.sampled_from(BYTES),
    w_type=st.sampled_from(BYTES),
    groups=st.integers(1, 2),
    zeros=st.sampled_from(["none", "scalar", "vector"]),
)
def test_conv_integer_is_exact(x_type: Any, w_type: Any, groups: int, zeros: str) -> None:
    x, weight = random(1, 2, 2 * groups, 5, 4, dtype=x_type), random(2, 2 * groups, 2, 3, 2, dtype=w_type)
    x_zero = None if zeros == "none" else random(3, dtype=x_type)
    w_zero = {"none": None, "scalar": random(4, dtype=w_type), "vector": random(4, 2 * groups, dtype=w_type)}[zeros]
    (found,) = run("conv_integer", x, weight, x_zero, w_zero, groups=groups, **PLAIN)
    wide_x = x.astype(np.float64) - (0 if x_zero is None else x_zero.astype(np.float64))
    shift = 0 if w_zero is None else w_zero.astype(np.float64).reshape(-1, 1, 1, 1)
    (exact,) = run("conv", wide_x, weight.astype(np.float64) - shift, None, groups=groups, **PLAIN)
    np.testing.assert_array_equal(found, exact.astype(np.int32))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_qlinear_conv_agrees_with_onnx_runtime(per_channel: bool, has_bias: bool) -> None:
    """With weights of 7 bits: its kernel adds two products in 16 where the processor has no VNNI."""
    x, weight = random(1, 2, 4, 6, 5, dtype=np.uint8), random(2, 6, 2, 3, 2, dtype=np.int8) // 2
    channels = (6,) if per_channel else ()
    w_scale = np.asarray(np.abs(random(3, *channels)) + np.float32(0.01))
    operands = [
        x, np.array(0.02, np.float32), np.array(120, np.uint8),
        weight, w_scale, np.zeros(channels, np.int8),
        np.array(1.5, np.float32), np.array(100, np.uint8),
        np.arange(-300, 300, 100, dtype=np.int32) if has_bias else None,
    ]  # fmt: skip
    (found,) = run("qlinear_conv", *operands, groups=2, **PLAIN)
    expected = runtime("QLinearConv", *operands, group=2, **PLAIN)[0]
    assert found.dtype == expected.dtype
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert np.mean(found != expected) < 0.02


def test_qlinear_conv_agrees_with_the_reference_in_one_dimension() -> None:
    x, weight = random(1, 1, 2, 6, dtype=np.uint8), random(2, 3, 2, 3, dtype=np.uint8)
    scale, zero = np.array(0.01, np.float32), np.array(128, np.uint8)
    attrs = {"strides": [2], "pads": [1, 1], "dilations": [1]}
    (found,) = run("qlinear_conv", x, scale, zero, weight, scale, zero, scale, zero, None, **attrs)
    expected = reference("QLinearConv", x, scale, zero, weight, scale, zero, scale, zero, opset=10, **attrs)[0]
    assert_close(found, expected, atol=1)


def test_a_zero_point_for_each_channel_must_fit() -> None:
    op = native("conv_integer")
    types = [TensorType(DType.U8, shape) for shape in ((1, 2, 5, 5), (3, 2, 3, 3), (), (1, 3))]
    with pytest.raises(TypeRuleError, match="per channel"):
        op.result_types(types, op.complete_attrs(PLAIN))
