"""Grouped matmuls, row by row against NumPy's."""

import numpy as np
import pytest
from capgraph.ir.dims import symbol
from capgraph.ir.errors import ShapeError, TypeRuleError
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import random, run

size = st.integers(0, 4)


@given(ends=st.lists(st.integers(-2, 12), max_size=6), rows=st.integers(0, 9), inner=size, columns=size)
def test_each_row_meets_the_matrix_of_its_group(ends: list[int], rows: int, inner: int, columns: int) -> None:
    a, b = random(1, rows, inner), random(2, len(ends), inner, columns)
    (found,) = run("grouped_matmul", a, b, np.array(ends, np.int64))
    for row in range(rows):
        group = next((index for index, end in enumerate(ends) if end > row), None)
        expected = np.zeros(columns, np.float32) if group is None else a[row] @ b[group]
        np.testing.assert_allclose(found[row], expected, rtol=1e-5, atol=1e-6)


def test_small_floats_are_summed_in_f32() -> None:
    a, b = np.full((1, 4096), 1, np.float16), np.full((1, 4096, 1), 1, np.float16)
    assert run("grouped_matmul", a, b, np.array([1], np.int32))[0].item() == 4096


def test_types() -> None:
    infer = native("grouped_matmul").infer
    a, b, ends = TensorType(DType.F32, (symbol("S"), 4)), TensorType(DType.F32, (3, 4, 5)), TensorType(DType.I32, (3,))
    assert infer(a, b, ends) == TensorType(DType.F32, (symbol("S"), 5))
    with pytest.raises(ShapeError, match="inner sizes"):
        infer(a, TensorType(DType.F32, (3, 5, 5)), ends)
    with pytest.raises(ShapeError, match="one entry for each group"):
        infer(a, b, TensorType(DType.I32, (2,)))
    with pytest.raises(TypeRuleError, match="rank"):
        infer(a, a, ends)
