"""Operands of elementwise ops, and of every op without a sampler of its own: shapes that broadcast together."""

from capgraph.ir.graph import Value
from capgraph.ir.op import Op

from tests.strategies.draw import GraphDraw, Sample, Sampler, sample


def generic(d: GraphDraw, op: Op) -> Sample:
    """Any first operand, others that broadcast with it, switches and numbers drawn, all else at its default."""
    dtypes = d.dtypes(op)
    first: Value | None = None
    inputs: list[Value | None] = []
    for operand in op.operands:
        if operand.is_optional and d.choose.chance(40):
            inputs.append(None)
            continue
        for _ in range(d.choose.integer(0, 2) if operand.is_variadic else 1):
            dtype = dtypes[operand.name]
            value = d.value(dtype) if first is None else d.broadcastable(dtype, first.shape)
            first = first or value
            inputs.append(value)
    return sample(*inputs, **d.options(op))


def clip(d: GraphDraw, op: Op) -> Sample:
    dtype = d.dtypes(op)["x"]
    return sample(d.value(dtype), d.maybe(dtype, ()), d.maybe(dtype, ()))


def prelu(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"])
    return sample(x, d.broadcastable(x.tensor.dtype, x.shape, to=True))


SAMPLERS: dict[str, Sampler] = {"clip": clip, "prelu": prelu}
