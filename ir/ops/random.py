"""Random tensors. Impure: without a seed every run draws anew.

With a seed a run draws what every run with that seed draws, from NumPy's Philox generator; which numbers those are,
ONNX leaves to the implementation. Draws are made in f64 and cast to the result's dtype.
"""

from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind
from ..constant import Array
from ..dims import Dim
from ..errors import ExecutionError, TypeRuleError
from ..op import BOOLS, FLOATS, INDICES, NUMBERS, DTypes, Op, Trait, op
from ..types import DType, TensorType
from .rules import require_rank


def generator(seed: int | None) -> np.random.Generator:
    """Philox started from `seed` (any integer), or from the system's entropy."""
    return np.random.Generator(np.random.Philox(None if seed is None else seed % 2**64))


def random_normal(*, shape: tuple[int, ...], dtype: DType, mean: float, scale: float, seed: int | None) -> Array:
    """Normally distributed elements with the given mean and standard deviation."""
    return np.asarray(generator(seed).normal(mean, scale, shape)).astype(dtype.numpy)


def random_uniform(*, shape: tuple[int, ...], dtype: DType, low: float, high: float, seed: int | None) -> Array:
    """Elements uniformly distributed over [low, high)."""
    return np.asarray(generator(seed).uniform(low, high, shape)).astype(dtype.numpy)


def bernoulli(x: Array, *, dtype: DType, seed: int | None) -> Array:
    """1 with the probability that the element of `x` gives, else 0, in type `dtype`."""
    draws = generator(seed).random(x.shape)
    return np.asarray(draws < x.astype(np.float64)).astype(dtype.numpy)


def multinomial(x: Array, *, dtype: DType, sample_size: int, seed: int | None) -> Array:
    """[batch, sample_size] class indices drawn by the unnormalised log-probabilities [batch, classes]."""
    batch, classes = x.shape
    if not classes:
        raise ExecutionError("multinomial cannot draw from no classes")
    logits = x.astype(np.float64)
    weights = np.exp(logits - np.max(logits, axis=1, keepdims=True, initial=-np.inf))
    bounds = np.cumsum(weights, axis=1)
    draws = generator(seed).random((batch, sample_size)) * bounds[:, -1:]
    indices = np.empty((batch, sample_size), dtype=np.int64)
    for row in range(batch):
        indices[row] = np.searchsorted(bounds[row], draws[row], side="right")
    return np.asarray(np.minimum(indices, classes - 1).astype(dtype.numpy))


def filled_type(*, shape: tuple[Dim, ...], dtype: DType, **_attrs: Any) -> TensorType:
    """The shape and float dtype that the attributes say."""
    _require(dtype, FLOATS)
    return TensorType(dtype, shape)


def bernoulli_type(x: TensorType, *, dtype: DType, seed: int | None) -> TensorType:
    """The shape of the operand; any number type or bool."""
    _require(dtype, NUMBERS | BOOLS)
    return x.with_dtype(dtype)


def multinomial_type(x: TensorType, *, dtype: DType, sample_size: int, seed: int | None) -> TensorType:
    """[batch, sample_size] of i32 or i64."""
    _require(dtype, INDICES)
    require_rank(x, 2, "the log-probabilities")
    return TensorType(dtype, (x.dims[0], sample_size))


def _require(dtype: DType, allowed: DTypes) -> None:
    if dtype not in allowed:
        names = ", ".join(sorted(str(one) for one in allowed))
        raise TypeRuleError(f"random elements of type {dtype} cannot be drawn", remedy=f"one of {names}")


_DTYPE = Attribute("dtype", AttrKind.DTYPE)
_SEED = Attribute("seed", AttrKind.INT, None)
_SHAPE = Attribute("shape", AttrKind.DIMS)


def _float(name: str, default: float) -> Attribute:
    return Attribute(name, AttrKind.FLOAT, default)


OPS: tuple[Op, ...] = (
    op(
        "random_normal",
        "",
        attrs=(_SHAPE, _DTYPE, _float("mean", 0.0), _float("scale", 1.0), _SEED),
        infer=filled_type,
        meaning=random_normal,
        traits=Trait.IMPURE,
    ),
    op(
        "random_uniform",
        "",
        attrs=(_SHAPE, _DTYPE, _float("low", 0.0), _float("high", 1.0), _SEED),
        infer=filled_type,
        meaning=random_uniform,
        traits=Trait.IMPURE,
    ),
    op(
        "bernoulli",
        "x: T",
        T=FLOATS,
        attrs=(_DTYPE, _SEED),
        infer=bernoulli_type,
        meaning=bernoulli,
        traits=Trait.IMPURE,
    ),
    op(
        "multinomial",
        "x: T",
        T=FLOATS,
        attrs=(_DTYPE, Attribute("sample_size", AttrKind.INT, 1), _SEED),
        infer=multinomial_type,
        meaning=multinomial,
        traits=Trait.IMPURE,
    ),
)
