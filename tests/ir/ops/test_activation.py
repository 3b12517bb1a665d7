"""Activations beside their formulas in f64 and onnx's reference evaluator."""

import math

import numpy as np
import pytest
from capgraph.ir.dims import symbol
from capgraph.ir.errors import ShapeError, TypeRuleError
from capgraph.ir.op import FLOATS, NUMBERS
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.drawn_arrays import arrays, assert_same, shapes
from tests.ir.ops.onnx_oracle import reference, run

ERF = np.vectorize(math.erf, otypes=[np.float64])
UNIT = {DType.F16: 2**-10, DType.BF16: 2**-7, DType.F32: 2**-22, DType.F64: 2**-48}


def _softplus(x):
    return np.logaddexp(x, 0)


FORMULAS = {
    "relu": (lambda x: np.maximum(x, 0), {}),
    "leaky_relu": (lambda x, alpha: np.where(x < 0, alpha * x, x), {"alpha": 0.1}),
    "elu": (lambda x, alpha: np.where(x < 0, alpha * (np.exp(x) - 1), x), {"alpha": 2.0}),
    "selu": (
        lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.exp(x) - alpha),
        {"alpha": 2.0, "gamma": 3.0},
    ),
    "celu": (
        lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * (np.exp(x / alpha) - 1)),
        {"alpha": 2.0},
    ),
    "thresholded_relu": (lambda x, alpha: np.where(x > alpha, x, 0), {"alpha": 0.5}),
    "hard_sigmoid": (lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), {"alpha": 0.25, "beta": 0.5}),
    "hard_swish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), {}),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), {}),
    "softplus": (_softplus, {}),
    "softsign": (lambda x: x / (1 + np.abs(x)), {}),
    "mish": (lambda x: x * np.tanh(_softplus(x)), {}),
    "gelu": (lambda x: 0.5 * x * (1 + ERF(x / math.sqrt(2))), {"approximate": "none"}),
    "silu": (lambda x, alpha: x / (1 + np.exp(-alpha * x)), {"alpha": 1.5}),
}
ONNX = {
    "relu": "Relu",
    "leaky_relu": "LeakyRelu",
    "elu": "Elu",
    "selu": "Selu",
    "celu": "Celu",
    "thresholded_relu": "ThresholdedRelu",
    "hard_sigmoid": "HardSigmoid",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
}


@pytest.mark.parametrize("name", FORMULAS)
@given(data=st.data(), dtype=st.sampled_from(sorted(FLOATS, key=str)))
def test_an_activation_is_its_formula(name, data, dtype):
    formula, attrs = FORMULAS[name]
    x = data.draw(arrays(dtype, shapes(), finite=True))
    (result,) = run(name, x, **attrs)
    with np.errstate(all="ignore"):
        exact = formula(x.astype(np.float64), **({} if name == "gelu" else attrs))
    assert np.all(np.abs(result.astype(np.float64) - exact) <= UNIT[dtype] * np.maximum(np.abs(exact), 1))


@pytest.mark.parametrize("name", ONNX)
@given(data=st.data())
def test_defaults_are_those_of_onnx(name, data):
    x = data.draw(arrays(DType.F32, shapes(), finite=True))
    expected = reference(ONNX[name], x, opset=22)[0]
    np.testing.assert_allclose(run(name, x)[0], expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", FORMULAS)
def test_nan_stays_and_large_operands_do_not_overflow(name):
    attrs = FORMULAS[name][1]
    x = np.array([np.nan, 1e30, -1e30], np.float32)
    if name == "thresholded_relu":  # NaN is not above the threshold
        x[0] = 0
    (result,) = run(name, x, **attrs)
    assert np.isnan(result[0]) == np.isnan(x[0])
    assert np.all(np.isfinite(result[1:]))


def test_gelu_keeps_its_precision_far_below_zero():
    x = np.array([-3.0, -8.0, -12.0])
    exact = [0.5 * value * math.erfc(-value / math.sqrt(2)) for value in x.tolist()]
    np.testing.assert_allclose(run("gelu", x)[0], exact, rtol=1e-13)


@given(data=st.data())
def test_gelu_by_tanh_is_the_papers_approximation(data):
    x = data.draw(arrays(DType.F32, shapes(), finite=True)).astype(np.float64)
    exact = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(run("gelu", x, approximate="tanh")[0], exact, rtol=1e-12, atol=1e-300)
    with pytest.raises(TypeRuleError, match="not one of none, tanh"):
        native("gelu").complete_attrs({"approximate": "sigmoid"})


@given(data=st.data(), dtype=st.sampled_from(sorted(NUMBERS - {DType.BF16}, key=str)))
def test_shrink(data, dtype):
    x = data.draw(arrays(dtype, shapes(), finite=True))
    x = np.clip(x, -100, 100).astype(x.dtype) if dtype.kind.value != "unsigned integer" else np.minimum(x, 100)
    (result,) = run("shrink", x, lambd=1.5, bias=1.0)
    wide = x.astype(np.float64)
    expected = np.where(wide < -1.5, wide + 1, np.where(wide > 1.5, wide - 1, 0))
    assert_same(result, np.asarray(expected).astype(x.dtype))


@given(data=st.data(), dtype=st.sampled_from([DType.F32, DType.F16, DType.F64, DType.I32, DType.U64]))
def test_prelu(data, dtype):
    x = data.draw(arrays(dtype, (2, 3, 2), finite=True))
    slope = data.draw(arrays(dtype, data.draw(st.sampled_from([(), (1,), (3, 1), (2, 3, 2), (1, 1, 2)])), finite=True))
    wide = [array.astype(np.float32) if dtype.is_small_float else array for array in (x, slope)]
    (expected,) = reference("PRelu", *wide, opset=16)
    assert_same(run("prelu", x, slope)[0], expected.astype(x.dtype))


def test_a_slope_does_not_widen_the_operand():
    prelu = native("prelu")
    attrs = prelu.complete_attrs({})
    wide, narrow = TensorType(DType.F32, (2, 3)), TensorType(DType.F32, (3,))
    with pytest.raises(ShapeError, match="does not broadcast"):
        prelu.result_types([narrow, wide], attrs)
    with pytest.raises(ShapeError, match="must broadcast"):
        prelu.result_types([TensorType(DType.F32, (1, 3)), wide], attrs)
    sized = TensorType(DType.F32, (symbol("B"), 3))
    assert prelu.result_types([sized, narrow], attrs) == (sized,)
