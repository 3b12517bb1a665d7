"""Random tensors: types, seeds, and moments within six standard errors."""

import numpy as np
import pytest
from capgraph.ir.dims import symbol
from capgraph.ir.errors import ExecutionError, TypeRuleError
from capgraph.ir.op import BOOLS, FLOATS, NUMBERS, Trait
from capgraph.ir.ops import native
from capgraph.ir.ops.random import OPS
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.drawn_arrays import assert_same, shapes
from tests.ir.ops.onnx_oracle import run

DRAWS = {
    "random_normal": ((), {"shape": (50,), "dtype": DType.F32}),
    "random_uniform": ((), {"shape": (50,), "dtype": DType.F32}),
    "bernoulli": ((np.full(50, 0.5),), {"dtype": DType.I64}),
    "multinomial": ((np.zeros((2, 1000)),), {"dtype": DType.I64, "sample_size": 25}),
}


def test_all_are_impure():
    assert {op.name for op in OPS} == DRAWS.keys()
    assert all(op.has(Trait.IMPURE) and not op.is_pure for op in OPS)


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("seed", [0, 7, -1, 2**63 - 1])
def test_a_seed_fixes_the_draw_and_nothing_else_does(name, seed):
    operands, attrs = DRAWS[name]
    first, again, other, free, freer = (
        run(name, *operands, **attrs, seed=one)[0].tolist() for one in (seed, seed, seed - 1, None, None)
    )
    assert first == again
    assert first not in (other, free)
    assert free != freer


@pytest.mark.parametrize("name", ["random_normal", "random_uniform"])
@given(shape=shapes(), dtype=st.sampled_from(sorted(FLOATS, key=str)))
def test_shape_and_dtype_are_the_attributes(name, shape, dtype):
    (result,) = run(name, shape=shape, dtype=dtype, seed=1)
    assert (result.shape, result.dtype) == (shape, dtype.numpy)


def test_moments():
    count = 100_000
    normal = run("random_normal", shape=(count,), dtype=DType.F64, mean=3.0, scale=2.0, seed=1)[0]
    assert normal.mean() == pytest.approx(3, abs=12 / count**0.5)
    assert normal.std() == pytest.approx(2, abs=12 / count**0.5)
    uniform = run("random_uniform", shape=(count,), dtype=DType.F64, low=-1.0, high=3.0, seed=1)[0]
    assert uniform.mean() == pytest.approx(1, abs=8 / count**0.5)
    assert -1 <= uniform.min() < -0.99 < 2.99 < uniform.max() < 3


def test_there_must_be_a_class_to_draw():
    with pytest.raises(ExecutionError, match="no classes"):
        run("multinomial", np.zeros((2, 0)), dtype=DType.I64, seed=1)


@given(shape=shapes(), dtype=st.sampled_from(sorted(NUMBERS | BOOLS, key=str)), certain=st.booleans())
def test_bernoulli_of_certainties(shape, dtype, certain):
    x = np.full(shape, certain, np.float32)
    assert_same(run("bernoulli", x, dtype=dtype)[0], x.astype(dtype.numpy))


def test_bernoulli_draws_with_the_probability_of_each_element():
    x = np.repeat(np.array([0.1, 0.9], np.float16), 50_000).reshape(2, -1)
    rates = run("bernoulli", x, dtype=DType.F32, seed=3)[0].mean(axis=1)
    np.testing.assert_allclose(rates, [0.1, 0.9], atol=0.01)


def test_multinomial_draws_by_log_probability():
    x = np.array([[np.log(0.2), -np.inf, np.log(0.8)], [1000, 1000 + np.log(3), -1000]], np.float32)
    (result,) = run("multinomial", x, dtype=DType.I32, sample_size=20_000, seed=5)
    rates = np.stack([np.bincount(row, minlength=3) for row in result]) / 20_000
    np.testing.assert_allclose(rates, [[0.2, 0, 0.8], [0.25, 0.75, 0]], atol=0.02)
    assert rates[0, 1] == rates[1, 2] == 0
    assert run("multinomial", np.zeros((0, 3)), dtype=DType.I64, sample_size=4)[0].shape == (0, 4)


def test_symbolic_shapes_and_bad_dtypes():
    normal, multinomial = native("random_normal"), native("multinomial")
    attrs = normal.complete_attrs({"shape": (symbol("B"), 4), "dtype": DType.F16})
    assert normal.result_types([], attrs) == (TensorType(DType.F16, (symbol("B"), 4)),)
    with pytest.raises(TypeRuleError, match="i32 cannot be drawn"):
        normal.result_types([], normal.complete_attrs({"shape": (2,), "dtype": DType.I32}))
    with pytest.raises(TypeRuleError, match="rank 2"):
        multinomial.result_types([TensorType(DType.F32, (2,))], multinomial.complete_attrs({"dtype": DType.I64}))
