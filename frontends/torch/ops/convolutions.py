"""Convolutions, and the windows that they read."""

from collections.abc import Sequence

from ....ir.dims import Dim
from ....ir.graph import Value
from ..call import Call, Lowering, pair


def _convolution(
    c: Call,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[Dim],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """Of [N, C, D1, ...], or of [C, D1, ...], which is one sample."""
    axes = weight.tensor.rank - 2
    if x.tensor.rank == axes + 1:
        rest = (stride, padding, dilation, transposed, output_padding, groups)
        return c.squeeze(_convolution(c, c.unsqueeze(x, 0), weight, bias, *rest), 0)
    pads = pair(padding, axes)
    attrs = {"strides": pair(stride, axes), "pads": (*pads, *pads), "dilations": pair(dilation, axes), "groups": groups}
    if not transposed:
        return c.op("conv", x, weight, bias, **attrs)
    return c.op("conv_transpose", x, weight, bias, output_padding=pair(output_padding, axes), **attrs)


def _fold(
    c: Call,
    x: Value,
    output_size: Sequence[Dim],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[Dim],
    stride: Sequence[int],
) -> Value:
    if x.tensor.rank == 2:
        return c.squeeze(_fold(c, c.unsqueeze(x, 0), output_size, kernel, dilation, padding, stride), 0)
    pads = pair(padding, 2)
    attrs = {"strides": pair(stride, 2), "pads": (*pads, *pads), "dilations": pair(dilation, 2)}
    return c.op("col2im", x, image=pair(output_size, 2), block=pair(kernel, 2), **attrs)


TABLE: dict[str, Lowering] = {
    "aten.convolution": _convolution,
    "aten.col2im": _fold,
}
