"""Twins with a bound: what their ops find, zeros behind it, and how much was found."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from capgraph.ir.errors import TypeRuleError
from capgraph.ir.op import Trait
from capgraph.ir.ops import OPS, PLANNED_OPS, bounded, native
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.ir.ops.native_runs import assert_same, outcome

shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
Array = Any


def holds(name: str, axes: tuple[int | None, ...], operands: tuple[Array | None, ...], size: int, **attrs: Any) -> None:
    """Each result of the twin starts with that of its op along its axis of `axes`, and goes on with zeros."""
    found = outcome(name, *operands, **attrs)
    *padded, count = outcome(f"bounded_{name}", *operands, size=size, **attrs)
    assert (count.shape, count.dtype) == ((), np.int64)
    for old, new, axis in zip(found, padded, axes, strict=True):
        if axis is None:
            assert_same(new, old)
            continue
        assert int(count) == old.shape[axis]
        first, rest = np.split(new, [int(count)], axis)
        assert_same(first, old)
        assert not rest.any()
        assert new.shape[axis] == size


@given(hnp.arrays(np.int8, shapes, elements=st.integers(0, 1)), st.integers(0, 3))
def test_non_zero(x: Array, more: int) -> None:
    holds("non_zero", (1,), (x,), x.size + more)


@given(hnp.arrays(np.float32, shapes, elements=st.integers(-9, 9)), st.data())
def test_compress(x: Array, data: st.DataObject) -> None:
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1))
    most = x.size if axis is None else x.shape[axis]
    condition = data.draw(hnp.arrays(np.bool_, data.draw(st.integers(0, most))))
    where = 0 if axis is None else axis % x.ndim
    holds("compress", (where,), (x, condition), most + data.draw(st.integers(0, 2)), axis=axis)


@given(hnp.arrays(np.int8, shapes, elements=st.integers(0, 2)), st.data())
def test_unique(x: Array, data: st.DataObject) -> None:
    axis = data.draw(st.none() | st.integers(0, x.ndim - 1))
    most = x.size if axis is None else x.shape[axis]
    holds("unique", (axis or 0, 0, None, 0), (x,), most, axis=axis, sorted=data.draw(st.booleans()))


@given(st.integers(0, 6), st.integers(0, 3), st.booleans(), st.integers(0, 99))
def test_non_max_suppression(boxes: int, limit: int, center: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    operands = (
        random.random((2, boxes, 4), np.float32),
        random.random((2, 3, boxes), np.float32),
        np.array(limit, np.int64),
        np.array(0.3, np.float32),
        np.array(0.4, np.float32),
    )
    holds("non_max_suppression", (0,), operands, 2 * 3 * boxes, center_point_box=center)


def test_no_model_has_them() -> None:
    assert not PLANNED_OPS.keys() & OPS.keys()
    for twin in bounded.OPS:
        op = native(twin.name.removeprefix("bounded_"))
        assert op.has(Trait.DATA_DEPENDENT)
        assert not twin.has(Trait.DATA_DEPENDENT)
        assert [*op.attrs, "size"] == list(twin.attrs)
        assert tuple(replace(operand, is_shaping=False) for operand in op.operands) == twin.operands


def test_they_need_a_size() -> None:
    with pytest.raises(TypeRuleError, match="needs attribute size"):
        outcome("bounded_non_zero", np.ones(3, np.float32))
