"""Operands of reductions and cumulative ops."""

from capgraph.ir.op import Op
from capgraph.ir.ops import OPS
from capgraph.ir.types import DType

from tests.strategies.draw import GraphDraw, Sample, Sampler, positive, sample

RANKS = (2, 1, 3, 4)
KINDS = ("sum", "mean", "max", "min", "prod", "l1", "l2", "log_sum", "log_sum_exp", "sum_square")


def reduce(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"])
    return sample(x, axes=d.axes(len(x.shape)), keep_dims=d.choose.chance(50))


def dynamic_reduce(d: GraphDraw, op: Op) -> Sample:
    """One axis, or all, or none: they are known only when it runs, their number is not."""
    dtype = d.dtypes(op)["x"]
    kinds = [kind for kind in KINDS if dtype in OPS[f"reduce_{kind}"].operands[0].dtypes]
    x = d.value(dtype, RANKS)
    rank = len(x.shape)
    if d.choose.chance(60):
        axes = d.steering(DType.I64, (1,), -rank, rank)
    else:
        axes = d.constant(d.axes(rank), DType.I64)
    return sample(x, axes, kind=d.choose.pick(kinds), **d.options(op, "keep_dims", "noop_with_empty_axes"))


def arg(d: GraphDraw, op: Op) -> Sample:
    """The index of an extremum needs an axis that is not empty."""
    x = d.value(d.dtypes(op)["x"], RANKS, lambda shape: any(map(positive, shape)))
    axis = d.choose.pick([axis for axis, dim in enumerate(x.shape) if positive(dim)])
    return sample(x, axis=axis, **d.options(op))


def cumulative(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], RANKS)
    return sample(x, axis=d.axis(x), **d.options(op))


def dynamic_cumulative(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x = d.value(dtypes["x"], RANKS)
    rank = len(x.shape)
    axis = d.steering(dtypes["axis"], d.choose.pick(((), (1,))), -rank, rank)
    return sample(x, axis, **d.options(op))


SAMPLERS: dict[str, Sampler] = {
    **{f"reduce_{kind}": reduce for kind in KINDS},
    "dynamic_reduce": dynamic_reduce,
    "argmax": arg,
    "argmin": arg,
    "dynamic_cumsum": dynamic_cumulative,
    "dynamic_cumprod": dynamic_cumulative,
    "cumsum": cumulative,
    "cumprod": cumulative,
}
