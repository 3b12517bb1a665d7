"""Complex tensors: pairs of real and imaginary parts along a last axis, as native ops compute with real numbers.

A tensor c64[...] is a `Pairs` over f32[..., 2]. Its axes, counted from the front, are those of the value, so that rules
which move elements work on the value itself. What has no rule here runs in PyTorch, between conversions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.dims import Dim, product
from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, NoLowering, axes_of, axis_of
from .strided import as_strided, as_strided_scatter


@dataclass(frozen=True)
class Pairs:
    """A complex tensor; `value` has its shape and a last axis of size 2."""

    value: Value

    @property
    def rank(self) -> int:
        """The rank of the complex tensor."""
        return self.value.tensor.rank - 1

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of the complex tensor."""
        return self.value.shape[:-1]


Rule = Callable[..., Any]
PART_TYPES = {DType.C64: DType.F32, DType.C128: DType.F64}
"""The dtype of the parts of complex numbers."""


def parts_type(c: Call) -> DType:
    """The dtype of the parts of the call's complex result."""
    return PART_TYPES[c.dtype]


def pairs_of(c: Call, x: Any, dtype: DType) -> Pairs:
    """A tensor or number, real or complex, as pairs of `dtype`."""
    if isinstance(x, Pairs):
        return Pairs(c.cast(x.value, dtype))
    if isinstance(x, complex):
        return Pairs(c.constant([x.real, x.imag], dtype))
    real = c.value(x, dtype)
    return joined(c, real, c.expand(c.full_like(real, 0.0), real.shape))


def joined(c: Call, real: Value, imaginary: Value) -> Pairs:
    """Pairs of parts of one shape."""
    rank = real.tensor.rank
    return Pairs(c.op("concat", c.unsqueeze(real, rank), c.unsqueeze(imaginary, rank), axis=rank))


def parts(c: Call, x: Pairs) -> tuple[Value, Value]:
    """The real and the imaginary parts."""
    real, imaginary = c.ops("split", x.value, axis=x.rank, sizes=(1, 1))
    return c.squeeze(real, x.rank), c.squeeze(imaginary, x.rank)


def _both(c: Call, a: Any, b: Any) -> tuple[Pairs, Pairs]:
    """Two operands as pairs whose axes broadcast: the axis of the parts stays the last."""
    dtype = parts_type(c)
    return pairs_of(c, a, dtype), pairs_of(c, b, dtype)


# ---- parts


def _of_parts(c: Call, real: Value, imaginary: Value) -> Pairs:
    shape = c.shape
    dtype = parts_type(c)
    return joined(c, *(c.expand(c.cast(part, dtype), shape) for part in (real, imaginary)))


def _polar(c: Call, size: Value, angle: Value) -> Pairs:
    shape, (size, angle) = c.shape, (c.cast(each, parts_type(c)) for each in (size, angle))
    return joined(c, *(c.expand(c.op("mul", size, c.op(name, angle)), shape) for name in ("cos", "sin")))


def _part(place: int) -> Rule:
    return lambda c, x, *_: parts(c, x)[place] if isinstance(x, Pairs) else x


def _size(c: Call, x: Pairs) -> Value:
    return c.op("reduce_l2", x.value, axes=(x.rank,), keep_dims=False)


def _angle(c: Call, x: Pairs) -> Value:
    from .pointwise import TABLE

    real, imaginary = parts(c, x)
    return TABLE["aten.atan2"](c, imaginary, real)  # type: ignore[return-value]


def _conjugate(c: Call, x: Any) -> Any:
    if not isinstance(x, Pairs):
        return x
    return Pairs(c.op("mul", x.value, c.constant([1.0, -1.0], x.value.tensor.dtype)))


# ---- arithmetic


def _sum(sign: int) -> Rule:
    """The sum with `sign * alpha` times the other operand; PyTorch multiplies numbers as complex ones."""

    def rule(c: Call, a: Any, b: Any, alpha: Any = 1) -> Pairs:
        if isinstance(b, int | float | complex):
            left, right = _both(c, a, complex(b) * complex(sign * alpha))
            return Pairs(c.op("add", left.value, right.value))
        left, right = _both(c, a, b)
        return Pairs(c.op("add" if sign > 0 else "sub", left.value, _times(c, right, alpha).value))

    return rule


def _times(c: Call, x: Pairs, factor: Any) -> Pairs:
    if factor == 1:
        return x
    if isinstance(factor, complex):
        raise NoLowering("a complex factor")
    return Pairs(c.op("mul", x.value, c.full_like(x.value, factor)))


def _product(c: Call, a: Any, b: Any) -> Pairs:
    scaled = _scaled(c, a, b) or _scaled(c, b, a)
    return scaled or _by_parts(c, "mul", *_both(c, a, b))


def _scaled(c: Call, a: Any, b: Any) -> Pairs | None:
    """`a` by a real `b`, as by b + 0i: so infinities make NaN of the other part, and zeros have their signs."""
    product = _by_real("mul", c, a, b)
    if product is None:
        return None
    turned = c.op("reverse", c.cast(a.value, parts_type(c)), axes=(a.rank,))
    return Pairs(c.op("add", product.value, c.op("mul", turned, c.constant([-0.0, 0.0], parts_type(c)))))


def _by_parts(c: Call, native: str, left: Pairs, right: Pairs) -> Pairs:
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i, for a product of any kind."""
    (ar, ai), (br, bi) = parts(c, left), parts(c, right)
    real = c.op("sub", c.op(native, ar, br), c.op(native, ai, bi))
    return joined(c, real, c.op("add", c.op(native, ar, bi), c.op(native, ai, br)))


def _by_real(native: str, c: Call, a: Any, b: Any) -> Pairs | None:
    """`a` by a real tensor or number `b`, both parts alike; None if `b` is complex or `a` is not."""
    if not isinstance(a, Pairs) or isinstance(b, Pairs | complex):
        return None
    x, y = c.cast(a.value, parts_type(c)), c.value(b, parts_type(c))
    return Pairs(c.op(native, x, c.unsqueeze(y, y.tensor.rank) if y.tensor.rank else y))


def _quotient(c: Call, a: Any, b: Any, rounding_mode: str | None = None) -> Pairs:
    if rounding_mode is not None:
        raise NoLowering("complex numbers are not rounded")
    real = _by_real("div", c, a, b)
    if real is not None:
        return real
    left, right = _both(c, a, b)
    size = c.op("reduce_sum_square", right.value, axes=(right.rank,), keep_dims=True)
    above = _product(c, left, _conjugate(c, right))
    return Pairs(c.op("div", above.value, size))


def _exponential(c: Call, x: Pairs) -> Pairs:
    real, imaginary = parts(c, x)
    return _polar(c, c.op("exp", real), imaginary)


def _square(c: Call, x: Pairs, exponent: Any = 2) -> Pairs:
    if exponent != 2:
        raise NoLowering("a power of a complex number")
    return _product(c, x, x)


def _matmul(c: Call, a: Any, b: Any) -> Pairs:
    left, right = _both(c, a, b)
    if min(left.rank, right.rank) < 2:
        raise NoLowering("a matmul with a vector")
    return _by_parts(c, "matmul", left, right)


def _total(native: str) -> Rule:
    def rule(c: Call, x: Any, axes: Any = None, keep: bool = False, *_: Any) -> Pairs:
        pairs = pairs_of(c, x, parts_type(c))
        given = axes if isinstance(axes, list | int) else None
        over = axes_of(given, pairs.rank) if pairs.rank else ()
        return Pairs(c.op(native, pairs.value, axes=over, keep_dims=bool(keep)) if over else pairs.value)

    return rule


def _chosen(c: Call, condition: Value, x: Any, y: Any) -> Pairs:
    left, right = _both(c, x, y)
    return Pairs(c.op("where", c.unsqueeze(condition, condition.tensor.rank), left.value, right.value))


def _same(native: str) -> Rule:
    """Comparisons: two numbers are equal if both parts are."""

    def rule(c: Call, a: Any, b: Any) -> Value:
        dtype = next(x.value.tensor.dtype for x in (a, b) if isinstance(x, Pairs))
        left, right = (pairs_of(c, x, dtype) for x in (a, b))
        equal = parts(c, Pairs(c.cast(c.op("equal", left.value, right.value), DType.U8)))
        found = c.cast(c.op("min", *equal), DType.BOOL)
        return found if native == "equal" else c.op("logical_not", found)

    return rule


# ---- the same elements, moved


def _transpose(c: Call, x: Pairs, first: int, second: int) -> Pairs:
    return Pairs(c.swap(x.value, axis_of(first, x.rank), axis_of(second, x.rank))) if x.rank else x


def _slice(c: Call, x: Pairs, dim: int, start: Any, end: Any, step: int) -> Pairs:
    axis = axis_of(dim, x.rank)
    last = x.shape[axis] if end is None or (isinstance(end, int) and end >= 1 << 62) else end
    return Pairs(c.slice(x.value, axis, 0 if start is None else start, last, step))


def _select(c: Call, x: Pairs, dim: int, index: Any) -> Pairs:
    axis = axis_of(dim, x.rank)
    if isinstance(index, Value):
        return Pairs(c.op("gather", x.value, index, axis=axis))
    return Pairs(c.select(x.value, axis, x.shape[axis] + index if isinstance(index, int) and index < 0 else index))


def _flip(c: Call, x: Pairs, dims: Sequence[int]) -> Pairs:
    if not x.rank:
        return x
    return Pairs(c.op("reverse", x.value, axes=tuple(axis_of(axis, x.rank) for axis in dims)))


def _index_select(c: Call, x: Pairs, dim: int, index: Value) -> Pairs:
    if not x.rank:
        raise NoLowering("an axis of a single number")
    return Pairs(c.op("gather", x.value, c.reshape(index, (product(index.shape),)), axis=axis_of(dim, x.rank)))


def _roll(c: Call, x: Pairs, shifts: Sequence[int], dims: Sequence[int]) -> Pairs:
    if not dims or not x.rank:
        raise NoLowering("rolling all elements")
    axes = tuple(axis_of(axis, x.rank) for axis in dims)
    return Pairs(c.op("roll", x.value, axes=axes, shifts=tuple(shifts)))


def _concatenate(c: Call, tensors: Sequence[Any], dim: int = 0) -> Pairs:
    """One behind another; tensors of shape [0] do not count, as they fit to any."""
    dtype, rank = parts_type(c), len(c.shape)
    counted = [pairs_of(c, x, dtype).value for x in tensors if rank == 1 or x.shape != (0,)]
    return Pairs(c.op("concat", *counted, axis=axis_of(dim, rank)) if len(counted) > 1 else counted[0])


def _written_by_strides(c: Call, x: Pairs, source: Any, *given: Any) -> Pairs:
    return Pairs(as_strided_scatter(c, x.value, pairs_of(c, source, x.value.tensor.dtype).value, *given))


def _stack(c: Call, tensors: Sequence[Any], dim: int = 0) -> Pairs:
    dtype, axis = parts_type(c), axis_of(dim, len(c.shape))
    return Pairs(c.op("concat", *(c.unsqueeze(pairs_of(c, x, dtype).value, axis) for x in tensors), axis=axis))


def _alias(_c: Call, x: Any, *_: Any) -> Any:
    return x


def _cast(c: Call, x: Any, *_: Any) -> Any:
    if c.dtype in PART_TYPES:
        return pairs_of(c, x, parts_type(c))
    return c.cast(parts(c, x)[0], c.dtype)  # PyTorch drops the imaginary part


def _filled(number: float) -> Rule:
    return lambda c, *_: _constant(c, complex(number))


def _full(c: Call, _shape_or_like: Any, number: Any, *_: Any) -> Pairs:
    if isinstance(number, Value | Pairs):
        raise NoLowering("a tensor as fill")
    return _constant(c, complex(number))


def _constant(c: Call, number: complex) -> Pairs:
    shape = c.shape
    return Pairs(c.expand(c.constant([number.real, number.imag], parts_type(c)), (*shape, 2)))


# ---- spectra


def _scale(c: Call, x: Value, normalization: int, sizes: Sequence[Dim], is_inverse: bool) -> Value:
    """Scaled as PyTorch asks for: 0 not at all, 1 by the root of the number of elements, 2 by it.

    The native transform divides by that number when it goes back.
    """
    count = product(sizes)
    if not isinstance(count, int):
        raise NoLowering("a spectrum whose length calls choose")
    factor = {0: 1.0, 1: count**-0.5, 2: 1.0 / count}[normalization] * (count if is_inverse else 1)
    return x if factor == 1 else c.op("mul", x, c.full_like(x, factor))


def _real_to_complex(c: Call, x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Pairs:
    axes = [axis_of(axis, x.tensor.rank) for axis in dim]
    found = c.unsqueeze(x, x.tensor.rank)
    for place, axis in enumerate(reversed(axes)):
        found = c.op("dft", found, axis=axis, onesided=onesided and place == 0)
    return Pairs(_scale(c, found, normalization, [x.shape[axis] for axis in axes], False))


def _complex_to_complex(c: Call, x: Pairs, dim: Sequence[int], normalization: int, forward: bool) -> Pairs:
    axes = [axis_of(axis, x.rank) for axis in dim]
    found = x.value
    for axis in axes:
        found = c.op("dft", found, axis=axis, inverse=not forward)
    return Pairs(_scale(c, found, normalization, [x.shape[axis] for axis in axes], not forward))


def _complex_to_real(c: Call, x: Pairs, dim: Sequence[int], normalization: int, last: Dim) -> Value:
    axes = [axis_of(axis, x.rank) for axis in dim]
    found = x.value
    for axis in axes[:-1]:
        found = c.op("dft", found, axis=axis, inverse=True)
    found = c.op("dft", found, axis=axes[-1], inverse=True, onesided=True, length=last)
    sizes = [*(x.shape[axis] for axis in axes[:-1]), last]
    return _scale(c, c.squeeze(found, x.rank), normalization, sizes, True)


_MOVED: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            *("aten.view.default", "aten.reshape", "aten._unsafe_view", "aten.flatten", "aten.unflatten"),
            *("aten.view_copy.default", "aten.ravel", "aten.unsqueeze", "aten.squeeze", "aten.unsqueeze_copy"),
        ),
        lambda c, x, *_: Pairs(c.reshape(x.value, (*c.shape, 2))),
    ),
    **dict.fromkeys(
        (
            *("aten.alias", "aten.clone", "aten.detach", "aten.contiguous", "aten.lift_fresh_copy", "aten.alias_copy"),
            *("aten.resolve_conj", "aten.resolve_neg", "aten.detach_"),
        ),
        _alias,
    ),
    **dict.fromkeys(("aten._to_copy", "aten.to", "prims.convert_element_type"), _cast),
    "aten.expand": lambda c, x, *_: Pairs(c.expand(x.value, (*c.shape, 2))),
    "aten.permute": lambda c, x, dims: Pairs(c.transpose(x.value, [*(axis_of(axis, x.rank) for axis in dims), x.rank])),
    "aten.transpose.int": _transpose,
    "aten.t": lambda c, x: Pairs(c.swap(x.value, 0, 1)) if x.rank == 2 else x,
    "aten.slice.Tensor": _slice,
    "aten.select.int": _select,
    "aten.flip": _flip,
    "aten.index_select": _index_select,
    "aten.roll": _roll,
    "aten.cat": _concatenate,
    "aten.stack": _stack,
    "aten.as_strided": lambda c, x, *given: Pairs(as_strided(c, x, *given)),
    "aten.as_strided_scatter": _written_by_strides,
}

RULES: Mapping[str, Rule] = {
    **_MOVED,
    "aten.view_as_complex": lambda _c, x: Pairs(x),
    "aten.view_as_real": lambda _c, x: x.value,
    "aten.complex": _of_parts,
    "aten.polar": _polar,
    "aten.real": _part(0),
    "aten.imag": _part(1),
    "aten.abs": _size,
    "aten.angle": _angle,
    "aten._conj": _conjugate,
    "aten._conj_physical": _conjugate,
    "aten.conj": _conjugate,
    "aten.conj_physical": _conjugate,
    "aten.add": _sum(1),
    "aten.sub": _sum(-1),
    "aten.mul": _product,
    "aten.div": _quotient,
    "aten.neg": lambda c, x: Pairs(c.op("neg", x.value)),
    "aten.exp": _exponential,
    "aten.square": _square,
    "aten.pow.Tensor_Scalar": _square,
    "aten.mm": _matmul,
    "aten.bmm": _matmul,
    "aten.matmul": _matmul,
    "aten.sum": _total("reduce_sum"),
    "aten.mean": _total("reduce_mean"),
    "aten.where.self": _chosen,
    "aten.eq": _same("equal"),
    "aten.ne": _same("not_equal"),
    **dict.fromkeys(("aten.zeros", "aten.zeros_like", "aten.new_zeros"), _filled(0.0)),
    **dict.fromkeys(("aten.ones", "aten.ones_like", "aten.new_ones"), _filled(1.0)),
    "aten.full": _full,
    "aten.full_like": _full,
    "aten._fft_r2c": _real_to_complex,
    "aten._fft_c2c": _complex_to_complex,
    "aten._fft_c2r": _complex_to_real,
}
"""By `aten.name.overload`, or `aten.name` for all overloads. They take and give `Pairs` where PyTorch has complex."""


def content_pairs(array: Any) -> Any:
    """A complex array as pairs, over the same memory where it is contiguous."""
    plain = np.ascontiguousarray(array)
    return plain.view(np.float32 if plain.dtype == np.complex64 else np.float64).reshape(*array.shape, 2)
