"""Random tensors from a state that is an operand: twins of the ops in `random.py`, pure ones.

A state is u64[2]: a key, and how many draws were made with it (`ir/philox.py`). Nodes of one graph that read the same
state draw different numbers by different attributes `stream`. Programs put these in the place of the impure ops, with a
state that lies beside their caches (`ir/random_state.py`).
"""

import math
from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind
from ..constant import Array
from ..dims import Dim
from ..dims.constraints import require_equal
from ..errors import ExecutionError, TypeRuleError
from ..op import BOOLS, FLOATS, INDICES, NUMBERS, DTypes, Op, Trait, op
from ..philox import normals, uniforms
from ..types import DType, TensorType
from .rules import require_rank

STATE = TensorType(DType.U64, (2,))

UNIFORM_BITS = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}
"""How many bits of a word a uniform number keeps: all that the type has, so that none becomes 1."""

_INDEX_BITS = 53


def random_normal(
    state: Array, *, shape: tuple[int, ...], dtype: DType, mean: float, scale: float, stream: int
) -> Array:
    """Normally distributed elements with the given mean and standard deviation, computed in f32 (f64 for f64)."""
    width, kind = (64, np.float64) if dtype is DType.F64 else (32, np.float32)
    drawn = normals(state, stream, math.prod(shape), width)
    return (drawn * kind(scale) + kind(mean)).astype(dtype.numpy).reshape(shape)


def random_uniform(
    state: Array, *, shape: tuple[int, ...], dtype: DType, low: float, high: float, stream: int
) -> Array:
    """Elements uniformly distributed over [low, high), computed in f32 (f64 for f64)."""
    kind = np.float64 if dtype is DType.F64 else np.float32
    drawn = uniforms(state, stream, math.prod(shape), UNIFORM_BITS[dtype])
    return (drawn * kind(high - low) + kind(low)).astype(dtype.numpy).reshape(shape)


def bernoulli(x: Array, state: Array, *, dtype: DType, stream: int) -> Array:
    """1 where a uniform number is below the element of `x`, else 0, in type `dtype`."""
    is_double = x.dtype == np.float64
    drawn = uniforms(state, stream, x.size, 53 if is_double else 24).reshape(x.shape)
    return np.asarray(drawn < x.astype(drawn.dtype)).astype(dtype.numpy)


def multinomial(x: Array, state: Array, *, dtype: DType, sample_size: int, stream: int) -> Array:
    """[batch, sample_size] class indices drawn by the unnormalized log-probabilities [batch, classes], in f64."""
    batch, classes = x.shape
    if not classes:
        raise ExecutionError("multinomial cannot draw from no classes")
    logits = x.astype(np.float64)
    weights = np.exp(logits - np.max(logits, axis=1, keepdims=True, initial=-np.inf))
    bounds = np.cumsum(weights, axis=1)
    draws = uniforms(state, stream, batch * sample_size, _INDEX_BITS).reshape(batch, sample_size) * bounds[:, -1:]
    indices = np.empty((batch, sample_size), dtype=np.int64)
    for row in range(batch):
        indices[row] = np.searchsorted(bounds[row], draws[row], side="right")
    return np.asarray(np.minimum(indices, classes - 1).astype(dtype.numpy))


def filled_type(state: TensorType, *, shape: tuple[Dim, ...], dtype: DType, **_attrs: Any) -> TensorType:
    """The shape and float dtype that the attributes say."""
    _require_state(state)
    _require(dtype, FLOATS)
    return TensorType(dtype, shape)


def bernoulli_type(x: TensorType, state: TensorType, *, dtype: DType, stream: int) -> TensorType:
    """The shape of the operand; any number type or bool."""
    _require_state(state)
    _require(dtype, NUMBERS | BOOLS)
    return x.with_dtype(dtype)


def multinomial_type(x: TensorType, state: TensorType, *, dtype: DType, sample_size: int, stream: int) -> TensorType:
    """[batch, sample_size] of i32 or i64."""
    _require_state(state)
    _require(dtype, INDICES)
    require_rank(x, 2, "the log-probabilities")
    return TensorType(dtype, (x.dims[0], sample_size))


def _require_state(state: TensorType) -> None:
    require_rank(state, 1, "the state")
    require_equal(state.dims[0], 2, "a state of random numbers is a key and a count")


def _require(dtype: DType, allowed: DTypes) -> None:
    if dtype not in allowed:
        names = ", ".join(sorted(str(one) for one in allowed))
        raise TypeRuleError(f"random elements of type {dtype} cannot be drawn", remedy=f"one of {names}")


def _float(name: str, default: float) -> Attribute:
    return Attribute(name, AttrKind.FLOAT, default)


_DTYPE = Attribute("dtype", AttrKind.DTYPE)
_SHAPE = Attribute("shape", AttrKind.DIMS)
_STREAM = Attribute("stream", AttrKind.INT, 0)

NORMAL = (_SHAPE, _DTYPE, _float("mean", 0.0), _float("scale", 1.0))
UNIFORM = (_SHAPE, _DTYPE, _float("low", 0.0), _float("high", 1.0))
BERNOULLI = (_DTYPE,)
MULTINOMIAL = (_DTYPE, Attribute("sample_size", AttrKind.INT, 1))

PREFIX = "keyed_"


_U64: DTypes = frozenset({DType.U64})


def _op(name: str, operands: str, attrs: tuple[Attribute, ...], infer: Any, meaning: Any, traits: Trait) -> Op:
    given, attrs = f"{operands}state: S", (*attrs, _STREAM)
    name = f"{PREFIX}{name}"
    return op(name, given, T=FLOATS, S=_U64, attrs=attrs, infer=infer, meaning=meaning, traits=traits)


OPS: tuple[Op, ...] = (
    _op("random_normal", "", NORMAL, filled_type, random_normal, Trait.DRAWS),
    _op("random_uniform", "", UNIFORM, filled_type, random_uniform, Trait.DRAWS),
    _op("bernoulli", "x: T, ", BERNOULLI, bernoulli_type, bernoulli, Trait.DRAWS),
    _op("multinomial", "x: T, ", MULTINOMIAL, multinomial_type, multinomial, Trait.REFUSES_EMPTY),
)
