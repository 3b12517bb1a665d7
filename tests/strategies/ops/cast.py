"""Operands of conversions and of linear quantization."""

from typing import Any

from capgraph.ir.dims import Dim, ceil_div
from capgraph.ir.graph import Value
from capgraph.ir.op import FLOATS, Op
from capgraph.ir.types import DType, Kind

from tests.strategies.draw import GraphDraw, Sample, Sampler, sample

DTYPES = tuple(DType)
REAL = tuple(dtype for dtype in DType if dtype in FLOATS and dtype is not DType.F64)
QUANTIZED = tuple(
    dtype
    for dtype in DType
    if (dtype.is_integer and dtype.bits <= 16)
    or (dtype.kind is Kind.FLOAT and dtype.bits <= 8 and dtype is not DType.F8E8M0)
)


def cast(d: GraphDraw, op: Op) -> Sample:
    """Strings are read as floats only: not every drawn text is an integer."""
    x = d.value(d.dtypes(op)["x"])
    to = d.choose.pick(REAL if x.tensor.dtype is DType.STRING else DTYPES)
    return sample(x, to=to, **d.options(op))


def bit_cast(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"])
    same = [dtype for dtype in DTYPES if dtype.bits == x.tensor.dtype.bits and dtype is not DType.STRING]
    return sample(x, to=d.choose.pick(same))


def quantize_linear(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    to = dtypes["zero_point"]
    x, scale, zero, grain = _scaled(d, dtypes["x"], dtypes["scale"], to)
    precision = d.choose.pick((None, *REAL))
    return sample(x, scale, zero, to=to, saturate=d.choose.chance(50), precision=precision, **grain)


def dequantize_linear(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x, scale, zero, grain = _scaled(d, dtypes["x"], dtypes["scale"], dtypes["zero_point"])
    return sample(x, scale, zero, to=d.choose.pick(REAL), **grain)


def _scaled(
    d: GraphDraw, x_dtype: DType, scale: DType, zero: DType
) -> tuple[Value, Value, Value | None, dict[str, Any]]:
    """A tensor, and scale and zero point for all of it, for each index of an axis, or for blocks along one."""
    x = d.value(x_dtype)
    grain = d.choose.pick(("tensor", "axis", "block")) if x.shape else "tensor"
    shape: tuple[Dim, ...] = ()
    attrs: dict[str, Any] = {}
    if grain != "tensor":
        axis = d.axis(x)
        attrs["axis"], shape = axis, (x.shape[axis],)
    if grain == "block":
        size, along = d.choose.integer(1, 3), attrs["axis"] % len(x.shape)
        attrs["block_size"] = size
        shape = tuple(ceil_div(dim, size) if i == along else dim for i, dim in enumerate(x.shape))
    return x, d.shaped(scale, shape), d.maybe(zero, shape), attrs


SAMPLERS: dict[str, Sampler] = {
    "cast": cast,
    "bit_cast": bit_cast,
    "quantize_linear": quantize_linear,
    "dequantize_linear": dequantize_linear,
}
