"""Comparisons, bits and selection beside onnx's reference evaluator, and on dims."""

import operator

import numpy as np
import pytest
from capgraph.ir.dims import evaluate, symbol
from capgraph.ir.errors import TypeRuleError
from capgraph.ir.op import BOOLS, FLOAT8, FLOATS, INTEGERS, NUMBERS
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.drawn_arrays import arrays, assert_same, broadcastable, shapes
from tests.ir.ops.onnx_oracle import reference, run

T = symbol("T")
COMPARISONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
ONNX = {
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
}


def drawn(dtypes):
    return st.sampled_from(sorted(dtypes, key=str))


@pytest.mark.parametrize("name", ONNX)
@given(data=st.data(), sides=broadcastable(2))
def test_a_binary_op_is_the_onnx_operator(name, data, sides):
    dtypes = BOOLS if name.startswith("logical") else INTEGERS if name.startswith("bitwise") else NUMBERS
    dtype = data.draw(drawn(dtypes))
    a, b = (data.draw(arrays(dtype, side)) for side in sides)
    assert_same(run(name, a, b)[0], reference(ONNX[name], a, b, opset=18)[0])


@pytest.mark.parametrize("name", COMPARISONS)
@given(data=st.data(), dtype=drawn(NUMBERS), sides=broadcastable(2))
def test_a_comparison_is_pythons(name, data, dtype, sides):
    a, b = (data.draw(arrays(dtype, side)) for side in sides)
    (result,) = run(name, a, b)
    left, right = (side.reshape(-1).tolist() for side in np.broadcast_arrays(a, b))
    assert result.reshape(-1).tolist() == [COMPARISONS[name](p, q) for p, q in zip(left, right, strict=True)]


def test_strings_are_equal_by_content():
    a, b = np.array(["a", "b", ""], object), np.array(["a", "c", ""], object)
    assert run("equal", a, b)[0].tolist() == [True, False, True]
    assert run("not_equal", a, b)[0].tolist() == [False, True, False]
    with pytest.raises(TypeRuleError, match="cannot be string"):
        native("less").check_operands([TensorType(DType.STRING, (3,))] * 2)


@given(data=st.data(), shape=shapes())
def test_not(data, shape):
    truths = data.draw(arrays(DType.BOOL, shape))
    assert_same(run("logical_not", truths)[0], ~truths)
    bits = data.draw(arrays(data.draw(drawn(INTEGERS)), shape))
    assert_same(run("bitwise_not", bits)[0], reference("BitwiseNot", bits, opset=18)[0])


@given(
    data=st.data(), dtype=drawn(FLOATS | FLOAT8 - {DType.F8E8M0}), shape=shapes(), signs=st.tuples(*[st.booleans()] * 2)
)
def test_tests_of_floats(data, dtype, shape, signs):
    x = data.draw(arrays(dtype, shape))
    exact = x.astype(np.float64)
    negative, positive = signs
    assert_same(run("is_nan", x)[0], np.asarray(np.isnan(exact)))
    expected = (exact == -np.inf) & negative | (exact == np.inf) & positive
    assert_same(run("is_inf", x, detect_negative=negative, detect_positive=positive)[0], np.asarray(expected))


@pytest.mark.parametrize("name", ["shift_left", "shift_right"])
@given(data=st.data(), dtype=drawn(INTEGERS), sides=broadcastable(2))
def test_shifts_are_exact_ones_cut_to_the_width(name, data, dtype, sides):
    a, b = (data.draw(arrays(dtype, side)) for side in sides)
    (result,) = run(name, a, b)
    for value, places, found in zip(*(side.flat for side in np.broadcast_arrays(a, b)), result.flat, strict=True):
        within = 0 <= places < dtype.bits
        if name == "shift_left":
            exact = int(value) << int(places) if within else 0
        else:
            exact = int(value) >> (int(places) if within else dtype.bits)
        assert (int(found) - exact) % 2**dtype.bits == 0


@given(data=st.data(), sides=broadcastable(3))
def test_where(data, sides):
    dtype = data.draw(drawn(NUMBERS | BOOLS | {DType.C64}))
    condition = data.draw(arrays(DType.BOOL, sides[0]))
    x, y = (
        data.draw(arrays(dtype, side)) if dtype is not DType.C64 else np.full(side, 1j, np.complex64)
        for side in sides[1:]
    )
    assert_same(run("where", condition, x, y)[0], reference("Where", condition, x, y, opset=16)[0])


def test_where_selects_strings():
    x, y = np.array(["a", "b"], object), np.array(["c"], object)
    assert run("where", np.array([True, False]), x, y)[0].tolist() == ["a", "c"]


# ---- symbolic meanings

DIM = st.integers(-4, 4) | st.builds(lambda a, b: a * T + b, st.integers(-2, 2), st.integers(-4, 4))


@pytest.mark.parametrize("name", COMPARISONS)
@given(a=DIM, b=DIM, size=st.integers(0, 9))
def test_a_symbolic_comparison_holds_at_every_size(name, a, b, size):
    op = native(name)
    assert op.symbolic is not None
    found = op.symbolic([None, None], [np.array([a], object), np.array([b], object)], op.complete_attrs({}))
    if found is not None:
        left, right = evaluate(a, {"T": size}), evaluate(b, {"T": size})
        assert found.tolist() == [COMPARISONS[name](left, right)]


def _where(condition, x, y):
    where = native("where")
    assert where.symbolic is not None
    types = [TensorType(DType.BOOL, (2,)), *[TensorType(DType.I64, (2,))] * 2]
    return where.symbolic(types, [condition, x, y], where.complete_attrs({}))


def test_symbolic_selection_of_a_known_or_a_needless_condition():
    equal = native("equal")
    assert equal.symbolic is not None
    shape, unset = np.array([T, -1], object), np.array([-1, -1], object)
    condition = equal.symbolic([None, None], [shape, unset], equal.complete_attrs({}))
    assert condition.tolist() == [False, True]
    assert _where(condition, np.array([1, 1], object), shape).tolist() == [T, 1]
    assert _where(None, shape, shape).tolist() == [T, -1]
    assert _where(None, shape, unset) is None
    assert equal.symbolic([None, None], [shape, np.array([3, 3], object)], equal.complete_attrs({})) is None


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_symbolic_connectives(name):
    op = native(name)
    assert op.symbolic is not None
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    found = op.symbolic([None, None], [a.astype(object), b.astype(object)], op.complete_attrs({}))
    assert found.tolist() == op.meaning(a, b).tolist()
