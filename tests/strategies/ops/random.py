"""Attributes of random tensors. They always have a seed or a state: a test runs a graph twice and compares."""

from typing import Any

from capgraph.ir.op import BOOLS, FLOATS, NUMBERS, Op
from capgraph.ir.types import DType

from tests.strategies.draw import GraphDraw, Sample, Sampler, positive, sample

DRAWN = tuple(dtype for dtype in DType if dtype in FLOATS)
COUNTED = tuple(dtype for dtype in DType if dtype in NUMBERS | BOOLS)


def random_normal(d: GraphDraw, op: Op) -> Sample:
    return sample(**_common(d), **d.options(op))


def random_uniform(d: GraphDraw, _op: Op) -> Sample:
    low = d.choose.pick((0.0, -1.0, 0.5))
    return sample(**_common(d), low=low, high=low + d.choose.pick((1.0, 0.0, 2.5)))


def _common(d: GraphDraw) -> dict[str, Any]:
    shape = tuple(d.known_dim() for _ in range(d.choose.integer(0, 3)))
    return {"shape": shape, "dtype": d.choose.pick(DRAWN), "seed": d.choose.integer(-2, 99)}


def bernoulli(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"])
    return sample(x, dtype=d.choose.pick(COUNTED), seed=d.choose.integer(0, 99))


def multinomial(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], (2,), lambda shape: positive(shape[1]))
    dtype = d.choose.pick((DType.I32, DType.I64))
    return sample(x, dtype=dtype, sample_size=d.choose.integer(0, 3), seed=d.choose.integer(0, 99))


def keyed_random_normal(d: GraphDraw, op: Op) -> Sample:
    return _keyed(d, op, random_normal(d, op))


def keyed_random_uniform(d: GraphDraw, op: Op) -> Sample:
    return _keyed(d, op, random_uniform(d, op))


def keyed_bernoulli(d: GraphDraw, op: Op) -> Sample:
    return _keyed(d, op, bernoulli(d, op))


def keyed_multinomial(d: GraphDraw, op: Op) -> Sample:
    return _keyed(d, op, multinomial(d, op))


def _keyed(d: GraphDraw, op: Op, twin: Sample) -> Sample:
    """What the twin takes, and a state in place of its seed."""
    attrs = {name: value for name, value in twin.attrs.items() if name != "seed"}
    return sample(*twin.inputs, d.shaped(DType.U64, (2,)), **attrs, stream=d.choose.integer(-1, 2**40))


SAMPLERS: dict[str, Sampler] = {
    "random_normal": random_normal,
    "random_uniform": random_uniform,
    "bernoulli": bernoulli,
    "multinomial": multinomial,
    "keyed_random_normal": keyed_random_normal,
    "keyed_random_uniform": keyed_random_uniform,
    "keyed_bernoulli": keyed_bernoulli,
    "keyed_multinomial": keyed_multinomial,
}
