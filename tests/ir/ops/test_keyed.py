"""Twins that draw from an operand: the numbers of the ops in `random.py`, and other ones for each stream."""

import numpy as np
import pytest
from capgraph.ir.errors import CapgraphError
from capgraph.ir.op import Trait
from capgraph.ir.ops import keyed, native, random
from capgraph.ir.philox import fresh_state
from capgraph.ir.types import DType, TensorType

from tests.ir.ops.onnx_oracle import run

DRAWS = {
    "random_normal": ((), {"shape": (50, 3), "dtype": DType.F32, "mean": 1.0, "scale": 2.0}),
    "random_uniform": ((), {"shape": (50, 3), "dtype": DType.F16, "low": -1.0, "high": 3.0}),
    "bernoulli": ((np.full((50, 3), 0.5),), {"dtype": DType.I64}),
    "multinomial": ((np.zeros((2, 1000), np.float32),), {"dtype": DType.I32, "sample_size": 25}),
}


def test_each_random_op_has_a_pure_twin() -> None:
    assert [f"{keyed.PREFIX}{op.name}" for op in random.OPS] == [op.name for op in keyed.OPS]
    assert all(op.is_pure and op.is_capturable for op in keyed.OPS)
    assert all(op.has(Trait.DRAWS) for op in keyed.OPS if op.name != "keyed_multinomial")


@pytest.mark.parametrize("name", DRAWS)
def test_twins_draw_the_same(name: str) -> None:
    operands, attrs = DRAWS[name]
    (expected,) = run(name, *operands, **attrs, seed=9)
    (found,) = run(f"keyed_{name}", *operands, fresh_state(9), **attrs)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    (advanced,) = run(f"keyed_{name}", *operands, np.array([9, 4], np.uint64), **attrs, stream=2)
    (again,) = run(f"keyed_{name}", *operands, np.array([9, 6], np.uint64), **attrs)
    np.testing.assert_array_equal(advanced, again)
    assert not np.array_equal(again, found)


@pytest.mark.parametrize("ty", [TensorType(DType.U64, (3,)), TensorType(DType.U64, ()), TensorType(DType.I64, (2,))])
def test_a_state_is_a_key_and_a_count(ty: TensorType) -> None:
    op = native("keyed_random_normal")
    with pytest.raises(CapgraphError, match=r"state|cannot be i64"):
        op.result_types([ty], op.complete_attrs({"shape": (2,), "dtype": DType.F32}))


def test_numbers_of_small_types_stay_below_1() -> None:
    for dtype in (DType.F16, DType.BF16):
        (drawn,) = run("keyed_random_uniform", fresh_state(1), shape=(100_000,), dtype=dtype)
        assert float(drawn.max()) < 1
        assert abs(float(drawn.astype(np.float64).mean()) - 0.5) < 0.01
