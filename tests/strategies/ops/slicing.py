"""Operands of slices, splits, concatenations and pads."""

from capgraph.ir.dims import Dim, SymDim
from capgraph.ir.graph import Value
from capgraph.ir.op import Op
from capgraph.ir.types import DType

from tests.strategies.draw import GraphDraw, Sample, Sampler, positive, sample
from tests.strategies.sizes import at_home, is_sized

NOT_SCALAR = (2, 1, 3, 4)
TO_THE_END = (2**63 - 1, -(2**63), 2**31 - 1)


def concat(d: GraphDraw, op: Op) -> Sample:
    dtype = d.dtypes(op)["xs"]
    first = d.value(dtype, NOT_SCALAR)
    axis, rank = d.axis(first), len(first.shape)
    xs = [first]
    for _ in range(d.choose.integer(0, 2)):
        shape = list(first.shape)
        if d.choose.chance(50):
            shape[axis] = d.known_dim()
        xs.append(d.shaped(dtype, shape))
    return sample(*xs, axis=axis if d.choose.chance(70) else axis % rank)


def split(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], NOT_SCALAR)
    axis = d.axis(x)
    return sample(x, axis=axis, sizes=_parts(d, x.shape[axis]))


def _parts(d: GraphDraw, dim: Dim) -> tuple[Dim, ...]:
    """Sizes that add up to `dim`; a symbolic one is cut in halves, or has something of known size cut off."""
    if isinstance(dim, int):
        first = d.choose.integer(0, dim)
        rest = d.choose.integer(0, dim - first)
        return d.choose.pick(((dim,), (first, dim - first), (first, rest, dim - first - rest)))
    if at_home(dim) is None:
        return (dim,)
    return d.choose.pick(((dim,), (dim // 2, dim - dim // 2), (1, dim - 1), (dim - 2, 0, 2)))


def dynamic_split(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], NOT_SCALAR, lambda shape: is_sized(shape[:1]))
    return sample(x, d.dims(_parts(d, x.shape[0])), axis=0)


def slice_(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], NOT_SCALAR)
    axes = d.axes(len(x.shape))
    starts = tuple(_bound(d, x, axis) for axis in axes)
    ends = tuple(_bound(d, x, axis) for axis in axes)
    return sample(x, axes=axes, starts=starts, ends=ends, steps=tuple(d.choose.pick((1, 1, 2, -1, -2)) for _ in axes))


def _bound(d: GraphDraw, x: Value, axis: int) -> Dim:
    """A bound of any kind: small, from the end, far out, or relative to the axis."""
    dim = x.shape[axis]
    kind = d.choose.integer(0, 9)
    if kind <= 5 or not isinstance(dim, SymDim):
        return d.choose.pick(TO_THE_END) if kind == 9 else d.choose.integer(-6, 7)
    return d.choose.pick((dim, dim - 1, -dim, dim // 2, d.known_dim(x)))


def dynamic_slice(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    x, index = d.value(dtypes["x"], NOT_SCALAR), dtypes["starts"]
    rank = len(x.shape)
    count = d.choose.integer(1, rank)
    starts, ends = (
        d.sizes((count,), -4, 5) if index is DType.I64 else d.steering(index, (count,), -4, 5) for _ in range(2)
    )
    axes = d.constant(d.axes(rank, count), index) if d.choose.chance(50) else None
    steps = d.constant([d.choose.pick((1, 2, -1)) for _ in range(count)], index) if d.choose.chance(50) else None
    return sample(x, starts, ends, axes, steps)


def pad(d: GraphDraw, op: Op) -> Sample:
    dtype = d.dtypes(op)["x"]
    mode = d.choose.pick(op.attrs["mode"].choices)
    x = d.value(dtype, (2, 1, 3, 0), None if mode == "constant" else _is_padded_from_inside)
    pads: list[Dim] = [d.choose.integer(0, 2) for _ in 2 * x.shape]
    if pads and mode == "constant" and d.choose.chance(30):
        pads[d.choose.integer(0, len(pads) - 1)] = d.known_dim(x)
    cut = [at for at, dim in enumerate(x.shape) if (at_home(dim) or 0) > 2]
    if cut and d.choose.chance(20):
        pads[d.choose.pick(cut)] = -1
    return sample(x, _fill(d, dtype), pads=tuple(pads), mode=mode)


def _is_padded_from_inside(shape: tuple[Dim, ...]) -> bool:
    """Whether elements within can be repeated outside."""
    return all(map(positive, shape))


def _fill(d: GraphDraw, dtype: DType) -> Value | None:
    return d.maybe(dtype, d.choose.pick(((), (1,))))


def dynamic_pad(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    mode = d.choose.pick(op.attrs["mode"].choices)
    x = d.value(dtypes["x"], (2, 1, 3), None if mode == "constant" else _is_padded_from_inside)
    rank = len(x.shape)
    some = d.choose.chance(50)
    axes = d.axes(rank) if some else tuple(range(rank))
    count = 2 * len(axes)
    pads = d.sizes((count,), 0, 3) if mode == "constant" else d.steering(DType.I64, (count,), 0, 3)
    return sample(x, pads, _fill(d, dtypes["x"]), d.constant(axes, dtypes["axes"]) if some else None, mode=mode)


SAMPLERS: dict[str, Sampler] = {
    "concat": concat,
    "split": split,
    "dynamic_split": dynamic_split,
    "slice": slice_,
    "dynamic_slice": dynamic_slice,
    "pad": pad,
    "dynamic_pad": dynamic_pad,
}
