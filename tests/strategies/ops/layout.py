"""Operands of ops that give the same elements another shape or order."""

from capgraph.ir.dims import Dim
from capgraph.ir.op import Op
from capgraph.ir.types import DType

from tests.strategies.draw import GraphDraw, Sample, Sampler, positive, sample
from tests.strategies.sizes import at_home, is_sized


def _regrouped(d: GraphDraw, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """A shape with as many elements: neighbors merged, an axis split, ones added."""
    dims = list(shape)
    for _ in range(d.choose.integer(0, 2)):
        if len(dims) > 1 and d.choose.chance(50):
            at = d.choose.integer(0, len(dims) - 2)
            dims[at : at + 2] = [dims[at] * dims[at + 1]]
        elif len(dims) < 5:
            at = d.choose.integer(0, len(dims))
            dims[at:at] = [1]
    for at, dim in enumerate(dims):
        if len(dims) < 5 and isinstance(dim, int) and dim and dim % 2 == 0 and d.choose.chance(30):
            dims[at : at + 1] = [2, dim // 2]
            break
    return tuple(dims)


def reshape(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"])
    return sample(x, shape=_regrouped(d, x.shape))


def dynamic_reshape(d: GraphDraw, op: Op) -> Sample:
    """To a shape given in full, or with one size left to be the rest, or with sizes that are copied."""
    x = d.value(d.dtypes(op)["x"])
    shape = list(_regrouped(d, x.shape))
    others = [at for at in range(len(shape)) if all(map(positive, shape[:at] + shape[at + 1 :]))]
    allow_zero = d.choose.chance(60) or not all(map(positive, shape))
    if not allow_zero and is_sized(shape):
        same = {at for at, (dim, given) in enumerate(zip(shape, x.shape, strict=False)) if dim == given}
        shape = [0 if at in same and d.choose.chance(50) else dim for at, dim in enumerate(shape)]
    if others and d.choose.chance(40):
        shape[d.choose.pick(others)] = -1
    return sample(x, d.dims(shape) if is_sized(shape) else d.emit("shape", x), allow_zero=allow_zero)


def _expanded(d: GraphDraw, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    grown = [d.known_dim() if dim == 1 and d.choose.chance(60) else dim for dim in shape]
    added = [d.known_dim() for _ in range(d.choose.integer(0, 1))] if len(shape) < 4 else []
    return (*added, *grown)


def expand(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"])
    return sample(x, shape=_expanded(d, x.shape))


def dynamic_expand(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], fits=is_sized)
    shape = tuple(1 if d.choose.chance(30) else dim for dim in _expanded(d, x.shape))
    return sample(x, d.dims(shape))


def tile(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], (1, 2, 3, 0))
    repeats = tuple(d.known_dim(x) if d.choose.chance(40) else d.choose.integer(0, 2) for _ in x.shape)
    return sample(x, repeats=repeats)


def dynamic_tile(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], (1, 2, 3, 0))
    return sample(x, d.sizes((len(x.shape),), 0, 3))


def transpose(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"])
    rank = len(x.shape)
    return sample(x, perm=tuple(axis % rank for axis in d.axes(rank, rank)))


def squeeze(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], fits=lambda shape: 1 in shape)
    return sample(x, axes=_ones(d, x.shape))


def _ones(d: GraphDraw, shape: tuple[Dim, ...]) -> tuple[int, ...]:
    return tuple(axis - d.choose.integer(0, 1) * len(shape) for axis, dim in enumerate(shape) if dim == 1)


def dynamic_squeeze(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], fits=lambda shape: 1 in shape)
    return sample(x, d.constant(_ones(d, x.shape), DType.I64))


def unsqueeze(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], (2, 1, 0, 3))
    count = d.choose.integer(0, 2)
    return sample(x, axes=d.axes(len(x.shape) + count, count))


def dynamic_unsqueeze(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], (2, 1, 0, 3))
    if d.choose.chance(50):
        return sample(x, d.steering(DType.I64, (1,), -len(x.shape) - 1, len(x.shape) + 1))
    return sample(x, d.constant(d.axes(len(x.shape) + 2, 2), DType.I64))


def depth_to_space(d: GraphDraw, op: Op) -> Sample:
    dtype, block = d.dtypes(op)["x"], d.choose.integer(1, 2)
    x = d.source(dtype, (d.dim(), block * block * d.choose.integer(1, 2), d.choose.integer(0, 3), d.known_dim()))
    return sample(x, block_size=block, **d.options(op))


def space_to_depth(d: GraphDraw, op: Op) -> Sample:
    dtype, block = d.dtypes(op)["x"], d.choose.integer(1, 2)
    x = d.source(dtype, (d.dim(), d.choose.integer(1, 3), d.choose.integer(0, 2) * block, d.known_dim() * block))
    return sample(x, block_size=block, **d.options(op))


def reverse(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"])
    return sample(x, axes=d.axes(len(x.shape)))


def roll(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"])
    axes = d.axes(len(x.shape))
    return sample(x, axes=axes, shifts=d.ints(len(axes), -7, 7))


def reverse_sequence(d: GraphDraw, op: Op) -> Sample:
    x = d.value(d.dtypes(op)["x"], (2, 3, 4), lambda shape: at_home(shape[0]) is not None)
    time = d.choose.integer(1, len(x.shape) - 1)
    batch = 0
    if at_home(x.shape[time]) is not None and d.choose.chance(30):
        batch, time = time, batch
    lengths = d.steering(DType.I64, (x.shape[batch],), 0, x.shape[time] + 1)
    return sample(x, lengths, batch_axis=batch, time_axis=time)


SAMPLERS: dict[str, Sampler] = {
    "reshape": reshape,
    "dynamic_reshape": dynamic_reshape,
    "expand": expand,
    "dynamic_expand": dynamic_expand,
    "tile": tile,
    "dynamic_tile": dynamic_tile,
    "transpose": transpose,
    "squeeze": squeeze,
    "dynamic_squeeze": dynamic_squeeze,
    "unsqueeze": unsqueeze,
    "dynamic_unsqueeze": dynamic_unsqueeze,
    "depth_to_space": depth_to_space,
    "space_to_depth": space_to_depth,
    "reverse": reverse,
    "roll": roll,
    "reverse_sequence": reverse_sequence,
}
