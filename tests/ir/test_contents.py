"""The content of a constant, where there is one, and where passes may read it."""

import numpy as np
from capgraph.ir.analysis.contents import any_constant_of, constant_of
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Constant
from capgraph.ir.types import DType, TensorType


def test_only_a_constant_at_hand_is_read() -> None:
    b = Builder()
    x = b.input("x", "f32[2]")
    near = Constant(np.float32([1, 2]))
    far = Constant.elsewhere(TensorType(DType.F32, (2,)), lambda: np.zeros(2, np.float32))
    assert constant_of(b.constant(near)) is near is any_constant_of(b.constant(near))
    assert constant_of(b.constant(far)) is None
    assert any_constant_of(b.constant(far)) is far
    assert [any_constant_of(value) for value in (None, x, b.op("neg", x))] == [None] * 3
