"""Arithmetic beside onnx's reference evaluator and NumPy in f64, and on dims."""

import math

import numpy as np
import pytest
from capgraph.ir.dims import evaluate, symbol
from capgraph.ir.errors import ShapeError, TypeRuleError
from capgraph.ir.op import FLOATS, NUMBERS, SIGNED
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.drawn_arrays import arrays, assert_same, broadcastable, shapes
from tests.ir.ops.onnx_oracle import reference, run

UNARY = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round": np.rint,
    "reciprocal": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "log": np.log,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
}
BINARY = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "mod": "Mod",
    "fmod": "Mod",
    "min": "Min",
    "max": "Max",
}
UNIT = {DType.F16: 2**-10, DType.BF16: 2**-7, DType.F32: 2**-23, DType.F64: 2**-52}

B, T = symbol("B"), symbol("T")


def drawn(dtypes):
    return st.sampled_from(sorted(dtypes, key=str))


@pytest.mark.parametrize("name", UNARY)
@given(data=st.data(), dtype=drawn(FLOATS))
def test_a_function_is_that_of_f64_but_for_rounding(name, data, dtype):
    x = data.draw(arrays(dtype, shapes()))
    (result,) = run(name, x)
    with np.errstate(all="ignore"):
        exact = UNARY[name](x.astype(np.float64))
        rounded = exact.astype(dtype.numpy)
        error = np.abs(result.astype(np.float64) - exact) / np.maximum(np.abs(exact), np.finfo(np.float32).tiny)
    same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
    units = 0.51 if dtype.bits < 32 else 4
    assert np.all(same | (error <= units * UNIT[dtype]) | (dtype is DType.F16) & (np.abs(exact) < 2**-14))


@pytest.mark.parametrize("name", ["neg", "abs", "sign"])
@given(data=st.data())
def test_integer_functions(name, data):
    dtype = data.draw(drawn(SIGNED if name == "neg" else NUMBERS - FLOATS))
    x = data.draw(arrays(dtype, shapes()))
    (result,) = run(name, x)
    exact = {"neg": lambda v: -v, "abs": abs, "sign": lambda v: (v > 0) - (v < 0)}[name]
    expected = [exact(value) % 2**dtype.bits for value in x.reshape(-1).tolist()]
    assert [value % 2**dtype.bits for value in result.reshape(-1).tolist()] == expected


@pytest.mark.parametrize("name", BINARY)
@given(data=st.data(), dtype=drawn(NUMBERS), sides=broadcastable(2))
def test_a_binary_op_is_the_onnx_operator(name, data, dtype, sides):
    a, b = (data.draw(arrays(dtype, side)) for side in sides)
    if dtype.is_integer and name in ("div", "mod", "fmod"):
        b = np.where(b == 0, b.dtype.type(3), b)
    (result,) = run(name, a, b)
    attrs = {"fmod": int(name == "fmod")} if name.endswith("mod") else {}
    wide = [array.astype(np.float32) if dtype.is_small_float else array for array in (a, b)]
    (expected,) = reference(BINARY[name], *wide, opset=14, **attrs)
    with np.errstate(all="ignore"):
        assert_same(result, expected.astype(dtype.numpy))


def test_integer_division_rounds_toward_zero_and_gives_0_for_0():
    a = np.array([7, -7, 7, -7, 5, -(2**31)], np.int32)
    b = np.array([2, 2, -2, -2, 0, -1], np.int32)
    assert run("div", a, b)[0].tolist() == [3, -3, -3, 3, 0, -(2**31)]
    large = np.array([2**63 - 1], np.int64)
    assert run("div", large, np.array([3], np.int64))[0].tolist() == [(2**63 - 1) // 3]


def test_remainders_take_the_sign_of_divisor_or_dividend():
    a, b = np.array([-4, 7, 5, 4, -7, 8]), np.array([2, -3, 8, -2, 3, 5])
    assert run("mod", a, b)[0].tolist() == [0, -2, 5, 0, 2, 3]
    assert run("fmod", a, b)[0].tolist() == [0, 1, 5, 0, -1, 3]
    x, y = np.array([-4.3, 7.2, np.inf, 1.0]), np.array([2.1, -3.4, 1.0, -np.inf])
    np.testing.assert_allclose(run("mod", x, y)[0], [2.0, -3.0, np.nan, -np.inf], rtol=1e-9)
    np.testing.assert_allclose(run("fmod", x, y)[0], [-0.1, 0.4, np.nan, 1.0], rtol=1e-9)
    zeros = run("mod", np.array([-0.0, 0.0, -4.0, 4.0]), np.array([2.0, -2.0, 2.0, -2.0]))[0]
    assert np.signbit(zeros).tolist() == [True, False, True, False]


@given(data=st.data(), sides=broadcastable(2), exponent=drawn(NUMBERS))
def test_integer_powers_wrap_around(data, sides, exponent):
    base = data.draw(drawn({DType.I32, DType.I64}))
    x, e = data.draw(arrays(base, sides[0])), data.draw(arrays(exponent, sides[1]))
    if exponent.is_float:
        wide = e.astype(np.float64)  # some small floats warn when NaN is compared
        x, e = np.clip(x, 0, 20), np.where((wide >= 0) & (wide < 6), e, 2)
        e = e.astype(exponent.numpy)
    (result,) = run("pow", x, e)
    left, right = np.broadcast_arrays(x, e)
    if exponent.is_float:
        expected = [int(int(p) ** float(q)) for p, q in zip(left.flat, right.flat, strict=True)]
        assert result.reshape(-1).tolist() == expected
        return
    for p, q, found in zip(left.flat, right.flat, result.flat, strict=True):
        exact = pow(int(p), int(q), 2**base.bits) if q >= 0 else {1: 1, -1: 1 - 2 * (int(q) % 2)}.get(int(p), 0)
        assert (int(found) - exact) % 2**base.bits == 0


def test_a_float_power_keeps_the_dtype_of_the_base():
    x = np.array([2, 3, 0.5], np.float32)
    np.testing.assert_allclose(run("pow", x, np.array([3, -1, 2], np.int64))[0], [8, 1 / 3, 0.25], rtol=1e-7)
    np.testing.assert_allclose(run("pow", x.astype(np.float16), np.array(2.0, np.float64))[0], [4, 9, 0.25], rtol=1e-3)


@given(data=st.data(), dtype=drawn(NUMBERS), shape=shapes(), bounds=st.tuples(st.booleans(), st.booleans()))
def test_clip_is_min_of_max(data, dtype, shape, bounds):
    x = data.draw(arrays(dtype, shape))
    low, high = (data.draw(arrays(dtype, ())) if wanted else None for wanted in bounds)
    (result,) = run("clip", x, low, high)
    (expected,) = (x,) if low is None else reference("Max", x, low, opset=13)
    (expected,) = (expected,) if high is None else reference("Min", expected, high, opset=13)
    assert_same(result, expected)


def test_clip_refuses_bounds_that_are_no_scalars():
    clip = native("clip")
    with pytest.raises(TypeRuleError, match="rank 0"):
        clip.result_types([TensorType(DType.F32, (3,)), TensorType(DType.F32, (3,)), None], clip.complete_attrs({}))


@given(data=st.data(), dtype=drawn(NUMBERS), sides=broadcastable(3))
def test_extrema_take_any_number_of_operands(data, dtype, sides):
    xs = [data.draw(arrays(dtype, side)) for side in sides]
    assert_same(run("max", *xs)[0], reference("Max", *xs, opset=13)[0])
    assert_same(run("min", xs[0])[0], xs[0])
    with pytest.raises(TypeRuleError, match="at least 1"):
        native("min").check_operands([])


def test_sizes_that_cannot_meet_are_refused():
    add = native("add")
    with pytest.raises(ShapeError, match="broadcast"):
        add.result_types([TensorType(DType.F32, (3,)), TensorType(DType.F32, (4,))], add.complete_attrs({}))
    with pytest.raises(TypeRuleError, match="insert a cast"):
        add.result_types([TensorType(DType.F32, (3,)), TensorType(DType.F64, (3,))], add.complete_attrs({}))


# ---- symbolic meanings

DIM = st.integers(-6, 6) | st.builds(lambda a, b: a * T + b, st.integers(-3, 3), st.integers(-6, 6))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "mod", "fmod", "min", "max", "neg", "abs", "sign"])
@given(data=st.data(), size=st.integers(0, 9))
def test_a_symbolic_meaning_agrees_with_the_meaning_at_every_size(name, data, size):
    op = native(name)
    count = 1 if name in ("neg", "abs", "sign") else 2
    dims = [data.draw(st.lists(DIM, min_size=2, max_size=2)) for _ in range(count)]
    assert op.symbolic is not None
    answer = op.symbolic([None] * count, [np.array(one, object) for one in dims], op.complete_attrs({}))
    if answer is None:
        return
    actual = [np.array([evaluate(dim, {"T": size}) for dim in one]) for one in dims]
    if name in ("div", "mod", "fmod") and not actual[1].all():
        return
    with np.errstate(all="ignore"):
        expected = op.meaning(*actual)
    assert [evaluate(dim, {"T": size}) for dim in answer] == expected.tolist()


def test_what_cannot_be_told_is_not_guessed():
    div = native("div")
    assert div.symbolic is not None
    attrs = div.complete_attrs({})
    assert div.symbolic([None, None], [np.array([T - 3], object), np.array([2], object)], attrs) is None
    assert div.symbolic([None, None], [None, np.array([2], object)], attrs) is None
    assert div.symbolic([None, None], [np.array([4], object), np.array([0], object)], attrs) is None
    found = div.symbolic([None, None], [np.array(4 * T, object), np.array(2, object)], attrs)
    assert found.shape == ()
    assert found.item() == 2 * T


@pytest.mark.parametrize("name", ["div", "mod", "fmod"])
def test_no_dim_divides_by_a_size_that_may_be_zero(name):
    """As an element the quotient is 0 then; as a dim it would be an error."""
    op = native(name)
    assert op.symbolic is not None
    attrs = op.complete_attrs({})
    for a, b in ((1, T - 1), (B, T), (B * T + 1, T)):
        assert op.symbolic([None, None], [np.array(a, object), np.array(b, object)], attrs) is None
    whole = op.symbolic([None, None], [np.array(B * T, object), np.array(T, object)], attrs).item()
    assert whole == (B if name == "div" else 0)
    assert op.symbolic([None, None], [np.array(B, object), np.array(T + 1, object)], attrs) is not None


def test_a_symbolic_result_that_would_wrap_around_is_not_told():
    add = native("add")
    assert add.symbolic is not None
    bytes_ = [TensorType(DType.U8, (1,))] * 2
    big, small = np.array([200], object), np.array([55], object)
    assert add.symbolic(bytes_, [big, small], add.complete_attrs({})).tolist() == [255]
    assert add.symbolic(bytes_, [big, big], add.complete_attrs({})) is None
    least = np.array([-128], object)
    assert native("neg").symbolic([TensorType(DType.I8, (1,))], [least], native("neg").complete_attrs({})) is None


def test_symbolic_clip_tells_absent_bounds_from_unknown_ones():
    clip = native("clip")
    assert clip.symbolic is not None
    scalar = TensorType(DType.I64, ())
    x, one = np.array([T, 0], object), np.array(1, object)
    found = clip.symbolic([scalar, scalar, None], [x, one, None], clip.complete_attrs({}))
    assert [evaluate(dim, {"T": 0}) for dim in found] == [1, 1]
    assert clip.symbolic([scalar, scalar, scalar], [x, one, None], clip.complete_attrs({})) is None
    assert clip.symbolic([scalar, None, scalar], [x, None, one], clip.complete_attrs({}))[1] == 0


def test_cost_counts_operations():
    types = [TensorType(DType.F32, (T, 4))] * 3
    most = native("max")
    assert most.flops(types, types[:1], most.complete_attrs({})) == 8 * T
    add = native("add")
    assert add.flops(types[:2], types[:1], add.complete_attrs({})) == 4 * T
