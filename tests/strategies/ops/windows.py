"""Operands of convolutions and pools: images with room for at least one window along each spatial axis."""

from collections.abc import Sequence
from typing import Any

from capgraph.ir.dims import Dim, product
from capgraph.ir.graph import Value
from capgraph.ir.op import Op
from capgraph.ir.types import DType

from tests.strategies.draw import GraphDraw, Sample, Sampler, positive, sample
from tests.strategies.sizes import at_home, is_sized


def image(d: GraphDraw, dtype: DType, channels: Dim) -> Value:
    """[N, C, D1, ...] with one to three spatial axes, at least one element along each."""
    fits = [v for v in d.values if v.tensor.dtype is dtype and 3 <= len(v.shape) <= 5 and v.shape[1] == channels]
    fits = [v for v in fits if all(map(positive, v.shape[2:])) and is_sized(v.shape)]
    if fits and d.choose.chance(60):
        return d.choose.pick(fits)
    drawn = [d.known_dim() if d.choose.chance(40) else d.choose.integer(1, 4) for _ in range(d.choose.pick((2, 1, 3)))]
    return d.source(dtype, (d.known_dim(), channels, *(dim if positive(dim) else 2 for dim in drawn)))


def _windows(d: GraphDraw, sizes: Sequence[Dim], *, dilated: bool = True) -> tuple[tuple[int, ...], dict[str, Any]]:
    """A kernel that fits with its padding, and strides, pads and dilations."""
    count = len(sizes)
    dilations = tuple(d.choose.pick((1, 1, 2)) for _ in sizes) if dilated else (1,) * count
    pads = d.ints(2 * count, 0, 1) if d.choose.chance(50) else (0,) * (2 * count)
    kernel = tuple(
        d.choose.integer(1, min(3, ((at_home(size) or 1) + pads[at] + pads[count + at] - 1) // dilations[at] + 1))
        for at, size in enumerate(sizes)
    )
    return kernel, {"strides": d.ints(count, 1, 2), "pads": pads, "dilations": dilations}


def conv_operands(d: GraphDraw, x_dtype: DType, w_dtype: DType) -> tuple[Value, Value, dict[str, Any]]:
    groups = d.choose.pick((1, 1, 2))
    per_group: Dim = d.known_dim() if groups == 1 and d.choose.chance(20) else d.choose.integer(1, 2)
    x = image(d, x_dtype, per_group * groups)
    kernel, attrs = _windows(d, x.shape[2:])
    weight = d.shaped(w_dtype, (groups * d.choose.integer(1, 2), x.shape[1] // groups, *kernel))
    return x, weight, {**attrs, "groups": groups}


def conv(d: GraphDraw, op: Op) -> Sample:
    dtype = d.dtypes(op)["x"]
    x, weight, attrs = conv_operands(d, dtype, dtype)
    return sample(x, weight, d.maybe(dtype, weight.shape[:1]), **attrs)


def conv_integer(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x, weight, attrs = conv_operands(d, dtypes["x"], dtypes["weight"])
    w_zero = d.maybe(dtypes["w_zero"], d.choose.pick(((), weight.shape[:1])))
    return sample(x, weight, d.maybe(dtypes["x_zero"], ()), w_zero, **attrs)


def qlinear_conv(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x, weight, attrs = conv_operands(d, dtypes["x"], dtypes["weight"])
    scale, grain = dtypes["x_scale"], d.choose.pick(((), weight.shape[:1]))
    return sample(
        x,
        d.shaped(scale, ()),
        d.shaped(dtypes["x_zero"], ()),
        weight,
        d.shaped(scale, grain),
        d.shaped(dtypes["w_zero"], grain),
        d.shaped(scale, ()),
        d.shaped(dtypes["y_zero"], ()),
        d.maybe(dtypes["bias"], weight.shape[:1]),
        **attrs,
    )


def conv_transpose(d: GraphDraw, op: Op) -> Sample:
    """Pads cut off what is made, so they are drawn only where there is enough of it."""
    dtype = d.dtypes(op)["x"]
    groups, per_group = d.choose.pick((1, 1, 2)), d.choose.integer(1, 2)
    x = image(d, dtype, d.choose.integer(1, 2) * groups)
    count = len(x.shape) - 2
    kernel = d.ints(count, 1, 3)
    weight = d.shaped(dtype, (x.shape[1], per_group, *kernel))
    cut = min(kernel) > 1 and d.choose.chance(40)
    pads = d.ints(count, 0, 1) + (0,) * count if cut else (0,) * (2 * count)
    strides = d.ints(count, 1, 2)
    return sample(
        x,
        weight,
        d.maybe(dtype, (per_group * groups,)),
        strides=strides,
        pads=pads,
        output_padding=tuple(d.choose.integer(0, stride - 1) for stride in strides),
        dilations=d.ints(count, 1, 2),
        groups=groups,
    )


def col2im(d: GraphDraw, op: Op) -> Sample:
    dtype = d.dtypes(op)["x"]
    image = d.ints(2, 1, 4)
    block, attrs = _windows(d, image)
    columns = product(
        (size + attrs["pads"][at] + attrs["pads"][2 + at] - attrs["dilations"][at] * (block[at] - 1) - 1)
        // attrs["strides"][at]
        + 1
        for at, size in enumerate(image)
    )
    x = d.shaped(dtype, (d.known_dim(), d.choose.integer(1, 2) * product(block), columns))
    return sample(x, image=image, block=block, **attrs)


def pool(d: GraphDraw, op: Op) -> Sample:
    x = image(d, d.dtypes(op)["x"], d.choose.integer(1, 3))
    kernel, attrs = _windows(d, x.shape[2:])
    numbers = {"p": d.choose.integer(1, 3)} if "p" in op.attrs else {}
    return sample(x, kernel=kernel, **attrs, **numbers, **d.options(op))


def max_unpool(d: GraphDraw, op: Op) -> Sample:
    """What a pool without overlaps made, or any values at any indices that the result has."""
    x = image(d, d.dtypes(op)["x"], d.choose.integer(1, 2))
    count = len(x.shape) - 2
    kernel = d.ints(count, 1, 2)
    sizes = [(size - 1) * step + step for size, step in zip(x.shape[2:], kernel, strict=True)]
    total = product((*x.shape[:2], *sizes))
    larger = tuple(size + d.choose.integer(0, 1) for size in sizes) if d.choose.chance(40) else None
    return sample(
        x,
        d.steering(DType.I64, x.shape, 0, total),
        kernel=kernel,
        strides=kernel,
        pads=(0,) * (2 * count),
        sizes=larger,
    )


SAMPLERS: dict[str, Sampler] = {
    "conv": conv,
    "conv_integer": conv_integer,
    "qlinear_conv": qlinear_conv,
    "conv_transpose": conv_transpose,
    "col2im": col2im,
    "max_pool": pool,
    "max_pool_with_indices": pool,
    "average_pool": pool,
    "lp_pool": pool,
    "max_unpool": max_unpool,
}
