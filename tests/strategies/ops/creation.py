"""Attributes and operands of tensors from nothing or from a shape."""

from capgraph.ir.constant import Constant
from capgraph.ir.op import NUMBERS, Op
from capgraph.ir.types import DType

from tests.strategies.draw import GraphDraw, Sample, Sampler, sample
from tests.strategies.values import contents

DTYPES = tuple(DType)
NUMERIC = tuple(dtype for dtype in DType if dtype in NUMBERS)


def constant(d: GraphDraw, _op: Op) -> Sample:
    shape = d.ints(d.choose.integer(0, 3), 0, 4)
    return sample(value=Constant(contents(d.choose, d.choose.pick(DTYPES), shape)))


def _scalar(d: GraphDraw) -> Constant:
    return Constant(contents(d.choose, d.choose.pick(DTYPES), ()))


def full(d: GraphDraw, _op: Op) -> Sample:
    return sample(shape=tuple(d.known_dim() for _ in range(d.choose.integer(0, 3))), value=_scalar(d))


def dynamic_full(d: GraphDraw, _op: Op) -> Sample:
    return sample(d.sizes((d.choose.integer(0, 3),), 0, 4), value=_scalar(d))


def dims(d: GraphDraw, _op: Op) -> Sample:
    return sample(values=tuple(d.known_dim() for _ in range(d.choose.integer(0, 4))))


def dim(d: GraphDraw, _op: Op) -> Sample:
    return sample(value=d.known_dim())


def shape(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"])
    return sample(x, start=d.choose.integer(-3, 3), end=d.choose.pick((None, 1, 2, -1)))


def arange(d: GraphDraw, _op: Op) -> Sample:
    step = d.choose.pick((1, 2, 3, -1, -2))
    return sample(start=d.known_dim(), limit=d.known_dim(), step=step, dtype=d.choose.pick(NUMERIC))


def dynamic_arange(d: GraphDraw, op: Op) -> Sample:
    dtype = d.dtypes(op)["start"]
    bounds = [d.sizes((), 0, 5) if dtype is DType.I64 else d.steering(dtype, (), 0, 5) for _ in range(2)]
    return sample(*bounds, d.steering(dtype, (), 1, 3))


def eye_like(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], (2,))
    return sample(x, dtype=d.choose.pick((None, DType.BOOL, *NUMERIC)), diagonal=d.choose.integer(-4, 4))


SAMPLERS: dict[str, Sampler] = {
    "constant": constant,
    "full": full,
    "dynamic_full": dynamic_full,
    "dims": dims,
    "dim": dim,
    "shape": shape,
    "arange": arange,
    "dynamic_arange": dynamic_arange,
    "eye_like": eye_like,
}
