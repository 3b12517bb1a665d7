"""Hypothesis strategies for operands: arrays of any dtype of the IR, with edge values, zero sizes and rank 0."""

from typing import Any

import numpy as np
import numpy.typing as npt
from capgraph.ir.types import DType, Kind
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


def shapes(max_dims: int = 3, max_side: int = 4) -> st.SearchStrategy[Shape]:
    return hnp.array_shapes(min_dims=0, max_dims=max_dims, min_side=0, max_side=max_side)


def broadcastable(count: int) -> st.SearchStrategy[tuple[Shape, ...]]:
    """`count` shapes that broadcast together."""
    drawn = hnp.mutually_broadcastable_shapes(num_shapes=count, max_dims=3, max_side=3, min_side=0)
    return drawn.map(lambda found: found.input_shapes)


def elements(dtype: DType, *, finite: bool = False) -> st.SearchStrategy[Any]:
    """Values of every size, or for floats that are to stay `finite` up to 100."""
    if dtype.kind is Kind.BOOL:
        return st.booleans()
    if dtype.is_integer:
        low = 0 if dtype.kind is Kind.UINT else -(2 ** (dtype.bits - 1))
        high = low + 2**dtype.bits - 1
        near = st.integers(max(low, -9), min(high, 9))
        return near | st.integers(low, high)
    if finite:
        return st.floats(-100, 100, width=32)
    return st.floats(width=32, allow_subnormal=False) | st.floats(-9, 9, width=32)


def arrays(dtype: DType, shape: Shape | st.SearchStrategy[Shape], *, finite: bool = False) -> st.SearchStrategy[Array]:
    """Arrays of `dtype`; drawn in a dtype that NumPy itself has and converted."""
    wide: Any = np.float32 if dtype.is_float else dtype.numpy
    if dtype.is_integer and dtype.bits < 8:
        wide = np.int8

    def convert(drawn: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(drawn.astype(dtype.numpy))

    return hnp.arrays(wide, shape, elements=elements(dtype, finite=finite)).map(convert)


def assert_same(found: Array, expected: Array) -> None:
    """Equal dtype, shape and elements; NaN equals NaN in ml_dtypes' floats too."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if DType.of(found.dtype).is_float:
        found, expected = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(found, expected)
