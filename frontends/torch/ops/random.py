"""Random tensors: other numbers than PyTorch draws, of the same distribution."""

import math
from collections.abc import Sequence
from typing import Any

from ....ir.dims import Dim
from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering


def _uniform(c: Call, *_: Any) -> Value:
    return c.op("random_uniform", shape=c.shape, dtype=c.dtype)


def _normal(c: Call, *_: Any) -> Value:
    return c.op("random_normal", shape=c.shape, dtype=c.dtype)


def _uniform_between(c: Call, _x: Value, low: float = 0.0, high: float = 1.0, *_: Any) -> Value:
    return c.op("random_uniform", shape=c.shape, dtype=c.dtype, low=float(low), high=float(high))


def _normal_around(c: Call, _x: Any, mean: float = 0.0, deviation: float = 1.0, *_: Any) -> Value:
    return c.op("random_normal", shape=c.shape, dtype=c.dtype, mean=float(mean), scale=float(deviation))


def _normal_of(c: Call, mean: Any, deviation: Any = 1.0, *_: Any) -> Value:
    drawn = c.op("random_normal", shape=c.shape, dtype=c.dtype)
    scaled = c.op("mul", drawn, c.value(deviation, c.dtype))
    return c.op("add", scaled, c.value(mean, c.dtype))


def _dropout(c: Call, x: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    """What is left and which elements those are."""
    if train is False or p == 0:
        return x, c.expand(c.constant(True, DType.BOOL), x.shape)
    kept = _chosen(c, x.shape, 1.0 - p)
    scaled = c.op("mul", x, c.full_like(x, 1.0 / (1.0 - p) if p < 1 else 0.0))
    return c.op("where", kept, scaled, c.full_like(x, 0.0)), kept


def _chosen(c: Call, shape: Sequence[Dim], p: float) -> Value:
    """True with a probability that is a number, so that no tensor is full of it."""
    return c.op("less", c.op("random_uniform", shape=tuple(shape), dtype=DType.F32), c.constant(p, DType.F32))


def _integers(c: Call, low: int, high: int) -> Value:
    """Whole numbers from 0 on, to which the lowest is added: in f64 the sum could become the highest."""
    drawn = c.op("random_uniform", shape=c.shape, dtype=DType.F64, high=float(high - low))
    whole = c.cast(c.op("floor", drawn), c.dtype)
    return c.op("add", whole, c.constant(low, c.dtype)) if low else whole


def _permutation(c: Call, *_: Any) -> Value:
    """The order of as many random numbers."""
    drawn = c.op("random_uniform", shape=c.shape, dtype=DType.F64)
    return c.cast(c.ops("sort", drawn, axis=0)[1], c.dtype)


def _bernoulli(c: Call, x: Value, *_: Any) -> Value:
    return c.op("bernoulli", x, dtype=c.dtype)


def _bernoulli_with(c: Call, x: Value, p: float = 0.5, *_: Any) -> Value:
    if isinstance(p, Value):
        return c.op("bernoulli", c.expand(p, x.shape), dtype=c.dtype)
    return c.cast(_chosen(c, c.shape, p), c.dtype)


def _exponential(c: Call, _x: Value, rate: float = 1.0, *_: Any) -> Value:
    drawn = c.op("random_uniform", shape=c.shape, dtype=c.dtype)
    positive = c.op("sub", c.full_like(drawn, 1.0), drawn)
    return c.op("mul", c.op("log", positive), c.full_like(drawn, -1.0 / rate))


def _cauchy(c: Call, _x: Value, median: float = 0.0, width: float = 1.0, *_: Any) -> Value:
    """The tangent of an angle."""
    angle = c.op("random_uniform", shape=c.shape, dtype=c.dtype, low=-math.pi / 2, high=math.pi / 2)
    scaled = c.op("mul", c.op("tan", angle), c.full_like(angle, width))
    return c.op("add", scaled, c.full_like(scaled, median))


def _geometric(c: Call, _x: Value, p: float, *_: Any) -> Value:
    """How many trials it takes, from 1 on: an exponential number in steps of those, rounded up."""
    drawn = c.op("random_uniform", shape=c.shape, dtype=DType.F32)
    positive = c.op("sub", c.full_like(drawn, 1.0), drawn)
    trials = c.op("ceil", c.op("mul", c.op("log", positive), c.full_like(drawn, 1 / math.log1p(-p))))
    return c.cast(c.op("max", trials, c.full_like(trials, 1.0)), c.dtype)


def _multinomial(c: Call, x: Value, count: int, replacement: bool = False, *_: Any) -> Value:
    """Classes drawn by their weights; without replacement the greatest of weights over exponential draws."""
    rows = c.unsqueeze(x, 0) if x.tensor.rank == 1 else x
    if not c.may_mention(rows.shape, rows):
        raise NoLowering("weights of a shape that running tells")
    if replacement and count > 1:
        drawn = c.op("multinomial", c.op("log", rows), dtype=DType.I64, sample_size=count)
    else:
        noise = c.op("random_uniform", shape=rows.shape, dtype=rows.tensor.dtype)
        race = c.op("div", c.op("log", c.op("sub", c.full_like(noise, 1.0), noise)), c.op("neg", rows))
        drawn = c.ops("top_k", race, k=count, axis=1, largest=False)[1]
    return c.squeeze(drawn, 0) if x.tensor.rank == 1 else drawn


TABLE: dict[str, Lowering] = {
    "aten.rand": _uniform,
    "aten.rand_like": _uniform,
    "aten.randn": _normal,
    "aten.randn_like": _normal,
    "aten.uniform": _uniform_between,
    "aten.normal_functional": _normal_around,
    "aten.randint.default": lambda c, high, *_: _integers(c, 0, high),
    "aten.randint.low": lambda c, low, high, *_: _integers(c, low, high),
    "aten.randint_like.default": lambda c, _x, high, *_: _integers(c, 0, high),
    "aten.randint_like.low_dtype": lambda c, _x, low, high, *_: _integers(c, low, high),
    "aten.bernoulli.default": _bernoulli,
    "aten.bernoulli.p": _bernoulli_with,
    "aten.bernoulli.Tensor": _bernoulli_with,
    "aten.random.from": lambda c, _x, low, high, *_: _integers(c, low, high),
    "aten.random.to": lambda c, _x, high, *_: _integers(c, 0, high),
    "aten.randperm": _permutation,
    "aten.normal.float_float": _normal_of,
    "aten.normal.float_Tensor": _normal_of,
    "aten.normal.Tensor_float": _normal_of,
    "aten.normal.Tensor_Tensor": _normal_of,
    "aten.native_dropout": _dropout,
    "aten.exponential": _exponential,
    "aten.log_normal": lambda c, x, mean=1.0, deviation=2.0, *_: c.op("exp", _normal_around(c, x, mean, deviation)),
    "aten.cauchy": _cauchy,
    "aten.geometric": _geometric,
    "aten.multinomial": _multinomial,
}
