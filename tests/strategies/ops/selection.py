"""Operands of ops whose result sizes depend on data, and of orders."""

from capgraph.ir.dims import product
from capgraph.ir.op import Op
from capgraph.ir.types import DType

from tests.strategies.draw import GraphDraw, Sample, Sampler, positive, sample
from tests.strategies.sizes import is_sized

NOT_SCALAR = (2, 1, 3, 4)


def compress(d: GraphDraw, op: Op) -> Sample:
    """The condition is as long as the axis, or shorter."""
    x = d.value(d.dtypes(op)["x"], (2, 1, 3), is_sized)
    axis = d.axis(x) if d.choose.chance(60) else None
    length = product(x.shape) if axis is None else x.shape[axis]
    if isinstance(length, int) and length and d.choose.chance(30):
        length = d.choose.integer(0, length)
    return sample(x, d.shaped(DType.BOOL, (length,)), axis=axis)


def unique(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"])
    axis = d.axis(x) if x.shape and d.choose.chance(60) else None
    return sample(x, axis=axis, sorted=d.choose.chance(50))


def non_max_suppression(d: GraphDraw, op: Op) -> Sample:
    batch, count = d.known_dim(), d.known_dim()
    boxes, scores = (d.shaped(DType.F32, shape) for shape in ((batch, count, 4), (batch, d.known_dim(), count)))
    limit = d.steering(DType.I64, d.choose.pick(((), (1,))), 0, 4) if d.choose.chance(80) else None
    thresholds = [d.maybe(DType.F32, d.choose.pick(((), (1,)))) for _ in range(2)]
    return sample(boxes, scores, limit, *thresholds, **d.options(op))


def sort(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], NOT_SCALAR)
    return sample(x, axis=d.axis(x), **d.options(op))


def top_k(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], NOT_SCALAR, lambda shape: any(map(positive, shape)))
    axis = d.choose.pick([axis for axis, dim in enumerate(x.shape) if positive(dim)])
    dim = x.shape[axis]
    k = d.choose.integer(0, dim) if isinstance(dim, int) else d.choose.pick((1, dim, dim // 2, 0))
    return sample(x, k=k, axis=axis, **d.options(op))


def dynamic_top_k(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], NOT_SCALAR, lambda shape: any(map(positive, shape)))
    axis = d.choose.pick([axis for axis, dim in enumerate(x.shape) if positive(dim)])
    k = d.steering(DType.I64, d.choose.pick(((1,), ())), 0, x.shape[axis] + 1)
    return sample(x, k, axis=axis, **d.options(op))


SAMPLERS: dict[str, Sampler] = {
    "compress": compress,
    "unique": unique,
    "non_max_suppression": non_max_suppression,
    "sort": sort,
    "top_k": top_k,
    "dynamic_top_k": dynamic_top_k,
}
