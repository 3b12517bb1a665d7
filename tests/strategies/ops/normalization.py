"""Operands of normalizations."""

from capgraph.ir.op import Op

from tests.strategies.draw import GraphDraw, Sample, Sampler, sample
from tests.strategies.sizes import is_sized

NOT_SCALAR = (2, 1, 3, 4)


def along_axis(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], NOT_SCALAR)
    numbers = {"p": d.choose.integer(1, 2)} if "p" in op.attrs else {}
    return sample(x, axis=d.axis(x), **numbers)


def over_trailing_axes(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x = d.value(dtypes["x"], NOT_SCALAR)
    axis = d.axis(x)
    affine = [
        d.broadcastable(dtypes[operand.name], x.shape[axis:], to=True) if d.choose.chance(60) else None
        for operand in op.operands[1:]
    ]
    return sample(x, *affine, axis=axis, **d.options(op))


def per_channel(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x = d.value(dtypes["x"], (3, 2, 4), lambda shape: is_sized(shape[1:2]))
    channels = x.shape[1]
    divisors = [g for g in (1, 2, 3) if isinstance(channels, int) and channels % g == 0] or [1]
    groups = {"groups": d.choose.pick(divisors)} if "groups" in op.attrs else {}
    others = [d.shaped(dtypes[operand.name], (channels,)) for operand in op.operands[1:]]
    return sample(x, *others, **groups, **d.options(op))


def lrn(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], (4, 3, 2))
    return sample(x, size=d.choose.integer(1, 5), **d.options(op))


SAMPLERS: dict[str, Sampler] = {
    "softmax": along_axis,
    "log_softmax": along_axis,
    "hardmax": along_axis,
    "lp_norm": along_axis,
    "layer_norm": over_trailing_axes,
    "rms_norm": over_trailing_axes,
    "batch_norm": per_channel,
    "instance_norm": per_channel,
    "group_norm": per_channel,
    "lrn": lrn,
}
