"""Tensors from nothing: fills, ranges, and copies of the shape of others."""

from typing import Any

import numpy as np

from ....ir.dims import Dim, SymDim
from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering, Operand, Scalar


def _filled(number: Scalar) -> Lowering:
    """Of the result's shape; how it came about does not count."""
    return lambda c, *_: c.full(c.shape, number, c.dtype)


def _shape(c: Call) -> tuple[Dim, ...]:
    shape = c.shape
    if not c.may_mention(shape):
        raise NoLowering("a shape that running tells")
    return shape


def _full(c: Call, _shape_or_like: Any, number: Operand, *_: Any) -> Value:
    if isinstance(number, Value):
        return c.expand(c.cast(number, c.dtype), c.shape)
    return c.full(c.shape, number, c.dtype)


def _fill(c: Call, x: Value, number: Operand) -> Value:
    return c.expand(c.value(number, x.tensor.dtype), x.shape)


def _arange(c: Call, *given: Any) -> Value:
    """By how many bounds the overload has: end, or start and end, or start, end and step."""
    counts = {"aten.arange.default": 1, "aten.arange.start": 2, "aten.arange.start_step": 3}
    bounds = list(given[: counts.get(c.name, 3)])
    start, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    return _range(c, start, end, step)


def _range(c: Call, start: Any, end: Any, step: Any) -> Value:
    if all(isinstance(bound, int | SymDim) for bound in (start, end)) and isinstance(step, int):
        if not c.may_mention((start, end)):
            raise NoLowering("bounds that running tells")
        return c.op("arange", start=start, limit=end, step=step, dtype=c.dtype)
    if all(isinstance(bound, int | SymDim) for bound in (start, step)):
        return _iota(c, c.shape[0], start, step)
    return _from_steps(c, start, step, c.shape[0])


def _iota(c: Call, length: Dim, start: Dim, step: Dim, *_: Any) -> Value:
    """So many numbers from `start` on."""
    index = c.op("arange", limit=length)
    moved = c.op("add", c.op("mul", index, c.value(step, DType.I64)), c.value(start, DType.I64))
    return c.cast(moved, c.dtype)


def _from_steps(c: Call, start: Any, step: Any, count: Dim) -> Value:
    """start, start + step, ..., computed in f64."""
    index = c.op("arange", limit=count, dtype=DType.F64)
    scaled = c.op("mul", index, c.value(step, DType.F64))
    return c.cast(c.op("add", scaled, c.value(start, DType.F64)), c.dtype)


def _linspace(c: Call, start: Any, end: Any, steps: Dim, *_: Any) -> Value:
    """Evenly spaced, from both ends towards the middle."""
    if isinstance(steps, SymDim):
        raise NoLowering("a number of steps that running tells")
    if not isinstance(start, Value) and not isinstance(end, Value):
        return c.constant(np.linspace(start, end, steps), c.dtype)
    low, high = c.value(start, DType.F64), c.value(end, DType.F64)
    shares = c.constant(np.linspace(0.0, 1.0, steps), DType.F64)
    rest = c.op("mul", low, c.op("sub", c.full_like(low, 1.0), shares))
    return c.cast(c.op("add", rest, c.op("mul", high, shares)), c.dtype)


def _eye(c: Call, *_: Any) -> Value:
    rows, columns = _shape(c)
    hits = c.op("equal", c.unsqueeze(c.op("arange", limit=rows), 1), c.unsqueeze(c.op("arange", limit=columns), 0))
    return c.cast(hits, c.dtype)


def _triangle_indices(upper: bool) -> Lowering:
    def lower(c: Call, rows: int, columns: int, offset: int = 0, *_: Any) -> Value:
        find = np.triu_indices if upper else np.tril_indices
        return c.constant(np.stack(find(rows, offset, columns)), c.dtype)

    return lower


TABLE: dict[str, Lowering] = {
    **dict.fromkeys(
        (
            *("aten.zeros", "aten.zeros_like", "aten.new_zeros", "aten.empty", "aten.empty_like", "aten.new_empty"),
            *("aten.empty_strided", "aten.new_empty_strided", "aten.empty_permuted", "aten.zero"),
        ),
        _filled(0),
    ),
    "aten.ones": _filled(1),
    "aten.ones_like": _filled(1),
    "aten.new_ones": _filled(1),
    "aten.full": _full,
    "aten.full_like": _full,
    "aten.new_full": lambda c, _like, _size, number, *_: _full(c, None, number),
    "aten.fill": _fill,
    "aten.scalar_tensor": lambda c, number, *_: c.value(number, c.dtype),
    "aten.arange": _arange,
    "prims.iota": _iota,
    "aten.linspace": _linspace,
    "aten.eye": _eye,
    "aten.triu_indices": _triangle_indices(True),
    "aten.tril_indices": _triangle_indices(False),
}
