"""The error function against the C library's."""

import math

import numpy as np
import pytest
from capgraph.ir.ops.special import erf, erfc
from hypothesis import given
from hypothesis import strategies as st

DENSE = np.concatenate([np.linspace(-6.5, 6.5, 20_001), np.logspace(-320, 2, 2_000), np.nextafter(1.0, [0.0, 2.0])])


def _exact(function, x):
    return np.array([function(value) for value in x.astype(np.float64).tolist()])


def test_erf_is_within_two_units_in_the_last_place():
    exact = _exact(math.erf, DENSE)
    assert np.all(np.abs(erf(DENSE) - exact) <= 2 * np.spacing(np.abs(exact)))


def test_erf_of_f32_is_nearly_correctly_rounded():
    x = DENSE.astype(np.float32)
    exact = _exact(math.erf, x)
    result = erf(x)
    assert result.dtype == np.float32
    assert np.all(np.abs(result - exact) <= 0.53 * np.spacing(np.abs(exact).astype(np.float32)))


def test_erfc_keeps_its_relative_precision_far_out():
    x = np.linspace(-6, 26, 20_001)
    exact = _exact(math.erfc, x)
    assert np.all(np.abs(erfc(x) - exact) <= exact * 2.3e-16 * (8 + x * x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_limits(dtype):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max], dtype)
    np.testing.assert_array_equal(erf(x), np.array([0.0, -0.0, 1, -1, np.nan, 1], dtype))
    assert np.signbit(erf(x)[1])
    np.testing.assert_array_equal(erfc(x), np.array([1, 1, 0, 2, np.nan, 0], dtype))


@given(st.floats(allow_nan=False))
def test_erf_is_odd_and_erfc_its_complement(x):
    point = np.array(x)
    assert erf(-point) == -erf(point)
    assert erf(point) + erfc(point) == pytest.approx(1, abs=4e-16)


def test_shapes_and_strides_survive():
    x = np.arange(60, dtype=np.float64).reshape(3, 4, 5)[:, ::2].transpose(2, 0, 1) / 30
    assert np.array_equal(erf(x).reshape(-1), erf(x.reshape(-1)))
    assert erf(np.zeros((0, 3))).shape == (0, 3)
    large = np.linspace(-3, 3, 40_000)
    assert np.array_equal(erf(large)[::1000], erf(large[::1000]))
