"""Operands of reads and writes at indices: gathers, scatters, one-hots, triangles."""

from collections.abc import Sequence

from capgraph.ir.dims import Dim
from capgraph.ir.graph import Value
from capgraph.ir.op import INTEGERS, Op
from capgraph.ir.types import DType, Kind

from tests.strategies.draw import GraphDraw, Sample, Sampler, positive, sample
from tests.strategies.sizes import at_home, is_sized

NOT_SCALAR = (2, 1, 3, 4)
REDUCTIONS = ("none", "add", "mul", "max", "min")


def _indices(d: GraphDraw, dtype: DType, shape: Sequence[Dim], size: Dim) -> Value:
    """Indices into an axis of `size`, from either end."""
    return d.steering(dtype, shape, -size, size)


def _small_shape(d: GraphDraw) -> tuple[Dim, ...]:
    return tuple(d.known_dim() for _ in range(d.choose.integer(0, 2)))


def gather(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x = d.value(dtypes["x"], NOT_SCALAR, lambda shape: any(map(positive, shape)))
    axis = d.choose.pick([axis for axis, dim in enumerate(x.shape) if positive(dim)])
    return sample(x, _indices(d, dtypes["indices"], _small_shape(d), x.shape[axis]), axis=axis)


def _along_axis(d: GraphDraw, dtype: DType, index: DType) -> tuple[Value, Value, int]:
    """A tensor, indices for some of its elements along an axis, and that axis."""
    x = d.value(dtype, NOT_SCALAR, lambda shape: any(map(positive, shape)) and is_sized(shape))
    axis = d.choose.pick([axis for axis, dim in enumerate(x.shape) if positive(dim)])
    shape = [1 if positive(dim) and d.choose.chance(15) else dim for dim in x.shape]
    shape[axis] = d.known_dim()
    return x, _indices(d, index, shape, x.shape[axis]), axis - (len(shape) if d.choose.chance(20) else 0)


def gather_elements(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x, indices, axis = _along_axis(d, dtypes["x"], dtypes["indices"])
    return sample(x, indices, axis=axis)


def scatter_elements(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x, indices, axis = _along_axis(d, dtypes["x"], dtypes["indices"])
    return sample(x, indices, d.shaped(dtypes["x"], indices.shape), axis=axis, reduction=_reduction(d, dtypes["x"]))


def _reduction(d: GraphDraw, dtype: DType) -> str:
    return "none" if dtype.kind in (Kind.STRING, Kind.COMPLEX) else d.choose.pick(REDUCTIONS)


def _tuples(d: GraphDraw, x: Value, leading: Sequence[Dim], batch: int, index: DType) -> Value:
    """Index tuples: each element is valid for every axis that it may index."""
    depth = d.choose.integer(1, len(x.shape) - batch)
    indexed = x.shape[batch : batch + depth]
    alike = all(dim == indexed[0] for dim in indexed)
    least = min(at_home(dim) or 0 for dim in indexed)
    size = indexed[0] if alike else 1 if any(not isinstance(dim, int) for dim in indexed) else least
    return _indices(d, index, (*leading, depth), size)


def _indexable(shape: tuple[Dim, ...]) -> bool:
    return bool(shape) and all(map(positive, shape))


def gather_nd(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x = d.value(dtypes["x"], NOT_SCALAR, _indexable)
    batch = d.choose.integer(0, len(x.shape) - 1) if d.choose.chance(40) else 0
    indices = _tuples(d, x, (*x.shape[:batch], *_small_shape(d)), batch, dtypes["indices"])
    return sample(x, indices, batch_dims=batch)


def scatter_nd(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x = d.value(dtypes["x"], NOT_SCALAR, _indexable)
    indices = _tuples(d, x, _small_shape(d), 0, dtypes["indices"])
    depth = indices.shape[-1]
    assert isinstance(depth, int)  # _tuples makes it so
    updates = d.shaped(dtypes["x"], (*indices.shape[:-1], *x.shape[depth:]))
    return sample(x, indices, updates, reduction=_reduction(d, dtypes["x"]))


def _classes(d: GraphDraw, dtype: DType, depth: Dim) -> Value:
    """Class indices of any number type, some of them out of range: those are off everywhere."""
    if d.choose.chance(50) and dtype in INTEGERS:
        return d.value(dtype, (1, 2, 0))
    return d.steering(dtype, _small_shape(d), -depth, depth)


def one_hot(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    depth = d.known_dim()
    indices = _classes(d, dtypes["indices"], depth)
    return sample(indices, d.shaped(dtypes["values"], (2,)), depth=depth, axis=_new_axis(d, indices))


def _new_axis(d: GraphDraw, x: Value) -> int:
    return d.choose.integer(-len(x.shape) - 1, len(x.shape))


def dynamic_one_hot(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    indices = _classes(d, dtypes["indices"], 4)
    shape: tuple[int, ...] = d.choose.pick(((), (1,)))
    depth = d.sizes(shape, 0, 5) if dtypes["depth"] is DType.I64 else d.steering(dtypes["depth"], shape, 0, 5)
    return sample(indices, depth, d.shaped(dtypes["values"], (2,)), axis=_new_axis(d, indices))


def trilu(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], (2, 3, 4))
    return sample(x, diagonal=d.choose.integer(-4, 4), **d.options(op))


def dynamic_trilu(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], (2, 3, 4))
    return sample(x, d.steering(DType.I64, d.choose.pick(((), (1,))), -4, 5), **d.options(op))


def tensor_scatter(d: GraphDraw, op: Op) -> Sample:
    """A cache, and an update that is as long or has one step."""
    dtype = d.dtypes(op)["cache"]
    cache = d.value(dtype, (3, 2, 4), lambda shape: is_sized(shape) and any(map(positive, shape[1:])))
    axis = d.choose.pick([axis for axis, dim in enumerate(cache.shape) if axis and positive(dim)])
    shape = list(cache.shape)
    if d.choose.chance(70):
        shape[axis] = 1
    mode = d.choose.pick(("linear", "circular"))
    limit = cache.shape[axis] - shape[axis] + 1 if mode == "linear" else cache.shape[axis]
    positions = d.steering(DType.I64, (cache.shape[0],), 0, limit) if d.choose.chance(70) else None
    return sample(cache, d.shaped(dtype, shape), positions, axis=axis, mode=mode)


SAMPLERS: dict[str, Sampler] = {
    "gather": gather,
    "gather_elements": gather_elements,
    "gather_nd": gather_nd,
    "scatter_elements": scatter_elements,
    "scatter_nd": scatter_nd,
    "one_hot": one_hot,
    "dynamic_one_hot": dynamic_one_hot,
    "trilu": trilu,
    "dynamic_trilu": dynamic_trilu,
    "tensor_scatter": tensor_scatter,
}
