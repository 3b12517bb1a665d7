"""Pools over sliding windows, and pools to a given size."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.dims import Dim, product
from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering, pair


def _windows(axes: int, kernel: Any, stride: Any, padding: Any) -> dict[str, Any]:
    size = pair(kernel, axes)
    pads = pair(padding, axes)
    return {"kernel": size, "strides": pair(stride, axes) if stride else size, "pads": (*pads, *pads)}


def _batched(c: Call, x: Value, axes: int) -> Value:
    """[C, D1, ...] as one sample."""
    return c.unsqueeze(x, 0) if x.tensor.rank == axes + 1 else x


def _like_input(c: Call, x: Value, result: Value) -> Value:
    return result if result.tensor.rank == x.tensor.rank else c.squeeze(result, 0)


def _max_pool(axes: int) -> Lowering:
    def lower(
        c: Call, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
    ) -> Value:
        attrs = {**_windows(axes, kernel, stride, padding), "dilations": pair(dilation, axes), "ceil_mode": ceil}
        return _like_input(c, x, c.op("max_pool", _batched(c, x, axes), **attrs))

    return lower


def _max_pool_with_indices(axes: int) -> Lowering:
    """The places are those in the plane of a channel."""

    def lower(
        c: Call, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
    ) -> Any:
        if not c.wants(1):
            return _max_pool(axes)(c, x, kernel, stride, padding, dilation, ceil), None
        attrs = {**_windows(axes, kernel, stride, padding), "dilations": pair(dilation, axes), "ceil_mode": ceil}
        given = _batched(c, x, axes)
        values, places = c.ops("max_pool_with_indices", given, **attrs)
        in_plane = c.op("mod", places, c.value(product(given.shape[2:]), DType.I64))
        return _like_input(c, x, values), _like_input(c, x, in_plane)

    return lower


def _average_pool(axes: int) -> Lowering:
    def lower(
        c: Call,
        x: Value,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil: bool = False,
        count_padding: bool = True,
        divisor: int | None = None,
    ) -> Value:
        attrs = {**_windows(axes, kernel, stride, padding), "dilations": (1,) * axes, "ceil_mode": ceil}
        if divisor is not None and ceil:
            raise NoLowering("a divisor of one's own, with windows that stick out")
        counts_all = count_padding or divisor is not None
        pooled = c.op("average_pool", _batched(c, x, axes), count_include_pad=counts_all, **attrs)
        if divisor is not None:
            pooled = c.op("mul", pooled, c.full_like(x, math.prod(pair(kernel, axes)) / divisor))
        return _like_input(c, x, pooled)

    return lower


def _adaptive_average(axes: int) -> Lowering:
    """Means of parts that differ in length by one at most: a window where they do not, else axis by axis."""

    def lower(c: Call, x: Value, output_size: Sequence[Dim]) -> Value:
        sizes = pair(output_size, axes)
        if 0 in sizes:
            return c.full(c.shape, 0, c.dtype)
        if all(size == 1 for size in sizes):
            return c.op("reduce_mean", x, axes=tuple(range(-axes, 0)), keep_dims=True)
        spatial = x.shape[-axes:]
        if not all(isinstance(size, int) for size in (*spatial, *sizes)):
            raise NoLowering("parts whose lengths running tells")
        if all(size % parts == 0 for size, parts in zip(spatial, sizes, strict=True)):
            kernel = tuple(size // parts for size, parts in zip(spatial, sizes, strict=True))
            return _average_pool(axes)(c, x, kernel)  # type: ignore[return-value]
        for axis, parts in enumerate(sizes, x.tensor.rank - axes):
            x = _means_of_parts(c, x, axis, int(parts))
        return x

    return lower


def _means_of_parts(c: Call, x: Value, axis: int, parts: int) -> Value:
    """Zeros stand where a part is shorter: no weight of 0 may spread a NaN to parts that it is not in."""
    places, lengths = _places_of_parts(int(x.shape[axis]), parts)  # type: ignore[arg-type]  # the caller has seen to it
    gathered = c.op("gather", x, c.constant(places, DType.I64), axis=axis)
    longest = places.shape[1]
    if (lengths == longest).all():
        return c.op("reduce_mean", gathered, axes=(axis + 1,), keep_dims=False)
    after = (1,) * (x.tensor.rank - axis - 1)
    is_inside = c.constant((np.arange(longest) < lengths[:, np.newaxis]).reshape(*places.shape, *after))
    means = c.op(
        "reduce_mean", c.op("where", is_inside, gathered, c.full_like(x, 0)), axes=(axis + 1,), keep_dims=False
    )
    return c.op("mul", means, c.constant((longest / lengths).reshape(-1, *after), x.tensor.dtype))


def _places_of_parts(size: int, parts: int) -> tuple[Any, Any]:
    """Where the elements of each part are, [parts, longest], the last again where one is shorter; how many it has."""
    starts = np.arange(parts) * size // parts
    ends = -(-np.arange(1, parts + 1) * size // parts)
    longest = (ends - starts).max()
    return np.minimum(np.add.outer(starts, np.arange(longest)), ends[:, np.newaxis] - 1), ends - starts


def _greatest_of_parts(c: Call, x: Value, axes: int, sizes: Sequence[Any]) -> Value:
    for axis, parts in enumerate(sizes, x.tensor.rank - axes):
        places, _ = _places_of_parts(int(x.shape[axis]), parts)  # type: ignore[arg-type]  # the caller has seen to it
        gathered = c.op("gather", x, c.constant(places, DType.I64), axis=axis)
        x = c.op("reduce_max", gathered, axes=(axis + 1,), keep_dims=False)
    return x


def _adaptive_max(axes: int) -> Lowering:
    def lower(c: Call, x: Value, output_size: Sequence[Dim]) -> Any:
        sizes, spatial = pair(output_size, axes), x.shape[-axes:]
        if 0 in sizes:
            return c.full(c.shape, 0, c.dtype), c.full(c.shape, 0, DType.I64)
        if not all(isinstance(size, int) for size in (*spatial, *sizes)):
            raise NoLowering("parts whose lengths running tells")
        if any(size % parts for size, parts in zip(spatial, sizes, strict=True)):
            if c.wants(1):
                raise NoLowering("the places of extremes in parts of different lengths")
            return _greatest_of_parts(c, x, axes, sizes), None
        kernel = tuple(size // parts for size, parts in zip(spatial, sizes, strict=True))
        return _max_pool_with_indices(axes)(c, x, kernel)

    return lower


TABLE: dict[str, Lowering] = {
    **{f"aten.max_pool{axes}d.default": _max_pool(axes) for axes in (1, 2, 3)},
    **{f"aten.max_pool{axes}d_with_indices": _max_pool_with_indices(axes) for axes in (1, 2, 3)},
    **{f"aten.avg_pool{axes}d": _average_pool(axes) for axes in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{axes}d": _adaptive_average(axes) for axes in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{axes}d": _adaptive_average(axes) for axes in (2, 3)},
    **{f"aten.adaptive_max_pool{axes}d": _adaptive_max(axes) for axes in (1, 2, 3)},
}
