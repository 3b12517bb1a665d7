"""Reductions beside NumPy in f64, exact integers, and onnx's reference evaluator; also over nothing, and on dims."""

import math

import numpy as np
import pytest
from capgraph.ir.dims import evaluate, symbol
from capgraph.ir.errors import ShapeError, TypeRuleError
from capgraph.ir.op import FLOATS, FRESH, NUMBERS
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.drawn_arrays import arrays, assert_same, shapes
from tests.ir.ops.onnx_oracle import reference, run

B, T = symbol("B"), symbol("T")
EXACT = {
    "sum": np.sum,
    "mean": np.mean,
    "max": lambda x, **over: np.max(x, initial=-np.inf, **over),
    "min": lambda x, **over: np.min(x, initial=np.inf, **over),
    "prod": np.prod,
    "l1": lambda x, **over: np.sum(np.abs(x), **over),
    "l2": lambda x, **over: np.sqrt(np.sum(x * x, **over)),
    "log_sum": lambda x, **over: np.log(np.sum(x, **over)),
    "log_sum_exp": lambda x, **over: np.log(np.sum(np.exp(x), **over)),
    "sum_square": lambda x, **over: np.sum(x * x, **over),
}
ONNX = {kind: "Reduce" + "".join(part.title() for part in kind.split("_")) for kind in EXACT}
SUMMABLE = [DType.U32, DType.U64, DType.I32, DType.I64]
UNIT = {DType.F16: 2**-10, DType.BF16: 2**-7, DType.F32: 2**-18, DType.F64: 2**-45}


def over(data, shape):
    return tuple(data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))) if shape else ()


@pytest.mark.parametrize("kind", EXACT)
@given(data=st.data(), dtype=st.sampled_from(sorted(FLOATS, key=str)), shape=shapes(), keep=st.booleans())
def test_a_reduction_of_floats(kind, data, dtype, shape, keep):
    x = data.draw(arrays(dtype, shape, finite=True))
    x = np.abs(x) if kind == "log_sum" else x
    axes = over(data, shape)
    signed = tuple(axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes)
    (result,) = run(f"reduce_{kind}", x, axes=signed, keep_dims=keep)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = np.asarray(
            EXACT[kind](wide, axis=axes, keepdims=keep) if x.size or kind != "mean" else np.full(result.shape, np.nan)
        )
        rounded = exact.astype(dtype.numpy).astype(np.float64)
        scale = np.maximum(np.sum(np.abs(wide), axis=axes, keepdims=keep), np.abs(exact))
        close = np.abs(result.astype(np.float64) - exact) <= UNIT[dtype] * np.maximum(scale, 1)
        if kind == "prod":  # what overflows on the way is infinite or, by a later zero, no number
            largest = np.prod(np.maximum(np.abs(wide), 1), axis=axes, keepdims=keep)
            close |= ~np.isfinite(result) & (largest > np.finfo(np.float64 if dtype is DType.F64 else np.float32).max)
    same = (result.astype(np.float64) == rounded) | np.isnan(exact) & np.isnan(result)
    assert result.shape == exact.shape
    assert np.all(np.where(np.isfinite(rounded), close, same))


@pytest.mark.parametrize("kind", sorted(EXACT.keys() - {"log_sum_exp", "log_sum", "l2"}))
@given(data=st.data(), dtype=st.sampled_from(SUMMABLE), shape=shapes(), keep=st.booleans())
def test_a_reduction_of_integers_is_exact_or_wraps(kind, data, dtype, shape, keep):
    x = data.draw(arrays(dtype, shape))
    axes = over(data, shape)
    (result,) = run(f"reduce_{kind}", x, axes=axes, keep_dims=keep)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    groups = x.transpose(*kept, *axes).reshape(math.prod(shape[axis] for axis in kept), -1) if x.size else []
    for group, found in zip(groups, result.reshape(-1), strict=False):
        values = [int(value) for value in group]
        wrapped = sum(values) % 2**dtype.bits
        signed = (
            wrapped - 2**dtype.bits if dtype in (DType.I32, DType.I64) and wrapped >= 2 ** (dtype.bits - 1) else wrapped
        )
        exact = {
            "sum": sum(values),
            "mean": abs(signed) // len(values) * (1 if signed >= 0 else -1),
            "max": max(values),
            "min": min(values),
            "prod": math.prod(values),
            "l1": sum(map(abs, values)),
            "sum_square": sum(value * value for value in values),
        }[kind]
        assert (int(found) - exact) % 2**dtype.bits == 0


@pytest.mark.parametrize(
    ("kind", "dtype", "identity"),
    [
        ("sum", DType.F16, 0),
        ("prod", DType.I32, 1),
        ("max", DType.F32, -np.inf),
        ("min", DType.BF16, np.inf),
        ("max", DType.I8, -128),
        ("max", DType.U8, 0),
        ("min", DType.I64, 2**63 - 1),
        ("max", DType.BOOL, False),
        ("min", DType.BOOL, True),
        ("l1", DType.F32, 0),
        ("l2", DType.F32, 0),
        ("log_sum", DType.F32, -np.inf),
        ("log_sum_exp", DType.F32, -np.inf),
        ("sum_square", DType.F32, 0),
        ("mean", DType.I32, 0),
    ],
)
def test_over_nothing_it_is_the_identity(kind, dtype, identity):
    empty = np.zeros((2, 0, 3), dtype.numpy)
    assert np.all(run(f"reduce_{kind}", empty, axes=(1,))[0] == identity)
    assert run(f"reduce_{kind}", empty, axes=(0,), keep_dims=False)[0].shape == (0, 3)
    assert run(f"reduce_{kind}", empty, axes=(0, 1, 2), keep_dims=False)[0].shape == ()


@pytest.mark.parametrize("kind", EXACT)
def test_over_no_axis_only_the_rest_of_the_function_remains(kind):
    x = np.array([[0.5, 2.0], [3.0, 4.0]], np.float32)
    (result,) = run(f"reduce_{kind}", x, axes=())
    expected = reference(ONNX[kind], x, opset=18, noop_with_empty_axes=1)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", EXACT)
@given(data=st.data(), keep=st.booleans())
def test_it_is_the_onnx_operator(kind, data, keep):
    x = data.draw(arrays(DType.F32, (2, 3, 2), finite=True))
    x = np.clip(x, -9, 9)
    axes = over(data, x.shape) or (0, 1, 2)
    x = np.abs(x) + 1 if kind == "log_sum" else x
    expected = reference(ONNX[kind], x, np.array(axes), opset=18, keepdims=int(keep))[0]
    np.testing.assert_allclose(run(f"reduce_{kind}", x, axes=axes, keep_dims=keep)[0], expected, rtol=1e-4, atol=1e-4)


def test_extrema_of_bools_and_nan():
    x = np.array([[True, False], [True, True]])
    assert run("reduce_max", x, axes=(1,), keep_dims=False)[0].tolist() == [True, True]
    assert run("reduce_min", x, axes=(1,), keep_dims=False)[0].tolist() == [False, True]
    assert np.isnan(run("reduce_max", np.array([1.0, np.nan]), axes=(0,))[0]).all()


def test_log_sum_exp_of_infinities():
    x = np.array([[1e4, 1e4], [-np.inf, -np.inf], [np.inf, 1.0], [np.nan, 1.0], [-1e4, -1e4]])
    (result,) = run("reduce_log_sum_exp", x, axes=(1,), keep_dims=False)
    expected = [1e4 + math.log(2), -np.inf, np.inf, np.nan, -1e4 + math.log(2)]
    np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", SUMMABLE)
@pytest.mark.parametrize("kind", ["log_sum", "l2"])
def test_what_no_integer_is_has_one_result_however_many_there_are(kind, dtype):
    """NumPy converts single elements in another way than many."""
    zeros = np.zeros((64, 2), dtype.numpy)
    many = run(f"reduce_{kind}", zeros, axes=(1,), keep_dims=False)[0]
    one = run(f"reduce_{kind}", zeros[:1], axes=(1,), keep_dims=False)[0]
    assert set(many.tolist()) == set(one.tolist())


def test_small_floats_are_accumulated_in_f32():
    x = np.full(4096, 1.0009765625, np.float16)
    assert run("reduce_sum", x, axes=(0,), keep_dims=False)[0] == np.float16(4096 * 1.0009765625)
    assert run("reduce_mean", np.full(70000, 1.0, np.float16), axes=(0,))[0].tolist() == [1.0]
    assert run("cumsum", x, axis=0)[0][-1] == np.float16(4096 * 1.0009765625)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((2, 900, 3), (1,)), ((900, 5), (0,)), ((3, 300, 4, 2), (1, 2)), ((300, 300, 2), (0, 1)), ((1, 900, 0), (1,))],
)
def test_sums_of_f32_do_not_lose_digits_with_their_length(shape, axes):
    x = np.random.default_rng(0).random(shape, np.float32) + 1
    for view, over in ((x, axes), (np.asfortranarray(x), axes)):
        exact = view.astype(np.float64).sum(over)
        for name, scale in (("reduce_sum", 1), ("reduce_mean", exact.size / x.size if x.size else 1)):
            found = native(name).meaning(view, axes=over, keep_dims=False)
            assert found.shape == exact.shape
            assert np.allclose(found, exact * scale, rtol=4e-7, atol=0)


def test_bad_axes_are_refused():
    op, x = native("reduce_sum"), TensorType(DType.F32, (B, 3))
    for axes, message in [((2,), "out of range"), ((1, -1), "repeat")]:
        with pytest.raises(ShapeError, match=message):
            op.result_types([x], op.complete_attrs({"axes": axes}))


# ---- symbolic meanings


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@given(data=st.data(), size=st.integers(0, 9), keep=st.booleans())
def test_a_symbolic_reduction_agrees_at_every_size(kind, data, size, keep):
    op = native(f"reduce_{kind}")
    assert op.symbolic is not None
    dims = np.array([[T + 1, 2, B], [3, 2 * T, 1]], object)[:, : data.draw(st.integers(0, 3))]
    axes = over(data, dims.shape)
    attrs = op.complete_attrs({"axes": axes, "keep_dims": keep})
    found = op.symbolic([None], [dims], attrs)
    if found is None:
        assert dims.size == 0
        return
    env = {"T": size, "B": 4}
    actual = np.array([[evaluate(dim, env) for dim in row] for row in dims], np.int64).reshape(dims.shape)
    expected = op.meaning(actual, axes=axes, keep_dims=keep)
    assert found.shape == expected.shape
    assert [evaluate(dim, env) for dim in found.reshape(-1)] == expected.reshape(-1).tolist()


def test_a_symbolic_reduction_of_a_scalar_is_the_scalar():
    op = native("reduce_max")
    assert op.symbolic is not None
    attrs = op.complete_attrs({"axes": ()})
    assert op.symbolic([TensorType(DType.I64, ())], [np.array(T, object)], attrs).tolist() == T


def test_a_symbolic_reduction_that_would_wrap_around_is_not_told():
    op = native("reduce_prod")
    assert op.symbolic is not None
    dims, attrs = np.array([2**20, 2**11], object), op.complete_attrs({"axes": (0,)})
    assert op.symbolic([TensorType(DType.I64, (2,))], [dims], attrs).tolist() == [2**31]
    assert op.symbolic([TensorType(DType.I32, (2,))], [dims], attrs) is None


# ---- axes known only at run time


def dynamic_types(x, count, **attrs):
    op = native("dynamic_reduce")
    given_attrs = op.complete_attrs({"kind": "sum", **attrs})
    return op.result_types([TensorType(DType.F32, x), TensorType(DType.I64, (count,))], given_attrs)[0].shape


def test_dynamic_reduction():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    meaning = native("dynamic_reduce").meaning
    axes = np.array([-1])
    assert meaning(x, axes, kind="sum", keep_dims=False, noop_with_empty_axes=False).tolist() == [3, 12]
    none = np.array([], np.int64)
    assert meaning(x, none, kind="max", keep_dims=True, noop_with_empty_axes=False).tolist() == [[5]]
    assert meaning(x, none, kind="sum_square", keep_dims=True, noop_with_empty_axes=True).tolist() == (x * x).tolist()
    with pytest.raises(ShapeError, match="repeat"):
        meaning(x, np.array([1, -1]), kind="sum", keep_dims=False, noop_with_empty_axes=False)


def test_dynamic_result_types():
    assert dynamic_types((B, 3), 1) == (FRESH, FRESH)
    assert dynamic_types((B, 1), T) == (FRESH, 1)
    assert dynamic_types((B, 3), 2) == (1, 1)
    assert dynamic_types((B, 3), 1, keep_dims=False) == (FRESH,)
    assert dynamic_types((B, 3), 0, keep_dims=False) == ()
    assert dynamic_types((), T, keep_dims=False) == ()
    assert dynamic_types((B, 3), 0, noop_with_empty_axes=True) == (B, 3)
    with pytest.raises(TypeRuleError, match="rank of a reduction"):
        dynamic_types((B, 3), T, keep_dims=False)
    op = native("dynamic_reduce")
    with pytest.raises(TypeRuleError, match="log_sum_exp is not defined for i32"):
        op.result_types(
            [TensorType(DType.I32, (3,)), TensorType(DType.I64, (1,))], op.complete_attrs({"kind": "log_sum_exp"})
        )


# ---- indices of extrema


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@given(data=st.data(), dtype=st.sampled_from(sorted(NUMBERS, key=str)), keep=st.booleans(), last=st.booleans())
def test_indices_of_extrema(name, data, dtype, keep, last):
    shape = data.draw(shapes().filter(lambda found: len(found) > 0))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    if shape[axis] == 0:
        return
    x = data.draw(arrays(dtype, shape))
    (result,) = run(name, x, axis=axis, keep_dims=keep, select_last=last)
    operator = {"argmax": "ArgMax", "argmin": "ArgMin"}[name]
    known = {"axis": axis, "keepdims": int(keep), "select_last_index": int(last)}
    assert_same(result, reference(operator, x, opset=13, **known)[0])


# ---- cumulative


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@given(data=st.data(), dtype=st.sampled_from([*SUMMABLE, DType.F64]), exclusive=st.booleans(), reverse=st.booleans())
def test_cumulative_ops(name, data, dtype, exclusive, reverse):
    shape = data.draw(shapes().filter(lambda found: len(found) > 0))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = data.draw(arrays(dtype, shape, finite=True))
    (result,) = run(name, x, axis=axis, exclusive=exclusive, reverse=reverse)
    fold = np.sum if name == "cumsum" else np.prod
    line, found = np.moveaxis(x, axis, 0), np.moveaxis(result, axis, 0)
    line, found = (line[::-1], found[::-1]) if reverse else (line, found)
    for place in range(len(line)):
        expected = fold(line[: place + (not exclusive)], axis=0, dtype=x.dtype)
        np.testing.assert_allclose(found[place], expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@given(data=st.data(), dtype=st.sampled_from([DType.F16, DType.I32]), exclusive=st.booleans(), reverse=st.booleans())
def test_an_axis_known_only_at_run_time(name, data, dtype, exclusive, reverse):
    x = data.draw(arrays(dtype, (2, 3), finite=True))
    axis = np.array(data.draw(st.sampled_from([0, 1, -1, -2])), np.int32)
    attrs = {"exclusive": exclusive, "reverse": reverse}
    assert_same(run(f"dynamic_{name}", x, axis, **attrs)[0], run(name, x, axis=int(axis), **attrs)[0])
    with pytest.raises(TypeRuleError, match="one axis is needed"):
        native(f"dynamic_{name}").infer(TensorType(dtype, (2, 3)), TensorType(DType.I64, (2,)), **attrs)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_examples_of_the_onnx_operators(name):
    x = np.array([1, 2, 3], np.int32)
    operator = {"cumsum": "CumSum", "cumprod": "CumProd"}[name]
    for exclusive in (False, True):
        for reverse in (False, True):
            attrs = {"exclusive": int(exclusive), "reverse": int(reverse)}
            expected = reference(operator, x, np.array(0), opset=26, **attrs)[0]
            assert_same(run(name, x, axis=0, exclusive=exclusive, reverse=reverse)[0], expected)
