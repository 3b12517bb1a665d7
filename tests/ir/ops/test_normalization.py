"""Normalizations beside ONNX Runtime and onnx's reference evaluator."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir.dims import symbol
from capgraph.ir.errors import CapgraphError
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import assert_close, random, reference, run, runtime

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4)
SMALL_FLOATS = [np.float16, ml_dtypes.bfloat16]


@given(SHAPES, st.data(), st.sampled_from(["softmax", "log_softmax", "hardmax"]), st.sampled_from([1.0, 50.0]))
def test_one_axis_norms(shape, data, name, spread):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = random(len(shape), *shape) * np.float32(spread)
    operator = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "hardmax": "Hardmax"}[name]
    (expected,) = runtime(operator, x, axis=axis)
    assert_close(run(name, x, axis=axis)[0], expected)


def test_softmax_survives_large_values_and_minus_infinity():
    x = np.array([[1e4, -1e4, 1e4], [-np.inf, 0, -np.inf]], np.float32)
    assert_close(run("softmax", x)[0], np.array([[0.5, 0, 0.5], [0, 1, 0]], np.float32))
    assert_close(run("log_softmax", x)[0][:, 0], np.array([-np.log(2), -np.inf], np.float32))
    assert np.isnan(run("softmax", np.full((1, 2), -np.inf, np.float32))[0]).all()


def test_hardmax_marks_the_first_of_equal_maxima():
    assert run("hardmax", np.array([1, 3, 3], np.float32))[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", SMALL_FLOATS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm", "lp_norm"])
def test_smaller_floats_are_computed_in_f32_and_rounded_once(name, dtype):
    x = random(3, 5, 300).astype(dtype)
    rest = [None] * (len(native(name).operands) - 1)
    (exact,) = run(name, x.astype(np.float32), *rest)
    assert run(name, x, *rest)[0].tobytes() == exact.astype(dtype).tobytes()


@pytest.mark.parametrize(("name", "rest"), [("softmax", 0), ("log_softmax", 0), ("hardmax", 0), ("layer_norm", 2)])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
def test_empty_operands_give_empty_results(name, rest, shape):
    assert run(name, np.zeros(shape, np.float32), *[None] * rest)[0].shape == shape


@given(SHAPES, st.data(), st.sampled_from([1, 2]))
def test_lp_norm(shape, data, p):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = random(len(shape), *shape)
    (expected,) = runtime("LpNormalization", x, axis=axis, p=p)
    assert_close(run("lp_norm", x, axis=axis, p=p)[0], expected)


def test_lp_norm_of_zeros_is_zero():
    x = np.array([[0, 0], [3, -4]], np.float32)
    assert_close(run("lp_norm", x)[0], np.array([[0, 0], [0.6, -0.8]], np.float32))


@pytest.mark.parametrize(("element", "p"), [(-0.0, 1), (-0.0, 2), (-1e-30, 2)])  # the square of the last is 0 in f32
def test_lp_norm_of_what_has_norm_zero_is_a_positive_zero(element, p):
    x = np.full((1, 2), element, np.float32)
    for found in (run("lp_norm", x, axis=1, p=p)[0], runtime("LpNormalization", x, axis=1, p=p)[0]):
        assert not found.any()
        assert not np.signbit(found).any()


@given(SHAPES, st.data(), st.booleans(), st.booleans())
def test_layer_norm(shape, data, has_bias, is_whole):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x, trailing = random(1, *shape), shape[axis % len(shape) :]
    scale = random(2, *(trailing if is_whole else trailing[-1:]))
    bias = random(3, *trailing) if has_bias else None
    (expected,) = reference("LayerNormalization", x, scale, bias, axis=axis, epsilon=1e-3)
    assert_close(run("layer_norm", x, scale, bias, axis=axis, epsilon=1e-3)[0], expected)


def test_layer_norm_of_values_far_from_zero_keeps_its_precision():
    x = random(5, 4, 512) + np.float32(1000)
    wide = x.astype(np.float64)
    exact = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    assert_close(run("layer_norm", x, None, None)[0], exact.astype(np.float32), rtol=1e-3, atol=1e-3)


@given(SHAPES, st.data(), st.booleans())
def test_rms_norm(shape, data, has_scale):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x, trailing = random(1, *shape), shape[axis % len(shape) :]
    scale = random(2, *trailing)
    (expected,) = reference("RMSNormalization", x, scale, opset=23, axis=axis, epsilon=1e-3)
    if has_scale:
        assert_close(run("rms_norm", x, scale, axis=axis, epsilon=1e-3)[0], expected)
    else:
        assert_close(run("rms_norm", x, None, axis=axis, epsilon=1e-3)[0] * scale, expected)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.integers(0, 9))
def test_batch_norm(shape, seed):
    x = random(seed, *shape)
    scale, bias, mean = (random(seed + index, shape[1]) for index in (1, 2, 3))
    var = np.abs(random(seed + 4, shape[1]))
    (expected,) = runtime("BatchNormalization", x, scale, bias, mean, var, epsilon=1e-2)
    assert_close(run("batch_norm", x, scale, bias, mean, var, epsilon=1e-2)[0], expected)


def test_batch_norm_admits_rank_one_and_parameters_of_other_floats():
    one = np.array([2], np.float32)
    x = np.array([1, 2, 3], np.float16)
    (found,) = run("batch_norm", x, one, one, one.astype(np.float64), one.astype(np.float64), epsilon=2.0)
    assert_close(found, np.array([1, 2, 3], np.float16))


@given(st.integers(0, 2), st.integers(1, 4), st.lists(st.integers(1, 4), min_size=1, max_size=2), st.integers(0, 9))
def test_instance_norm(batch, channels, spatial, seed):
    x = random(seed, batch, channels, *spatial)
    scale, bias = random(seed + 1, channels), random(seed + 2, channels)
    (expected,) = reference("InstanceNormalization", x, scale, bias, epsilon=1e-2)
    assert_close(run("instance_norm", x, scale, bias, epsilon=1e-2)[0], expected)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.lists(st.integers(1, 3), max_size=2))
def test_group_norm(batch, groups, width, spatial):
    channels = groups * width
    x, scale, bias = random(1, batch, channels, *spatial), random(2, channels), random(3, channels)
    (found,) = run("group_norm", x, scale, bias, groups=groups, epsilon=1e-2)
    (rows,) = run("layer_norm", x.reshape(batch, groups, -1), None, None, epsilon=1e-2)
    column = (-1, *(1,) * len(spatial))
    assert_close(found, rows.reshape(x.shape) * scale.reshape(column) + bias.reshape(column))


def test_group_norm_is_the_function_of_onnx():
    x, scale, bias = random(1, 2, 6, 4), random(2, 6), random(3, 6)
    (expected,) = reference("GroupNormalization", x, scale, bias, opset=21, num_groups=3, epsilon=1e-2)
    assert_close(run("group_norm", x, scale, bias, groups=3, epsilon=1e-2)[0], expected)


@given(st.integers(1, 7), st.integers(1, 6), st.floats(0.5, 2), st.integers(0, 9))
def test_lrn(channels, size, beta, seed):
    x = random(seed, 2, channels, 2, 3)
    attrs: dict[str, Any] = {"size": size, "alpha": 0.2, "beta": beta, "bias": 1.5}
    if size % 2:
        (expected,) = runtime("LRN", x, **attrs)
    else:  # ONNX Runtime has odd windows only
        before, after = (size - 1) // 2, size // 2
        padded = np.pad(np.square(x), ((0, 0), (before, after), (0, 0), (0, 0)))
        total = sum(padded[:, shift : shift + channels] for shift in range(size))
        expected = (x / (1.5 + 0.2 / size * total) ** beta).astype(np.float32)
    assert_close(run("lrn", x, **attrs)[0], expected)


N = symbol("N")


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "message"),
    [
        ("softmax", [(2, 3)], {"axis": 2}, "axis 2 is out of range"),
        ("softmax", [()], {}, "out of range"),
        ("layer_norm", [(2, 3), (2,), None], {}, "scale must broadcast"),
        ("layer_norm", [(2, 3), (1, 2, 3), None], {}, "scale has rank 3"),
        ("rms_norm", [(2, 3), (2, 1, 3)], {}, "scale has rank 3"),
        ("lp_norm", [(2, 3)], {"p": 3}, "p = 3"),
        ("batch_norm", [(2, 3), (2,), (2,), (2,), (2,)], {}, "one value for each channel"),
        ("instance_norm", [(3,), (3,), (3,)], {}, "batch and channels are missing"),
        ("group_norm", [(2, 6, N), (6,), (6,)], {"groups": 4}, "6 channels cannot be split into 4 groups"),
        ("group_norm", [(2, 6, N), (6,), (6,)], {"groups": 0}, "cannot be split into 0 groups"),
        ("lrn", [(2, 6)], {"size": 0}, "size 0"),
    ],
)
def test_rules_refuse_what_cannot_be(name, shapes, attrs, message):
    op = native(name)
    types = [None if shape is None else TensorType(DType.F32, shape) for shape in shapes]
    with pytest.raises(CapgraphError, match=message):
        op.result_types(types, op.complete_attrs(attrs))
