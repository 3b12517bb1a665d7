"""Contents of arrays: ordinary numbers, and the edges of every dtype."""

from typing import Any

import ml_dtypes
import numpy as np
from capgraph.ir.constant import Array
from capgraph.ir.types import DType, Kind

from tests.strategies.chooser import Chooser

STRINGS = ("0", "1", "-2", "3.5", "12", "1e3", "true")
"""Texts that `cast` can read as a number."""
FLAVORS = ("small", "small", "spread", "edges")


def contents(choose: Chooser, dtype: DType, shape: tuple[int, ...]) -> Array:
    """An array of this dtype and shape: small whole numbers, spread ones, or some of the dtype's edges among them."""
    flavor, generator = choose.pick(FLAVORS), choose.generator()
    with np.errstate(all="ignore"):  # an edge of f64 is no number of a smaller float
        made: Array = _MAKERS[dtype.kind](generator, dtype, shape, flavor)
    return made


def _bools(generator: np.random.Generator, _dtype: DType, shape: tuple[int, ...], _flavor: str) -> Array:
    return generator.integers(0, 2, shape).astype(np.bool_)


def _integers(generator: np.random.Generator, dtype: DType, shape: tuple[int, ...], flavor: str) -> Array:
    low, high = integer_range(dtype)
    if flavor == "small":
        return generator.integers(max(low, -3), min(high, 5), shape, endpoint=True).astype(dtype.numpy)
    kind = np.uint64 if dtype.kind is Kind.UINT else np.int64
    spread = generator.integers(low, high, shape, dtype=kind, endpoint=True)
    edges = np.array([low, high, 0, 1, min(high, high // 2 + 1)], dtype=kind)
    return np.where(_chosen(generator, shape, flavor), generator.choice(edges, shape), spread).astype(dtype.numpy)


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of a dtype."""
    info = ml_dtypes.iinfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def _floats(generator: np.random.Generator, dtype: DType, shape: tuple[int, ...], flavor: str) -> Array:
    if dtype.bits <= 8 and flavor == "edges":  # any bits are a number, an infinity or NaN
        return generator.integers(0, 2**dtype.bits, shape).astype(np.uint8).view(dtype.numpy)
    if flavor == "small":
        made = generator.integers(-3, 5, shape, endpoint=True).astype(np.float64)
    else:
        made = generator.normal(0, 2, shape)
    if dtype is DType.F8E8M0:
        made = np.exp2(np.rint(made))
    if flavor == "edges":
        made = np.where(_chosen(generator, shape, flavor), generator.choice(_edges(dtype), shape), made)
    return np.asarray(made).astype(dtype.numpy)


def _edges(dtype: DType) -> Array:
    info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    denormal, least, most = float(info.smallest_subnormal), float(info.tiny), float(info.max)
    return np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, denormal, -denormal, least, most, -most])


def _complexes(generator: np.random.Generator, dtype: DType, shape: tuple[int, ...], flavor: str) -> Array:
    part = DType.F32 if dtype is DType.C64 else DType.F64
    made = np.empty(shape, dtype.numpy)
    made.real = _floats(generator, part, shape, flavor)
    made.imag = _floats(generator, part, shape, flavor)
    return made


def _strings(generator: np.random.Generator, _dtype: DType, shape: tuple[int, ...], _flavor: str) -> Array:
    return np.asarray(np.array(STRINGS, dtype=object)[generator.integers(0, len(STRINGS), shape)], dtype=object)


def _chosen(generator: np.random.Generator, shape: tuple[int, ...], flavor: str) -> Array:
    """Which elements are edges."""
    return generator.random(shape) < (0.3 if flavor == "edges" else 0.0)


_MAKERS: dict[Kind, Any] = {
    Kind.BOOL: _bools,
    Kind.UINT: _integers,
    Kind.INT: _integers,
    Kind.FLOAT: _floats,
    Kind.COMPLEX: _complexes,
    Kind.STRING: _strings,
}
