"""Random tensors, drawn by Philox (`ir/philox.py`). Impure: without a seed every run draws anew.

With a seed a run draws what every run with that seed draws. The numbers are those of the twin in `keyed.py`, from a
state whose key is the seed.
"""

from typing import Any

from ..attrs import Attribute, AttrKind
from ..constant import Array
from ..dims import Dim
from ..op import FLOATS, Op, Trait, op
from ..philox import fresh_state
from ..types import DType, TensorType
from . import keyed


def random_normal(*, shape: tuple[int, ...], dtype: DType, mean: float, scale: float, seed: int | None) -> Array:
    """Normally distributed elements with the given mean and standard deviation."""
    return keyed.random_normal(fresh_state(seed), shape=shape, dtype=dtype, mean=mean, scale=scale, stream=0)


def random_uniform(*, shape: tuple[int, ...], dtype: DType, low: float, high: float, seed: int | None) -> Array:
    """Elements uniformly distributed over [low, high)."""
    return keyed.random_uniform(fresh_state(seed), shape=shape, dtype=dtype, low=low, high=high, stream=0)


def bernoulli(x: Array, *, dtype: DType, seed: int | None) -> Array:
    """1 with the probability that the element of `x` gives, else 0, in type `dtype`."""
    return keyed.bernoulli(x, fresh_state(seed), dtype=dtype, stream=0)


def multinomial(x: Array, *, dtype: DType, sample_size: int, seed: int | None) -> Array:
    """[batch, sample_size] class indices drawn by the unnormalized log-probabilities [batch, classes]."""
    return keyed.multinomial(x, fresh_state(seed), dtype=dtype, sample_size=sample_size, stream=0)


def filled_type(*, shape: tuple[Dim, ...], dtype: DType, **_attrs: Any) -> TensorType:
    """The shape and float dtype that the attributes say."""
    return keyed.filled_type(keyed.STATE, shape=shape, dtype=dtype)


def bernoulli_type(x: TensorType, *, dtype: DType, seed: int | None) -> TensorType:
    """The shape of the operand; any number type or bool."""
    return keyed.bernoulli_type(x, keyed.STATE, dtype=dtype, stream=0)


def multinomial_type(x: TensorType, *, dtype: DType, sample_size: int, seed: int | None) -> TensorType:
    """[batch, sample_size] of i32 or i64."""
    return keyed.multinomial_type(x, keyed.STATE, dtype=dtype, sample_size=sample_size, stream=0)


_SEED = Attribute("seed", AttrKind.INT, None)


def _op(
    name: str,
    signature: str,
    attrs: tuple[Attribute, ...],
    infer: Any,
    meaning: Any,
    traits: Trait = Trait.IMPURE,
) -> Op:
    return op(name, signature, T=FLOATS, attrs=(*attrs, _SEED), infer=infer, meaning=meaning, traits=traits)


OPS: tuple[Op, ...] = (
    _op("random_normal", "", keyed.NORMAL, filled_type, random_normal),
    _op("random_uniform", "", keyed.UNIFORM, filled_type, random_uniform),
    _op("bernoulli", "x: T", keyed.BERNOULLI, bernoulli_type, bernoulli),
    _op("multinomial", "x: T", keyed.MULTINOMIAL, multinomial_type, multinomial, Trait.IMPURE | Trait.REFUSES_EMPTY),
)
