"""Other shapes, orders and dtypes of the same elements; joining and splitting."""

from collections.abc import Sequence
from typing import Any

from ....ir.dims import Dim, dim_max, dim_min, product
from ....ir.graph import Value
from ....ir.types import DType, Kind
from ..call import Call, Lowering, NoLowering, axis_of
from ..dtypes import dtype_of
from .strided import written_for_all

_FAR = 1 << 62  # stands for an end beyond any size


def _cast(c: Call, x: Value, dtype: DType) -> Value:
    if not isinstance(x, Value):  # a number that PyTorch has made a tensor's argument
        return c.value(x, dtype)
    if x.tensor.dtype.kind is Kind.COMPLEX and dtype is not x.tensor.dtype:
        raise NoLowering("a cast from complex numbers")
    return c.cast(x, dtype)


def _copied(c: Call, x: Value, source: Value, *_: Any) -> Value:
    """The content of `source`, as `x` takes it in."""
    return c.expand(_cast(c, source, x.tensor.dtype), x.shape)


def _view(c: Call, x: Value, shape: Any) -> Value:
    if not isinstance(shape, list):
        return c.op("bit_cast", x, to=dtype_of(shape)) if dtype_of(shape).bits == x.tensor.dtype.bits else _refuse()
    return c.reshape(x, c.shape)


def _refuse() -> Value:
    raise NoLowering("bits seen as elements of another size")


def _to_shape(c: Call, x: Value, *_: Any) -> Value:
    """The same elements in the shape that PyTorch says the result has."""
    return c.reshape(x, c.shape)


def _expand(c: Call, x: Value, *_: Any) -> Value:
    return c.expand(x, c.shape)


def _permute(c: Call, x: Value, dims: Sequence[int]) -> Value:
    return c.transpose(x, [axis_of(axis, x.tensor.rank) for axis in dims])


def _transpose(c: Call, x: Value, first: int, second: int) -> Value:
    rank = x.tensor.rank
    return c.swap(x, axis_of(first, rank), axis_of(second, rank)) if rank else x


def _movedim(c: Call, x: Value, source: Any, destination: Any) -> Value:
    rank = x.tensor.rank
    origin = [axis_of(a, rank) for a in (source if isinstance(source, list) else [source])]
    target = [axis_of(a, rank) for a in (destination if isinstance(destination, list) else [destination])]
    rest = iter([axis for axis in range(rank) if axis not in origin])
    placed = dict(zip(target, origin, strict=True))
    return c.transpose(x, [placed[axis] if axis in placed else next(rest) for axis in range(rank)])


def _unsqueeze(c: Call, x: Value, dim: int) -> Value:
    return c.unsqueeze(x, axis_of(dim, x.tensor.rank + 1))


def _squeeze(c: Call, x: Value, dims: Any = None) -> Value:
    """Without the axes (all of them for None) that PyTorch knows to have size 1."""
    if dims is None:
        listed: Sequence[int] = range(x.tensor.rank)
    else:
        listed = dims if isinstance(dims, list) else [dims]
    axes = {axis_of(axis, x.tensor.rank) for axis in listed} if x.tensor.rank else set()
    found = c.squeeze(x, *sorted(axis for axis in axes if x.shape[axis] == 1))
    return found if found.tensor.rank == c.rank else c.reshape(found, c.shape)  # a guard may tell of more


def _slice(c: Call, x: Value, dim: int, start: Dim | None, end: Dim | None, step: int) -> Value:
    if isinstance(start, Value) or isinstance(end, Value):
        raise NoLowering("bounds that running tells")
    axis = axis_of(dim, x.tensor.rank)
    first = 0 if start is None else start
    last = x.shape[axis] if end is None or (isinstance(end, int) and end >= _FAR) else end
    if first == 0 and last == x.shape[axis] and step == 1:
        return x
    if not c.may_mention((first, last), x):
        raise NoLowering("bounds that running tells")
    return c.declared("slice", x, axes=(axis,), starts=(first,), ends=(last,), steps=(step,))


def _select(c: Call, x: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, x.tensor.rank)
    if isinstance(index, Value):
        return c.op("gather", x, index, axis=axis)
    if isinstance(index, int) and index < 0:
        index = x.shape[axis] + index
    if not c.may_mention((index,), x):
        raise NoLowering("an index that running tells")
    return c.select(x, axis, index)


def _narrow(c: Call, x: Value, dim: int, start: Any, length: Dim) -> Value:
    if isinstance(start, Value):
        raise NoLowering("a start that running tells")
    first = x.shape[axis_of(dim, x.tensor.rank)] + start if isinstance(start, int) and start < 0 else start
    return _slice(c, x, dim, first, first + length, 1)


def _cat(c: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    """One behind another; tensors of shape [0] do not count, as they fit to any."""
    given = [c.cast(x, c.dtype) for x in tensors]
    counted = [x for x in given if x.shape != (0,)] if c.rank != 1 else given
    kept = counted or given
    return kept[0] if len(kept) == 1 else c.op("concat", *kept, axis=axis_of(dim, kept[0].tensor.rank))


def _stack(c: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = axis_of(dim, c.rank)
    return c.op("concat", *(c.unsqueeze(c.cast(x, c.dtype), axis) for x in tensors), axis=axis)


def _parts(c: Call, x: Value, axis: int) -> list[Value]:
    """Parts as long as PyTorch says the results are."""
    sizes = [c.sizes.dim(result.shape[axis]) for result in c.results]
    if not c.may_mention(sizes, x):
        raise NoLowering("sizes that running tells")
    return [x] if len(sizes) == 1 else list(c.ops("split", x, axis=axis, sizes=tuple(sizes)))


def _split(c: Call, x: Value, _sizes: Any, dim: int = 0) -> list[Value]:
    return _parts(c, x, axis_of(dim, x.tensor.rank))


def _unbind(c: Call, x: Value, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, x.tensor.rank)
    if len(c.results) == 1:
        return [c.squeeze(x, axis)]
    parts = c.ops("split", x, axis=axis, sizes=(1,) * len(c.results))
    return [c.squeeze(part, axis) for part in parts]


def _repeat(c: Call, x: Value, repeats: Sequence[Dim]) -> Value:
    wide = c.unsqueeze(x, *range(len(repeats) - x.tensor.rank))
    return wide if all(count == 1 for count in repeats) else c.op("tile", wide, repeats=tuple(repeats))


def _repeat_interleave(c: Call, x: Value, repeats: Dim, dim: int | None = None, *_: Any) -> Value:
    """Each slice `repeats` times in a row."""
    flat = c.reshape(x, (product(x.shape),)) if dim is None else x
    axis = 0 if dim is None else axis_of(dim, x.tensor.rank)
    shape = [*flat.shape[: axis + 1], repeats, *flat.shape[axis + 1 :]]
    return c.reshape(c.expand(c.unsqueeze(flat, axis + 1), shape), c.shape)


def _flip(c: Call, x: Value, dims: Sequence[int]) -> Value:
    axes = tuple(axis_of(axis, x.tensor.rank) for axis in dims)
    return c.op("reverse", x, axes=axes) if axes and x.tensor.rank else x


def _roll(c: Call, x: Value, shifts: Sequence[int], dims: Sequence[int]) -> Value:
    given = shifts if isinstance(shifts, list) else [shifts]
    if not all(isinstance(shift, int) for shift in given):
        raise NoLowering("a shift by a symbolic size")
    if not dims:
        flat = c.reshape(x, (product(x.shape),))
        return c.reshape(c.op("roll", flat, axes=(0,), shifts=tuple(given)), x.shape)
    axes = tuple(axis_of(axis, x.tensor.rank) for axis in dims)
    return c.op("roll", x, axes=axes, shifts=tuple(given)) if x.tensor.rank else x


def _by_images(c: Call, x: Value, native: str, factor: int, mode: str) -> Value:
    """Of [..., C, H, W] with any leading axes."""
    images = c.reshape(x, (product(x.shape[:-3]), *x.shape[-3:]))
    return c.reshape(c.op(native, images, block_size=factor, mode=mode), c.shape)


def _channel_shuffle(c: Call, x: Value, groups: int) -> Value:
    batch, channels, *rest = x.shape
    grouped = c.reshape(x, (batch, groups, channels // groups, *rest))
    return c.reshape(c.swap(grouped, 1, 2), x.shape)


def _pad_with_number(c: Call, x: Value, pads: Sequence[Dim], value: Any) -> Value:
    return c.op("pad", x, c.full_like(x, value), pads=_all_pads(x, pads), mode="constant")


def _pad_by(mode: str) -> Lowering:
    def lower(c: Call, x: Value, pads: Sequence[Dim]) -> Value:
        """Made larger first and then cut, where pads are negative."""
        grown = [0 if _is_negative(size) else size for size in pads]
        x = c.op("pad", x, None, pads=_all_pads(x, grown), mode=mode) if any(size != 0 for size in grown) else x
        cut = [size if _is_negative(size) else 0 for size in pads]
        return c.op("pad", x, None, pads=_all_pads(x, cut)) if any(size != 0 for size in cut) else x

    return lower


def _is_negative(size: Dim) -> bool:
    return isinstance(size, int) and size < 0


def _all_pads(x: Value, pads: Sequence[Dim]) -> tuple[Dim, ...]:
    """PyTorch lists (begin, end) from the last axis on; the IR all begins, then all ends."""
    begins: list[Dim] = [0] * x.tensor.rank
    ends: list[Dim] = [0] * x.tensor.rank
    for place in range(len(pads) // 2):
        begins[-1 - place], ends[-1 - place] = pads[2 * place], pads[2 * place + 1]
    return (*begins, *ends)


def _unfold(c: Call, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along an axis, as a new last axis: read at their positions."""
    if not x.tensor.rank:
        return c.reshape(x, (size,))
    axis = axis_of(dim, x.tensor.rank)
    count = (x.shape[axis] - size) // step + 1
    starts = c.op("arange", start=0, limit=count * step, step=step)
    places = c.op("add", c.unsqueeze(starts, 1), c.op("arange", limit=size))
    windows = c.op("gather", x, places, axis=axis)
    rank = windows.tensor.rank
    order = [*range(axis + 1), *range(axis + 2, rank), axis + 1]
    return c.transpose(windows, order)


def _diagonal(c: Call, x: Value, offset: int, dim1: int, dim2: int) -> Value:
    """The elements of a diagonal, read at their places of the two axes taken as one."""
    flat, places, _ = _on_diagonal(c, x, offset, dim1, dim2)
    return c.op("gather", flat, places, axis=flat.tensor.rank - 1)


def _on_diagonal(c: Call, x: Value, offset: int, dim1: int, dim2: int) -> tuple[Value, Value, list[int]]:
    """`x` with the two axes as one, the last; the places of the diagonal in it; the order that brought them there."""
    rank = x.tensor.rank
    rows, columns = axis_of(dim1, rank), axis_of(dim2, rank)
    order = [*(axis for axis in range(rank) if axis not in (rows, columns)), rows, columns]
    last = c.transpose(x, order)
    height, width = last.shape[-2:]
    above, below = max(offset, 0), max(-offset, 0)
    length = dim_max(dim_min(height - below, width - above), 0)
    flat = c.reshape(last, (*last.shape[:-2], height * width))
    index = c.op("arange", limit=length)
    steps = c.op("mul", index, c.value(width + 1, DType.I64))
    return flat, c.op("add", steps, c.value(below * width + above, DType.I64)), order


def _diagonal_scatter(c: Call, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """`x` with `source` written on a diagonal."""
    for_all = written_for_all(c, x, source, lambda fake: fake.diagonal(offset, dim1, dim2))
    if for_all is not None:
        return for_all
    flat, places, order = _on_diagonal(c, x, offset, dim1, dim2)
    indices = c.expand(places, source.shape)
    written = c.op("scatter_elements", flat, indices, c.cast(source, x.tensor.dtype), axis=flat.tensor.rank - 1)
    moved = c.reshape(written, [x.shape[axis] for axis in order])
    return c.transpose(moved, [order.index(axis) for axis in range(x.tensor.rank)])


def _diag_embed(c: Call, x: Value, offset: int, dim1: int, dim2: int) -> Value:
    """Matrices with the elements of the last axis on a diagonal."""
    size = x.shape[-1] + abs(offset)
    rows = c.op("arange", limit=x.shape[-1])
    places = c.op("add", rows, c.value(max(offset, 0), DType.I64))
    hits = c.op("equal", c.unsqueeze(places, 1), c.unsqueeze(c.op("arange", limit=size), 0))
    spread = c.op("where", hits, c.unsqueeze(x, x.tensor.rank), c.full_like(x, 0))
    rank = spread.tensor.rank
    pads = [0] * (2 * rank)
    pads[rank - 2 if offset < 0 else -2] = abs(offset)
    matrices = c.op("pad", spread, None, pads=tuple(pads))
    return _movedim(c, matrices, [rank - 2, rank - 1], [axis_of(dim1, rank), axis_of(dim2, rank)])


def _triangle(upper: bool) -> Lowering:
    return lambda c, x, diagonal=0: c.op("trilu", x, upper=upper, diagonal=diagonal)


TABLE: dict[str, Lowering] = {
    **dict.fromkeys(
        (
            *("aten.alias", "aten.clone", "aten.detach", "aten.contiguous", "aten.lift", "aten.lift_fresh_copy"),
            *("aten.lift_fresh", "aten.resolve_conj", "aten.resolve_neg", "aten.alias_copy", "aten.detach_copy"),
            *("aten.dropout", "aten.feature_dropout", "aten.alpha_dropout", "prims.view_of", "prims.clone"),
        ),
        lambda _c, x, *_: x,
    ),
    **dict.fromkeys(
        ("aten._to_copy", "aten.to", "aten.type_as", "prims.convert_element_type", "prims.device_put"),
        lambda c, x, *_: _cast(c, x, c.dtype),
    ),
    "aten.copy": _copied,
    "aten.view": _view,
    "aten.view_copy": _view,
    **dict.fromkeys(
        (
            *("aten.reshape", "aten._unsafe_view", "aten._reshape_alias", "aten.flatten", "aten.unflatten"),
            *("aten.view_as", "aten.ravel", "aten.reshape_as", "aten._reshape_copy"),
        ),
        _to_shape,
    ),
    "aten.expand": _expand,
    "aten.expand_as": _expand,
    "aten.expand_copy": _expand,
    "aten.permute": _permute,
    "aten.permute_copy": _permute,
    "aten.transpose.int": _transpose,
    "aten.transpose_copy.int": _transpose,
    "aten.swapaxes": _transpose,
    "aten.t": lambda c, x: c.swap(x, 0, 1) if x.tensor.rank == 2 else x,
    "aten.numpy_T": lambda c, x: c.transpose(x, list(reversed(range(x.tensor.rank)))),
    "aten.mT": lambda c, x: c.swap(x, x.tensor.rank - 2, x.tensor.rank - 1),
    "aten.movedim": _movedim,
    "aten.unsqueeze": _unsqueeze,
    "aten.unsqueeze_copy": _unsqueeze,
    "aten.squeeze": _squeeze,
    "aten.squeeze_copy": _squeeze,
    "aten.slice.Tensor": _slice,
    "aten.slice_copy.Tensor": _slice,
    "aten.select.int": _select,
    "aten.select_copy.int": _select,
    "aten.narrow": _narrow,
    "aten.narrow_copy": _narrow,
    "aten.cat": _cat,
    "aten.stack": _stack,
    "aten.split": _split,
    "aten.split_with_sizes": _split,
    "aten.split_with_sizes_copy": _split,
    "aten.unsafe_split": _split,
    "aten.chunk": _split,
    "aten.unsafe_chunk": _split,
    "aten.unbind": _unbind,
    "aten.unbind_copy": _unbind,
    "aten.repeat": _repeat,
    "aten.tile": lambda c, x, repeats: _repeat(c, x, [1] * (x.tensor.rank - len(repeats)) + list(repeats)),
    "aten.repeat_interleave.self_int": _repeat_interleave,
    "aten.flip": _flip,
    "aten.roll": _roll,
    "aten.pixel_shuffle": lambda c, x, factor: _by_images(c, x, "depth_to_space", factor, "CRD"),
    "aten.pixel_unshuffle": lambda c, x, factor: _by_images(c, x, "space_to_depth", factor, "CRD"),
    "aten.channel_shuffle": _channel_shuffle,
    "aten.native_channel_shuffle": _channel_shuffle,
    "aten.constant_pad_nd": _pad_with_number,
    **{f"aten.reflection_pad{rank}d": _pad_by("reflect") for rank in (1, 2, 3)},
    **{f"aten.replication_pad{rank}d": _pad_by("edge") for rank in (1, 2, 3)},
    "aten._pad_circular": _pad_by("wrap"),
    "aten.unfold": _unfold,
    "aten.unfold_copy": _unfold,
    "aten.diagonal": _diagonal,
    "aten.diagonal_copy": _diagonal,
    "aten.diag_embed": _diag_embed,
    "aten.diagonal_scatter": _diagonal_scatter,
    "aten.triu": _triangle(True),
    "aten.tril": _triangle(False),
}
