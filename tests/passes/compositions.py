"""Random chains of small composed forms, met and nearly met, that rules look for by more than their patterns.

`composition(seed)` starts from one tensor and adds forms: parts that are joined again, patches by strides, repeated
operands, transposes around arithmetic, pools over whole images, padding before windows, constants and batch norms
before and after matmuls, normalized groups of channels.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from capgraph.ir.constant import Constant
from capgraph.ir.dims import Dim, symbol
from capgraph.ir.errors import CapgraphError
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from tests.strategies.chooser import RandomChooser
from tests.strategies.draw import GraphDraw, sample

_DTYPES = (DType.F32, DType.F32, DType.F64, DType.F16, DType.BF16)
_NUMBERS = (0.0, 1.0, -1.0, 2.0, 0.5, -0.0, 3.0, 6.0, 1e-5)
MAX_FORMS = 3
ATTEMPTS = 8


def composition(seed: int) -> Graph:
    """The graph number `seed`."""
    made = Composition(RandomChooser(seed))
    for _ in range(made.choose.integer(1, MAX_FORMS)):
        made.add_form()
    made.finish()
    return made.draw.graph


class Composition:
    """A graph under construction: `x` is where it goes on."""

    def __init__(self, choose: RandomChooser) -> None:
        self.choose = choose
        self.draw = GraphDraw(choose, lambda _: None)
        self.dtype = choose.pick(_DTYPES)
        batch: Dim = symbol("B") if choose.chance(40) else choose.integer(1, 3)
        spatial: list[Dim] = [choose.pick((2, 3, 4, 4, 6)) for _ in range(choose.integer(0, 2))]
        if spatial and choose.chance(20):
            spatial[0] = symbol("T")
        channels = 0 if choose.chance(3) else choose.pick((1, 2, 3, 4, 4, 6))
        self.x = self.draw.input(TensorType(self.dtype, (batch, channels, *spatial)))

    def add_form(self) -> None:
        """One more form; none where rules refuse everything that is tried."""
        for _ in range(ATTEMPTS):
            mark = self.draw.mark()
            try:
                self.x = self.choose.pick(FORMS)(self, self.x)
                return
            except CapgraphError:
                self.draw.roll_back(mark)

    def finish(self) -> None:
        """Outputs: what nothing reads, and at times what something reads."""
        graph = self.draw.graph
        values = [value for node in graph.nodes for value in node.outputs]
        ends = [value for value in values if not value.has_uses]
        if values and self.choose.chance(15):
            ends.append(self.choose.pick(values))
        graph.set_outputs(list(dict.fromkeys(ends)) or [self.x])

    def emit(self, name: str, *inputs: Value | None, **attrs: Any) -> Value:
        """The only result of a new node."""
        return self.draw.emit(name, *inputs, **attrs)

    def plain(self, x: Value, axis: int) -> int:
        """A size that must be plain. Raises `CapgraphError` where it is not."""
        size = x.shape[axis] if -x.tensor.rank <= axis < x.tensor.rank else None
        if not isinstance(size, int):
            raise CapgraphError("a plain size is needed")
        return size

    def weight(self, shape: Sequence[int], *, positive: bool = False) -> Value:
        """A constant of whole numbers or any; seldom an input."""
        if self.choose.chance(6):
            return self.draw.input(TensorType(self.dtype, tuple(shape)))
        content = self.choose.generator().normal(0, 1, tuple(shape))
        if self.choose.chance(30):
            content = np.full(tuple(shape), self.choose.pick(_NUMBERS))
        content = np.abs(content) + 0.1 if positive else content
        return self.emit("constant", value=Constant(content.astype(self.dtype.numpy), self.dtype))

    def any_axis(self, x: Value) -> int:
        """An axis, from either end."""
        return self.draw.axis(x) if x.tensor.rank else 0


# ---- parts and their joining


def _cuts(made: Composition, size: int) -> list[int]:
    inner = sorted({made.choose.integer(0, size) for _ in range(made.choose.integer(0, 3))})
    return [0, *inner, size]


def _joined_slices(made: Composition, x: Value) -> Value:
    """Neighboring slices, all or some, in or out of order."""
    axis = made.any_axis(x)
    size = made.plain(x, axis)
    edges = _cuts(made, size)
    parts = [
        made.emit("slice", x, axes=(axis,), starts=(start,), ends=(_end(made, end, size),), steps=(1,))
        for start, end in pairwise(edges)
    ]
    return made.emit("concat", *_perhaps_disturbed(made, parts), axis=axis if made.choose.chance(90) else 0)


def _end(made: Composition, end: int, size: int) -> int:
    return (1 << 31) - 1 if end == size and made.choose.chance(30) else end


def _perhaps_disturbed(made: Composition, parts: list[Value]) -> list[Value]:
    if made.choose.chance(25):
        parts = parts[1:] + parts[:1]
    if made.choose.chance(15):
        parts.append(made.choose.pick(parts))
    if made.choose.chance(15) and len(parts) > 1:
        parts.pop(made.choose.integer(0, len(parts) - 1))
    return parts


def _joined_split(made: Composition, x: Value) -> Value:
    axis = made.any_axis(x)
    edges = _cuts(made, made.plain(x, axis))
    sizes = tuple(end - start for start, end in pairwise(edges))
    parts = list(made.draw.add(native("split"), sample(x, axis=axis, sizes=sizes)).outputs)
    if made.choose.chance(30):
        at = made.choose.integer(0, len(parts) - 1)
        parts[at] = made.emit(made.choose.pick(("neg", "relu")), parts[at])
    return made.emit("concat", *_perhaps_disturbed(made, parts), axis=axis)


def _patches(made: Composition, x: Value) -> Value:
    """Space to depth by slices with steps."""
    rank = x.tensor.rank
    even = [
        axis for axis, size in enumerate(x.shape) if isinstance(size, int) and (size % 2 == 0) is made.choose.chance(90)
    ]
    count = made.choose.integer(1, 2)
    if len(even) < count or rank == count:
        raise CapgraphError("there is nothing to cut")
    axes = tuple(even[-count:] if made.choose.chance(70) else even[:count])
    joined = made.choose.pick([axis for axis in range(rank) if axis not in axes or made.choose.chance(10)] or [0])
    starts = [(0,), (1,)] if count == 1 else made.choose.pick(_ORDERS)
    far = [made.choose.pick(((1 << 31) - 1, size)) if isinstance(size, int) else (1 << 31) - 1 for size in x.shape]
    parts = [
        made.emit("slice", x, axes=axes, starts=start, ends=tuple(far[axis] for axis in axes), steps=(2,) * count)
        for start in starts
    ]
    return made.emit("concat", *_perhaps_disturbed(made, parts) if made.choose.chance(20) else parts, axis=joined)


_ORDERS = (
    [(0, 0), (1, 0), (0, 1), (1, 1)],
    [(0, 0), (0, 1), (1, 0), (1, 1)],
    [(0, 1), (0, 0), (1, 0), (1, 1)],
)


def _nested_concats(made: Composition, x: Value) -> Value:
    axis = made.any_axis(x)
    inner = made.emit("concat", x, x, axis=axis)
    other = made.emit(made.choose.pick(("neg", "abs")), x)
    return made.emit("concat", *((inner, other) if made.choose.chance(50) else (other, inner)), axis=axis)


# ---- repeated and moved operands


def _repeated_operand(made: Composition, x: Value) -> Value:
    """An expand before arithmetic that broadcasts anyway, or not."""
    shape = tuple(1 if made.choose.chance(60) else dim for dim in x.shape)
    small = made.draw.input(TensorType(made.dtype, shape[made.choose.integer(0, len(shape)) :]))
    grown = tuple(2 if dim == 1 and made.choose.chance(10) else dim for dim in x.shape)
    wide = made.emit("expand", small, shape=grown)
    other = x if made.choose.chance(70) else made.weight((1,) * made.choose.integer(0, 2))
    op = made.choose.pick(("add", "mul", "sub", "div", "greater"))
    result = made.emit(op, *((wide, other) if made.choose.chance(50) else (other, wide)))
    return made.emit("cast", result, to=made.dtype) if op == "greater" else result


def _moved(made: Composition, x: Value) -> Value:
    """Transposes before arithmetic, reductions, padding, slices and activations, and another after them."""
    rank = x.tensor.rank
    perm = tuple(axis % rank for axis in made.draw.axes(rank, rank))
    moved = made.emit("transpose", x, perm=perm)
    for _ in range(made.choose.integer(1, 3)):
        moved = made.choose.pick(_BETWEEN)(made, moved, perm)
    if moved.tensor.rank != rank:
        return moved
    back = tuple(perm.index(axis) for axis in range(rank))
    return made.emit("transpose", moved, perm=back if made.choose.chance(70) else perm)


def _with_constant(made: Composition, x: Value, _perm: tuple[int, ...]) -> Value:
    shape = [dim if isinstance(dim, int) and made.choose.chance(50) else 1 for dim in x.shape]
    other = made.weight(shape[made.choose.integer(0, len(shape)) :])
    op = made.choose.pick(("add", "mul", "sub", "div", "max"))
    return made.emit(op, *((x, other) if made.choose.chance(60) else (other, x)))


def _with_moved(made: Composition, x: Value, perm: tuple[int, ...]) -> Value:
    """Together with another tensor that is transposed alike."""
    if x.tensor.rank != len(perm):
        raise CapgraphError("an axis is gone")
    shape = tuple(x.shape[perm.index(axis)] for axis in range(len(perm)))
    other = made.draw.input(TensorType(made.dtype, tuple(1 if made.choose.chance(20) else dim for dim in shape)))
    return made.emit(made.choose.pick(("add", "mul", "sub")), x, made.emit("transpose", other, perm=perm))


def _reduced(made: Composition, x: Value, _perm: tuple[int, ...]) -> Value:
    if not x.tensor.rank:
        raise CapgraphError("no axis is left")
    op = made.choose.pick(("reduce_mean", "reduce_sum", "reduce_max"))
    return made.emit(op, x, axes=made.draw.axes(x.tensor.rank, 1), keep_dims=made.choose.chance(70))


def _activated(made: Composition, x: Value, _perm: tuple[int, ...]) -> Value:
    op = made.choose.pick(("relu", "sigmoid", "neg", "softmax"))
    return made.emit(op, x, axis=made.any_axis(x)) if op == "softmax" else made.emit(op, x)


def _padded(made: Composition, x: Value, _perm: tuple[int, ...]) -> Value:
    return made.emit("pad", x, None, pads=made.draw.ints(2 * x.tensor.rank, 0, 1), mode="constant")


_BETWEEN: tuple[Callable[[Composition, Value, tuple[int, ...]], Value], ...] = (
    _with_constant,
    _with_constant,
    _with_moved,
    _reduced,
    _activated,
    _padded,
)

# ---- windows


def _whole_pool(made: Composition, x: Value) -> Value:
    spatial = x.tensor.rank - 2
    kernel = tuple(made.plain(x, axis + 2) + made.choose.pick((0, 0, 0, -1, 1)) for axis in range(spatial))
    options: dict[str, Any] = {"kernel": kernel, "strides": made.draw.ints(spatial, 1, 2), "pads": (0,) * (2 * spatial)}
    options |= {"ceil_mode": made.choose.chance(40), "dilations": (1,) * spatial}
    if made.choose.chance(40):
        return made.emit("max_pool", x, **options)
    return made.emit("average_pool", x, count_include_pad=made.choose.chance(50), **options)


def _padding_before_windows(made: Composition, x: Value) -> Value:
    spatial = x.tensor.rank - 2
    begins, ends = made.draw.ints(spatial, 0, 1), made.draw.ints(spatial, 0, 1)
    value = made.weight(()) if made.choose.chance(30) else None
    padded = made.emit("pad", x, value, pads=(0, 0, *begins, 0, 0, *ends), mode="constant")
    if made.choose.chance(40):
        channels = made.plain(x, 1)
        weight = made.weight((2, channels, *(2,) * spatial))
        ones, pads = (1,) * spatial, made.draw.ints(2 * spatial, 0, 1)
        return made.emit("conv", padded, weight, None, strides=ones, pads=pads, dilations=ones, groups=1)
    pads = made.draw.ints(2 * spatial, 0, 1) if made.choose.chance(40) else (0,) * (2 * spatial)
    options = {"kernel": (2,) * spatial, "strides": made.draw.ints(spatial, 1, 2), "pads": pads}
    options["dilations"] = (1,) * spatial
    ceil, counts = made.choose.chance(20), made.choose.chance(50)
    return made.emit("average_pool", padded, ceil_mode=ceil, count_include_pad=counts, **options)


# ---- constants around matmuls


def _affine(made: Composition, x: Value, axis: int) -> Value:
    """A factor or addend along one axis, or a batch norm."""
    size = made.plain(x, axis)
    if axis == 1 and made.choose.chance(40):
        kind = made.choose.integer(0, 2)  # all of it, a factor alone, an addend alone
        gain = made.weight((size,)) if kind != 2 else _filled(made, size, 1.0)
        bias = made.weight((size,)) if kind != 1 else _filled(made, size, 0.0)
        mean = made.weight((size,)) if kind == 0 else _filled(made, size, 0.0)
        variance = made.weight((size,), positive=True) if kind == 0 else _filled(made, size, 1.0)
        return made.emit("batch_norm", x, gain, bias, mean, variance, epsilon=1e-5 if kind == 0 else 0.0)
    shape = [1] * x.tensor.rank
    shape[axis] = size if made.choose.chance(80) else 1
    other = made.weight(shape[axis if made.choose.chance(30) else 0 :])
    op = made.choose.pick(("mul", "add", "sub", "div"))
    return made.emit(op, *((x, other) if made.choose.chance(75) else (other, x)))


def _filled(made: Composition, size: int, number: float) -> Value:
    return made.emit("constant", value=Constant(np.full(size, number).astype(made.dtype.numpy), made.dtype))


def _matmul(made: Composition, x: Value) -> tuple[Value, int]:
    """A matmul with a weight, and the axis of its channels."""
    if made.choose.chance(50):
        spatial, channels = x.tensor.rank - 2, made.plain(x, 1)
        groups = made.choose.pick((1, 1, channels or 1))
        shape = (groups * 2, channels // groups, *made.draw.ints(spatial, 1, 2))
        bias = made.weight((groups * 2,)) if made.choose.chance(50) else None
        pads, ones = made.draw.ints(2 * spatial, 0, 1), (1,) * spatial
        weight = made.weight(shape)
        return made.emit("conv", x, weight, bias, strides=ones, pads=pads, dilations=ones, groups=groups), 1
    weight = made.weight((made.plain(x, -1), 3))
    if x.tensor.rank == 2 and made.choose.chance(50):
        if made.choose.chance(50):
            weight = made.emit("transpose", made.weight((3, made.plain(x, -1))), perm=(1, 0))
        bias = made.weight((3,)) if made.choose.chance(50) else None
        return made.emit("gemm", x, weight, bias, alpha=1.0, beta=1.0, trans_a=False, trans_b=False), 1
    return made.emit("matmul", x, weight), x.tensor.rank - 1


def _affine_around_matmul(made: Composition, x: Value) -> Value:
    for _ in range(made.choose.integer(0, 2)):
        x = _affine(made, x, 1 if made.choose.chance(60) else x.tensor.rank - 1)
    if made.choose.chance(20):
        x = made.emit("concat", x, made.emit("neg", x), axis=1)
    made_by, axis = _matmul(made, x)
    for _ in range(made.choose.integer(0, 2)):
        made_by = _affine(made, made_by, axis)
    return made_by


# ---- norms of groups


def _group_norm(made: Composition, x: Value) -> Value:
    channels = made.plain(x, 1)
    groups = made.choose.pick((1, 2, channels or 1))
    rest: Dim = channels // groups
    for dim in x.shape[2:]:
        rest = rest * dim
    grouped = made.emit("reshape", x, shape=(x.shape[0], groups, rest)) if made.choose.chance(75) else x
    if made.choose.chance(50) and grouped.tensor.rank > 2:
        count = made.plain(grouped, 1)
        ones, zeros = _filled(made, count, 1.0), _filled(made, count, 0.0)
        normal = made.emit("instance_norm", grouped, ones, zeros, epsilon=1e-5)
    else:
        normal = made.emit("layer_norm", grouped, None, None, axis=made.choose.pick((2, 2, 1, -1)), epsilon=1e-5)
    back = made.emit("reshape", normal, shape=x.shape) if grouped is not x else normal
    scale, bias = (made.weight((channels, *(1,) * (x.tensor.rank - 2))) for _ in range(2))
    return made.emit("add", made.emit("mul", back, scale), bias)


def _hard_swish(made: Composition, x: Value) -> Value:
    three, six = (made.emit("constant", value=Constant(np.array(n, made.dtype.numpy), made.dtype)) for n in (3.0, 6.0))
    zero = made.emit("constant", value=Constant(np.array(0.0, made.dtype.numpy), made.dtype))
    to_six = made.emit("clip", made.emit("add", x, three), zero, six)
    if made.choose.chance(50):
        return made.emit("mul", x, made.emit("div", to_six, six))
    return made.emit("div", made.emit("mul", x, to_six), six)


FORMS: tuple[Callable[[Composition, Value], Value], ...] = (
    _joined_slices,
    _joined_split,
    _patches,
    _nested_concats,
    _repeated_operand,
    _moved,
    _moved,
    _whole_pool,
    _padding_before_windows,
    _affine_around_matmul,
    _affine_around_matmul,
    _affine_around_matmul,
    _group_norm,
    _hard_swish,
)
