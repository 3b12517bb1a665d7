"""Convolutions of quantized tensors: gathered windows with zero points on the way in and scales on the way out."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...kernel_ir.launch import Candidate, Lowering, Task
from ...kernel_ir.sources import Source, source_of
from ...kernel_ir.types import stored
from ..gemm.own_kernel_epilogue import offset_at
from ..gemm.quantization import Quantization
from .convolutions import window_of
from .direct import Ends, gathered
from .images import as_image


def lower_conv_integer(task: Task) -> Iterator[Candidate]:
    """The convolution of bytes in i32."""
    x, w, x_zero, w_zero = _sources(task, 4)
    yield from _lowered(task, x, w, {"a_zero": x_zero, "b_zero": w_zero})


def lower_qlinear_conv(task: Task) -> Iterator[Candidate]:
    """The convolution of quantized tensors, quantized again."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = _sources(task, 9)
    given = {"a_zero": x_zero, "b_zero": w_zero, "a_scale": x_scale, "b_scale": w_scale}
    yield from _lowered(task, x, w, {**given, "y_scale": y_scale, "y_zero": y_zero, "bias": bias})


def _sources(task: Task, count: int) -> list[Source | None]:
    found = [source_of(view) if view is not None else None for view in task.operands]
    return [*found, *[None] * (count - len(found))]


def _lowered(task: Task, x: Source | None, w: Source | None, given: Mapping[str, Source | None]) -> Iterator[Candidate]:
    assert x is not None
    assert w is not None
    x, w, y = as_image(x), as_image(w), as_image(source_of(task.results[0]))
    axes = len(y.shape) - 2
    sources = {name: _per_channel(source, axes) for name, source in given.items() if source is not None}
    quantization = Quantization((x.dtype, w.dtype), sources)

    def at_channel(source: Source) -> str:
        return offset_at(source, y.shape, ["0", "column", *["0"] * axes])

    places = ["image", "column", *(f"o{axis}" for axis in range(axes))]
    target = f"y[{offset_at(y, y.shape, places)}]"
    ends = Ends(
        quantization.total,
        lambda element: quantization.centered("a", element, at_channel),
        lambda element: quantization.centered("b", element, at_channel),
        quantization.finish(target, y.dtype, "found", at_channel),
        [*quantization.parameters, f"{stored(y.dtype)}* y"],
        [*sources.values(), y],
    )
    yield Candidate("gathered", (gathered(x, w, window_of(task.node), ends, y.shape, task.chip),))


def _per_channel(source: Source, axes: int) -> Source:
    """A scalar or a vector [M] as a tensor that broadcasts to the result."""
    if source.size == 1:
        return replace(source, shape=(), strides=())
    return replace(source, shape=(*source.shape, *(1,) * axes), strides=(*source.strides, *(0,) * axes))


LOWERINGS: Mapping[str, Lowering] = {"conv_integer": lower_conv_integer, "qlinear_conv": lower_qlinear_conv}
