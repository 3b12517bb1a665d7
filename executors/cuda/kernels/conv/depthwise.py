"""Depthwise convolutions: each channel has a window of its own, so that there is nothing for tensor cores to share.

Of a channels-last image a thread has neighboring channels of some places along the last axis: each pixel is read once
for all taps of a row. Of a row-major one a block has some planes in shared memory, and a thread a column of results:
what it reads of a column serves all of them. Sums are taken in f32.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.launch import BufferPlace, Candidate, Kernel, KernelLaunch, Packed
from ...kernel_ir.sources import Source, index_type
from ...kernel_ir.types import stored
from ..gemm.own_kernel_epilogue import Element, OffsetOf, OwnKernelEpilogue, broadcast_to, offset_at
from .convolutions import Window
from .images import image_shape, is_channels_last

_MOST_TAPS = 121
_ENOUGH_THREADS = 1 << 14
_THREADS = 256
_DOWN = 8
"""Results of a column that a thread has."""

_TILE_BYTES = 40 << 10
"""Shared memory for planes: some blocks fit on a multiprocessor."""


def lower_depthwise(x: Source, w: Source, window: Window, epilogue: OwnKernelEpilogue) -> Iterator[Candidate]:
    """The kernel for images that lie as this one does."""
    if not _fits(x, w, window):
        return
    if is_channels_last(x):
        yield Candidate("depthwise", (_by_channels(x, w, window, epilogue),))
    else:
        yield Candidate("depthwise-planes", (_by_planes(x, w, window, epilogue),))


def _fits(x: Source, w: Source, window: Window) -> bool:
    return (
        not window.is_transposed
        and window.groups == x.shape[1] == w.shape[0]
        and len(x.shape) == 4
        and math.prod(w.shape[2:]) <= _MOST_TAPS
        and x.dtype is not DType.F64
    )


def offset_in_image(epilogue: OwnKernelEpilogue, names: list[str]) -> OffsetOf:
    """Where tensors have their element at a place of the image; a result [N, C, L] lacks the first spatial axis."""
    own = [*names[:2], names[3]] if len(epilogue.shape) == 3 else names
    return lambda source: offset_at(source, epilogue.shape, own)


@dataclass(frozen=True)
class PackedCode:
    """Element `nth` of several neighboring channels, and what is moved together before and behind all of them."""

    before: str
    element: Element
    behind: str


def packed_code(epilogue: OwnKernelEpilogue, piece: int, first: list[str], each: list[str]) -> PackedCode:
    """The code of `piece` channels, at the places `first` and `each` of an image; what lies apart is moved alone."""
    packed = _packed_places(epilogue, piece)
    offset_of = offset_in_image(epilogue, first)
    inside = {name: f"{name}_pack.v[nth]" for name in packed}
    before = " ".join(
        f"{pack_type} {name}_pack" + (f" = *(const {pack_type}*)({name} + {offset_of(source)});" if is_read else ";")
        for name, (source, pack_type, is_read) in packed.items()
    )
    behind = " ".join(
        f"*({pack_type}*)({name} + {offset_of(source)}) = {name}_pack;"
        for name, (source, pack_type, is_read) in packed.items()
        if not is_read
    )
    return PackedCode(before, epilogue.element(offset_in_image(epilogue, each), places=inside), behind)


def _packed_places(epilogue: OwnKernelEpilogue, piece: int) -> dict[str, tuple[Source, str, bool]]:
    """Operands and results whose neighboring channels may be moved together, with the type; whether they are read."""
    found: dict[str, tuple[Source, str, bool]] = {}
    for name, source in (*epilogue.operands.items(), *epilogue.results.items()):
        full = broadcast_to(source, epilogue.shape)
        whole = [stride for axis, stride in enumerate(full.strides) if axis != 1]
        nbytes = piece * element_bytes(source.dtype)
        starts = not isinstance(source.argument, BufferPlace) or source.argument.offset % min(nbytes, 16) == 0
        if full.strides[1] == 1 and starts and nbytes <= 32 and all(stride % piece == 0 for stride in whole):
            found[name] = (source, f"pack<{stored(source.dtype)}, {piece}>", name in epilogue.operands)
    return found


# ---- channels side by side


def _by_channels(x: Source, w: Source, window: Window, epilogue: OwnKernelEpilogue) -> KernelLaunch:
    """A thread has neighboring channels of some places along the last axis."""
    channels = x.shape[1]
    count, _, high, wide = image_shape(epilogue.shape)
    piece = _piece(x, count * high * wide)
    places = _places(wide, count * high * (channels // piece))
    threads = count * high * -(-wide // places) * (channels // piece)
    weight = w
    if w.constant is not None:
        order = (*range(2, len(w.constant.shape)), 1, 0)
        strides = (1, 1, w.shape[3] * channels, channels)
        weight = replace(w, argument=Packed(w.constant, "transposed", order), strides=strides)
    sources = [x, weight, *epilogue.sources]
    return KernelLaunch(
        Kernel(_channels_text(x, weight, window, epilogue, piece, places), (-(-threads // 128), 1, 1), (128, 1, 1)),
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * math.prod(epilogue.shape) * math.prod(w.shape[1:]),
        may_overlap=True,
    )


def _piece(x: Source, places: int) -> int:
    """Neighboring channels of a thread: as many as fill 16 bytes, fewer where threads would be few."""
    sizes = [size for size in (8, 4, 2) if x.shape[1] % size == 0 and size * element_bytes(x.dtype) <= 16]
    sizes = sizes if x.starts_a_piece else []
    return next((size for size in sizes if places * x.shape[1] // size >= _ENOUGH_THREADS), sizes[-1] if sizes else 1)


def _places(wide: int, columns: int) -> int:
    """Places that one thread does: several where there are threads enough without."""
    return next((places for places in (4, 2) if wide >= places and columns * wide // places >= 2 * _ENOUGH_THREADS), 1)


def _channels_text(x: Source, w: Source, window: Window, epilogue: OwnKernelEpilogue, piece: int, places: int) -> str:
    kind = stored(x.dtype)
    count, channels, high, wide = image_shape(epilogue.shape)
    (rows, columns), (down, right) = w.shape[2:], window.strides
    groups, parts, apart = channels // piece, -(-wide // places), window.dilations[1]
    code = packed_code(epilogue, piece, ["n", "first", "h", "w"], ["n", "c", "h", "w"])
    parameters = ", ".join([f"const {kind}* x", f"const {kind}* __restrict__ weight", *epilogue.parameters])
    index = index_type(x)
    at_tap = f"r * {w.strides[2]} + s * {w.strides[3]}"
    tap = (
        f"const piece tap = *(const piece*)(weight + {at_tap} + first);"
        if w.strides[0] == 1
        else f"piece tap; for (int i = 0; i < {piece}; i++) tap.v[i] = weight[(first + i) * {w.strides[0]} + {at_tap}];"
    )
    return f"""
extern "C" __global__ void __launch_bounds__(128) NAME({parameters}) {{
  begin();
  int place = blockIdx.x * 128 + threadIdx.x;
  if (place >= {count * high * parts * groups}) return;
  const int first = place % {groups} * {piece}; place /= {groups};
  const int w0 = place % {parts} * {places}; place /= {parts};
  const int h = place % {high}, n = place / {high};
  typedef pack<{kind}, {piece}> piece;
  const {index} image = ({index})n * {x.strides[0]};
  float sums[{places}][{piece}] = {{}};
#pragma unroll
  for (int r = 0; r < {rows}; r++) {{
    const int at = h * {down} - {window.pads[0]} + r * {window.dilations[0]};
    if (at < 0 || at >= {x.shape[2]}) continue;
    float taps[{columns}][{piece}];
#pragma unroll
    for (int s = 0; s < {columns}; s++) {{
      {tap}
#pragma unroll
      for (int i = 0; i < {piece}; i++) taps[s][i] = get(tap.v[i]);
    }}
#pragma unroll
    for (int t = 0; t < {(places - 1) * right + (columns - 1) * apart + 1}; t++) {{
      bool is_used = false;
#pragma unroll
      for (int p = 0; p < {places}; p++)
        is_used |= t >= p * {right} && (t - p * {right}) % {apart} == 0 && (t - p * {right}) / {apart} < {columns};
      if (!is_used) continue;
      const int along = w0 * {right} - {window.pads[1]} + t;
      piece pixel = {{}};
      if (along >= 0 && along < {x.shape[3]})
        pixel = *(const piece*)(x + image + ({index})at * {x.strides[2]} + ({index})along * {x.strides[3]} + first);
      float pixels[{piece}];
#pragma unroll
      for (int i = 0; i < {piece}; i++) pixels[i] = get(pixel.v[i]);
#pragma unroll
      for (int p = 0; p < {places}; p++) {{
        const int s = (t - p * {right}) / {apart};
        if (t < p * {right} || (t - p * {right}) % {apart} != 0 || s >= {columns}) continue;
#pragma unroll
        for (int i = 0; i < {piece}; i++) sums[p][i] += pixels[i] * taps[s < {columns} ? s : 0][i];
      }}
    }}
  }}
#pragma unroll
  for (int p = 0; p < {places}; p++) {{
    const int w = w0 + p;
    if (w >= {wide}) continue;
    {code.before}
#pragma unroll
    for (int nth = 0; nth < {piece}; nth++) {{
      const int c = first + nth;
      const float total = sums[p][nth];
      {code.element.code("total")}
    }}
    {code.behind}
  }}
}}
"""


# ---- planes


def _by_planes(x: Source, w: Source, window: Window, epilogue: OwnKernelEpilogue) -> KernelLaunch:
    """A block has a tile of some planes in shared memory, a thread a column of results in one of them."""
    count, channels, high, wide = image_shape(epilogue.shape)
    tile = _plane_tile(image_shape(epilogue.shape), w, window)
    _, tall, broad, planes = tile
    high_in, wide_in = _span(tall, 0, w, window), _span(broad, 1, w, window)
    tiles = -(-wide // broad) * -(-high // tall)
    sources = [x, w, *epilogue.sources]
    return KernelLaunch(
        Kernel(
            _planes_text(x, w, window, epilogue, tile),
            (tiles * -(-count * channels // planes), 1, 1),
            (_THREADS, 1, 1),
            shared_bytes=4 * planes * high_in * wide_in,
        ),
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * math.prod(epilogue.shape) * math.prod(w.shape[1:]),
        may_overlap=True,
    )


def _plane_tile(shape: tuple[int, ...], w: Source, window: Window) -> tuple[int, int, int, int]:
    """Results of a column that a thread has, rows and columns of a tile, and planes of a block: the least work."""
    count, channels, high, wide = shape
    each, taps = min(_DOWN, high), math.prod(w.shape[2:])
    best: tuple[float, tuple[int, int, int, int]] | None = None
    for broad in dict.fromkeys(min(wide, size) for size in (64, 32, 16, 8)):
        for strips in range(1, -(-high // each) + 1):
            size = _span(strips * each, 0, w, window) * _span(broad, 1, w, window)
            for planes in (1, 2, 4, 8, 16):
                if best is not None and (4 * planes * size > _TILE_BYTES or planes > 2 * count * channels):
                    break
                tiles = -(-wide // broad) * -(-high // (strips * each)) * -(-count * channels // planes)
                rounds, loads = -(-planes * strips * broad // _THREADS), -(-planes * size // _THREADS)
                cost = tiles * (rounds * 2.0 * taps * each + loads * 25.0)
                if best is None or cost < best[0]:
                    best = cost, (each, strips * each, broad, planes)
    assert best is not None
    return best[1]


def _span(size: int, axis: int, w: Source, window: Window) -> int:
    """Places of the image that a tile of the result reads along an axis."""
    return (size - 1) * window.strides[axis] + (w.shape[2 + axis] - 1) * window.dilations[axis] + 1


def _planes_text(
    x: Source, w: Source, window: Window, epilogue: OwnKernelEpilogue, tile: tuple[int, int, int, int]
) -> str:
    kind, index = stored(x.dtype), index_type(x)
    count, channels, high, wide = image_shape(epilogue.shape)
    each, tall, broad, planes = tile
    (rows, columns), (down, right), (apart_down, apart) = w.shape[2:], window.strides, window.dilations
    high_in, wide_in = _span(tall, 0, w, window), _span(broad, 1, w, window)
    across, along = -(-wide // broad), -(-high // tall)
    strips, column = tall // each, _span(each, 0, w, window)
    element = epilogue.element(offset_in_image(epilogue, ["n", "c", "h", "w"]))
    parameters = ", ".join([f"const {kind}* x", f"const {kind}* __restrict__ weight", *epilogue.parameters])
    return f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({parameters}) {{
  begin();
  extern __shared__ float memory[];
  const int w0 = blockIdx.x % {across}u * {broad}, h0 = blockIdx.x / {across}u % {along}u * {tall};
  const int first = blockIdx.x / {across * along}u * {planes};
  for (int e = threadIdx.x; e < {planes * high_in * wide_in}; e += {_THREADS}) {{
    const int plane = first + e / {high_in * wide_in}, n = plane / {channels}, c = plane % {channels};
    const int high = h0 * {down} - {window.pads[0]} + e / {wide_in} % {high_in};
    const int wide = w0 * {right} - {window.pads[1]} + e % {wide_in};
    const bool is_there =
        plane < {count * channels} && high >= 0 && high < {x.shape[2]} && wide >= 0 && wide < {x.shape[3]};
    const {index} from = ({index})n * {x.strides[0]} + ({index})c * {x.strides[1]} + ({index})high * {x.strides[2]} +
                         ({index})wide * {x.strides[3]};
    memory[e] = is_there ? get(x[from]) : 0.0f;
  }}
  __syncthreads();
  for (int job = threadIdx.x; job < {planes * strips * broad}; job += {_THREADS}) {{
    const int inner = job / {strips * broad}, plane = first + inner, w = w0 + job % {broad};
    const int strip = job / {broad} % {strips} * {each};
    if (plane >= {count * channels} || w >= {wide} || h0 + strip >= {high}) continue;
    const int n = plane / {channels}, c = plane % {channels};
    const {kind}* const taps = weight + c * {w.strides[0]};
    const float* const from = memory + (inner * {high_in} + strip * {down}) * {wide_in} + job % {broad} * {right};
    float sums[{each}] = {{}};
#pragma unroll
    for (int s = 0; s < {columns}; s++) {{
      float pixels[{column}];
#pragma unroll
      for (int t = 0; t < {column}; t++) pixels[t] = from[t * {wide_in} + s * {apart}];
#pragma unroll
      for (int r = 0; r < {rows}; r++) {{
        const float tap = get(taps[r * {w.strides[2]} + s * {w.strides[3]}]);
#pragma unroll
        for (int i = 0; i < {each}; i++) sums[i] += pixels[i * {down} + r * {apart_down}] * tap;
      }}
    }}
#pragma unroll
    for (int i = 0; i < {each}; i++) {{
      const int h = h0 + strip + i;
      if (h >= {high}) continue;
      const float total = sums[i];
      {element.code("total")}
    }}
  }}
}}
"""
